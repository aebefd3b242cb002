"""Scatter: the contribution of one feature against its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from kpp.plots import _parts
from kpp.plots.intervals import describe_interval
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
    """Plot the contribution of a feature against its value, one point an instance.

    Args:
        values: Contributions, ([chain, draw,] instance, feature); draws are shown by their mean.
        data: Values of the features, (instance, feature).
        feature: The name of the feature.
        color: The name of a feature whose values colour the points.
        intervals: Bounds (instance, feature, bound) from `credible_interval`, drawn as vertical lines.
        levels: What the codes 0, 1, ... of a categorical feature stand for.
        ax: Where to draw; a new figure by default.

    Returns:
        The axis.

    Raises:
        ValueError: If there is no such feature.
    """
    mean = _parts.average(_parts.check_dims(values, "values", ("instance", "feature")))
    names = _parts.names_of(values)
    for name in (feature, color):
        if name is not None and name not in names:
            raise ValueError(unknown_feature(name, names))
    j, table = names.index(feature), data.transpose("instance", "feature").values.astype(float)
    x, y = table[:, j], mean.values[:, j]
    ax = _parts.axes_for(ax, 4.2, 6.0)
    ax.axhline(0.0, color=_parts.FAINT, linewidth=1.0, zorder=0)
    if intervals is not None:
        bounds = intervals.transpose("instance", "feature", "bound").values[:, j]
        ax.vlines(
            x,
            bounds[:, 0],
            bounds[:, 1],
            color=_parts.FAINT,
            linewidth=1.2,
            zorder=1,
            label=describe_interval(**intervals.attrs),
        )
        ax.legend(loc="best", frameon=False, fontsize="small")
    _draw_points(ax, x, y, None if color is None else table[:, names.index(color)], color)
    if levels is not None:
        ax.set_xticks(range(len(levels)), [str(level) for level in levels])
    ax.set_xlabel(feature)
    ax.set_ylabel(f"contribution of {feature}")
    _parts.open_frame(ax)
    return ax


def _draw_points(ax: Axes, x: np.ndarray, y: np.ndarray, column: np.ndarray | None, color: str | None) -> None:
    if column is None:
        ax.scatter(x, y, s=20, color=_parts.NEGATIVE, linewidths=0, zorder=2)
        return
    points = ax.scatter(x, y, s=20, c=column, cmap=_parts.value_colormap(), linewidths=0, zorder=2)
    bar = ax.figure.colorbar(points, ax=ax, aspect=30, pad=0.02, label=color)
    bar.outline.set_visible(False)
