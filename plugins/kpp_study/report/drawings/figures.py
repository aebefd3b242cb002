"""The figures of the report other than those of explanations: target, priors, predictive check, leave-one-out.

Each takes labeled arrays and returns a matplotlib figure; draw them inside `figure_style` of
`kpp_study.report.drawings.images`.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from kpp_study.report.drawings.images import BLUE, GRAY, ORANGE
from kpp_study.report.numbers import short_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kpp.inspection import Curve

_WIDTH = 8.6
_INTERVAL = (0.05, 0.95)


def target_histogram(y: np.ndarray, name: str) -> Figure:
    """Show the distribution of the target (n,), in its own unit."""
    figure, (axis,) = _figure(1, height=2.2)
    if np.isin(y, (0, 1)).all():
        axis.bar([0, 1], [(y == 0).sum(), (y == 1).sum()], width=0.5, color=BLUE, alpha=0.75)
        axis.set_xticks([0, 1])
    else:
        axis.hist(y, bins=_bins(y.size), color=BLUE, alpha=0.75, edgecolor="white", linewidth=0.5)
    axis.set(xlabel=short_name(name), ylabel="rows")
    return figure


def priors_and_posteriors(prior: xr.Dataset, posterior: xr.Dataset) -> Figure | None:
    """Show the prior and the posterior of each hyperparameter; None if there is nothing to show.

    The groups have (chain, draw). A scalar is shown by two histograms, a vector by two intervals per entry.
    """
    names = [str(name) for name in posterior.data_vars if name in prior.data_vars]
    scalars = [name for name in names if posterior[name].ndim == 2]
    vectors = [name for name in names if posterior[name].ndim == 3]
    if not scalars and not vectors:
        return None
    heights = [0.9 + 0.27 * posterior[name].shape[-1] for name in vectors] + [2.3] * math.ceil(len(scalars) / 3)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, sum(heights)))
    grid = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    rows = [grid[index] for index in range(len(heights))]
    for row, name in zip(rows, vectors, strict=False):
        _compare_intervals(figure.add_subplot(row), name, prior[name], posterior[name])
    for row, start in zip(rows[len(vectors) :], range(0, len(scalars), 3), strict=True):
        cells = row.subgridspec(1, 3)
        for index, name in enumerate(scalars[start : start + 3]):
            _compare_histograms(figure.add_subplot(cells[index]), name, prior[name].values, posterior[name].values)
    _legend(figure)
    return figure


def predictive_check(observed: np.ndarray, predictive: np.ndarray, name: str) -> Figure:
    """Compare the target (n,) with posterior predictive draws, (s, n): distributions on the left, rows on the right."""
    figure, (left, right) = _figure(2, height=3.4)
    name = short_name(name)
    edges = np.histogram_bin_edges(np.concatenate([observed, predictive.ravel()]), bins=_bins(observed.size))
    left.hist(observed, edges, density=True, color=GRAY, alpha=0.55, label="observed")
    for index, draw in enumerate(predictive[np.linspace(0, len(predictive) - 1, min(40, len(predictive)), dtype=int)]):
        heights, _ = np.histogram(draw, edges, density=True)
        label = "drawn from the model" if not index else None
        left.stairs(heights, edges, color=BLUE, alpha=0.2, linewidth=0.8, label=label)
    left.set(xlabel=_lines(name), ylabel="density", title="Distribution")
    _legend_above(left)
    lower, upper = np.quantile(predictive, _INTERVAL, axis=0)
    middle = predictive.mean(axis=0)
    right.errorbar(
        middle, observed, xerr=np.abs(np.stack([middle - lower, upper - middle])), fmt="o", markersize=2.5, color=BLUE,
        ecolor=BLUE, elinewidth=0.5, alpha=0.45,
    )  # fmt: skip
    _diagonal(right)
    labels = {"xlabel": _lines(f"predicted {name}, with 90% intervals"), "ylabel": _lines(f"observed {name}")}
    right.set(title="Row by row", **labels)
    return figure


def calibration(observed: np.ndarray, probability: np.ndarray, name: str) -> Figure:
    """Compare predicted probabilities of label 1, (n,), with the labels, 0 or 1, (n,)."""
    figure, (left, right) = _figure(2, height=3.2)
    name = short_name(name)
    edges = np.linspace(0.0, 1.0, 11)
    for label, color, words in ((0, ORANGE, "other rows"), (1, BLUE, f"rows with {name}")):
        left.hist(probability[observed == label], edges, color=color, alpha=0.55, label=_lines(words))
    left.set(xlabel="predicted probability", ylabel="rows", title="Predictions by label")
    _legend_above(left)
    which = np.clip(np.digitize(probability, edges) - 1, 0, 9)
    for index in np.unique(which):
        chosen = which == index
        size = 3 + np.sqrt(chosen.sum())
        right.plot(probability[chosen].mean(), observed[chosen].mean(), "o", color=BLUE, markersize=size)
    _diagonal(right)
    right.set(xlabel="predicted probability", ylabel="share of ones", title="Calibration (larger: more rows)")
    return figure


def loo_diagnostics(pareto_k: np.ndarray) -> Figure:
    """Show the Pareto k of every row, (n,): how much the posterior would change without the row."""
    figure, (axis,) = _figure(1, height=2.2)
    high = pareto_k > 0.7
    rows = np.arange(pareto_k.size)
    axis.plot(rows[~high], pareto_k[~high], ".", color=BLUE, markersize=4)
    axis.plot(rows[high], pareto_k[high], "D", color=ORANGE, markersize=5)
    axis.axhline(0.7, color=GRAY, linestyle="--", linewidth=1)
    axis.set(xlabel="row", ylabel="Pareto k")
    return figure


def curves(found: Sequence[Curve], value_unit: str) -> Figure:
    """Show how the prediction depends on single features, with intervals and bands; `value_unit` is that of values."""
    figure, axes = _figure(len(found), height=3.2)
    for axis, curve in zip(axes, found, strict=True):
        curve.plot(ax=axis)
        axis.set(xlabel=_lines(short_name(curve.attrs["feature"])), ylabel="")
        axis.get_legend().remove()
    limits = np.array([axis.get_ylim() for axis in axes])
    for axis in axes:
        axis.set_ylim(limits.min(), limits.max())  # so that the sizes of effects can be compared
    unit = "probability" if found[0].attrs["scale"] == "probability" else short_name(value_unit)
    axes[0].set_ylabel(_lines(f"mean prediction ({unit})"))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=3)
    return figure


def _figure(columns: int, height: float) -> tuple[Figure, tuple[Any, ...]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height))
    return figure, tuple(np.atleast_1d(figure.subplots(1, columns)))


def _lines(text: str) -> str:
    """Return a label in lines that fit beside another plot."""
    return textwrap.fill(text, 38)


def _legend_above(axis: Any) -> None:
    """Put the legend above the data."""
    legend = axis.legend(loc="upper left")
    share = legend.get_window_extent().height / axis.bbox.height
    axis.set_ylim(top=axis.get_ylim()[1] / max(0.3, 0.95 - share))


def _bins(count: int) -> int:
    """Return a number of bins such that each has a few values."""
    return min(35, max(6, int(1.6 * math.sqrt(count))))


def _compare_histograms(axis: Any, name: str, prior: np.ndarray, posterior: np.ndarray) -> None:
    if posterior.size < 30:
        axis.hist(prior.ravel(), 40, range=_visible(prior, posterior), density=True, color=GRAY, alpha=0.5)
        for value in posterior.ravel():
            axis.axvline(value, color=BLUE)
    else:
        edges = np.linspace(*_visible(prior, posterior), 45)
        axis.hist(prior.ravel(), edges, density=True, color=GRAY, alpha=0.5)
        axis.hist(posterior.ravel(), edges, density=True, color=BLUE, alpha=0.6)
    axis.set(title=name, yticks=[])
    axis.spines["left"].set_visible(False)


def _visible(prior: np.ndarray, posterior: np.ndarray) -> tuple[float, float]:
    """Return a range that shows all of the posterior and most of the prior, which may have heavy tails."""
    low, high = np.quantile(prior, [0.01, 0.96])
    low, high = min(low, posterior.min()), max(high, posterior.max())
    margin = 0.02 * (high - low) or 1.0
    return float(low - margin), float(high + margin)


def _compare_intervals(axis: Any, name: str, prior: xr.DataArray, posterior: xr.DataArray) -> None:
    dim = posterior.dims[-1]
    labels = [str(label) for label in posterior.coords[dim].values] if dim in posterior.coords else None
    positions = np.arange(posterior.shape[-1])
    for draws, color, width, shift in ((prior, GRAY, 5, 0.17), (posterior, BLUE, 2.5, -0.17)):
        values = draws.values.reshape(-1, positions.size)
        lower, middle, upper = np.quantile(values, [_INTERVAL[0], 0.5, _INTERVAL[1]], axis=0)
        axis.hlines(positions - shift, lower, upper, color=color, linewidth=width, alpha=0.75)
        edge = {"markeredgecolor": "white", "markeredgewidth": 0.6}
        axis.plot(middle, positions - shift, "o", color=color, markersize=5, **edge)
    axis.set_yticks(positions, labels if labels is not None else [str(i) for i in positions])
    axis.set_ylim(positions.size - 0.5, -0.5)
    if min(prior.values.min(), posterior.values.min()) > 0.0:
        _plain_log_scale(axis)
    axis.set(title=f"{name} (median and 90% interval)")
    axis.grid(axis="x", alpha=0.25)


def _plain_log_scale(axis: Any) -> None:
    """Use a logarithmic axis with ticks at 1, 2 and 5 times the powers of ten, written as plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "\u2212")))
    axis.xaxis.set_minor_locator(NullLocator())


def _legend(figure: Figure) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=GRAY, alpha=0.6, label="prior"), Patch(color=BLUE, alpha=0.75, label="posterior")]
    figure.legend(handles=handles, loc="outside upper right", ncols=2)


def _diagonal(axis: Any) -> None:
    low = min(axis.get_xlim()[0], axis.get_ylim()[0])
    high = max(axis.get_xlim()[1], axis.get_ylim()[1])
    axis.plot([low, high], [low, high], color=GRAY, linestyle="--", linewidth=1, zorder=0)
