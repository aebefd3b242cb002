"""Curve: the prediction against one feature, with an interval, a band and a rug."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from kpp.plots import _colors, _parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def curve(
    mean: xr.DataArray,
    *,
    intervals: xr.DataArray | None = None,
    band: xr.DataArray | None = None,
    individual: xr.DataArray | None = None,
    rug: xr.DataArray | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a curve over the values of one feature; the levels of a category are points.

    Args:
        mean: The curve, (grid). The attributes ``kind``, ``feature`` and ``label`` name the axes.
        intervals: Pointwise bounds (grid, bound) with the attribute ``probability``.
        band: Bounds (grid, bound) that hold the whole curve at once.
        individual: Further curves, (instance, grid), drawn as thin lines.
        rug: Values of the feature in the data, (row), drawn as short lines on the axis.
        ax: Where to draw; a new figure by default.
    """
    ax = _parts.axes_for(ax, 4.2, 6.0)
    grid, is_number = mean["grid"].to_numpy(), mean["grid"].dtype.kind in "fiu"
    x = grid if is_number else np.arange(len(grid))
    for bounds, color, label in (
        (band, _colors.FAINT, "joint band"),
        (intervals, _colors.WHISKER, "equal-tailed interval"),
    ):
        if bounds is None:
            continue
        lower, upper = bounds.transpose("bound", "grid").to_numpy()
        text = f"{100 * bounds.attrs['probability']:g}% {label}"
        if is_number:
            ax.fill_between(x, lower, upper, color=color, linewidth=0, label=text)
        else:
            ax.vlines(x, lower, upper, color=color, linewidth=10 if label == "joint band" else 4, label=text)
    if individual is not None:
        lines = individual.transpose("grid", "instance").to_numpy()
        ax.plot(x, lines, color=_colors.WHISKER, linewidth=0.7, zorder=1)
    ax.plot(x, mean.to_numpy(), "-" if is_number else "o", color=_colors.NEGATIVE, label="mean", zorder=3)
    if rug is not None:
        ax.plot(rug, np.zeros(rug.size), "|", color=_colors.ink(), alpha=0.4, transform=ax.get_xaxis_transform())
    if is_number:
        _parts.label_x(ax, mean.attrs.get("feature", ""))
    else:
        _parts.name_ticks(ax, [str(level) for level in grid])
    ax.set_ylabel(_parts.wrapped(f"{mean.attrs.get('label', 'prediction')} ({mean.attrs.get('kind', '')})"))
    _parts.open_frame(ax)
    ax.legend(frameon=False, fontsize="small")
    return ax
