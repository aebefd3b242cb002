r"""Laplace's approximation for a Gaussian process with any log-concave likelihood: mode, evidence, leave-one-out.

The latent values f have prior N(m 1, K), and every observation depends on one of them. The approximation is the
Gaussian at the posterior mode with the curvature there. Throughout, :math:`W = -\nabla\nabla \log p(y \mid f)`
(diagonal), :math:`B = I + W^{1/2} K W^{1/2} = L L^\top` and :math:`R = W^{1/2} B^{-1} W^{1/2} = (K + W^{-1})^{-1}`. The
eigenvalues of B are at least 1, so K may be singular.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp import linalg
from kpp.gp.integrals.links import Derivatives
from kpp.gp.laplace.annealing import anneal_from_laplace
from kpp.gp.laplace.newton import newton_mode, relative_change, step_size
from kpp.gp.laws.gaussian_laws import prior_factor
from kpp.gp.likelihoods.base import AbstractPointwiseLikelihood
from kpp.typing import AnyArray, RngKey

PriorMeans = Float[AnyArray, ""] | Float[AnyArray, " n"]

_LITTLE = 1e-5  # the information of an observation, its curvature times its prior variance, below which it is little


class LaplacePosterior(NamedTuple):
    """The Gaussian approximation: coefficients a, mode f = m + K a, derivatives at the mode, and the factor L of B."""

    coefficients: Float[Array, " n"]
    mode: Float[Array, " n"]
    derivatives: Derivatives
    factor: Float[Array, "n n"]

    def whiten(self, cross: Float[AnyArray, "n p"]) -> Float[Array, "n p"]:
        r"""Return :math:`V = L^{-1} W^{1/2} K_{n*}`; the data reduce the covariance by :math:`V^\top V`."""
        return linalg.solve_lower(self.factor, _root(self.derivatives.curvature)[:, None] * cross)


def laplace_posterior(
    likelihood: AbstractPointwiseLikelihood, covariance: Float[AnyArray, "n n"], mean: PriorMeans
) -> LaplacePosterior:
    """Return the Gaussian approximation of p(f | y).

    Raises:
        ValueError: If no value is traced and Newton's method does not converge.
    """
    covariance, mean = jnp.asarray(covariance), jnp.asarray(mean)
    return _at(likelihood, covariance, mean, posterior_mode(likelihood, covariance, mean))


@jax.custom_jvp
def posterior_mode(
    likelihood: AbstractPointwiseLikelihood, covariance: Float[AnyArray, "n n"], mean: PriorMeans
) -> Float[Array, " n"]:
    r"""Find the mode of p(f | y) by Newton's method; differentiable through the implicit function theorem.

    The mode is :math:`\hat f = m + K a` with :math:`a = \nabla \log p(y \mid \hat f)`, and
    :math:`da = dg - R (K\, dg + dK\, a + dm)`, where dg is the change of the likelihood's gradient with its parameters.
    Steps are halved while they decrease the (concave) objective.

    Returns:
        a, of shape (n,); NaN in traced code if the iteration does not converge.

    Raises:
        ValueError: If no value is traced and the iteration does not converge in 100 steps.

    References:
        Rasmussen and Williams (2006), algorithm 3.1.
    """
    covariance, mean = jnp.asarray(covariance), jnp.asarray(mean)
    need = f"`covariance` (shape {covariance.shape}) must be finite and positive semi-definite"
    start = jnp.zeros_like(covariance[0])
    return newton_mode(lambda a: _newton_step(likelihood, covariance, mean, a), start, need=need)


@posterior_mode.defjvp
def _posterior_mode_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    likelihood, covariance, mean = primals
    d_likelihood, d_covariance, d_mean = tangents
    coefficients = posterior_mode(likelihood, covariance, mean)
    posterior = _at(likelihood, covariance, mean, coefficients)
    _, d_gradient = jax.jvp(lambda law: law.derivatives(posterior.mode).gradient, (likelihood,), (d_likelihood,))
    root = _root(posterior.derivatives.curvature)
    push = covariance @ d_gradient + d_covariance @ coefficients + d_mean
    return coefficients, d_gradient - root * linalg.cho_solve(posterior.factor, root * push)


@jax.custom_jvp
def laplace_log_evidence(
    likelihood: AbstractPointwiseLikelihood, covariance: Float[AnyArray, "n n"], mean: PriorMeans
) -> Float[Array, ""]:
    r"""Return Laplace's approximation of the log marginal likelihood, differentiable in all arguments.

    .. math:: \log q(y) = \log p(y \mid \hat f) - \tfrac12 a^\top (\hat f - m) - \sum_i \log L_{ii}

    The derivative includes the movement of the mode: with :math:`s = \tfrac12 \mathrm{diag}(\Sigma) \nabla^3 \log p(y
    \mid \hat f)`, :math:`\Sigma = K - K R K` and :math:`u = (I - R K) s`,

    .. math:: d \log q = \langle \tfrac12 (a a^\top - R) + u a^\top,\ dK \rangle + (a + u)^\top 1\, dm
        + 1^\top d\ell + (K u)^\top dg - \tfrac12 \mathrm{diag}(\Sigma)^\top dW,

    where the last three terms are for parameters of the likelihood: the changes of its value, gradient and curvature at
    the mode.

    References:
        Rasmussen and Williams (2006), equation 3.32 and algorithm 5.1.
    """
    covariance, mean = jnp.asarray(covariance), jnp.asarray(mean)
    return _evidence(likelihood, laplace_posterior(likelihood, covariance, mean), mean)


@laplace_log_evidence.defjvp
def _laplace_log_evidence_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    likelihood, covariance, mean = primals
    d_likelihood, d_covariance, d_mean = tangents
    posterior = laplace_posterior(likelihood, covariance, mean)
    a = posterior.coefficients
    root = _root(posterior.derivatives.curvature)
    inverse = linalg.cho_inverse(posterior.factor)
    precision = root[:, None] * inverse * root[None, :]
    variance = _variances(covariance, posterior, inverse)
    slope = 0.5 * variance * posterior.derivatives.third
    shift = slope - precision @ (covariance @ slope)
    moved = jnp.outer(shift, a)
    # DK is symmetric, so the symmetric part of u a^T is enough.
    gradient = 0.5 * (jnp.outer(a, a) - precision + moved + moved.T)
    tangent = jnp.sum(gradient * d_covariance) + jnp.sum((a + shift) * d_mean)

    def at_the_mode(law: AbstractPointwiseLikelihood) -> tuple[Array, Array, Array]:
        found = law.derivatives(posterior.mode)
        return law.log_density(posterior.mode), found.gradient, found.curvature

    _, (d_density, d_gradient, d_curvature) = jax.jvp(at_the_mode, (likelihood,), (d_likelihood,))
    own = d_density + (covariance @ shift) * d_gradient - 0.5 * variance * d_curvature
    return _evidence(likelihood, posterior, mean), tangent + jnp.sum(own)


def draw_whitened(
    rng_key: RngKey, likelihood: AbstractPointwiseLikelihood, covariance: Float[AnyArray, "n n"], mean: PriorMeans
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    r"""Draw whitened latent values from their posterior, with the log of an importance weight.

    .. math:: f = m + L z, \quad L L^\top = K, \qquad q(z) = N\bigl(z \mid L^\top a, (I + L^\top W L)^{-1}\bigr)

    See `kpp.gp.anneal_from_laplace`.
    """
    covariance, mean = jnp.asarray(covariance), jnp.asarray(mean)
    posterior, root = laplace_posterior(likelihood, covariance, mean), prior_factor(covariance)
    weighted = _root(posterior.derivatives.curvature)[:, None] * root
    return anneal_from_laplace(
        rng_key,
        lambda white: jnp.sum(likelihood.log_density(mean + root @ white)),
        root.T @ posterior.coefficients,
        linalg.add_diagonal(weighted.T @ weighted, 1.0),
        _evidence(likelihood, posterior, mean),
    )


def leave_one_out_latent(
    covariance: Float[AnyArray, "n n"], posterior: LaplacePosterior
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    r"""Return mean and variance of every latent value given the other observations, by the Laplace cavity.

    Dividing the Gaussian approximation by the i-th of its n Gaussian factors leaves

    .. math::
        v_{-i} = \Sigma_{ii} / [B^{-1}]_{ii}, \qquad
        \mu_{-i} = \hat f_i - v_{-i}\, \partial_i \log p(y_i \mid \hat f_i).

    The other factors keep their curvature at the mode of the full data, so this is an approximation of refitting
    without observation i.

    References:
        Vehtari, Mononen, Tolvanen, Sivula and Winther (2016), section 3.2 (LA-LOO).
    """
    inverse = linalg.cho_inverse(posterior.factor)
    variance = _variances(covariance, posterior, inverse) / jnp.diagonal(inverse)
    return posterior.mode - variance * posterior.derivatives.gradient, variance


def _at(
    likelihood: AbstractPointwiseLikelihood, covariance: Array, mean: Array, coefficients: Array
) -> LaplacePosterior:
    mode = covariance @ coefficients + mean
    found = likelihood.derivatives(mode)
    return LaplacePosterior(coefficients, mode, found, _factor(covariance, found.curvature))


def _root(curvature: Float[Array, " n"]) -> Float[Array, " n"]:
    """Return the square roots, with derivative 0 at 0: an observation without curvature carries no information."""
    says = curvature > 0
    return jnp.where(says, jnp.sqrt(jnp.where(says, curvature, 1.0)), 0.0)


def _factor(covariance: Array, curvature: Array) -> Array:
    root = _root(curvature)
    matrix = linalg.add_diagonal(root[:, None] * covariance * root[None, :], 1.0)
    return linalg.cholesky(matrix, what="the matrix I + W^(1/2) K W^(1/2) of Laplace's approximation")


def _newton_step(
    likelihood: AbstractPointwiseLikelihood, covariance: Array, mean: Array, a: Array
) -> tuple[Array, Array]:
    """Return the next coefficients, and the relative change of the latent values under the full step."""
    posterior = _at(likelihood, covariance, mean, a)
    gradient, curvature, _ = posterior.derivatives
    root = _root(curvature)
    b = curvature * (posterior.mode - mean) + gradient
    # Algorithm 3.1: the full step goes to b - R K b.
    direction = b - root * linalg.cho_solve(posterior.factor, root * (covariance @ b)) - a
    move = covariance @ direction

    def objective(size: Array) -> Array:
        latent = posterior.mode + size * move
        return jnp.sum(likelihood.log_density(latent)) - 0.5 * jnp.dot(a + size * direction, latent - mean)

    return a + step_size(objective, a.dtype) * direction, relative_change(move, posterior.mode)


def _variances(
    covariance: Float[AnyArray, "n n"], posterior: LaplacePosterior, inverse: Float[Array, "n n"]
) -> Float[Array, " n"]:
    r"""Return the diagonal of :math:`\Sigma = K - K R K`, given :math:`B^{-1}`.

    It is :math:`(1 - [B^{-1}]_{ii}) / W_{ii}`, since :math:`W^{1/2} \Sigma W^{1/2} = I - B^{-1}`. Where an observation
    says very little, this is a difference of nearly equal numbers, so all are computed by a triangular solve then.
    """
    prior, curvature = jnp.diagonal(jnp.asarray(covariance)), posterior.derivatives.curvature

    def by_inverse() -> Array:
        return (1.0 - jnp.diagonal(inverse)) / curvature

    def by_solve() -> Array:
        return prior - jnp.sum(posterior.whiten(covariance) ** 2, axis=0)

    return jax.lax.cond(jnp.all(prior * curvature >= _LITTLE), by_inverse, by_solve)


def _evidence(likelihood: AbstractPointwiseLikelihood, posterior: LaplacePosterior, mean: Array) -> Array:
    quadratic = jnp.dot(posterior.coefficients, posterior.mode - mean)
    fit = jnp.sum(likelihood.log_density(posterior.mode))
    return fit - 0.5 * quadratic - linalg.half_log_determinant(posterior.factor)
