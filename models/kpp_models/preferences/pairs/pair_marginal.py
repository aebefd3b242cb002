r"""The law of the observations of many pairs under a Gaussian process, drawn by matrices of items."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import distributions as dist
from numpyro.distributions import constraints

from kpp.gp import AbstractPointwiseLikelihood, GaussianLikelihood, GaussianProcessMarginal, LaplaceMarginal
from kpp.gp.toolkit import few_features, prior_covariance, prior_factor
from kpp.kernels import AbstractKernel
from kpp.preferences import ItemFunction
from kpp.preferences.toolkit import entries_at_pairs, preference_terms
from kpp.typing import AnyArray

_MAX_ENTRIES = 2**24  # of a matrix with a row per pair, for the evidence and leave-one-out: 128 MB


class PairMarginal(dist.Distribution):
    r"""Observations of m pairs of n items, one latent preference each, under a Gaussian process of mean 0.

    .. math:: y_i \sim p(y_i \mid g_i), \qquad g \sim N(0, K_E)

    The pairs with their kernel are a function whose coefficients have no effect; the likelihood has no observations.
    `sample` draws by factors of the matrices of items and contexts: :math:`g(a, b) = f_a^\top Z f_b` with the rows
    :math:`f_a` of a factor of the matrix of items and a skew-symmetric Z of standard normal numbers. `log_prob` is the
    evidence, Laplace's approximation of it unless the likelihood is Gaussian. It is computed from the matrix of the
    pairs or from its features, and exists only where `has_evidence` is true.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.real_vector
    pytree_data_fields = ("pairs", "likelihood")

    def __init__(
        self, pairs: ItemFunction, likelihood: AbstractPointwiseLikelihood, *, validate_args: bool | None = None
    ) -> None:
        self.pairs, self.likelihood = pairs, likelihood
        super().__init__((), pairs.pairs.shape[:1], validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw observations of all pairs, of shape (*sample_shape, m)."""
        if not sample_shape:
            return self._draw(key)
        keys = jax.random.split(key, math.prod(sample_shape))
        return jax.lax.map(self._draw, keys).reshape(*sample_shape, -1)

    def log_prob(self, value: AnyArray, intermediates: object = None) -> Array:
        """Return the evidence of one vector of observations, (m,), or raise ValueError if there are too many pairs."""
        kernel, points = self.pairs.kernel, self.pairs.points
        if not has_evidence(kernel, points):
            raise ValueError(
                f"the evidence of {self.event_shape[0]} pairs needs a matrix with a row per pair and more than "
                f"{_MAX_ENTRIES} entries; use a kernel with fewer features, such as kpp.features.Nystrom"
            )
        if not isinstance(self.likelihood, GaussianLikelihood):
            return LaplaceMarginal(0.0, prior_covariance(kernel, points), self.likelihood).log_prob(value)
        noise, features = self.likelihood.variances, few_features(kernel, points)
        if features is None:
            return GaussianProcessMarginal(0.0, kernel.gram(points), noise).log_prob(value)
        return dist.LowRankMultivariateNormal(jnp.zeros_like(noise), features, noise).log_prob(value)

    def _draw(self, key: Array) -> Float[Array, " m"]:
        latent_key, observation_key = jax.random.split(key)
        return self.likelihood.draw_observed(observation_key, _draw_preferences(latent_key, self.pairs))


def has_evidence(kernel: AbstractKernel, points: object) -> bool:
    """Return whether the matrix of the pairs, or its features, are small enough for the evidence and leave-one-out."""
    features, num_pairs = jax.eval_shape(kernel.finite_features, points), jax.tree.leaves(points)[0].shape[0]
    num_columns = num_pairs if features is None else min(features.shape[1], num_pairs)
    return num_pairs * num_columns <= _MAX_ENTRIES


def _draw_preferences(key: Array, function: ItemFunction) -> Float[Array, " m"]:
    """Draw a Gaussian process at the pairs."""
    total = jnp.zeros_like(function.coefficients)
    for number, term in enumerate(preference_terms(function.kernel)):
        factor = _factor(term.kernel, function.items)
        contexts = jnp.ones((1, total.shape[0]), total.dtype)
        if term.context_kernel is not None and function.contexts is not None:
            contexts = _factor(term.context_kernel, function.contexts)[function.context_numbers].T
        keys = jax.random.split(jax.random.fold_in(key, number), contexts.shape[0])

        def add(
            total: Array, part: tuple[Array, Array], factor: Array = factor, has_utility: bool = term.has_utility
        ) -> tuple[Array, None]:
            return total + part[1] * _draw_by_factor(part[0], factor, function, has_utility), None

        total += jnp.sqrt(term.scale) * jax.lax.scan(add, jnp.zeros_like(total), (keys, contexts))[0]
    return total


def _draw_by_factor(
    key: Array, factor: Float[Array, "n q"], function: ItemFunction, has_utility: bool
) -> Float[Array, " m"]:
    size = factor.shape[1]
    if has_utility:
        utility = factor @ jax.random.normal(key, (size,), factor.dtype)
        return utility[function.pairs[:, 0]] - utility[function.pairs[:, 1]]
    # A skew S of normal numbers gives a^T S b the generalized preferential kernel.
    upper = jnp.triu(jax.random.normal(key, (size, size), factor.dtype), 1)
    return entries_at_pairs(factor @ (upper - upper.T), factor, function.pairs)


def _factor(kernel: AbstractKernel, points: Float[Array, "n d"]) -> Float[Array, "n q"]:
    features = kernel.finite_features(points)
    return prior_factor(kernel.gram(points)) if features is None else features
