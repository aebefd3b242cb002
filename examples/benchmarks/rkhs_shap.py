"""Exact Shapley values by kpp and by shap's KernelExplainer: the same kernel ridge model, the full background, one run.

    python examples/benchmarks/rkhs_shap.py [--points 64] [--peer-points 2] [--repeats 3]

kpp explains all points of the diabetes data at once, and `--points` points of the breast cancer data. KernelExplainer
explains `--peer-points` points of each; its first call is discarded. The table compares seconds per explained point.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import shap
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.kernel_ridge import KernelRidge
from sklearn.preprocessing import StandardScaler

import kpp
from kpp.games import Interventional
from kpp.games.toolkit import choose_method

REASON = """
KernelExplainer's errors are the largest over the explained points, in percent of the largest exact value. By default it
fits its regression with l1_reg="num_features(10)", which keeps ten features and sets all others to 0: with more
than ten features that is most of the error, not sampling. With l1_reg=False it keeps all features, and what is left
is the noise of its 2048 + 2 d sampled coalitions (none up to ten features, where it takes them all)."""


HEADER = (
    f"{'data':<14} {'n x d':>8} {'method':<12} {'compile':>8} {'kpp':>11} {'KernelExplainer':>16} {'faster':>8} "
    f"{'additivity':>11} {'error: default':>14} {'l1_reg=False':>12}"
)


@dataclass(frozen=True)
class Row:
    """The measurements on one data set; times are seconds for one explained point."""

    name: str
    shape: tuple[int, int]
    method: str
    compilation: float
    ours: float
    peer: float
    additivity: float
    error_default: float
    error_unregularized: float


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=64, help="points of the breast cancer data that kpp explains")
    parser.add_argument(
        "--peer-points", type=int, default=2, help="points of each data set that KernelExplainer explains"
    )
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of kpp, of which the median counts")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    logging.getLogger("shap").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=UserWarning)
    print(HEADER)
    for load, points in ((load_diabetes, None), (load_breast_cancer, options.points)):
        print(describe(measure(load, points, options.peer_points, options.repeats)), flush=True)
    print(REASON)


def measure(load: Callable[..., Any], num_points: int | None, peer_points: int, repeats: int) -> Row:
    """Explain one data set by both."""
    x, y = load(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    model = KernelRidge(kernel="rbf", gamma=1 / x.shape[1], alpha=1.0).fit(x, y - y.mean())
    explained = x[:num_points]
    function, game = kpp.as_rkhs_function(model), Interventional(x)

    def explain() -> np.ndarray:  # in as many threads as there are cores
        found = kpp.explain(function, explained, explainer="rkhs-shap", background=x, progress=False)
        return found.values.values

    first = seconds(explain)
    ours = statistics.median(seconds(explain) for _ in range(repeats))
    values, predictions = explain(), model.predict(explained)
    gap = np.abs(values.sum(axis=1) + float(game.base(function)) - predictions).max()
    peer, by_default, unregularized = explain_by_peer(model.predict, x, explained[:peer_points])
    return Row(
        name=load.__name__.removeprefix("load_"),
        shape=x.shape,
        method=choose_method(game, function, *explained.shape),
        compilation=first - ours,
        ours=ours / len(explained),
        peer=peer,
        additivity=gap / np.abs(predictions).max(),
        error_default=error(by_default, values),
        error_unregularized=error(unregularized, values),
    )


def explain_by_peer(
    predict: Callable[[np.ndarray], np.ndarray], background: np.ndarray, rows: np.ndarray
) -> tuple[float, list[np.ndarray], list[np.ndarray]]:
    """Return KernelExplainer's median seconds per point, and its values by default and with l1_reg=False."""
    explainer = shap.KernelExplainer(predict, background)
    explainer.shap_values(rows[0], silent=True)  # the first call is slower
    times, by_default, unregularized = [], [], []
    for row in rows:
        times.append(seconds(lambda row=row: by_default.append(explainer.shap_values(row, silent=True))))
        unregularized.append(explainer.shap_values(row, silent=True, l1_reg=False))
    return statistics.median(times), by_default, unregularized


def describe(row: Row) -> str:
    """Return a line of the table."""
    return (
        f"{row.name:<14} {row.shape[0]:>5} x {row.shape[1]:<2} {row.method:<12} {row.compilation:>6.1f} s "
        f"{row.ours * 1e3:>8.2f} ms {row.peer:>14.2f} s {row.peer / row.ours:>7.0f}x {row.additivity:>11.0e} "
        f"{row.error_default:>14.1%} {row.error_unregularized:>12.1%}"
    )


def error(estimates: list[np.ndarray], values: np.ndarray) -> float:
    """Return the largest deviation from the exact values, in units of the largest of them."""
    exact = values[: len(estimates)]
    return float(np.abs(np.stack(estimates) - exact).max() / np.abs(exact).max())


def seconds(run: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
