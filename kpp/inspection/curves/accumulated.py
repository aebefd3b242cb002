"""Accumulated local effects as weighted sums of predictions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from kpp.inspection.curves.grid import Grid


class LocalEffects(NamedTuple):
    """The points whose weighted predictions are accumulated local effects."""

    points: Float[np.ndarray, "k d"]  # each row at the lower and then at the upper end of its interval
    weights: Float[np.ndarray, "p k"]  # of the predictions, for each value of the grid
    intervals: Int[np.ndarray, " m"]  # of the rows


def local_effects(rows: Float[np.ndarray, "n d"], grid: Grid) -> LocalEffects:
    r"""Return points and weights of accumulated local effects with mean 0 over the rows.

    .. math:: g(z_k) = \sum_{l \le k} \frac{1}{n_l} \sum_{i:\, z_{l-1} < x_{ij} \le z_l}
        \bigl(f(z_l, x_{i, -j}) - f(z_{l-1}, x_{i, -j})\bigr) - c

    The constant c makes the mean of :math:`(g(z_{k-1}) + g(z_k)) / 2` over the m rows inside of the grid 0. A row at
    the first value of the grid belongs to the first interval.

    Raises:
        ValueError: If the feature is a category, or an interval has no rows.

    References:
        Apley and Zhu, Visualizing the effects of predictor variables in black box supervised learning models, 2020,
        equations 15 and 16.
    """
    if grid.is_category:
        raise ValueError(
            "`kind` 'accumulated' adds up changes between neighboring values, and the levels of a category have no "
            "order; use 'partial' or 'individual', or give the levels as numbers whose order has a meaning"
        )
    values, column = grid.values, rows[:, grid.column]
    inside = rows[(column >= values[0]) & (column <= values[-1])]
    intervals = np.maximum(np.searchsorted(values, inside[:, grid.column]), 1) - 1
    counts = np.bincount(intervals, minlength=len(values) - 1)
    if (counts == 0).any():
        k = int(np.flatnonzero(counts == 0)[0])
        raise ValueError(
            f"`grid` must have rows of `x` between neighboring values, got none from {values[k]:g} to "
            f"{values[k + 1]:g}; give fewer values, or quantiles of the feature"
        )
    ends = np.repeat(inside[:, None], 2, axis=1)
    ends[:, :, grid.column] = np.stack([values[intervals], values[intervals + 1]], axis=1)
    effects = (intervals == np.arange(len(counts))[:, None]) / counts[:, None]
    sums = np.concatenate([np.zeros((1, len(inside))), np.cumsum(effects, axis=0)])
    centered = sums - counts / counts.sum() @ (sums[:-1] + sums[1:]) / 2
    weights = centered[:, :, None] * np.array([-1.0, 1.0])
    return LocalEffects(ends.reshape(-1, rows.shape[1]), weights.reshape(len(values), -1), intervals)
