"""Effects by instruments: errors and coverage of `kpp_models.instrumental_regression`, beside regressions without.

    python examples/benchmarks/instruments.py [--data-sets 50] [--rows 500]

"two treatments": the effect is sin(x1) + x1 x2 / 2 with three instruments, and hidden causes of both treatments and
the outcome. "sigmoid": the design of Chen and Christensen (2018), with one treatment and one instrument. The table has
the root mean squared error at 20 values of the treatments from their middle 90 %, averaged over data sets, with its
standard error, for the instruments, kernel ridge regression and two-stage least squares; and the share of these values
whose 90 % interval holds the truth.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from scipy.stats import norm

from kpp_models import instrumental_regression

jax.config.update("jax_enable_x64", True)


class Study(NamedTuple):
    """A data set with values of the treatments at which the effect is known."""

    x: np.ndarray
    y: np.ndarray
    instruments: np.ndarray
    at: np.ndarray
    truth: np.ndarray


def two_treatments(rng: np.random.Generator, rows: int) -> Study:
    """Return a data set of two treatments."""
    z, hidden = rng.uniform(-2, 2, size=(rows, 3)), rng.normal(size=(rows, 2))
    x = np.stack([z[:, 0] + 0.5 * z[:, 2], z[:, 1] - 0.5 * z[:, 2]], axis=1) + 0.7 * hidden

    def effect(x: np.ndarray) -> np.ndarray:
        return np.sin(x[:, 0]) + x[:, 0] * x[:, 1] / 2

    y = effect(x) + hidden.sum(axis=1) + 0.3 * rng.normal(size=rows)
    at = _middle(rng, x)
    return Study(x, y, z, at, effect(at))


def sigmoid(rng: np.random.Generator, rows: int) -> Study:
    """Return a data set of Chen and Christensen (2018), section 5, as Singh et al. (2019) use it."""
    noise, hidden = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], rows).T
    source = rng.normal(size=rows)
    x, z = norm.cdf((source + hidden) / 2**0.5), norm.cdf(source)

    def effect(x: np.ndarray) -> np.ndarray:
        return np.log(np.abs(16 * x - 8) + 1) * np.sign(x - 0.5)

    at = _middle(rng, x[:, None])
    return Study(x[:, None], effect(x) + noise, z[:, None], at, effect(at[:, 0]))


def _middle(rng: np.random.Generator, x: np.ndarray, num: int = 20) -> np.ndarray:
    low, high = np.quantile(x, [0.05, 0.95], axis=0)
    inside = x[((x >= low) & (x <= high)).all(axis=1)]
    return inside[rng.choice(len(inside), num, replace=False)]


def ridge_without_instruments(study: Study) -> np.ndarray:
    """Return a regression on the treatments: as their own instruments they make S nearly the identity."""
    found = instrumental_regression(study.x, study.y, study.x, instrument_regularization=1e-9)
    return np.asarray(found.effect(study.at).mean)


def two_stage_least_squares(study: Study) -> np.ndarray:
    """Return the effect by two-stage least squares."""
    x, z, at = (np.column_stack([np.ones(len(part)), part]) for part in (study.x, study.instruments, study.at))
    fitted = z @ np.linalg.lstsq(z, x, rcond=None)[0]
    return at @ np.linalg.lstsq(fitted, study.y, rcond=None)[0]


STUDIES: dict[str, Callable[[np.random.Generator, int], Study]] = {"two treatments": two_treatments, "sigmoid": sigmoid}


def run(name: str, rows: int, seed: int) -> list[float]:
    """Return the errors of the three methods and the coverage, for one data set."""
    study = STUDIES[name](np.random.default_rng([seed, rows]), rows)
    effect = instrumental_regression(study.x, study.y, study.instruments).effect(study.at)
    mean, spread = np.asarray(effect.mean), np.sqrt(np.maximum(np.diag(np.asarray(effect.covariance)), 0))
    answers = mean, ridge_without_instruments(study), two_stage_least_squares(study)
    covered = np.mean(np.abs(mean - study.truth) <= 1.6449 * spread)
    return [*(float(np.sqrt(np.mean((answer - study.truth) ** 2))) for answer in answers), float(covered)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-sets", type=int, default=50)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--studies", nargs="+", default=[*STUDIES], choices=[*STUDIES])
    options = parser.parse_args()
    print("study, rows; root mean squared error: instruments, kernel ridge, two-stage least squares; coverage of 90 %")
    for name in options.studies:
        found = np.array([run(name, options.rows, seed) for seed in range(options.data_sets)])
        errors = found.std(axis=0) / options.data_sets**0.5
        cells = [f"{value:.3f} ({error:.3f})" for value, error in zip(found.mean(axis=0), errors, strict=True)]
        print(f"{name:15s} {options.rows:5d}  {'  '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
