"""Time GPEC's parts on boosted trees with ten features: boundary samples, geodesics, and uncertainty at new points.

    python examples/benchmarks/gpec.py [--quick] [--sizes J ...] [--trees 100] [--output FOLDER]

The classifier is XGBoost if it is installed, otherwise scikit-learn's histogram-based boosting, with 100 trees on 2000
rows. Boundaries of 1000 and 5000 points are sampled by bisection from pairs of rows and a walk, to a width of 1e-6
standard deviations; the output gives the number of segments that reached this width. The elapsed time is the minimum of
three runs, and the processor time is the sum over all threads in the same run. Goals at 1000 points are 2 s for the
sample, 1.5 s for its geodesic distances and .1 s for the uncertainty of 100 new points; at 5000 points 20 s for the
geodesics.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from kpp.explanations import Explanation
from kpp_gpec import GPEC, BisectionSampler, BoundarySample, class_margin, geodesic_distances

try:
    from xgboost import XGBClassifier
except ImportError:
    XGBClassifier = None
from sklearn.ensemble import HistGradientBoostingClassifier

SIZES, QUICK = (1000, 5000), (60,)
RUNS = 3
EXPLAINED, NEW = 300, 100  # rows with known explanations, and rows at which the uncertainty is computed


def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw n rows of ten features and their classes, which depend on four of them."""
    x = np.random.default_rng(0).normal(size=(n, 10))
    return x, (np.sin(2.0 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3] > 0.0).astype(int)


def fit(num_trees: int, x: np.ndarray, y: np.ndarray) -> Any:
    """Fit boosted trees."""
    if XGBClassifier is not None:
        return XGBClassifier(n_estimators=num_trees, max_depth=6).fit(x, y)
    return HistGradientBoostingClassifier(max_iter=num_trees, max_leaf_nodes=64).fit(x, y)


def timed(function: Callable[[], Any], runs: int = RUNS) -> tuple[Any, float, float]:
    """Return the last result, and the elapsed seconds and the processor seconds of the fastest run."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter(), time.process_time()
        result = jax.block_until_ready(function())
        seconds.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return result, *min(seconds)


def measure(sizes: list[int], num_trees: int) -> pd.DataFrame:
    """Return one row of seconds per part and size."""
    x, y = draw(2000)
    model = fit(num_trees, x, y)
    margin = class_margin(model.predict_proba)
    print(f"{type(model).__name__}, {num_trees} trees, training accuracy {(model.predict(x) == y).mean():.3f}")
    rows = []
    for size in sizes:
        sampler = BisectionSampler(max_points=size)
        sample, *seconds = timed(lambda sampler=sampler: sampler.sample(jax.random.key(0), margin, x))
        detail = (
            f"{sample.num_converged} of {sample.num_pairs} segments converged, {sample.num_calls} calls of the model"
        )
        rows.append(report("sampling", sample.num_points, seconds, detail))
        found, *seconds = timed(lambda sample=sample: geodesic_distances(sample.points))
        detail = f"{found.num_components} components, longest {float(found.distances.max()):.1f}"
        rows.append(report("geodesics", sample.num_points, seconds, detail))
        _, *seconds = timed(uncertainty_at_new_points(model, sample, x))
        rows.append(report("uncertainty", sample.num_points, seconds, f"{NEW} points, {EXPLAINED} explained rows"))
    return pd.DataFrame(rows)


def uncertainty_at_new_points(model: Any, sample: BoundarySample, x: np.ndarray) -> Callable[[], Any]:
    """Fit GPEC to made-up explanations of some rows, and return a compiled function that predicts at new rows."""
    known, new = x[:EXPLAINED], x[EXPLAINED : EXPLAINED + NEW]
    predictions = model.predict_proba(known)[:, 1]
    noise = np.random.default_rng(1).uniform(0.01, 0.1, size=known.shape)
    explanation = Explanation.create(np.sin(known), 0.0, predictions, known, variance=noise)
    gpec = GPEC("kernel-shap", known, decay=1.0, concentration=1.0, lengthscale=3.0, variance=1.0)
    fitted = gpec.fit(lambda rows: model.predict_proba(rows)[:, 1], explanation=explanation, boundary=sample)
    fitted.law(new + 0.1)
    return lambda: fitted.law(new)


def report(part: str, num_points: int, seconds: list[float], detail: str) -> dict[str, Any]:
    """Print a line and return it."""
    print(
        f"{part:12} J = {num_points:5d} {seconds[0]:8.2f} s elapsed {seconds[1]:8.2f} s processor   {detail}",
        flush=True,
    )
    return {"part": part, "J": num_points, "elapsed": seconds[0], "processor": seconds[1], "detail": detail}


def main(arguments: list[str] | None = None) -> pd.DataFrame:
    """Measure, print a table, and return it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"the sizes {QUICK} only")
    parser.add_argument("--sizes", type=int, nargs="+", default=None, help=f"the numbers of points, {SIZES} by default")
    parser.add_argument("--trees", type=int, default=100, help="the trees of the classifier")
    parser.add_argument("--output", type=Path, default=None, help="a folder for the table")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    table = measure(options.sizes or list(QUICK if options.quick else SIZES), options.trees)
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        table.to_csv(options.output / "gpec.csv", index=False)
    return table


if __name__ == "__main__":
    main()
