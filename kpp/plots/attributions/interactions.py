"""Interactions: a table of how pairs of features contribute together, as colors and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from kpp.plots import _colors, _parts

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
    """
    several = "instance" in values.dims
    dims = ("instance",) * several + ("feature", "feature_other")
    values = _parts.check_dims(values, "values", dims)
    table = _parts.average(abs(values).mean("instance") if several else values).compute()
    off_diagonal = np.where(np.eye(table.shape[-1], dtype=bool), 0.0, np.abs(table.values))
    shown = _parts.first(np.argsort(-off_diagonal.sum(axis=1), kind="stable"), max_features)
    names = [_parts.names_of(table)[j] for j in shown]
    chosen = table.values[np.ix_(shown, shown)]
    ax = _parts.axes_for(ax, 2.2 + 0.5 * len(names), 3.4 + 0.5 * len(names))
    limit = float(np.abs(chosen).max()) or 1.0
    image = ax.imshow(chosen, cmap=_colormap(several), vmin=0.0 if several else -limit, vmax=limit)
    _parts.feature_rows(ax, names)
    _parts.name_ticks(ax, names)
    ax.tick_params(length=0)
    if len(names) <= _MOST_NUMBERS:
        _write_numbers(ax, chosen, limit, signs=not several)
    for spine in ax.spines.values():
        spine.set_visible(False)
    label = "mean absolute interaction" if several else "interaction"
    ax.figure.colorbar(image, ax=ax, aspect=30, pad=0.02, label=label).outline.set_visible(False)
    return ax


def _colormap(absolute: bool) -> Colormap:
    from matplotlib.colors import LinearSegmentedColormap

    if absolute:
        return LinearSegmentedColormap.from_list("kpp-interactions", ["white", _colors.POSITIVE])
    return _colors.diverging_colormap("kpp-interactions")


def _write_numbers(ax: Axes, table: np.ndarray, limit: float, signs: bool) -> None:
    texts = [_parts.signed(value) if signs and value else _parts.number(value, ".2g") for value in table.flat]
    cell = min(ax.bbox.width, ax.bbox.height) / len(table)
    size = _parts.fitting_size(ax, cell, texts, width=0.9 * cell)
    for ((row, column), value), text in zip(np.ndenumerate(table), texts, strict=True):
        color = "white" if abs(value) > 0.7 * limit else _colors.INK
        ax.text(column, row, text, ha="center", va="center", fontsize=size, color=color)
