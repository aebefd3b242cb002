"""Interactions: a table of how pairs of features contribute together, as colors and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from kpp.plots import _parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

# Numbers do not fit into the cells if there are more rows than this.
_MOST_NUMBERS = 12


def interactions(values: xr.DataArray, *, max_features: int = 10, ax: Axes | None = None) -> Axes:
    r"""Plot the interactions of one instance with their signs, or of several as :math:`\frac1p \sum_i |\phi_{i,jk}|`.

    Args:
        values: Interactions, ([chain, draw,] [instance,] feature, feature_other); draws are shown by their mean.
        max_features: How many rows and columns, those with the largest interactions; the others are left out.
        ax: Where to draw; a new figure by default.

    Returns:
        The axis.
    """
    several = "instance" in values.dims
    dims = ("instance",) * several + ("feature", "feature_other")
    values = _parts.check_dims(values, "values", dims)
    table = _parts.average(abs(values).mean("instance") if several else values).compute()
    off_diagonal = np.where(np.eye(table.shape[-1], dtype=bool), 0.0, np.abs(table.values))
    shown = _parts.largest(off_diagonal.sum(axis=1), max_features)
    names = [_parts.plain(_parts.names_of(table)[j]) for j in shown]
    chosen = table.values[np.ix_(shown, shown)]
    ax = _parts.axes_for(ax, 1.6 + 0.45 * len(names), 2.6 + 0.55 * len(names))
    limit = float(np.abs(chosen).max()) or 1.0
    image = ax.imshow(chosen, cmap=_colors(several), vmin=0.0 if several else -limit, vmax=limit)
    ax.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(length=0)
    if len(names) <= _MOST_NUMBERS:
        _write_numbers(ax, chosen, limit, signs=not several)
    for spine in ax.spines.values():
        spine.set_visible(False)
    label = "mean absolute interaction" if several else "interaction"
    ax.figure.colorbar(image, ax=ax, aspect=30, pad=0.02, label=label).outline.set_visible(False)
    return ax


def _colors(absolute: bool) -> Colormap:
    from matplotlib.colors import LinearSegmentedColormap

    if absolute:
        return LinearSegmentedColormap.from_list("kpp-interactions", ["white", _parts.POSITIVE])
    return _parts.diverging_colormap("kpp-interactions")


def _write_numbers(ax: Axes, table: np.ndarray, limit: float, signs: bool) -> None:
    for (row, column), value in np.ndenumerate(table):
        text = _parts.signed(value) if signs and value else f"{value:.2g}"
        color = "white" if abs(value) > 0.7 * limit else _parts.INK
        ax.text(column, row, text, ha="center", va="center", fontsize="small", color=color)
