"""How fast searches approach the optimum, as lines over queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from kpp.plots._colors import distinct_colors
from kpp.plots._parts import axes_for, legend_beside, open_frame, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    ax = axes_for(ax, 3.6)
    count = values.sizes["replication"]
    for prior, color in zip(values["prior"].values, distinct_colors(values.sizes["prior"]), strict=True):
        curves = values.sel(prior=prior)
        mean = curves.mean("replication")
        ax.plot(mean["query"], mean, color=color, label=wrapped(str(prior)))
        if count > 1:
            width = curves.std("replication", ddof=1) / (np.sqrt(count) if spread == "se" else 1.0)
            low, high = np.maximum(mean - width, 0.0), mean + width
            ax.fill_between(mean["query"], low, high, color=color, alpha=0.15, linewidth=0)
    words = {"sd": "standard deviation", "se": "standard error"}[spread]
    note = f"\nband: one {words} over {count} replications" if count > 1 else ""
    ax.set_xlabel(f"queries{note}")
    ax.set_ylabel("regret")
    legend_beside(ax)
    open_frame(ax)
    return ax
