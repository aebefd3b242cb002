"""A few draws of the hyperparameters that represent all of them, and the posteriors of the function at them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Int
from scipy.cluster.vq import kmeans2
from scipy.spatial.distance import cdist

from kpp.explanations.predictors import has_function_law
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction

# A law for each 50 draws takes some 30 % of the time of the means of their values.
_DRAWS_OF_A_LAW, _MAX_LAWS = 50, 8
# The posteriors of all draws are computed if their roots have at most this number of entries.
_MAX_ENTRIES = 2**24


class Representatives(NamedTuple):
    """Posteriors of the function at some draws of the hyperparameters.

    Attributes:
        posterior: The posteriors of all draws, or those of the chosen ones, or one without draws.
        chosen: The positions of the k chosen ones among the draws of `posterior`, the most central one first.
        nearest: For each of the s draws the number of the nearest chosen one.
    """

    posterior: GPPosterior
    chosen: Int[np.ndarray, " k"]
    nearest: Int[np.ndarray, " s"]

    @property
    def has_all(self) -> bool:
        """Whether `posterior` has several draws, and has all of them."""
        return math.prod(self.posterior.batch_shape) == len(self.nearest) > 1

    def each(self) -> Iterator[GPPosterior]:
        """Yield the posteriors of the chosen draws."""
        shape = self.posterior.batch_shape
        for position in self.chosen:
            place = tuple(map(int, np.unravel_index(position, shape)))
            yield self.posterior.at_draw(place) if shape else self.posterior


def representatives(predictor: Any, function: RKHSFunction) -> Representatives | None:
    """Choose draws that spread over the posterior of the hyperparameters: one for each 50 draws, at most 8.

    They are the draws nearest to the centers of k-means, in the logarithms of the kernel's parameters and of the norm
    of the coefficients, which depends on the noise. A single one is the mean of all draws where this is known.

    Args:
        predictor: A `kpp.Fit`, or a `kpp.GPPosterior`.
        function: Its posterior mean, with s draws or without.

    Returns:
        The draws and their posteriors; None if the predictor is not a Gaussian process.
    """
    if not has_function_law(predictor, outputs=True):
        return None
    size = math.prod(function.batch_shape)
    chosen, nearest = _spread(function, size)
    if isinstance(predictor, GPPosterior):
        return Representatives(predictor, chosen, nearest)
    if size > 1 and size * function.num_points**2 <= _MAX_ENTRIES:
        return Representatives(predictor.function_posterior(at="draws"), chosen, nearest)
    at: Any = "mean" if len(chosen) == 1 else chosen
    return Representatives(predictor.function_posterior(at=at), np.arange(len(chosen)), nearest)


def _spread(function: RKHSFunction, size: int) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " s"]]:
    """Return the numbers of the chosen draws, and for each draw the position of the nearest of them."""
    norms = np.linalg.norm(np.asarray(function.coefficients).reshape(size, -1), axis=1)
    leaves = [norms, *jax.tree.leaves(eqx.filter(function.kernel, eqx.is_inexact_array))]
    columns = np.concatenate([np.asarray(leaf).reshape(size, -1) for leaf in leaves], axis=1)
    # Ratios of parameters matter, and coefficients may be 0.
    columns = np.log(np.abs(columns[:, np.ptp(columns, axis=0) > 0]) + np.finfo(columns.dtype).tiny)
    spread = columns.std(axis=0)
    columns = ((columns - columns.mean(axis=0)) / spread)[:, spread > 0] if size > 1 else columns
    if columns.shape[1] == 0:
        return np.zeros(1, int), np.zeros(size, int)
    centers, _ = kmeans2(columns, min(_MAX_LAWS, -(-size // _DRAWS_OF_A_LAW)), minit="++", seed=0)
    chosen = np.unique(cdist(centers, columns).argmin(axis=1))
    chosen = chosen[np.argsort(np.linalg.norm(columns[chosen], axis=1), kind="stable")]
    return chosen, cdist(columns, columns[chosen]).argmin(axis=1)
