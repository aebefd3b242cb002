"""The empirical distribution functions of ranks, minus the uniform one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from kpp.metrics import uniform_band
from kpp.plots import _colors, _parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
