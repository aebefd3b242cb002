"""Lengthscales computed from the data, as starting values or as centers of priors."""

from __future__ import annotations

import logging

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.foundation.validation import as_points, is_concrete
from kpp.typing import Numbers

_LOGGER = logging.getLogger("kpp")


def median_heuristic(x: Numbers) -> Float[Array, " d"]:
    r"""Return the median distance between points, feature by feature.

    .. math:: \ell_j = \operatorname{median}\{|x_{ij} - x_{i'j}| : i < i',\ x_{ij} \ne x_{i'j}\}

    Pairs of rows with equal values of the feature are left out, so that a feature with many ties, such as a rare
    indicator, also gets a positive lengthscale. For continuous features all pairs of rows count. The median is exact
    for any n: it is found by bisection, counting pairs in the sorted column, in O(n log n) time and O(n) memory.

    For an RBF of d independent features the squared distance in these lengthscales grows with d; multiply them by
    :math:`\sqrt d` to keep it near 1.

    Args:
        x: The points, an array or DataFrame of shape (n, d).

    Returns:
        The lengthscales, in units of x, of shape (d,). A constant feature gets 1; one warning on the logger ``kpp``
        names all such features.

    Raises:
        ValueError: If `x` is not two-dimensional, is empty, or holds NaN or infinity.
        TypeError: If `x` is traced: the heuristic needs concrete data, outside `jax.jit`.

    Example:
        >>> kernels.median_heuristic(x).round(2)
        Array([1., 1.], dtype=float64)
    """
    if isinstance(x, jax.Array) and not is_concrete(x):
        raise TypeError("`x` must be known data, got a traced array; call median_heuristic outside jax.jit")
    columns = np.asarray(as_points(x)).T
    medians = np.array([_median_distance(np.sort(column.astype(np.float64))) for column in columns])
    constant = medians == 0
    if constant.any():
        where = ", ".join(map(str, np.flatnonzero(constant)))
        _LOGGER.warning("median_heuristic: constant features get the lengthscale 1: columns %s", where)
    return jnp.asarray(np.where(constant, 1.0, medians), dtype=jnp.result_type(float))


def _median_distance(values: np.ndarray) -> float:
    """Return the median of the positive differences of sorted values, 0 if there is none."""
    _, counts = np.unique(values, return_counts=True)
    num_ties = int((counts * (counts - 1) // 2).sum())
    num_pairs = len(values) * (len(values) - 1) // 2 - num_ties
    if num_pairs == 0:
        return 0.0
    lower = _order_statistic(values, num_ties + (num_pairs + 1) // 2)
    upper = lower if num_pairs % 2 else _order_statistic(values, num_ties + num_pairs // 2 + 1)
    return (lower + upper) / 2


def _order_statistic(values: np.ndarray, rank: int) -> float:
    """Return the difference of given rank (from 1) among all pairs of sorted values, by bisection."""
    low, high = 0.0, float(values[-1] - values[0])
    rows = np.arange(len(values))
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        beyond = np.searchsorted(values, values + middle, side="right")
        if np.sum(beyond - rows - 1) >= rank:
            high = middle
        else:
            low = middle
    beyond = np.searchsorted(values, values + high)
    around = np.stack([beyond - 1, np.minimum(beyond, len(values) - 1)])
    differences = (values[around] - values).ravel()
    return float(differences[np.argmin(np.abs(differences - high))])
