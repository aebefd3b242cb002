"""Measure time and memory of collider regression on many rows, and compare it with the exact estimator on fewer rows.

Run it as `python examples/benchmarks/collider_scale.py [--quick] [--landmarks 500]`. The data have three children of
the target, three spouses and noise, with 5000 labeled and 20,000 unlabeled rows.
`kpp_models.estimators.ProjectedKernelRidge` chooses all hyperparameters, with progress bars; the conditional
expectation is spanned by landmarks (Nyström's method). The exact estimator has no landmarks and is feasible for a few
thousand rows. Both estimators are therefore also fitted to 1000 labeled and 3000 unlabeled rows, with the
hyperparameters from the large fit. Peak memory is the peak of the whole process up to the printed line.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import jax
import numpy as np

from kpp.causal import ColliderPartition
from kpp_models.estimators import ProjectedKernelRidge

PARTITION = ColliderPartition("y", children=(0, 1, 2), spouses=(3, 4, 5))
UNIT = 1024**3 if sys.platform == "darwin" else 1024**2  # of the peak memory


def draw(seed: int, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of children and spouses, and the target."""
    rng = np.random.default_rng(seed)
    spouses, y, noise = rng.normal(size=(num_rows, 3)), rng.normal(size=num_rows), rng.normal(size=(num_rows, 3))
    effects = [y + spouses[:, 0], np.sin(spouses[:, 1]) + 0.5 * y, spouses[:, 2] * y]
    return np.column_stack([np.stack(effects, axis=1) + 0.5 * noise, spouses]), y


def report(what: str, start: float) -> None:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / UNIT
    print(f"{what:62} {time.perf_counter() - start:8.1f} s   peak memory {memory:5.2f} GB", flush=True)


def run(name: str, model: ProjectedKernelRidge, num_labeled: int, num_unlabeled: int) -> ProjectedKernelRidge:
    """Fit, predict at 5000 rows, and print times, memory and the error."""
    (x, y), (unlabeled, _), (x_test, y_test) = draw(0, num_labeled), draw(1, num_unlabeled), draw(2, 5000)
    start = time.perf_counter()
    model.fit(x, y, unlabeled)
    report(f"{name}: fit to {num_labeled} + {num_unlabeled} rows", start)
    start = time.perf_counter()
    model.predicted_ = model.predict(x_test)
    report(f"{name}: predict at {len(x_test)} rows", start)
    print(f"{name}: mean squared error {np.mean((model.predicted_ - y_test) ** 2):.4f}", flush=True)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--landmarks", type=int, default=500, help="landmarks for the conditional expectation")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    scale = 10 if options.quick else 1
    landmarks = options.landmarks // (5 if options.quick else 1)

    few = run(
        "landmarks",
        ProjectedKernelRidge(PARTITION, num_landmarks=landmarks, random_state=0),
        1000 // scale,
        3000 // scale,
    )
    exact = ProjectedKernelRidge(PARTITION, num_landmarks=None, check=False)
    exact.set_params(
        lengthscale=lengthscales(few),
        regularization=float(few.model_.regularization),
        condition_regularization=float(few.model_.condition_regularization),
    )
    exact = run("exact, same hyperparameters", exact, 1000 // scale, 3000 // scale)
    difference = np.sqrt(np.mean((few.predicted_ - exact.predicted_) ** 2)) / np.std(exact.predicted_)
    print(f"landmarks differ from the exact estimator by {difference:.1e} of its standard deviation", flush=True)
    run(
        "landmarks",
        ProjectedKernelRidge(PARTITION, num_landmarks=landmarks, random_state=0),
        5000 // scale,
        20_000 // scale,
    )


def lengthscales(fitted: ProjectedKernelRidge) -> np.ndarray:
    """The lengthscales that were chosen, column by column."""
    return np.concatenate([fitted.model_.kernel.lengthscale, fitted.model_.condition_kernel.lengthscale])


if __name__ == "__main__":
    main()
