"""How far to trust TreeSHAP near a decision boundary: a Gaussian process over the attributions of a forest.

    python examples/gallery/gpec_tree_shap.py --output gpec_tree_shap.png

TreeSHAP has no error of its own; yet two rows on the two sides of the decision boundary of a forest may have very
different attributions. GPEC learns from the attributions of 200 rows, and its standard deviation says where those of
another row are uncertain. The figure shows the forest, the attribution of a feature and this standard deviation, with
the boundary in black and the 200 rows in white. The script prints how well the standard deviation agrees with the
errors of the process at 500 other rows, and with the changes of TreeSHAP when these rows move a little.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import shap
from scipy.spatial import cKDTree
from scipy.stats import spearmanr
from sklearn.ensemble import RandomForestClassifier

from kpp_gpec import GPEC
from kpp_surrogates import ShapExplainer

STEP = 0.05  # how far rows move, in standard deviations
DIRECTIONS = 16
NEAR, FAR = 0.2, 0.6  # distances from the boundary


def rows_and_labels(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of a square, with a boundary that is a wave of growing frequency: simple at left, complex at right."""
    x = rng.uniform(-2.0, 2.0, size=(n, 2))
    return x, (x[:, 1] > np.sin(1.2 * (x[:, 0] + 2.0) ** 2)).astype(int)


def changes(tree: Any, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The mean change of TreeSHAP, over both features, when rows move by a step in any direction."""
    angles = rng.uniform(0.0, 2.0 * np.pi, size=(DIRECTIONS, len(x)))
    steps = STEP * x.std(axis=0) * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    moved = tree(np.concatenate(x + steps)).values[..., 1].reshape(DIRECTIONS, len(x), 2)
    return np.linalg.norm(moved - tree(x).values[None, ..., 1], axis=-1).mean(axis=0)


def draw(forest: Any, tree: Any, fitted: Any, path: Path) -> None:
    side = np.linspace(-2.0, 2.0, 81)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    deviation = np.sqrt(fitted.law(grid).variance[:, 0, 0])
    panels = {
        "probability by the forest": (forest.predict_proba(grid)[:, 1], "coolwarm"),
        "TreeSHAP of x1": (tree(grid).values[:, 0, 1], "coolwarm"),
        "its standard deviation by GPEC": (deviation, "viridis"),
    }
    figure, axes = plt.subplots(1, 3, figsize=(12.5, 3.8), layout="constrained", sharey=True)
    boundary = np.asarray(fitted.boundary.points)
    for axis, (title, (values, colors)) in zip(axes, panels.items(), strict=True):
        image = axis.pcolormesh(side, side, values.reshape(81, 81), cmap=colors, shading="nearest")
        axis.plot(*boundary.T, ".", color="black", markersize=1.5)
        axis.set(title=title, xlabel="x1", aspect="equal")
        figure.colorbar(image, ax=axis, shrink=0.85)
    axes[0].set_ylabel("x2")
    axes[2].plot(*fitted.x.T, ".", color="white", markersize=2.5)
    figure.savefig(path, dpi=80)


def main(output: Path, num_rows: int = 2000) -> None:
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    x, y = rows_and_labels(rng, num_rows)
    forest = RandomForestClassifier(200, min_samples_leaf=5, random_state=0).fit(x, y)
    tree = shap.TreeExplainer(forest)

    # TreeSHAP is a step function. A smooth process follows it only up to some noise, here a deviation of about 0.03.
    gpec = GPEC(ShapExplainer(tree), x[:200], output=1, noise=1e-3, selection="evidence")
    fitted = gpec.fit(forest, rng_key=jax.random.key(0))
    test = rng.uniform(-2.0, 2.0, size=(500, 2))
    explanation = fitted.explain(test)

    deviation = np.sqrt(explanation.variance.values.sum(axis=1))
    change = changes(tree, test, rng)
    exact = tree(test).values[..., 1]
    error = np.linalg.norm(explanation.values.values - exact, axis=1)
    distance = cKDTree(np.asarray(fitted.boundary.points)).query(test)[0]
    near, far = distance < NEAR, distance > FAR
    for name, of_rows in (("standard deviation", deviation), ("error", error), (f"change over {STEP} sd", change)):
        print(
            f"{name}: {of_rows[near].mean():.3f} within {NEAR} of the boundary, {of_rows[far].mean():.3f} beyond {FAR}"
        )
    print(f"rank correlation of deviation and change: {spearmanr(deviation, change).statistic:.2f}")
    print(f"rank correlation of deviation and error: {spearmanr(deviation, error).statistic:.2f}")
    lower, upper = np.moveaxis(explanation.interval(0.9).values, -1, 0)
    inside = (lower <= exact) & (exact <= upper)
    print(f"TreeSHAP lies in {inside.mean():.0%} of the 90 % intervals")
    draw(forest, tree, fitted, output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("gpec_tree_shap.png"))
    main(parser.parse_args().output)
