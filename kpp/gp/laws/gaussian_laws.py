r"""Formulas for a Gaussian vector whose covariance is a kernel matrix: density, gradient, leave-one-out, draws.

All functions take arrays of one data set and one draw of the hyperparameters; use `jax.vmap` or `jax.lax.map` for
several draws.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from kpp import linalg
from kpp.gp.laws.normal import LOG_TWO_PI, normal_log_density
from kpp.typing import AnyArray


@jax.custom_jvp
def gaussian_log_density(residual: Float[AnyArray, " n"], covariance: Float[AnyArray, "n n"]) -> Float[Array, ""]:
    r"""Return the log density of a Gaussian vector, with its derivative in closed form.

    .. math:: \log N(r; 0, C) = -\tfrac12 r^\top a - \tfrac12 \log\det C - \tfrac n2 \log 2\pi, \qquad a = C^{-1} r

    The derivative is :math:`\tfrac12 \langle a a^\top - C^{-1}, dC \rangle - a^\top dr`: one Cholesky factorization is
    enough for the value and the gradient. Differentiating through the factorization would cost several times as much.
    Derivatives of every order are available, in forward and in reverse mode. See Rasmussen and Williams (2006),
    equations 2.30 and 5.9. Raises FactorizationError if C is concrete and not positive definite.
    """
    return _value_and_solution(jnp.asarray(residual), jnp.asarray(covariance))[0]


@gaussian_log_density.defjvp
def _gaussian_log_density_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    residual, covariance = (jnp.asarray(primal) for primal in primals)
    value, solution, factor = _value_and_solution(residual, covariance)
    gradient = 0.5 * (jnp.outer(solution, solution) - linalg.cho_inverse(factor))
    return value, jnp.sum(gradient * tangents[1]) - jnp.dot(solution, tangents[0])


def _value_and_solution(residual: Array, covariance: Array) -> tuple[Array, Array, Array]:
    factor = linalg.cholesky(covariance, what="the covariance matrix of `y`")
    solution = linalg.cho_solve(factor, residual)
    normalizer = linalg.half_log_determinant(factor) + 0.5 * LOG_TWO_PI * residual.shape[0]
    return -0.5 * jnp.dot(residual, solution) - normalizer, solution, factor


def gaussian_leave_one_out(
    residual: Float[AnyArray, " n"], covariance: Float[AnyArray, "n n"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    r"""Return mean and variance of every coordinate of a Gaussian vector given all the others.

    .. math:: \mu_{-i} = r_i - a_i / [C^{-1}]_{ii}, \qquad \sigma^2_{-i} = 1 / [C^{-1}]_{ii}, \qquad a = C^{-1} r

    Returns:
        Means and variances, each of shape (n,). The caller adds the values of the mean function to the means.

    References:
        Rasmussen and Williams (2006), equation 5.12.
    """
    return leave_one_out_by_factor(residual, linalg.cholesky(covariance, what="the covariance matrix of `y`"))


def leave_one_out_by_factor(
    residual: Float[AnyArray, " n"], factor: Float[AnyArray, "n n"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Return the result of `gaussian_leave_one_out` from the lower Cholesky factor of the covariance, (n, n)."""
    precision = jnp.diagonal(linalg.cho_inverse(factor))
    return residual - linalg.cho_solve(factor, residual) / precision, 1.0 / precision


def gaussian_loo_log_density(residual: Float[AnyArray, " n"], covariance: Float[AnyArray, "n n"]) -> Float[Array, " n"]:
    r"""Return :math:`\log p(r_i \mid r_{-i})` for every i (Rasmussen and Williams 2006, equations 5.10 to 5.12)."""
    return gaussian_loo_by_factor(residual, linalg.cholesky(covariance, what="the covariance matrix of `y`"))


def gaussian_loo_by_factor(residual: Float[AnyArray, " n"], factor: Float[AnyArray, "n n"]) -> Float[Array, " n"]:
    """Return the result of `gaussian_loo_log_density` from the lower Cholesky factor of the covariance, (n, n)."""
    mean, variance = leave_one_out_by_factor(residual, factor)
    return normal_log_density(jnp.asarray(residual), mean, variance)


