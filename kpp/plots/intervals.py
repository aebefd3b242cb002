"""Credible intervals of draws, by an explicit kind and probability.

ArviZ changed the default kind and probability of its intervals between versions, so kpp relies on neither.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import xarray as xr

from kpp.foundation.validation import between

#: "eti": equal-tailed, the same probability left out on either side; "hdi": highest density, the narrowest interval.
IntervalKind = Literal["eti", "hdi"]


def credible_interval(values: xr.DataArray, probability: float, kind: IntervalKind = "eti") -> xr.DataArray:
    r"""Return the interval that holds a given share of the draws.

    The equal-tailed interval runs from the :math:`(1-p)/2` to the :math:`(1+p)/2` quantile (linear interpolation). The
    highest-density interval is the narrowest that runs from one sorted draw to the one :math:`\lfloor p s \rfloor`
    further on, as in ArviZ; it assumes one mode.

    Args:
        values: The draws, with the dimensions chain and draw; all s draws are pooled.
        probability: p, between 0 and 1.
        kind: "eti" or "hdi".

    Returns:
        The bounds: `values` without chain and draw and with a last dimension ``bound``, "lower" and "upper"; kind
        and probability are in its attributes.

    Raises:
        ValueError: If `probability` or `kind` is invalid, or there are no draws.
    """
    check_probability(probability, kind)
    if not {"chain", "draw"} <= set(values.dims):
        raise ValueError(f"`values` must have the dimensions ['chain', 'draw'], got {list(values.dims)}")
    ordered = values.transpose("chain", "draw", ...)
    kept, draws = ordered.dims[2:], ordered.values.reshape(-1, *ordered.shape[2:])
    tails = [(1.0 - probability) / 2.0, 1.0 - (1.0 - probability) / 2.0]
    bounds = np.quantile(draws, tails, axis=0) if kind == "eti" else _highest_density(draws, probability)
    coords = {name: values.coords[name] for name in kept if name in values.coords}
    return xr.DataArray(
        np.moveaxis(bounds, 0, -1),
        dims=(*kept, "bound"),
        coords={**coords, "bound": ["lower", "upper"]},
        name=values.name,
        attrs={"kind": kind, "probability": float(probability)},
    )


def check_probability(probability: float, kind: str) -> None:
    """Check that a probability is inside (0, 1) and that the kind of interval is known."""
    between(probability, "probability", 0.0, 1.0, ends=False)
    if kind not in ("eti", "hdi"):
        raise ValueError(f"`kind` must be 'eti' (equal-tailed) or 'hdi' (highest density), got {kind!r}")


def _highest_density(draws: np.ndarray, probability: float) -> np.ndarray:
    ordered = np.sort(draws, axis=0)
    span = min(math.floor(probability * len(ordered)), len(ordered) - 1)
    start = np.argmin(ordered[span:] - ordered[: len(ordered) - span], axis=0)
    lower = np.take_along_axis(ordered, start[None], axis=0)[0]
    upper = np.take_along_axis(ordered, start[None] + span, axis=0)[0]
    return np.stack([lower, upper])
