"""Effects by instruments: errors of `kpp_models.instrumental_regression`, beside regressions without.

    python -m examples.benchmarks.instruments [--data-sets 50] [--rows 500]

The data are those of `examples/coverage/identified.py`, which measures the intervals. The table has the root mean
squared error at 20 values of the treatments from their middle 90 %, averaged over data sets, with its standard error,
for the instruments, kernel ridge regression and two-stage least squares.
"""

from __future__ import annotations

import argparse

import numpy as np

from examples.coverage.identified import INSTRUMENTS, InstrumentLaw
from kpp_models import instrumental_regression


def ridge_without_instruments(study: InstrumentLaw) -> np.ndarray:
    """Return a regression on the treatments: as their own instruments they make S nearly the identity."""
    found = instrumental_regression(study.x, study.y, study.x, instrument_regularization=1e-9)
    return np.asarray(found.effect(study.at).mean)


def two_stage_least_squares(study: InstrumentLaw) -> np.ndarray:
    """Return the effect by two-stage least squares."""
    x, z, at = (np.column_stack([np.ones(len(part)), part]) for part in (study.x, study.instruments, study.at))
    fitted = z @ np.linalg.lstsq(z, x, rcond=None)[0]
    return at @ np.linalg.lstsq(fitted, study.y, rcond=None)[0]


def run(name: str, rows: int, seed: int) -> list[float]:
    """Return the errors of the three methods for one data set."""
    study = INSTRUMENTS[name][0](np.random.default_rng([seed, rows]), rows)
    mean = instrumental_regression(study.x, study.y, study.instruments).effect(study.at).mean
    answers = mean, ridge_without_instruments(study), two_stage_least_squares(study)
    return [float(np.sqrt(np.mean((answer - study.truth) ** 2))) for answer in answers]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-sets", type=int, default=50)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--studies", nargs="+", default=[*INSTRUMENTS], choices=[*INSTRUMENTS])
    options = parser.parse_args()
    print("study, rows; root mean squared error: instruments, kernel ridge, two-stage least squares")
    for name in options.studies:
        found = np.array([run(name, options.rows, seed) for seed in range(options.data_sets)])
        errors = found.std(axis=0) / options.data_sets**0.5
        cells = [f"{value:.3f} ({error:.3f})" for value, error in zip(found.mean(axis=0), errors, strict=True)]
        print(f"{name:15s} {options.rows:5d}  {'  '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
