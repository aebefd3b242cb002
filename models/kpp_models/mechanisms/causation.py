"""Probabilities of causation: whether a treatment was necessary or sufficient for an outcome."""

from __future__ import annotations

import numpy as np
import xarray as xr

from kpp.foundation.validation import as_finite_array
from kpp.typing import AnyArray

# Rounding errors of averages of labels.
_TOLERANCE = 1e-9


def causation_bounds(treated: AnyArray | float, untreated: AnyArray | float, joint: object) -> xr.Dataset:
    r"""Return the bounds of Tian and Pearl for the probabilities of necessity and sufficiency.

    .. math:: \mathrm{PNS} = P(Y_1 = 1, Y_0 = 0), \quad \mathrm{PN} = P(Y_0 = 0 \mid X = 1, Y = 1), \quad
        \mathrm{PS} = P(Y_1 = 1 \mid X = 0, Y = 0)

    With p and q for P(Y = 1 | do(X = 1)) and P(Y = 1 | do(X = 0)), and :math:`p_{xy}` for P(X = x, Y = y),

    .. math:: \max\{0,\; p - q,\; P(Y) - q,\; p - P(Y)\} \le \mathrm{PNS}
        \le \min\{p,\; 1 - q,\; p_{11} + p_{00},\; p - q + p_{10} + p_{01}\}

    .. math:: \frac{(P(Y) - q)^+}{p_{11}} \le \mathrm{PN} \le \min\Bigl\{1, \frac{1 - q - p_{00}}{p_{11}}\Bigr\},
        \qquad \frac{(p - P(Y))^+}{p_{00}} \le \mathrm{PS} \le \min\Bigl\{1, \frac{p - p_{11}}{p_{00}}\Bigr\}

    No bound can be narrower without further assumptions. If the treatment never prevents the outcome
    (:math:`Y_1 \ge Y_0`), the lower bounds are the values.

    Args:
        treated: p, a probability or draws of it, of any shape s.
        untreated: q, of the same shape.
        joint: :math:`p_{xy}`, (2, 2), the treatment first, or a table for each draw, (s, 2, 2).

    Returns:
        A dataset of ``PNS``, ``PN`` and ``PS``, with the dimensions ``draw_0``, ... of s and ``bound``, "lower" or
        "upper".

    Raises:
        ValueError: If numbers are not probabilities, a table does not sum to 1, PN or PS is undefined because no unit
            has X = Y = 1 or X = Y = 0, or the probabilities contradict each other: P(Y = 1 | do(X = x)) lies between
            :math:`p_{x1}` and :math:`1 - p_{x0}`.

    Example:
        >>> bounds = kpp_models.causation_bounds(0.7, 0.2, [[0.4, 0.1], [0.15, 0.35]])
        >>> bounds["PN"].values.round(2)
        array([0.71, 1.  ])

    References:
        Tian and Pearl (2000), Probabilities of causation: bounds and identification, equations 17, 23 and 24.
    """
    given = {"treated": treated, "untreated": untreated, "joint": joint}
    p, q, table = (_probabilities(value, name) for name, value in given.items())
    if table.shape[-2:] != (2, 2) or np.any(np.abs(table.sum((-2, -1)) - 1.0) > _TOLERANCE):
        raise ValueError(f"`joint` must have shape (2, 2) or (draws, 2, 2) and sum to 1, got shape {table.shape}")
    if np.any(table[..., 1, 1] * table[..., 0, 0] == 0.0):
        raise ValueError("`joint` must have units with X = Y = 1 and units with X = Y = 0, got none of one kind")
    p, q, *cells = np.broadcast_arrays(p, q, *np.moveaxis(table.reshape(*table.shape[:-2], 4), -1, 0))
    none, harmless, unhelped, both = cells  # p00, p01, p10, p11
    for name, value, low, high in (("treated", p, both, unhelped), ("untreated", q, harmless, none)):
        if np.any((value < low - _TOLERANCE) | (value > 1.0 - high + _TOLERANCE)):
            raise ValueError(
                f"`{name}` contradicts `joint`: P(Y = 1 | do(X = x)) must lie between P(x, Y = 1) and "
                f"1 - P(x, Y = 0), between {low.min():.3g} and {1 - high.min():.3g}, got {value.min():.3g} to "
                f"{value.max():.3g}; take all three from the same draws of the same units"
            )
    outcome, zero = both + harmless, np.zeros_like(p)
    least = np.max([zero, p - q, outcome - q, p - outcome], axis=0)
    most = np.min([p, 1.0 - q, both + none, p - q + unhelped + harmless], axis=0)
    bounds = {
        "PNS": (least, most),
        "PN": (np.maximum(outcome - q, 0.0) / both, np.minimum((1.0 - q - none) / both, 1.0)),
        "PS": (np.maximum(p - outcome, 0.0) / none, np.minimum((p - both) / none, 1.0)),
    }
    dims = [*(f"draw_{axis}" for axis in range(p.ndim)), "bound"]
    found = {name: (dims, np.stack(pair, axis=-1)) for name, pair in bounds.items()}
    return xr.Dataset(found, {"bound": ["lower", "upper"]})


def _probabilities(value: object, name: str) -> np.ndarray:
    array = np.asarray(as_finite_array(value, name))
    if np.any((array < 0.0) | (array > 1.0)):
        raise ValueError(f"`{name}` must be probabilities, got values from {array.min():g} to {array.max():g}")
    return array
