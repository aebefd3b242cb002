r"""Laplace's approximation in the space of finitely many features: mode, evidence and their derivatives.

The latent values are :math:`f = m + \Phi w` with :math:`w \sim N(0, I_q)`, so that the mode is a vector of q weights:

.. math:: \hat w = \arg\max_w \log p(y \mid m + \Phi w) - \tfrac12 \|w\|^2, \qquad
    w \mid y \approx N(\hat w, M^{-1}), \quad M = I_q + \Phi^\top W \Phi,

where W is the negated second derivative of the log likelihood at the mode. This is the approximation of
`kpp.gp.laplace.by_values` with :math:`K = \Phi \Phi^\top`, in time of order n q^2.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp import linalg
from kpp.gp.laplace.newton import newton_mode, relative_change, step_size
from kpp.gp.likelihoods.base import AbstractPointwiseLikelihood
from kpp.linalg.toolkit import FeatureRidge
from kpp.typing import AnyArray

PriorMeans = Float[AnyArray, ""] | Float[AnyArray, " n"]


class FeatureCovariance(NamedTuple):
    r"""The covariance matrix :math:`\Phi \Phi^\top` of n values, given by their features.

    Attributes:
        features: :math:`\Phi`, (n, q).
    """

    features: Float[Array, "n q"]


@jax.custom_jvp
def feature_mode(
    likelihood: AbstractPointwiseLikelihood, features: Float[AnyArray, "n q"], mean: PriorMeans
) -> Float[Array, " q"]:
    r"""Find the mode of the weights by Newton's method; differentiable through the implicit function theorem.

    At the mode :math:`\hat w = \Phi^\top g` with the gradient g of the log likelihood, so that

    .. math:: d\hat w = M^{-1} \bigl(d\Phi^\top g + \Phi^\top (dg - W (d\Phi\, \hat w + dm))\bigr),

    where dg is the change of the gradient with the parameters of the likelihood. The weights are NaN in traced code if
    the iteration does not converge; otherwise ValueError is raised.
    """
    features, mean = jnp.asarray(features), jnp.asarray(mean)

    def step(weights: Array) -> tuple[Array, Array]:
        latent = features @ weights + mean
        gradient, curvature, _ = likelihood.derivatives(latent)
        # M is the negated Hessian, the right side the slope.
        direction = linalg.cho_solve(_factor(features, curvature), features.T @ gradient - weights)
        move = features @ direction

        def objective(size: Array) -> Array:
            penalty = 0.5 * jnp.sum((weights + size * direction) ** 2)
            return jnp.sum(likelihood.log_density(latent + size * move)) - penalty

        return weights + step_size(objective, weights.dtype) * direction, relative_change(move, latent)

    need = f"the features of the kernel (shape {features.shape}) must be finite"
    return newton_mode(step, jnp.zeros(features.shape[1], features.dtype), need=need)


@feature_mode.defjvp
def _feature_mode_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    likelihood, features, mean = primals
    d_likelihood, d_features, d_mean = tangents
    weights = feature_mode(likelihood, features, mean)
    latent = features @ weights + mean
    found, moved = jax.jvp(lambda law: law.derivatives(latent), (likelihood,), (d_likelihood,))
    push = moved.gradient - found.curvature * (d_features @ weights + d_mean)
    change = d_features.T @ found.gradient + features.T @ push
    return weights, linalg.cho_solve(_factor(features, found.curvature), change)


def feature_posterior(
    likelihood: AbstractPointwiseLikelihood, features: Float[AnyArray, "n q"], mean: PriorMeans
) -> tuple[Float[Array, " q"], Float[Array, " n"], Float[Array, " n"]]:
    """Return the weights at the mode, and gradient and negated second derivative of the log likelihood there."""
    weights = feature_mode(likelihood, features, mean)
    gradient, curvature, _ = likelihood.derivatives(features @ weights + mean)
    return weights, gradient, curvature


def feature_log_evidence(
    likelihood: AbstractPointwiseLikelihood, features: Float[AnyArray, "n q"], mean: PriorMeans
) -> Float[Array, ""]:
    r"""Return Laplace's approximation of the log marginal likelihood, differentiable in all arguments.

    .. math:: \log q(y) = \log p(y \mid \hat f) - \tfrac12 \|\hat w\|^2 - \tfrac12 \log\det M

    References:
        Rasmussen and Williams (2006), equation 3.32, with Sylvester's identity for the determinant.
    """
    features = jnp.asarray(features)
    weights = feature_mode(likelihood, features, mean)
    latent = features @ weights + mean
    factor = _factor(features, likelihood.derivatives(latent).curvature)
    fit = jnp.sum(likelihood.log_density(latent))
    return fit - 0.5 * jnp.dot(weights, weights) - linalg.half_log_determinant(factor)


def _factor(features: Array, curvature: Array) -> Float[Array, "q q"]:
    """Return the lower Cholesky factor of M."""
    return FeatureRidge.create(features, 1.0, curvature, what="the matrix I + F^T W F of the features F").factor
