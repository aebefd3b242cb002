"""What a Gaussian process is after it has been conditioned on data, under one draw of the hyperparameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.gp.laws.gaussian_laws import LatentPredictive
from kpp.gp.likelihoods.base import AbstractPointwiseLikelihood
from kpp.kernels import AbstractKernel
from kpp.runtime.batching import map_rows
from kpp.typing import AnyArray, Points

_ROWS = 2048  # points per block of moments; it bounds the memory of their kernel sections

Moments = TypeVar("Moments")  # mean, variance, and what else a law of values at points holds

#: A prior mean: a number, or a function from points to one number per point, such as `kpp.gp.LinearMean`.
PriorMean = AnyArray | float | Callable[[Points], Array]


@runtime_checkable
class ConditionedProcess(Protocol):
    """The posterior of a function under a Gaussian process and one draw of the hyperparameters."""

    @property
    def kernel(self) -> AbstractKernel:
        """The kernel."""

    @property
    def likelihood(self) -> AbstractPointwiseLikelihood:
        """The likelihood of observations at new points.

        It is also that of the training observations, given the latent values whose law `held_out` returns.
        """

    @property
    def held_out(self) -> Callable[[], tuple[Array, Array | None]] | None:
        """Mean and variance of the latent value of every observation given all other observations, when called.

        The variance is None if the latent values are known. None in place of the function means that the observations
        depend on the function only through the values on which it is conditioned.
        """

    @property
    def at_points(self) -> Callable[[], LatentPredictive] | None:
        """The joint law of the latent values at the observations, when called, where `joint` would take longer."""

    def moments(self, x: Points, *, covariance: bool = False) -> LatentPredictive:
        """Return the law of the function's values at p points.

        Args:
            x: The points, (p, d), or a batch of inputs of the kernel.
            covariance: Whether to compute the full covariance matrix.

        Returns:
            Mean, variance (at least 0) and, if requested, covariance.
        """

    def joint(self, x: Points) -> LatentPredictive:
        """Return the law at p points with what a joint draw needs: the covariance or a root of it."""

    def function(self) -> RKHSFunction:
        """Return the posterior mean: a function of the RKHS, plus the prior mean."""

    def posterior(self) -> GPPosterior:
        """Return the law as a `kpp.GPPosterior`."""


def moments_in_blocks(moments: Callable[[Points], Moments], x: Points) -> Moments:
    """Return the moments at points that a function computes, in blocks if there are many points."""
    size = getattr(getattr(moments, "__self__", None), "rows_at_once", _ROWS)
    return moments(x) if jax.tree.leaves(x)[0].shape[0] <= size else map_rows(moments, x, size)


def evaluate_mean(mean: PriorMean, x: Points) -> Array:
    """Return the prior mean at points: one number for all points, or one per point, (p,)."""
    return mean(x) if callable(mean) else jnp.asarray(mean)


def posterior_by_root(mean: RKHSFunction, root: Float[Array, "n r"]) -> GPPosterior:
    """Return the posterior with a row of the root for each section of the kernel, and 0 for an added function."""
    return GPPosterior(mean, jnp.pad(root, ((0, mean.num_points - root.shape[0]), (0, 0))))
