"""Scatter: the contribution of one feature against its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from kpp.foundation.wording import unknown_feature
from kpp.plots import _colors, _parts

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
    color_levels: Sequence[Any] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the contribution of a feature against its value, one point per instance.

    Args:
        values: Contributions, ([chain, draw,] instance, feature); draws are shown by their mean.
        data: Values of the features, (instance, feature).
        feature: The name of the feature.
        color: The name of a feature whose values color the points, from the 5th to the 95th percentile; gray if it has
            no values.
        intervals: Bounds (instance, feature, bound) from `credible_interval`, drawn as vertical lines.
        levels: What the codes 0, 1, ... of a categorical feature stand for.
        color_levels: The same for the categorical feature `color`; each level has a color and a shape of its own.
        ax: Where to draw; a new figure by default.

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
    ax = _parts.axes_for(ax, 4.2 if levels is None else 5.0, 6.0)
    ax.axhline(0.0, color=_colors.FAINT, linewidth=1.0, zorder=0)
    if intervals is not None:
        bounds = intervals.transpose("instance", "feature", "bound").values[:, j]
        ax.vlines(x, bounds[:, 0], bounds[:, 1], color=_colors.WHISKER, linewidth=0.9, zorder=1)
    column = None if color is None else table[:, names.index(color)]
    if column is not None and color_levels is not None:
        _draw_levels(ax, x, y, column, color_levels)
        _parts.legend_beside(ax, _parts.wrapped(str(color)))
    else:
        _draw_points(ax, x, y, column, color)
    if levels is not None:
        _parts.name_ticks(ax, [str(level) for level in levels])
    _parts.label_x(ax, feature, None if intervals is None else intervals.attrs)
    ax.set_ylabel(_parts.wrapped(f"contribution of {feature}"))
    _parts.open_frame(ax)
    return ax


def _draw_points(ax: Axes, x: np.ndarray, y: np.ndarray, column: np.ndarray | None, color: str | None) -> None:
    if column is None or np.isnan(column).any():
        ax.scatter(x, y, s=20, color=_colors.NEGATIVE if column is None else _colors.NEUTRAL, linewidths=0, zorder=2)
        return
    low, high = _colors.percentile_range(column)
    ends = _colors.clipped_ends(column, low, high)
    label = _parts.wrapped(str(color)) + ("" if ends == "neither" else f"\n({_colors.PERCENTILES})")
    colormap = _colors.value_colormap()
    points = ax.scatter(x, y, s=20, c=column, cmap=colormap, vmin=low, vmax=high, linewidths=0, zorder=2)
    ax.figure.colorbar(points, ax=ax, aspect=30, pad=0.02, label=label, extend=ends).outline.set_visible(False)


def _draw_levels(ax: Axes, x: np.ndarray, y: np.ndarray, codes: np.ndarray, levels: Sequence[Any]) -> None:
    """Draw the points of each level in its style; of very many levels the rarest ones are gray."""
    present, counts = np.unique(codes, return_counts=True)
    named = np.sort(present[np.argsort(-counts, kind="stable")][: len(_colors.LEVEL_STYLES)])
    for code, (color, marker) in zip(named, _colors.LEVEL_STYLES, strict=False):
        chosen, label = codes == code, _parts.wrapped(str(levels[int(code)]))
        ax.scatter(x[chosen], y[chosen], s=20, color=color, marker=marker, linewidths=0, zorder=2, label=label)
    rest = ~np.isin(codes, named)
    if rest.any():
        label = f"{len(present) - len(named)} other levels"
        ax.scatter(x[rest], y[rest], s=20, color=_colors.NEUTRAL, linewidths=0, zorder=2, label=label)


def _jitter(count: int) -> np.ndarray:
    """Return small offsets that separate points of one level: multiples of the golden ratio, the same every time."""
    return 0.3 * (np.modf(np.arange(count) * 0.6180339887498949)[0] - 0.5)
