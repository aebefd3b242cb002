"""Baseline Shapley values by kpp and by shapiq's ProductKernelExplainer: one Gaussian process, equal values, one run.

    pip install -e ".[peers]"
    python examples/benchmarks/baseline.py [--peer-points 5] [--repeats 3]

Both remove absent features from the kernel: their factors become 1. kpp explains all points of a data set at once.
shapiq explains `--peer-points` of them one by one. If the values do not agree, the script stops. The table compares
seconds per explained point.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from shapiq.explainer.product_kernel import ProductKernelExplainer
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.preprocessing import StandardScaler

import kpp
from kpp.games import Baseline, shapley_values
from kpp.games.toolkit import choose_method

HEADER = f"{'data':<14} {'n x d':>8} {'method':<12} {'kpp':>11} {'shapiq':>11} {'faster':>8} {'largest difference':>19}"
# The rounding error of values whose largest is 1: shapiq adds up elementary symmetric polynomials of both signs.
TOLERANCE = 1e-8


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peer-points", type=int, default=5, help="points of each data set that shapiq explains")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of kpp, of which the median counts")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(HEADER)
    for load in (load_diabetes, load_breast_cancer):
        print(measure(load, options.peer_points, options.repeats), flush=True)


def measure(load: Callable[..., Any], peer_points: int, repeats: int) -> str:
    """Explain one data set by both, and return a line of the table."""
    x, y = load(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    kernel = RBF(length_scale=x.shape[1] ** 0.5)
    model = GaussianProcessRegressor(kernel, alpha=0.5, optimizer=None).fit(x, (y - y.mean()) / y.std())
    function, game = kpp.as_rkhs_function(model), Baseline()

    def explain() -> np.ndarray:
        return np.asarray(shapley_values(game, function, x))

    values = explain()
    ours = statistics.median(seconds(explain) for _ in range(repeats)) / len(x)
    theirs, times = explain_by_peer(model, x[:peer_points])
    difference = np.abs(values[:peer_points] - theirs).max() / np.abs(values).max()
    assert difference < TOLERANCE, f"the values differ by {difference:.1e} of the largest"
    peer = statistics.median(times)
    method = choose_method(game, function, *x.shape)
    return (
        f"{load.__name__.removeprefix('load_'):<14} {x.shape[0]:>5} x {x.shape[1]:<2} {method:<12} "
        f"{ours * 1e3:>8.3f} ms {peer * 1e3:>8.1f} ms {peer / ours:>7.0f}x {difference:>19.0e}"
    )


def explain_by_peer(model: GaussianProcessRegressor, rows: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """Return shapiq's values of each row, and its seconds."""
    explainer = ProductKernelExplainer(model)
    explainer.explain_function(rows[0])  # the first call is slower
    values, times = [], []
    for row in rows:
        times.append(seconds(lambda row=row: values.append(explainer.explain_function(row))))
    features = range(rows.shape[1])
    return np.array([[result[(j,)] for j in features] for result in values]), times


def seconds(run: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
