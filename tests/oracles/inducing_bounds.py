r"""The evidence lower bound of any q(u), and the q(u) that maximizes it: oracles of the collapsed bound.

A (N, M) is the combination of bags that each target is, B (w, N) the mean embeddings of the bags at the inducing
points, G (N, N) their inner products, T (M, M) the covariance of the noise.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp import linalg
from kpp.gp.inducing.points import trace_deficit
from kpp.gp.laws.gaussian_laws import gaussian_log_density
from kpp.typing import AnyArray


def elbo(
    y: Float[AnyArray, " M"],
    nu: Float[AnyArray, " M"],
    weights: Float[AnyArray, "N M"],
    inducing_gram: Float[AnyArray, "w w"],
    sections: Float[AnyArray, "w N"],
    bag_gram: Float[AnyArray, "N N"],
    noise: Float[AnyArray, "M M"],
    eta: Float[AnyArray, " w"],
    sigma: Float[AnyArray, "w w"],
) -> Float[Array, ""]:
    r"""Return the evidence lower bound of any q(u) with Gaussian noise.

    .. math::

        \log N(y;\, \nu + H^\top \eta,\, T)
        - \tfrac12 \mathrm{tr}\bigl(T^{-1} (A^\top G A - H^\top (K - \Sigma) H)\bigr)
        - \mathrm{KL}\bigl(N(\eta, \Sigma) \,\|\, N(0, K)\bigr), \qquad H = K^{-1} B A

    Args:
        y: The targets, (M,).
        nu: Their prior mean, (M,).
        weights: A, (N, M).
        inducing_gram: K, the kernel at the inducing points, (w, w).
        sections: B, the mean embeddings of the bags at the inducing points, (w, N).
        bag_gram: G, (N, N).
        noise: T, (M, M).
        eta: The mean of u less its prior mean, (w,).
        sigma: :math:`\Sigma`, the covariance of u, (w, w), positive definite.

    Returns:
        The bound, a scalar.

    References:
        Chau, Bouabid and Sejdinovic, Deconditional downscaling with Gaussian processes, 2021, appendix, with the signs
        of the divergence and of the quadratic form corrected.
    """
    weights, eta, sigma = (jnp.asarray(part) for part in (weights, eta, sigma))
    projection = sections @ weights  # B A
    factor = linalg.cholesky(inducing_gram, what="the kernel matrix of the inducing points")
    low_rank = linalg.solve_lower(factor, projection)
    interpolation = linalg.cho_solve(factor, projection)  # H
    residual = y - nu - interpolation.T @ eta
    spread = interpolation.T @ sigma @ interpolation
    trace = trace_deficit(noise, weights.T @ bag_gram @ weights + spread, low_rank)
    return gaussian_log_density(residual, noise) - 0.5 * trace - _divergence(eta, sigma, factor)


def optimal_q(
    y: Float[AnyArray, " M"],
    nu: Float[AnyArray, " M"],
    weights: Float[AnyArray, "N M"],
    inducing_gram: Float[AnyArray, "w w"],
    sections: Float[AnyArray, "w N"],
    noise: Float[AnyArray, "M M"],
) -> tuple[Float[Array, " w"], Float[Array, "w w"]]:
    r"""Return the q(u) whose bound is the largest.

    .. math::

        \Sigma = \bigl(K^{-1} + H T^{-1} H^\top\bigr)^{-1} = L (I + V T^{-1} V^\top)^{-1} L^\top, \qquad
        \eta = \Sigma H T^{-1} (y - \nu), \qquad K = L L^\top, \quad V = L^{-1} B A

    Args:
        y: The targets, (M,).
        nu: Their prior mean, (M,).
        weights: A, (N, M).
        inducing_gram: K, (w, w).
        sections: B, (w, N).
        noise: T, (M, M).

    Returns:
        The mean of u less its prior mean, (w,), and its covariance, (w, w).
    """
    factor = linalg.cholesky(inducing_gram, what="the kernel matrix of the inducing points")
    low_rank = linalg.solve_lower(factor, sections @ weights)
    noise_factor = linalg.cholesky(noise, what="the covariance matrix of the noise")
    weighted = linalg.cho_solve(noise_factor, low_rank.T)  # T^-1 V'
    inner = linalg.cholesky(linalg.add_diagonal(low_rank @ weighted, 1.0), what="the precision matrix of q(u)")
    root = linalg.solve_lower(inner, factor.T)
    return root.T @ linalg.solve_lower(inner, weighted.T @ (y - nu)), root.T @ root


def _divergence(eta: Array, sigma: Array, factor: Array) -> Float[Array, ""]:
    """Return the divergence of N(eta, sigma) from N(0, L L')."""
    own = linalg.cholesky(sigma, what="the covariance matrix of q(u)")
    quadratic = jnp.sum(jnp.square(linalg.solve_lower(factor, eta)))
    trace = jnp.sum(jnp.square(linalg.solve_lower(factor, own)))
    determinants = linalg.half_log_determinant(factor) - linalg.half_log_determinant(own)
    return 0.5 * (trace + quadratic - eta.shape[0]) + determinants
