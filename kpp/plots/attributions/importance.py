"""The importance of features: their mean absolute contributions, and the order that all plots and tables follow."""

from __future__ import annotations

import numpy as np
import xarray as xr
from jaxtyping import Float

_DRAWS = ("chain", "draw")
# The number of sizes, from 0 to the largest possible one, at which draws are compared with their mean.
_SIZES = 25


def mean_absolute(values: xr.DataArray, *, independent: bool = False) -> xr.DataArray:
    r"""Return the mean absolute contribution of each feature, :math:`I(\phi) = \frac1p \sum_i |\phi_{ij}|`, in memory.

    A mean of absolute values is too large if the contributions are uncertain: it is positive for a feature that is pure
    noise, too. So draws are returned without this bias. Let m be the mean of the draws :math:`\phi = m + e`. If the
    contributions were :math:`\delta\, m / I(m)`, of size :math:`\delta`, and -e the error of their estimate, then an
    estimate would be larger than the one that was found with the probability

    .. math:: C(\delta) = P\bigl(I(\delta\, m / I(m) - e) > I(m)\bigr),

    which is a confidence distribution of the size. It serves for the lower half of the draws: their u-quantile is

    .. math:: C^{-1}(u) + \max(0, 2u - 1) \bigl(I_u - C^{-1}(u)\bigr)

    with the quantile :math:`I_u` of :math:`I(\phi)`, because the mean of a posterior may be small by its prior alone,
    which is no evidence that the size is. The draws have the order of :math:`I(\phi)`, and are equal to it if all signs
    are certain. For a feature without effect m is an error itself, so an interval of equal tails with probability p
    excludes 0 in at most (1 - p) / 2 of data sets.

    Args:
        values: Contributions, ([chain, draw,] instance, feature[, output]).
        independent: Whether the draws of instances are independent, which their errors are not. Then all instances have
            the error of the same quantile in each draw.

    Returns:
        The means over instances and outputs, ([chain, draw,] feature).

    References:
        Schweder and Hjort, Confidence, likelihood, probability, 2016, chapter 3.
    """
    rows = [dim for dim in ("instance", "output") if dim in values.dims]
    draws = [dim for dim in _DRAWS if dim in values.dims]
    if not draws:
        return abs(values).mean(rows).compute()
    means = values.mean(draws)
    values = _aligned(values.compute(), means.compute(), draws) if independent else values
    plain = abs(values).mean(rows)
    found = xr.Dataset({"plain": plain, "mean": abs(means).mean(rows), "error": abs(values - means).mean(rows)})
    found = found.compute()
    target = found["mean"]
    shares = xr.DataArray(np.linspace(0.0, 1.0, _SIZES), dims="size")
    sizes = (target + found["error"].max(draws)) * shares
    direction = xr.where(target > 0, means / target.where(target > 0, 1.0), 0.0)
    estimates = [abs(sizes.isel(size=k) * direction + means - values).mean(rows) for k in range(_SIZES)]
    estimates = xr.concat(estimates, dim="size").compute()
    core = [["sample"], ["size", "sample"], [], ["size"]]
    arrays = found["plain"].stack(sample=draws), estimates.stack(sample=draws), target, sizes
    unbiased = xr.apply_ufunc(
        _unbiased_draws, *arrays, input_core_dims=core, output_core_dims=[["sample"]], vectorize=True
    ).unstack("sample")
    return unbiased.drop_vars([dim for dim in draws if dim not in values.coords]).transpose(*draws, ...)


def _aligned(values: xr.DataArray, means: xr.DataArray, draws: list[str]) -> xr.DataArray:
    """Return values whose draws are sorted by their size in the direction of the mean, for each instance."""
    signs = xr.where(means < 0, -1.0, 1.0)
    directed = (signs * values).stack(sample=draws)
    ordered = directed.copy(data=np.sort(directed.values, axis=directed.get_axis_num("sample")))
    return signs * ordered.unstack("sample")


def _unbiased_draws(
    plain: Float[np.ndarray, " s"],
    estimates: Float[np.ndarray, "k s"],
    target: Float[np.ndarray, ""] | float,
    sizes: Float[np.ndarray, " k"],
) -> Float[np.ndarray, " s"]:
    """Return draws of one feature, from the plain means and the estimates for sizes under each error.

    An estimate is convex in the size, so it exceeds the target outside of one interval of sizes.
    """
    first, last = _interval_below(estimates, float(target), sizes)
    first, last = np.sort(first[first <= last]), np.sort(last[first <= last])
    candidates = np.concatenate([[0.0], last])
    inside = np.searchsorted(first, candidates, "right") - np.searchsorted(last, candidates, "right")
    exceeding = np.maximum.accumulate(len(plain) - inside)
    ranks = np.argsort(np.argsort(plain, kind="stable"), kind="stable") + 1
    confident = candidates[np.minimum(np.searchsorted(exceeding, ranks), len(candidates) - 1)]
    return confident + np.maximum(0.0, 2.0 * ranks / len(plain) - 1.0) * (plain - confident)


def _interval_below(
    values: Float[np.ndarray, "k s"], target: float, sizes: Float[np.ndarray, " k"]
) -> tuple[Float[np.ndarray, " s"], Float[np.ndarray, " s"]]:
    """Return the ends of the interval in which convex functions are at most a target; the first is larger if none is.

    Lines between the sizes give the ends. If no size has a value below the target, the lines on both sides of the
    smallest value are extended: its neighbors may be far from the minimum.
    """
    below, smallest = values <= target, values.argmin(axis=0)
    left = np.where(below.any(axis=0), below.argmax(axis=0) - 1, smallest - 2)
    right = np.where(below.any(axis=0), len(sizes) - 1 - below[::-1].argmax(axis=0), smallest + 1)
    ends = []
    for start in (left, right):
        start = np.clip(start, 0, len(sizes) - 2)
        low, high = (np.take_along_axis(values, start[None] + step, axis=0)[0] for step in (0, 1))
        slope = np.where(high == low, np.inf, high - low)
        ends.append(sizes[start] + (target - low) / slope * sizes[1])
    first = np.where(below[0], 0.0, ends[0])
    return np.where(left < 0, np.where(below[0], 0.0, np.inf), first), np.maximum(ends[1], 0.0)


def importance_order(importance: xr.DataArray) -> np.ndarray:
    """Return the positions of the features, (d,), the largest mean over draws first.

    Args:
        importance: The mean absolute contributions, ([chain, draw,] feature).
    """
    means = importance.mean([dim for dim in _DRAWS if dim in importance.dims])
    return np.argsort(-means.values, kind="stable")
