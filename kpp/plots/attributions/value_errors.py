"""The error of value functions over the size of the coalition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import xarray as xr

from kpp.plots import _colors, _parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def value_error(errors: xr.Dataset | Mapping[str, xr.Dataset], *, ax: Axes | None = None) -> Axes:
    """Plot the mean squared error of value functions for each size of a coalition, with two standard errors.

    Args:
        errors: What `kpp.games.value_error` returns, or several of them by the name of their value function. With
            draws the means over the draws are shown. Select one output first.
        ax: Where to draw; a new figure by default.

    Raises:
        ValueError: If a data set does not come from `kpp.games.value_error`, or has several outputs.
    """
    if isinstance(errors, xr.Dataset):
        errors = {str(errors.attrs.get("value_function", "value function")): errors}
    named = dict(errors)
    if not named:
        raise ValueError("`errors` must hold at least one data set, got none")
    ax = _parts.axes_for(ax, 3.8)
    for (name, found), color in zip(named.items(), _colors.distinct_colors(len(named)), strict=True):
        mean, error = (_by_size(found, variable) for variable in ("by_size", "by_size_standard_error"))
        style = {"color": color, "marker": "o", "markersize": 4, "capsize": 2}
        ax.errorbar(mean["size"].values, mean.values, yerr=2 * error.values, label=_parts.wrapped(name), **style)
    ax.set_ylim(bottom=0.0)
    ax.set_xlabel("number of present players\nlines: two standard errors")
    ax.set_ylabel("mean squared error")
    ax.locator_params(axis="x", integer=True)
    if len(named) > 1:
        _parts.legend_beside(ax)
    _parts.open_frame(ax)
    return ax


def _by_size(found: xr.Dataset, variable: str) -> xr.DataArray:
    if variable not in found:
        raise ValueError(f"`errors` must come from `kpp.games.value_error`, got variables {list(found.data_vars)}")
    return _parts.average(_parts.check_dims(found[variable], "errors", ("size",)))
