"""Scatter: the contribution of one feature against its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from kpp.plots import _parts
from kpp.tables import unknown_feature

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def scatter(
    values: xr.DataArray,
    data: xr.DataArray,
    feature: str,
    *,
    color: str | None = None,
    intervals: xr.DataArray | None = None,
    levels: Sequence[Any] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the contribution of a feature against its value, one point per instance.

    Args:
        values: Contributions, ([chain, draw,] instance, feature); draws are shown by their mean.
        data: Values of the features, (instance, feature).
        feature: The name of the feature.
        color: The name of a feature whose values color the points; gray if it has none.
        intervals: Bounds (instance, feature, bound) from `credible_interval`, drawn as vertical lines.
        levels: What the codes 0, 1, ... of a categorical feature stand for.
        ax: Where to draw; a new figure by default.

    Returns:
        The axis.

    Raises:
        ValueError: If the feature is unknown, or stands for several columns, so that it does not have a single value.
    """
    mean = _parts.average(_parts.check_dims(values, "values", ("instance", "feature")))
    names = _parts.names_of(values)
    for name in (feature, color):
        if name is not None and name not in names:
            raise ValueError(unknown_feature(name, names))
    j, table = names.index(feature), data.transpose("instance", "feature").values.astype(float)
    x, y = table[:, j], mean.values[:, j]
    if np.isnan(x).any():
        raise ValueError(f"`feature` {feature!r} stands for several columns and has no value to be plotted against")
    if levels is not None:
        x = x + _jitter(len(x))
    ax = _parts.axes_for(ax, 4.2, 6.0)
    ax.axhline(0.0, color=_parts.FAINT, linewidth=1.0, zorder=0)
    if intervals is not None:
        bounds = intervals.transpose("instance", "feature", "bound").values[:, j]
        ax.vlines(x, bounds[:, 0], bounds[:, 1], color=_parts.WHISKER, linewidth=0.9, zorder=1)
    _draw_points(ax, x, y, None if color is None else table[:, names.index(color)], color)
    if levels is not None:
        ax.set_xticks(range(len(levels)), [_parts.plain(str(level)) for level in levels])
    _parts.label_x(ax, feature, None if intervals is None else intervals.attrs)
    ax.set_ylabel(_parts.plain(f"contribution of {feature}"))
    _parts.open_frame(ax)
    return ax


def _draw_points(ax: Axes, x: np.ndarray, y: np.ndarray, column: np.ndarray | None, color: str | None) -> None:
    if column is None or np.isnan(column).any():
        ax.scatter(x, y, s=20, color=_parts.NEGATIVE if column is None else _parts.NEUTRAL, linewidths=0, zorder=2)
        return
    points = ax.scatter(x, y, s=20, c=column, cmap=_parts.value_colormap(), linewidths=0, zorder=2)
    bar = ax.figure.colorbar(points, ax=ax, aspect=30, pad=0.02, label=_parts.plain(str(color)))
    bar.outline.set_visible(False)


def _jitter(count: int) -> np.ndarray:
    """Return small offsets that separate points of one level: multiples of the golden ratio, the same every time."""
    return 0.3 * (np.modf(np.arange(count) * 0.6180339887498949)[0] - 0.5)
