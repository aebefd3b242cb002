"""Intervals of a number between quantiles of the background, and draws from one of them."""

from __future__ import annotations

import numpy as np
import scipy.stats
from jaxtyping import Float, Int


class QuantileBins:
    """The intervals between quantiles of a column; there are `num_bins` if all quantiles differ.

    Interval i is :math:`(q_i, q_{i+1}]`, the first one without lower and the last one without upper bound; equal
    quantiles count once. Draws from an interval follow a Gaussian with the mean and variance of the values in it,
    truncated to the interval and to the range of the column.
    """

    def __init__(self, values: Float[np.ndarray, " m"], num_bins: int) -> None:
        self._inner = np.unique(np.percentile(values, 100 * np.arange(1, num_bins) / num_bins))
        self._lower = np.concatenate([[values.min()], self._inner])
        self._upper = np.concatenate([self._inner, [values.max()]])
        members = [values[self.index(values) == bin_] for bin_ in range(self._lower.size)]
        # No value lies in an empty interval, so that nothing is drawn from it.
        self._means = np.array([chosen.mean() if chosen.size else 0.0 for chosen in members])
        self._spreads = np.array([chosen.std() if chosen.size else 0.0 for chosen in members])

    def index(self, values: Float[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
        """Return the number of the interval of each value."""
        return np.searchsorted(self._inner, values, side="left")

    def draw(self, bins: Int[np.ndarray, "..."], probabilities: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Return the quantiles of the truncated Gaussians of some intervals at uniform probabilities."""
        means, spreads = self._means[bins], self._spreads[bins]
        scales = np.where(spreads > 0, spreads, 1.0)
        low, high = (self._lower[bins] - means) / scales, (self._upper[bins] - means) / scales
        standardized = scipy.stats.truncnorm.ppf(probabilities, low, np.where(spreads > 0, high, low + 1))
        return np.where(spreads > 0, means + spreads * standardized, means)
