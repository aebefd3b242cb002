"""Beeswarm: every contribution of every feature, colored by the value of the feature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from kpp.plots import _parts

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
    """Plot one point for each instance and feature, the features with the largest mean contribution on top.

    Args:
        values: Contributions, ([chain, draw,] instance, feature); draws are shown by their mean.
        data: Values of the features, (instance, feature), for the colors; gray without, and where they are NaN.
        intervals: Bounds (instance, feature, bound) from `credible_interval`, drawn as thin lines.
        max_features: How many rows; the last sums up the remaining features.
        ax: Where to draw; a new figure by default.

    Returns:
        The axis.
    """
    values = _parts.average(_parts.check_dims(values, "values", ("instance", "feature")))
    shown, rest = _parts.largest_first(np.abs(values.values).mean(axis=0), max_features)
    names = _parts.names_of(values)
    labels = [names[j] for j in shown] + ([_parts.rest_label(len(rest))] if len(rest) else [])
    ax = _parts.axes_for(ax, _parts.height_for(len(labels)))
    ax.axvline(0.0, color=_parts.FAINT, linewidth=1.0, zorder=0)
    for row, j in enumerate(shown):
        bounds = None if intervals is None else intervals.transpose("instance", "feature", "bound").values[:, j]
        column = None if data is None else data.transpose("instance", "feature").values[:, j].astype(float)
        column = None if column is None or np.isnan(column).any() else column
        _draw_row(ax, row, values.values[:, j], column, bounds)
    if len(rest):
        _draw_row(ax, len(shown), values.values[:, rest].sum(axis=1), None, None)
    _parts.feature_rows(ax, labels)
    _parts.label_x(ax, "contribution to the prediction", None if intervals is None else intervals.attrs)
    if data is not None:
        _add_colorbar(ax)
    return ax


def _draw_row(ax: Axes, row: int, x: np.ndarray, column: np.ndarray | None, bounds: np.ndarray | None) -> None:
    from matplotlib.colors import ListedColormap

    y = row + _spread(x)
    if bounds is not None:
        ax.hlines(y, bounds[:, 0], bounds[:, 1], color=_parts.WHISKER, linewidth=0.7, zorder=1)
    colors = np.full(x.shape, 0.5) if column is None else _rescaled(column)
    colormap = ListedColormap([_parts.NEUTRAL]) if column is None else _parts.value_colormap()
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


def _rescaled(column: np.ndarray) -> np.ndarray:
    """Return values between 0 and 1, the 5 % and 95 % quantiles at the ends; a constant feature is in the middle."""
    low, high = np.quantile(column, [0.05, 0.95])
    if low == high:
        low, high = column.min(), column.max()
    if low == high:
        return np.full(column.shape, 0.5)
    return np.clip((column - low) / (high - low), 0.0, 1.0)


def _add_colorbar(ax: Axes) -> None:
    from matplotlib.cm import ScalarMappable

    mappable = ScalarMappable(cmap=_parts.value_colormap())
    bar = ax.figure.colorbar(mappable, ax=ax, aspect=30, pad=0.02, ticks=[0.0, 1.0])
    bar.ax.set_yticklabels(["low", "high"])
    bar.ax.tick_params(length=0)
    bar.set_label("value of the feature", labelpad=-12)
    bar.outline.set_visible(False)
