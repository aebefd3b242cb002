"""Count how often 90 % intervals of `GPRegressor` and of MAPIE around it hold new observations.

Run it as `python examples/benchmarks/conformal.py [--data-sets 40] [--rows 200] [--test 500]`; it needs MAPIE, whose
version 1.6 made the table of the page on calibration (`pip install mapie`). Each data set has two features and a
smooth function, under three laws of the noise: normal; normal with a standard deviation that grows with the first
feature; and Student's t with two degrees of freedom, whose outliers no normal likelihood expects. "own" are the
intervals of `GPRegressor` on all rows. For MAPIE it is fitted to half of them, and the other half calibrates the
intervals: by residuals ("absolute"), or by residuals in units of the predicted standard deviation ("std_normalized").
The error is the standard error over data sets.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable

import numpy as np
from scipy import stats

from kpp_models.estimators import GPRegressor

LEVEL = 0.9
Noise = Callable[[np.random.Generator, np.ndarray], np.ndarray]
NOISES: dict[str, Noise] = {
    "normal": lambda rng, x: 0.3 * rng.normal(size=len(x)),
    "growing": lambda rng, x: (0.1 + 0.25 * (x[:, 0] + 2)) * rng.normal(size=len(x)),
    "outliers": lambda rng, x: 0.3 * rng.standard_t(2, size=len(x)),
}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-sets", type=int, default=40)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--test", type=int, default=500)
    options = parser.parse_args()
    print(f"{'noise':<10} {'intervals':<22} {'hold':>7} {'error':>6} {'width':>6} {'where x > 0':>12}")
    for noise in NOISES:
        found = [measure(noise, seed, options.rows, options.test) for seed in range(options.data_sets)]
        for name in found[0]:
            held, width, upper = np.array([each[name] for each in found]).T
            error = held.std(ddof=1) / np.sqrt(len(held))
            print(
                f"{noise:<10} {name:<22} {held.mean():>7.1%} {error:>6.1%} {width.mean():>6.2f} {upper.mean():>12.1%}"
            )


def measure(noise: str, seed: int, rows: int, test: int) -> dict[str, tuple[float, float, float]]:
    """Return, for each kind of intervals, the share that holds, the mean width, and the share where x is above 0."""
    from mapie.regression import SplitConformalRegressor

    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(rows + test, 2))
    y = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + NOISES[noise](rng, x)
    half, new, observed = rows // 2, x[rows:], y[rows:]
    mean, std = GPRegressor(random_state=0).fit(x[:rows], y[:rows]).predict(new, return_std=True)
    reach = stats.norm.ppf((1 + LEVEL) / 2) * std
    bounds = {"own": (mean - reach, mean + reach)}
    fitted = GPRegressor(random_state=0).fit(x[:half], y[:half])
    for score in ("absolute", "std_normalized"):
        conformal = SplitConformalRegressor(fitted, confidence_level=LEVEL, conformity_score=score)
        with warnings.catch_warnings(action="ignore"):
            _, interval = conformal.conformalize(x[half:rows], y[half:rows]).predict_interval(new)
        bounds[f"MAPIE, {score}"] = interval[:, 0, 0], interval[:, 1, 0]
    held = {name: (lower <= observed) & (observed <= upper) for name, (lower, upper) in bounds.items()}
    widths = {name: float(np.mean(upper - lower)) for name, (lower, upper) in bounds.items()}
    return {name: (each.mean(), widths[name], each[new[:, 0] > 0].mean()) for name, each in held.items()}


if __name__ == "__main__":
    main()
