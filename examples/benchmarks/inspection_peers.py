"""Sobol indices beside SALib, and SAGE beside the package sage-importance: errors, predictions and CPU seconds.

    python examples/benchmarks/inspection_peers.py

Both peers must be installed: `pip install SALib sage-importance`. The Ishigami function and Sobol's g function have
known indices. The error is the largest one of all first-order and total indices. kpp gets the same number of points of
a scrambled Sobol sequence, at which SALib predicts; kpp then predicts at pairs of these rows. The SAGE values are those
of a random forest of the Friedman function on new rows, with marginal imputation by 30 background rows. Ten columns
have 1024 coalitions, which kpp enumerates. sage-importance samples orders of the columns until it thinks that it has
converged. Lines of errors are divided by the standard errors that each says of itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from scipy.stats import qmc
from sklearn.datasets import make_friedman1
from sklearn.ensemble import RandomForestRegressor

import kpp
from kpp.inspection import FeatureScores

Function = Callable[[np.ndarray], np.ndarray]
ISHIGAMI = (np.array([0.3139, 0.4424, 0.0]), np.array([0.5576, 0.4424, 0.2437]))  # Saltelli et al., 2008
WEIGHTS = np.array([0.0, 0.5, 3.0, 9.0, 99.0, 99.0])


def main() -> None:
    """Measure and print both tables."""
    jax.config.update("jax_enable_x64", True)
    print(f"{'function':>9} {'method':>16} {'predictions':>12} {'largest error':>14} {'CPU s':>7}")
    for name, function, sides, exact in (
        ("ishigami", ishigami, [(-np.pi, np.pi)] * 3, ISHIGAMI),
        ("g", g_function, [(0.0, 1.0)] * len(WEIGHTS), g_indices()),
    ):
        for method, measure in (("SALib", salib_indices), ("kpp", kpp_indices)):
            for size in (1024, 8192):
                counted = Counted(function)
                start = time.process_time()
                estimates = measure(counted, sides, size)
                seconds = time.process_time() - start
                error = max(np.abs(a - b).max() for a, b in zip(estimates, exact, strict=True))
                print(f"{name:>9} {f'{method}, n={size}':>16} {counted.rows:12,d} {error:14.4f} {seconds:7.2f}")
    print(*compare_sage(), sep="\n")


class Counted:
    """A function that counts the rows that it predicts."""

    def __init__(self, function: Function) -> None:
        self._function, self.rows = function, 0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self.rows += len(x)
        return self._function(np.asarray(x))


def ishigami(x: np.ndarray) -> np.ndarray:
    """Return sin(x0) + 7 sin(x1)^2 + 0.1 x2^4 sin(x0)."""
    return np.sin(x[:, 0]) + 7.0 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])


def g_function(x: np.ndarray) -> np.ndarray:
    """Return the product of (|4 x_j - 2| + a_j) / (1 + a_j)."""
    return np.prod((np.abs(4.0 * x - 2.0) + WEIGHTS) / (1.0 + WEIGHTS), axis=1)


def g_indices() -> tuple[np.ndarray, np.ndarray]:
    """Return the first-order and the total indices of the g function."""
    variances = 1.0 / (3.0 * (1.0 + WEIGHTS) ** 2)
    product = np.prod(1.0 + variances)
    return variances / (product - 1.0), variances / (1.0 + variances) * product / (product - 1.0)


def salib_indices(function: Function, sides: list[tuple[float, float]], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return SALib's first-order and total indices from `size` base points."""
    from SALib.analyze import sobol as analyze
    from SALib.sample import sobol as sample

    problem = {"num_vars": len(sides), "names": [f"x{j}" for j in range(len(sides))], "bounds": sides}
    x = sample.sample(problem, size, calc_second_order=False, seed=0)
    found = analyze.analyze(problem, function(x), calc_second_order=False, seed=0)
    return found["S1"], found["ST"]


def kpp_indices(function: Function, sides: list[tuple[float, float]], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first-order and total indices of `kpp.sensitivity` from `size` rows of a Sobol sequence."""
    low, high = np.transpose(sides)
    x = qmc.scale(qmc.Sobol(len(sides), seed=0).random(size), low, high)
    scores = kpp.sensitivity(function, x, num_rows=size, progress=False)
    first, total = (scores[measure].values.mean(axis=(0, 1)) for measure in ("first_order", "total"))
    return first, total


def compare_sage() -> list[str]:
    """Return the lines of the table of SAGE values."""
    import sage

    x, y = make_friedman1(1200, random_state=0)
    forest = RandomForestRegressor(100, random_state=0, n_jobs=1).fit(x[:800], y[:800])
    rows, targets, background = x[800:1000], y[800:1000], x[1000:1030]
    all_of_them, long = timed(lambda: kpp.importance(forest.predict, rows, targets, background=background))
    options = {"background": background, "num_coalitions": 128, "rng_key": jax.random.key(0)}
    some, short = timed(lambda: kpp.importance(forest.predict, rows, targets, **options))
    estimator = sage.PermutationEstimator(sage.MarginalImputer(forest, background), "mse", random_state=0)
    theirs, their_seconds = timed(lambda: estimator(rows, targets, bar=False))
    exact, sampled = (scores["importance"].values.mean(axis=(0, 1)) for scores in (all_of_them, some))
    rows_of_table = (
        (f"kpp, all coalitions, {long:.1f} CPU s", exact),
        (f"kpp, 128 coalitions, {short:.1f} CPU s", sampled),
        (f"sage-importance, {their_seconds:.1f} CPU s", theirs.values),
        ("|128 coalitions - all| / standard error", np.abs(sampled - exact) / errors(some)),
        ("|sage-importance - all| / standard error", np.abs(theirs.values - exact) / theirs.std),
        ("standard errors, 128 coalitions", errors(some)),
        ("standard errors, sage-importance", theirs.std),
    )
    return ["", *(f"{label:>42}" + "".join(f"{value:8.3f}" for value in values) for label, values in rows_of_table)]


def errors(scores: FeatureScores) -> np.ndarray:
    """Return the standard errors of sampling coalitions."""
    return np.array(list(scores.dataset.attrs["standard_errors"].values()))


def timed(compute: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result and the CPU seconds that it took."""
    start = time.process_time()
    return compute(), time.process_time() - start


if __name__ == "__main__":
    main()
