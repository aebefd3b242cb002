"""Forest: the contributions to one prediction, or to a few, with their credible intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from kpp.plots import _colors, _parts
from kpp.plots.attributions.importance import importance_order, mean_absolute

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
