"""Errors of methods: of value functions, of the ranks of true values among draws, and the regret of searches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from kpp.metrics import uniform_band
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


def rank_ecdf(ranks: xr.Dataset, *, probability: float = 0.95, ax: Axes | None = None) -> Axes:
    r"""Plot the differences between the distribution functions of ranks and that of uniform ranks.

    .. math:: \hat F(k) - \frac{k + 1}{L + 1}, \qquad k = 0, \dots, L - 1

    The band holds a whole curve of uniform ranks with the given probability. A curve above the band on the left, and
    below it on the right, has too many extreme ranks, so that posteriors are too narrow; the opposite shows posteriors
    that are too wide. A curve on one side of the band shows bias.

    Args:
        ranks: The ranks of each site, with the dimension ``replication`` and the attribute ``num_draws``, as
            `kpp.calibration.CalibrationResult.dataset` returns them. Each coordinate of a site is a curve.
        probability: The probability of the band.
        ax: Where to draw; a new figure by default.

    Raises:
        ValueError: If the dimension or the attribute is missing, or the probability is not between 0 and 1.
    """
    if "replication" not in ranks.dims or "num_draws" not in ranks.attrs or not ranks.data_vars:
        raise ValueError(
            "`ranks` must have the dimension 'replication' and the attribute 'num_draws', as from "
            f"`CalibrationResult.dataset`, got dimensions {list(ranks.dims)} and attributes {list(ranks.attrs)}"
        )
    num_draws = int(ranks.attrs["num_draws"])
    places = (np.arange(num_draws) + 1) / (num_draws + 1)
    low, high = uniform_band(ranks.sizes["replication"], num_draws, probability)
    curves = list(_curves(ranks))
    ax = _parts.axes_for(ax, 3.8)
    ax.fill_between(places, low - places, high - places, step="mid", color=_colors.FAINT, linewidth=0)
    for (label, values), color in zip(curves, _colors.distinct_colors(len(curves)), strict=True):
        below = np.searchsorted(np.sort(values), np.arange(num_draws), side="right") / len(values)
        ax.step(places, below - places, where="mid", color=color, label=_parts.wrapped(label))
    ax.axhline(0.0, color=_colors.NEUTRAL, linewidth=0.8)
    ax.set_xlabel(f"rank, as a share of {num_draws + 1}\nband: {100 * probability:g} % of uniform ranks")
    ax.set_ylabel("difference of distribution functions")
    _parts.legend_beside(ax)
    _parts.open_frame(ax)
    return ax


def _curves(ranks: xr.Dataset) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the ranks of each coordinate of each site, with its name."""
    for name, site in ranks.data_vars.items():
        columns = site.transpose("replication", ...).values.reshape(ranks.sizes["replication"], -1)
        for number, column in enumerate(columns.T):
            yield (f"{name}[{number}]" if site.ndim > 1 else str(name)), column


_DIMS = ("prior", "replication", "query")


def regret(values: xr.DataArray, *, spread: str = "sd", ax: Axes | None = None) -> Axes:
    """Draw the mean regret of each prior over its replications, with a band around it.

    Args:
        values: The regrets, with dims (prior, replication, query), as `kpp_optimization.regrets` returns them.
        spread: The half-width of the band: "sd", a standard deviation of the replications, or "se", a standard error of
            their mean. One replication has no band.
        ax: The axis; by default that of a new figure.

    Raises:
        ValueError: If the dims differ from these or `spread` is unknown.
    """
    if set(values.dims) != set(_DIMS):
        raise ValueError(f"`values` must have the dimensions {list(_DIMS)}, got {list(values.dims)}")
    if spread not in ("sd", "se"):
        raise ValueError(f"`spread` must be 'sd' (standard deviation) or 'se' (standard error), got {spread!r}")
    ax = _parts.axes_for(ax, 3.6)
    count = values.sizes["replication"]
    for prior, color in zip(values["prior"].values, _colors.distinct_colors(values.sizes["prior"]), strict=True):
        curves = values.sel(prior=prior)
        mean = curves.mean("replication")
        ax.plot(mean["query"], mean, color=color, label=_parts.wrapped(str(prior)))
        if count > 1:
            width = curves.std("replication", ddof=1) / (np.sqrt(count) if spread == "se" else 1.0)
            low, high = np.maximum(mean - width, 0.0), mean + width
            ax.fill_between(mean["query"], low, high, color=color, alpha=0.15, linewidth=0)
    words = {"sd": "standard deviation", "se": "standard error"}[spread]
    note = f"\nband: one {words} over {count} replications" if count > 1 else ""
    ax.set_xlabel(f"queries{note}")
    ax.set_ylabel("regret")
    _parts.legend_beside(ax)
    _parts.open_frame(ax)
    return ax