def student_t_loo_by_factor(
    residual: Float[AnyArray, " n"], factor: Float[AnyArray, "n n"], degrees_of_freedom: AnyArray | float
) -> Float[Array, " n"]:
    """Return the leave-one-out log densities of a multivariate Student-t vector; see `pointwise.student_t`."""
    mean, variance = leave_one_out_by_factor(residual, factor)
    squares = (residual - mean) ** 2 / variance
    total = jnp.sum(linalg.solve_lower(factor, residual) ** 2)
    degrees = degrees_of_freedom + residual.shape[0] - 1  # given n - 1 numbers, a Student-t law has n - 1 degrees more
    # Rounding must not make the squared distance of the other observations negative.
    spread = degrees_of_freedom + jnp.maximum(total - squares, 0.0)
    normalizer = gammaln((degrees + 1) / 2) - gammaln(degrees / 2) - 0.5 * jnp.log(jnp.pi * spread * variance)
    return normalizer - 0.5 * (degrees + 1) * jnp.log1p(squares / spread)


class LatentPredictive(NamedTuple):
    """The distribution of the latent function at p points: mean (p,), variance (p,), covariance (p, p) or None.

    A root R (q, p) of the covariance, which is R^T R, may be there in addition to the covariance or in its place. It is
    an array, or an object with the shape and dtype of one that has the product of a vector with it.
    `rest` (p,) are variances that the root lacks; what they belong to is drawn independently at each point.
    """

    mean: Float[Array, " p"]
    variance: Float[Array, " p"]
    covariance: Float[Array, "p p"] | None
    root: Any = None
    rest: Float[Array, " p"] | None = None


def prior_factor(covariance: Float[AnyArray, "n n"]) -> Float[Array, "n n"]:
    """Factorize the covariance of latent values without noise; it is singular if points are repeated."""
    return linalg.cholesky(with_nugget(covariance))


def with_nugget(covariance: Float[AnyArray, "n n"]) -> Float[Array, "n n"]:
    """Add a nugget to the covariance of latent values: 1e-10 times the mean of the diagonal (float32: 1e-5).

    It is always added, not only after a failed factorization. Latent values are drawn through the factor, and its
    derivatives would be discontinuous if rounding errors decided whether a singular matrix gets a nugget.
    """
    covariance = jnp.asarray(covariance)
    nugget = linalg.max_relative_jitter(covariance.dtype) * jnp.mean(jnp.diagonal(covariance))
    return linalg.add_diagonal(covariance, nugget)


def draw_gaussian(
    rng_key: Array, mean: Float[AnyArray, " p"], covariance: Float[AnyArray, "p p"], scale: Float[AnyArray, ""]
) -> Float[Array, " p"]:
    """Draw once from a Gaussian whose covariance may be singular, as at repeated points.

    Args:
        rng_key: A random key.
        mean: The mean, of shape (p,).
        covariance: The covariance, of shape (p, p), positive semi-definite up to rounding.
        scale: The variance before conditioning. 1e-10 times this variance (float32: 1e-5) is added to the diagonal; it
            exceeds the rounding error of the difference of two matrices of this size.

    Returns:
        One draw, of shape (p,).
    """
    covariance = linalg.add_diagonal(covariance, linalg.max_relative_jitter(covariance.dtype) * scale)
    factor = linalg.cholesky(covariance, what="the predictive covariance matrix")
    return jnp.asarray(mean) + factor @ jax.random.normal(rng_key, mean.shape, dtype=factor.dtype)


def draw_joint(
    rng_key: Array,
    latent: LatentPredictive,
    scale: Float[AnyArray, ""],
    noise_variance: Float[AnyArray, ""] | Float[AnyArray, " p"] | None = None,
) -> Float[Array, " p"]:
    """Draw once from the law of the latent function at p points, plus noise if there is noise; see `draw_gaussian`.

    Raises:
        ValueError: If the law holds neither a covariance nor a root of it.
    """
    if latent.root is not None:
        rest = 0.0 if latent.rest is None else latent.rest
        independent = latent.rest if noise_variance is None else rest + noise_variance
        first, second = jax.random.split(rng_key)
        root, dtype = latent.root, latent.root.dtype
        values = latent.mean + jax.random.normal(first, root.shape[:1], dtype=dtype) @ root
        if independent is None:
            return values
        return values + jnp.sqrt(independent) * jax.random.normal(second, values.shape, dtype=dtype)
    if latent.covariance is None:
        raise ValueError("`latent` must hold the covariance for a joint draw, got None")
    noisy = latent.covariance if noise_variance is None else linalg.add_diagonal(latent.covariance, noise_variance)
    return draw_gaussian(rng_key, latent.mean, noisy, scale)
