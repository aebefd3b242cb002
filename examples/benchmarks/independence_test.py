"""Level and power of `kpp.embeddings.conditional_independence_test`, beside partial correlation and KCI.

    python examples/benchmarks/independence_test.py --rows 100 --columns 1 3 5 --sets 500

Each line is one law of (X, Y, Z): the share of data sets in which a test rejects at 5 and 10 percent with its standard
error, and, for laws under which X and Y are independent given Z, the p-value of a Kolmogorov-Smirnov test that the
p-values are uniform. u is the sum of the columns of Z over the square root of their number, e and f are noise. The test
KCI (Zhang et al., 2011) is that of causal-learn: `pip install causal-learn==0.1.4.8`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import jax
import numpy as np
from scipy.stats import kstest, norm

from kpp.embeddings import conditional_independence_test

jax.config.update("jax_enable_x64", True)

Law = Callable[[np.random.Generator, np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

NULLS: dict[str, Law] = {
    "linear": lambda rng, u, e, f: (u + e, u + f),
    "little noise": lambda rng, u, e, f: (u + 0.2 * e, u + 0.2 * f),
    "sine": lambda rng, u, e, f: (np.sin(2 * u) + 0.5 * e, np.sin(2 * u) + 0.5 * f),
    "quadratic": lambda rng, u, e, f: (u**2 + e, u**2 + f),
    "spread": lambda rng, u, e, f: (u + np.abs(u) * e, u + np.abs(u) * f),
    "heavy tails": lambda rng, u, e, f: (u + rng.standard_t(2, len(u)), u + rng.standard_t(2, len(u))),
    "discrete": lambda rng, u, e, f: ((e < u - 1).astype(float), rng.poisson(np.exp(u / 2)).astype(float)),
}
EFFECTS: dict[str, Law] = {
    "linear effect": lambda rng, u, e, f: (u + e, u + 0.3 * e + f),
    "square": lambda rng, u, e, f: (0.5 * u + e, u + 0.4 * e**2 + f),
    "effect on the spread": lambda rng, u, e, f: (u + e, u + f * np.exp(0.5 * e)),
    "effect whose sign changes": lambda rng, u, e, f: (u + e, u + 0.6 * e * u + f),
}


def draw(name: str, rows: int, columns: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x, y, (n, 1), and z, (n, d), of one data set."""
    rng = np.random.default_rng([seed, rows, columns])
    z = rng.normal(size=(rows, columns))
    if name == "discrete":
        z = np.floor(2 * np.abs(z)).clip(0, 3)
    e, f = rng.normal(size=(2, rows))
    x, y = (NULLS | EFFECTS)[name](rng, z.sum(axis=1) / columns**0.5, e, f)
    return x[:, None], y[:, None], z


def kernel_test(seed: int, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> float:
    """Return the p-value of the test of kpp."""
    return conditional_independence_test(jax.random.key(seed), x, y, z).p_value


def partial_correlation(seed: int, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> float:
    """Return the p-value of Fisher's test of the partial correlation."""
    design = np.column_stack([np.ones(len(z)), z])
    r, s = (v - design @ np.linalg.lstsq(design, v, rcond=None)[0] for v in (x[:, 0], y[:, 0]))
    correlation = r @ s / np.sqrt((r @ r) * (s @ s))
    return float(2 * norm.sf(abs(np.arctanh(correlation)) * np.sqrt(len(z) - z.shape[1] - 3)))


def kci(seed: int, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> float:
    """Return the p-value of causal-learn's KCI with its default options."""
    from causallearn.utils.cit import CIT

    return float(CIT(np.column_stack([x, y, z]), "kci")(0, 1, list(range(2, 2 + z.shape[1]))))


TESTS = {"kpp": kernel_test, "partial correlation": partial_correlation, "KCI": kci}


def report(law: str, test: str, rows: int, columns: int, sets: int) -> str:
    """Return one line of the table."""
    start = time.perf_counter()
    p = np.array([TESTS[test](seed, *draw(law, rows, columns, seed)) for seed in range(sets)])
    seconds = (time.perf_counter() - start) / sets
    shares = [f"{np.mean(p <= level):.3f} ({np.std(p <= level) / sets**0.5:.3f})" for level in (0.05, 0.1)]
    uniform = f"{kstest(p, 'uniform').pvalue:.3f}" if law in NULLS else ""
    return f"{law:26s} {rows:5d} {columns:2d}  {test:20s} {shares[0]}  {shares[1]}  {uniform:6s} {seconds:7.3f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100])
    parser.add_argument("--columns", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--sets", type=int, default=500)
    parser.add_argument("--laws", nargs="+", default=[*NULLS, *EFFECTS], choices=[*NULLS, *EFFECTS])
    parser.add_argument("--tests", nargs="+", default=["kpp", "partial correlation"], choices=[*TESTS])
    options = parser.parse_args()
    print("law, rows, columns of Z, test, share rejected at 5 % and at 10 % (standard errors), uniformity, seconds")
    for rows in options.rows:
        for columns in options.columns:
            for law in options.laws:
                for test in options.tests:
                    print(report(law, test, rows, columns, options.sets), flush=True)


if __name__ == "__main__":
    main()
