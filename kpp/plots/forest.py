"""Forest: the contributions to one prediction, or to a few, with their credible intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from kpp.plots import _parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SPREAD = 0.6


def forest(
    values: xr.DataArray, *, intervals: xr.DataArray | None = None, max_features: int = 10, ax: Axes | None = None
) -> Axes:
    """Plot one point with its interval for each feature and instance, with different colors for the instances.

    Args:
        values: Contributions, ([chain, draw,] [instance,] feature); draws are shown by their mean.
        intervals: Bounds ([instance,] feature, bound) from `credible_interval`.
        max_features: How many rows, the features with the largest contributions; the others are left out.
        ax: Where to draw; a new figure by default.

    Returns:
        The axis.
    """
    if "instance" not in values.dims:
        values = values.expand_dims("instance")
        intervals = None if intervals is None else intervals.expand_dims("instance")
    mean = _parts.average(_parts.check_dims(values, "values", ("instance", "feature")))
    shown = _parts.largest(np.abs(mean.values).mean(axis=0), max_features)
    names = _parts.names_of(mean)
    ax = _parts.axes_for(ax, _parts.height_for(len(shown)) + 0.12 * len(shown) * (mean.sizes["instance"] - 1))
    ax.axvline(0.0, color=_parts.FAINT, linewidth=1.0, zorder=0)
    bounds = None if intervals is None else intervals.transpose("instance", "feature", "bound").values[:, shown]
    _draw(ax, mean.values[:, shown], bounds, _parts.names_of(mean, "instance"))
    _parts.feature_rows(ax, [names[j] for j in shown])
    _parts.label_x(ax, "contribution to the prediction", None if intervals is None else intervals.attrs)
    return ax


def _draw(ax: Axes, points: np.ndarray, bounds: np.ndarray | None, instances: list[str]) -> None:
    """Draw points (p, d) and their intervals (p, d, 2), each instance with its own vertical offset."""
    count = len(points)
    lanes = (np.arange(count) - (count - 1) / 2.0) * _SPREAD / count
    colors = _parts.distinct_colors(count)
    for instance, (row, lane, color) in enumerate(zip(points, lanes, colors, strict=True)):
        y = np.arange(len(row)) + lane
        if bounds is not None:
            ax.hlines(y, bounds[instance, :, 0], bounds[instance, :, 1], color=color, linewidth=1.6, alpha=0.7)
        ax.scatter(row, y, s=22, color=color, linewidths=0, zorder=2, label=_parts.plain(instances[instance]))
    if count > 1:
        ax.legend(title="instance", frameon=False, fontsize="small")
