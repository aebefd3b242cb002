"""Contributions of instances: a beeswarm of many, colored by the feature, and a forest of a few, with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from kpp.plots import _colors, _parts
from kpp.plots.attributions.importance import importance_order, mean_absolute

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_BINS = 80  # points in the same bin of the horizontal axis are separated
_STEP = 0.07  # between two points of a bin, in rows
_HEIGHT = 0.38  # the largest offset, in rows: below 1/2, so that rows do not overlap


def beeswarm(
    values: xr.DataArray,
    data: xr.DataArray | None = None,
    *,
    intervals: xr.DataArray | None = None,
    max_features: int = 10,
    ax: Axes | None = None,
) -> Axes:
    """Plot one point for each instance and feature, the features in the order of `bar`.

    A scale of colors runs from the 5th to the 95th percentile of each feature.

    Args:
        values: Contributions, ([chain, draw,] instance, feature); draws are shown by their mean.
        data: Values of the features, (instance, feature), for the colors; gray without, and where they are NaN, as
            for a category, whose codes have no order.
        intervals: Bounds (instance, feature, bound) from `credible_interval`, drawn as thin lines.
        max_features: How many rows; the last sums up the remaining features.
        ax: Where to draw; a new figure by default.

    Example:
        >>> values = xr.DataArray(x[:3], dims=("instance", "feature"), coords={"feature": ["a", "b"]})
        >>> kpp.plots.beeswarm(values).get_xlabel()
        'contribution to the prediction'
    """
    values = _parts.check_dims(values, "values", ("instance", "feature"))
    order, names = importance_order(mean_absolute(values)), _parts.names_of(values)
    shown, rest, labels = _parts.with_rest(order, max_features, names)
    values = _parts.average(values)
    ax = _parts.axes_for(ax, _parts.height_for(len(labels)))
    ax.axvline(0.0, color=_colors.FAINT, linewidth=1.0, zorder=0)
    table = (
        np.full(values.shape, np.nan) if data is None else data.transpose("instance", "feature").values.astype(float)
    )
    columns = [None if np.isnan(table[:, j]).any() else table[:, j] for j in shown]
    for row, (j, column) in enumerate(zip(shown, columns, strict=True)):
        bounds = None if intervals is None else intervals.transpose("instance", "feature", "bound").values[:, j]
        _draw_row(ax, row, values.values[:, j], column, bounds)
    if len(rest):
        _draw_row(ax, len(shown), values.values[:, rest].sum(axis=1), None, None)
    _parts.feature_rows(ax, labels)
    _parts.label_x(ax, "contribution to the prediction", None if intervals is None else intervals.attrs)
    if any(column is not None for column in columns):
        _add_colorbar(ax, some_gray=any(column is None for column in columns))
    return ax


def _draw_row(ax: Axes, row: int, x: np.ndarray, column: np.ndarray | None, bounds: np.ndarray | None) -> None:
    from matplotlib.colors import ListedColormap

    y = row + _spread(x)
    if bounds is not None:
        ax.hlines(y, bounds[:, 0], bounds[:, 1], color=_colors.WHISKER, linewidth=0.7, zorder=1)
    colors = np.full(x.shape, 0.5)
    if column is not None:  # the 5th and the 95th percentile are at the ends, a constant is in the middle
        low, high = _colors.percentile_range(column)
        colors = np.clip((column - low) / (high - low), 0.0, 1.0)
    colormap = ListedColormap([_colors.NEUTRAL]) if column is None else _colors.value_colormap()
    many = len(x) > 2000
    ax.scatter(x, y, s=14, c=colors, cmap=colormap, vmin=0.0, vmax=1.0, linewidths=0, zorder=2, rasterized=many)


def _spread(x: np.ndarray) -> np.ndarray:
    """Return vertical offsets that separate points with nearly the same x, alternating above and below."""
    width = np.ptp(x)
    bins = np.round(_BINS * (x - x.min()) / (width if width > 0 else 1.0)).astype(int)
    order = np.argsort(bins, kind="stable")
    place = np.empty(len(x), dtype=int)
    place[order] = np.arange(len(x)) - np.searchsorted(bins[order], bins[order])
    offsets = np.where(place % 2 == 1, (place + 1) // 2, -(place // 2))
    return offsets * min(_STEP, _HEIGHT / max(1, np.abs(offsets).max()))


def _add_colorbar(ax: Axes, some_gray: bool) -> None:
    from matplotlib.cm import ScalarMappable

    mappable = ScalarMappable(cmap=_colors.value_colormap())
    bar = ax.figure.colorbar(mappable, ax=ax, aspect=30, pad=0.02, ticks=[0.0, 1.0])
    low, high = bar.ax.set_yticklabels(
        ["low\n\u2264 5th\npercentile", "high\n\u2265 95th\npercentile"], fontsize="small"
    )
    low.set_verticalalignment("bottom")
    high.set_verticalalignment("top")
    bar.ax.tick_params(length=0)
    bar.set_label("value of the feature" + some_gray * "\n(gray: not a number)")
    bar.outline.set_visible(False)


_SPREAD = 0.8


def forest(
    values: xr.DataArray, *, intervals: xr.DataArray | None = None, max_features: int = 10, ax: Axes | None = None
) -> Axes:
    """Plot one point with its interval for each feature and instance, with different colors for the instances.

    Args:
        values: Contributions, ([chain, draw,] [instance,] feature); draws are shown by their mean.
        intervals: Bounds ([instance,] feature, bound) from `credible_interval`.
        max_features: How many rows, the features with the largest contributions; the others are left out.
        ax: Where to draw; a new figure by default.
    """
    if "instance" not in values.dims:
        values = values.expand_dims("instance")
        intervals = None if intervals is None else intervals.expand_dims("instance")
    values = _parts.check_dims(values, "values", ("instance", "feature"))
    shown = _parts.first(importance_order(mean_absolute(values)), max_features)
    mean = _parts.average(values)
    names = _parts.names_of(mean)
    ax = _parts.axes_for(ax, _parts.height_for(len(shown), mean.sizes["instance"]))
    ax.axvline(0.0, color=_colors.FAINT, linewidth=1.0, zorder=0)
    bounds = None if intervals is None else intervals.transpose("instance", "feature", "bound").values[:, shown]
    _draw(ax, mean.values[:, shown], bounds, _parts.names_of(mean, "instance"))
    _parts.feature_rows(ax, [names[j] for j in shown])
    _parts.label_x(ax, "contribution to the prediction", None if intervals is None else intervals.attrs)
    return ax


def _draw(ax: Axes, points: np.ndarray, bounds: np.ndarray | None, instances: list[str]) -> None:
    """Draw points (p, d) and their intervals (p, d, 2), each instance with its own vertical offset."""
    count = len(points)
    lanes = (np.arange(count) - (count - 1) / 2.0) * _SPREAD / count
    colors = _colors.distinct_colors(count)
    size, width = (22, 1.6) if count < 4 else (12, 1.0)
    for instance, (row, lane, color) in enumerate(zip(points, lanes, colors, strict=True)):
        y = np.arange(len(row)) + lane
        if bounds is not None:
            ax.hlines(y, bounds[instance, :, 0], bounds[instance, :, 1], color=color, linewidth=width, alpha=0.7)
        ax.scatter(row, y, s=size, color=color, linewidths=0, zorder=2, label=_parts.wrapped(instances[instance]))
    if count > 1:
        for boundary in np.arange(1, points.shape[1]) - 0.5:
            ax.axhline(boundary, color=_colors.FAINT, linewidth=0.6, zorder=0)
        _parts.legend_beside(ax, "instance")
