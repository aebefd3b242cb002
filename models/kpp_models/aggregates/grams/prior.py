r"""The Gaussian-process prior of linear combinations of bag means, and conditioning on them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp import linalg
from kpp.data.bags import Bags
from kpp.gp.toolkit import prior_factor
from kpp.kernels import AbstractKernel


class Basis(NamedTuple):
    """Inducing points w, the factor L of :math:`K_{ww}`, and :math:`L^{-1} B`, B the means of k(w, x) over bags."""

    points: Float[Array, "w d"]
    factor: Float[Array, "w w"]
    sections: Float[Array, "w N"]

    @classmethod
    def build(cls, kernel: AbstractKernel, points: Array, bags: Bags) -> Basis:
        """Evaluate the kernel at the inducing points and over the bags."""
        factor = prior_factor(kernel.gram(points))
        return cls(points, factor, linalg.solve_lower(factor, bags.sections(kernel, points).T))


class Aggregates(NamedTuple):
    """Linear combinations A of bag means: the weights, and the prior means.

    With inducing points there are also the projections on the whitened values at these points, (w, M).
    """

    weights: Float[Array, "N M"]
    low_rank: Float[Array, "w M"] | None
    mean: Float[Array, " M"]


class AggregatePrior(NamedTuple):
    """The prior of a field over bags, under one draw."""

    kernel: AbstractKernel
    bags: Bags
    bag_means: Float[Array, " N"]  # the means of the prior mean over the bags
    gram: Float[Array, "N N"]  # the covariance of the bag means of f, or an approximation of it
    noise: Float[Array, "N N"] | None  # the covariance of the bag means of the high-resolution noise
    basis: Basis | None  # the inducing points

    def aggregates(self, weights: Float[Array, "N M"]) -> Aggregates:
        """Return the combinations of bag means with these weights."""
        low_rank = None if self.basis is None else self.basis.sections @ weights
        return Aggregates(weights, low_rank, weights.T @ self.bag_means)

    def covariance(self, first: Aggregates, second: Aggregates) -> Float[Array, "M1 M2"]:
        """Return the covariance of aggregates due to f; with inducing points, the part that they explain."""
        if first.low_rank is None or second.low_rank is None:
            return first.weights.T @ self.gram @ second.weights
        return first.low_rank.T @ second.low_rank

    def deficit(self, first: Aggregates, second: Aggregates) -> Float[Array, "M1 M2"]:
        """Return the part of the covariance of aggregates due to f that the inducing points do not explain."""
        if self.basis is None:
            return jnp.zeros((first.weights.shape[1], second.weights.shape[1]), first.weights.dtype)
        return first.weights.T @ self.gram @ second.weights - self.covariance(first, second)

    def unexplained(self, at: Aggregates) -> Float[Array, " M"]:
        """Return the variances of aggregates of f given the field at the inducing points."""
        assert at.low_rank is not None  # only called with inducing points
        # diag A^T (G - B^T K_ww^-1 B) A
        return jnp.sum(at.weights * (self.gram @ at.weights), axis=0) - jnp.sum(at.low_rank**2, axis=0)

    def noise_variances(self, at: Aggregates) -> Float[Array, " M"]:
        """Return the variances of aggregates due to the high-resolution noise."""
        if self.noise is None:
            return jnp.zeros(at.weights.shape[1], at.weights.dtype)
        return jnp.sum(at.weights * (self.noise @ at.weights), axis=0)

    def noise_covariance(self, first: Aggregates, second: Aggregates) -> Float[Array, "M1 M2"]:
        """Return the covariance of aggregates due to the high-resolution noise."""
        if self.noise is None:
            return jnp.zeros((first.weights.shape[1], second.weights.shape[1]), first.weights.dtype)
        return first.weights.T @ self.noise @ second.weights

    @property
    def support(self) -> Bags | Float[Array, "w d"]:
        """The bags, or the inducing points, whose kernel sections span the posterior mean of f."""
        return self.bags if self.basis is None else self.basis.points

    def sections(self, x: Float[Array, "p d"]) -> Float[Array, "r p"]:
        """Return the kernel sections of the support at points."""
        if self.basis is None:
            return self.bags.sections(self.kernel, x)
        return self.kernel(self.basis.points, x)

    def root_of_aggregates(self, at: Aggregates, factor: Float[Array, "M M"]) -> Float[Array, "r M"]:
        r"""Return R for conditioning on aggregates with the covariance :math:`L L^\top`.

        With whitened observations t and the projections :math:`P(x) = R^\top s(x)` of the sections s(x) of the support,
        the posterior mean of f is the prior mean plus :math:`P(x)^\top t`, and the covariance of f(x) and f(x') is the
        prior covariance less :math:`P(x)^\top P(x')`.
        """
        if self.basis is None:
            return linalg.solve_lower(factor, at.weights.T).T  # R = A L^-T
        assert at.low_rank is not None  # only called with a basis
        combinations = _solve_transposed(self.basis.factor, at.low_rank)
        return linalg.solve_lower(factor, combinations.T).T  # R = L_w^-T (L_w^-1 B A) L^-T


def inverse_root(factor: Float[Array, "w w"]) -> Float[Array, "w w"]:
    r"""Return :math:`R = L^{-\top}`, as in `root_of_aggregates`, for conditioning on the values at inducing points."""
    return _solve_transposed(factor, jnp.eye(factor.shape[0], dtype=factor.dtype))


def _solve_transposed(factor: Float[Array, "w w"], b: Float[Array, "w k"]) -> Float[Array, "w k"]:
    return jax.scipy.linalg.solve_triangular(factor, b, lower=True, trans=1)
