"""The uncertainty of each method in the plane (GPEC, sections 5.2 and 5.4, figures 4 to 6 and 14).

    python examples/reproduce/gpec_synthetic.py [--seeds 10] [--points 200] [--grid 40] [--small] [--output FOLDER]
        [--data adult.csv --features Age "Hours per week"]

(Hill, Masoomi, Torop, Ghimire and Dy, Boundary-aware uncertainty for feature attribution explainers, 2024.) The
synthetic classifier predicts 1 above 2 cos(10 / x1), on [-10, 10]^2. Its boundary is most complex where |x1| < 4. The
points of a grid are explained; the uncertainty is the width of four standard deviations. For tables, which may contain
text columns, boosted trees on two of the features are explained; breast cancer, which comes with scikit-learn, is
always included.

Over training sets, the script prints how often the slice of x1 with the largest mean width (of ten slices) lies in |x1|
< 4; the ratio of the mean widths inside and outside, with its range; and the mean width of every slice (figure 5). It
also prints how much of the width of GPEC is due to the boundary and how much is due to the error of the explainer
(figure 6). For each heat map of the first feature it prints how far the widths are from uniform: their standard
deviation divided by their mean, their rank correlation with the distance to the nearest training row, and the mean in
the quarter of the plane at the top right and at the bottom right divided by the mean elsewhere. The output folder
contains heat maps for both features (figures 4 and 14), the slices, and the data of figure 6. With `--seeds 0`, only
planes are explained.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from gpec_data import (
    HALF_WIDTH,
    boosted_trees,
    breast_cancer,
    probability,
    read_table,
    synthetic_points,
    wavy_classifier,
)
from gpec_methods import (
    INTERVAL,
    SHARP,
    SMALL,
    Case,
    Effort,
    Plane,
    SampledBackground,
    compare,
    draw_heat_maps,
    plane,
    widths,
)
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr

from kpp_gpec import GPEC

SLICES = 10
INNER = 4.0
FEW_ROWS = 20
DRAWN = ("5 and 25, standardized",)
NAMES = ("lambda = rho = .5", "lambda = rho = 1", "lambda = rho = 2, RBF 20", *DRAWN)
CANCER = ("mean radius", "mean texture")


@dataclass(frozen=True)
class Sizes:
    """The numbers of training rows and of grid points along an axis, and the effort of the methods."""

    points: int
    grid: int
    effort: Effort = Effort()


def synthetic(seed: int, sizes: Sizes) -> Plane:
    """Return the synthetic classifier with a training set."""
    ends = plane("synthetic", ("x1", "x2"), wavy_classifier, synthetic_points(seed, sizes.points), sizes.grid)
    axis = HALF_WIDTH * (2 * (np.arange(sizes.grid) + 0.5) / sizes.grid - 1)
    return Plane(ends.name, ends.features, ends.predictor, ends.x, axis, axis)


def trained(path: Path | None, features: tuple[str, str], sizes: Sizes) -> Plane:
    """Return boosted trees on two features of a table, breast cancer without a path."""
    table = (breast_cancer() if path is None else read_table(path)).keep(list(features))
    x = table.x.to_numpy()
    rows = np.random.default_rng(0).permutation(len(x))[: sizes.points]
    return plane(table.name, features, probability(boosted_trees(x, table.y)), x[rows], sizes.grid)


def slice_means(on: Plane, values: np.ndarray) -> np.ndarray:
    """Return the mean width in each slice of the first feature, (slices,)."""
    edges = np.linspace(-HALF_WIDTH, HALF_WIDTH, SLICES + 1)
    member = np.digitize(on.points[:, 0], edges[1:-1])
    return np.array([values[member == number].mean() for number in range(SLICES)])


def score(on: Plane, values: np.ndarray) -> dict[str, float]:
    """Return whether the slice of highest mean width is an inner one, and the ratio of the widths inside and outside.

    Args:
        on: The synthetic plane.
        values: Widths of either feature, (p, 2), which have equal weight.
    """
    both = values.mean(axis=1)
    means = slice_means(on, both)
    inside = np.abs(on.points[:, 0]) < INNER
    middle = HALF_WIDTH * (2 * means.argmax() + 1 - SLICES) / SLICES
    outside = both[~inside].mean()
    ratio = both[inside].mean() / outside if outside > 0 else 1.0
    return {"inner": float(abs(middle) < INNER), "ratio": ratio} | {f"slice {j}": m for j, m in enumerate(means)}


def uniformity(on: Plane, values: np.ndarray) -> dict[str, float]:
    """Return how far widths are from uniform, and where in the plane they are large.

    Args:
        on: The plane.
        values: The widths of a feature at its points, (p,).
    """
    if np.ptp(values) == 0:
        return {"spread": 0.0, "distance": 0.0, "top right": 1.0, "bottom right": 1.0}
    middle, scale = (on.first.mean(), on.second.mean()), on.x.std(axis=0)
    right, top = (on.points > middle).T
    nearest = cdist(on.points / scale, on.x / scale).min(axis=1)
    quarters = {"top right": right & top, "bottom right": right & ~top}
    found = {"spread": values.std() / values.mean(), "distance": spearmanr(values, nearest).statistic}
    return found | {name: values[inside].mean() / values[~inside].mean() for name, inside in quarters.items()}


def print_planes(table: pd.DataFrame) -> None:
    """Print the measures of every heat map."""
    click.echo(
        "\nWidths of the first feature: sd / mean, rank correlation with the distance to the nearest training row,"
    )
    click.echo("mean at the top right and at the bottom right divided by the mean elsewhere")
    click.echo(table.to_string(index=False, float_format="{:.3f}".format))


def case_of(on: Plane, sizes: Sizes, seed: int = 0) -> Case:
    """Return what the methods need to explain a grid."""
    return Case(on.predictor, on.x, on.points, sizes.effort, seed)


def score_sets(seeds: int, sizes: Sizes) -> pd.DataFrame:
    """Return the scores of every method on each training set of the synthetic classifier."""
    rows = []
    for seed in range(seeds):
        on = synthetic(seed, sizes)
        for name, values in compare(case_of(on, sizes, seed), NAMES).items():
            rows.append({"seed": seed, "method": name, **score(on, values)})
    return pd.DataFrame(rows)


def print_scores(table: pd.DataFrame) -> None:
    """Print the two measures of every method, and its slices."""
    runs = table["seed"].nunique()
    click.echo(f"\nSynthetic, {runs} training sets: how often the widest slice is inside, mean width inside")
    click.echo(
        "|x1| < 4 divided by outside (mean, least, most), in how many sets 2 or more, mean widths of slices of x1"
    )
    for name, part in table.groupby("method", sort=False):
        ratio = part["ratio"]
        slices = " ".join(f"{part[f'slice {j}'].mean():.3f}" for j in range(SLICES))
        click.echo(
            f"{name:>26} {part['inner'].sum():>3.0f} of {runs} {ratio.mean():>7.2f} {ratio.min():>6.2f} "
            f"{ratio.max():>6.2f} {(ratio >= 2).sum():>4} of {runs}  {slices}"
        )


def draw_slices(table: pd.DataFrame, path: Path) -> None:
    """Draw figure 5: the mean width of each slice, one panel per method."""
    names = list(table["method"].unique())
    figure, axes = plt.subplots(1, len(names), figsize=(2.4 * len(names), 2.4), layout="constrained", squeeze=False)
    middles = HALF_WIDTH * (2 * np.arange(SLICES) + 1 - SLICES) / SLICES
    for ax, name in zip(axes[0], names, strict=True):
        part = table.loc[table["method"] == name, [f"slice {j}" for j in range(SLICES)]]
        ax.bar(middles, part.mean(), width=1.8, color=np.where(np.abs(middles) < INNER, "tab:red", "tab:gray"))
        ax.set_title(name, fontsize=8)
        ax.set_xlabel("x1")
    axes[0, 0].set_ylabel("mean width")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def ablate(on: Plane, sizes: Sizes) -> dict[str, dict[str, np.ndarray]]:
    """Return the widths of GPEC with two noisy explainers: in total, from the boundary alone, and the difference."""
    case = case_of(on, sizes)
    judged = {
        "BayesSHAP": (case.bayes_shap(), "explainer"),
        "Shapley sampling": (SampledBackground(on.x, FEW_ROWS), "repeats"),
    }
    boundary, found = case.boundary(), {}
    for name, (explainer, noise) in judged.items():
        model = GPEC.published(explainer, on.x, noise=noise, **SHARP)
        explanation = model.fit(on.predictor, boundary=boundary, rng_key=case.key).explain(on.points)
        total, parts = widths(explanation), explanation.variance_parts
        alone = INTERVAL * np.sqrt(np.asarray(parts.sel(part="boundary")))
        found[name] = {"both": total, "boundary": alone, "approximation": total - alone}
    return found


def print_ablation(found: dict[str, dict[str, np.ndarray]], name: str) -> None:
    """Print the mean widths of figure 6."""
    click.echo(f"\n{name}, GPEC: mean width in total, from the boundary alone, and from the explainer's error")
    for explainer, parts in found.items():
        click.echo(f"{explainer:>26}" + "".join(f"{values.mean():>9.4f}" for values in parts.values()))


def draw_ablation(found: dict[str, dict[str, np.ndarray]], on: Plane, path: Path) -> None:
    """Draw figure 6 for both features: one row per part, one column per explainer and feature."""
    rows = [
        [
            (f"{explainer}: {part}, {feature}", on, parts[part][:, j])
            for explainer, parts in found.items()
            for j, feature in enumerate(on.features)
        ]
        for part in ("both", "boundary", "approximation")
    ]
    draw_heat_maps(rows, path)


def write_scores(output: Path, table: pd.DataFrame) -> None:
    """Write the scores of the training sets and their slices."""
    output.mkdir(parents=True, exist_ok=True)
    table.to_csv(output / "gpec_synthetic.csv", index=False)
    draw_slices(table, output / "slices.png")


def write_planes(
    output: Path, planes: list[Plane], found: list[dict[str, np.ndarray]], ablations: dict[str, Any]
) -> None:
    """Write the heat maps."""
    output.mkdir(parents=True, exist_ok=True)
    for j, figure in enumerate(("heat_maps_x_axis.png", "heat_maps_y_axis.png")):
        rows = [
            [(f"{on.name}, {name}", on, values[:, j]) for name, values in part.items()]
            for on, part in zip(planes, found, strict=True)
        ]
        draw_heat_maps(rows, output / figure)
    for on in planes:
        draw_ablation(ablations[on.name], on, output / f"ablation_{on.name.replace(' ', '_')}.png")


@click.command(help=__doc__)
@click.option("--seeds", default=10, show_default=True, help="Training sets of the synthetic classifier.")
@click.option("--points", default=200, show_default=True, help="Training rows, also of tables.")
@click.option("--grid", default=40, show_default=True, help="Points of the grid along an axis.")
@click.option("--data", type=click.Path(path_type=Path, exists=True), multiple=True, help="A table; repeatable.")
@click.option("--features", nargs=2, multiple=True, help="Two features of the table, once per --data.")
@click.option("--small", is_flag=True, help="Two training sets of 30 points, a grid of 10.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for the figures and scores.")
def main(
    seeds: int,
    points: int,
    grid: int,
    data: tuple[Path, ...],
    features: tuple[tuple[str, str], ...],
    small: bool,
    output: Path | None,
) -> dict[str, pd.DataFrame]:
    """Run the experiment."""
    jax.config.update("jax_enable_x64", True)
    if len(data) != len(features):
        raise click.UsageError(f"give --features once for every --data, got {len(features)} for {len(data)}")
    start = time.perf_counter()
    sizes = Sizes(30, 10, SMALL) if small else Sizes(points, grid)
    tables = {}
    if small or seeds:
        scores = score_sets(2 if small else seeds, sizes)
        print_scores(scores)
        tables["scores"] = scores.assign(twice=scores["ratio"] >= 2)
        if output is not None:
            write_scores(output, scores)
    planes = [synthetic(0, sizes), trained(None, CANCER, sizes)]
    planes += [trained(path, names, sizes) for path, names in zip(data, features, strict=True)]
    ablations = {on.name: ablate(on, sizes) for on in planes}
    for name, parts in ablations.items():
        print_ablation(parts, name)
    found = [compare(case_of(on, sizes), DRAWN) for on in planes]
    tables["planes"] = pd.DataFrame(
        {"data": on.name, "method": name, **uniformity(on, values[:, 0])}
        for on, part in zip(planes, found, strict=True)
        for name, values in part.items()
    )
    print_planes(tables["planes"])
    if output is not None:
        write_planes(output, planes, found, ablations)
    click.echo(f"{time.perf_counter() - start:.0f} s")
    tables["ablation"] = pd.DataFrame(
        {"data": name, "explainer": explainer, **{part: values.mean() for part, values in parts.items()}}
        for name, by_explainer in ablations.items()
        for explainer, parts in by_explainer.items()
    )
    return tables


if __name__ == "__main__":
    main()
