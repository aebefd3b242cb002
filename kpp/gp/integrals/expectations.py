r"""Expectations over one Gaussian variable, elementwise over arrays, for likelihoods of one latent value.

Closed forms are used where they exist. The other integrals are trapezoidal sums, which converge geometrically for
analytic integrands that vanish at both ends, or Gauss-Hermite sums for functions that are close to a polynomial.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, log_ndtr, logsumexp, ndtr
from jaxtyping import Array, Float

from kpp.gp.laws.normal import LOG_TWO_PI, normal_log_density
from kpp.typing import AnyArray

# Gauss-Hermite for means of smooth functions: exact for polynomials of degree 127.
_HERMITE, _HERMITE_WEIGHTS = (np.asarray(part) for part in np.polynomial.hermite_e.hermegauss(64))
_HERMITE_WEIGHTS = _HERMITE_WEIGHTS / _HERMITE_WEIGHTS.sum()
# For integrands with one peak: sinh of these, in units of the peak's width; 74 widths to each side.
_PEAK = np.linspace(-5.0, 5.0, 161)
# For integrands that may have several peaks: positions in an interval, first to find the peaks, then to integrate.
_COARSE, _FINE = np.linspace(0.0, 1.0, 257), np.linspace(0.0, 1.0, 513)
_NEGLIGIBLE = 40.0  # a log density this much below the largest does not count
_BISECTIONS = 60  # 2**-60 of the first interval: below the rounding error of float64
# For the logistic variable, and for the exponential one by its logarithm.
_LOGISTIC, _STEP = np.linspace(-45.0, 45.0, 181, retstep=True)  # exp(-45) = 3e-20 is left out
_LOGISTIC_WEIGHTS = _STEP / (4.0 * np.cosh(_LOGISTIC / 2.0) ** 2)
_LOG_EXPONENTIAL, _STEP = np.linspace(-60.0, 5.0, 241, retstep=True)  # exp(-60) and exp(-exp(5)) are left out
_EXPONENTIAL = np.exp(_LOG_EXPONENTIAL)
_EXPONENTIAL_WEIGHTS = _STEP * np.exp(-_EXPONENTIAL)
_WIDE = np.linspace(-1.0, 1.0, 161)  # for functions that bend near 0 only
_LARGE_DEVIATION = 2.0  # above this standard deviation, integrate over the logistic variable
# Smaller variances are replaced by this one: the derivative of the square root stays finite, and densities do not
# change in float64.
_SMALLEST_VARIANCE = 1e-20


def deviation(variance: Float[AnyArray, "*n"]) -> Float[Array, "*n"]:
    """Return standard deviations, at least 1e-10, so that the derivative is finite where a variance is 0."""
    return jnp.sqrt(jnp.maximum(jnp.asarray(variance), _SMALLEST_VARIANCE))


def expectation(
    f: Callable[[Array], Array], mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]
) -> Float[Array, " n"]:
    r"""Return :math:`E f(g)` for :math:`g \sim N(\mu, v)`, elementwise, by 64 Gauss-Hermite nodes.

    Accurate if f is smooth on the scale of :math:`\sqrt v`: a singularity of f at a distance of 2 standard deviations
    from the real line does not reduce the accuracy; at a distance of 1/4 standard deviation only two digits are
    correct.

    Args:
        f: Maps n values to n values, elementwise.
        mean: :math:`\mu`, of shape (n,).
        variance: v, of shape (n,).

    Returns:
        The expectations, of shape (n,).
    """
    mean, scale = jnp.asarray(mean), deviation(variance)
    return _weighted_sum(lambda node: f(mean + scale * node), _HERMITE, _HERMITE_WEIGHTS)


def log_expectation(
    log_f: Callable[[Array], Array], mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]
) -> Float[Array, " n"]:
    r"""Return :math:`\log \int f(g)\, N(g; \mu, v)\, dg`, elementwise, for a log-concave f such as a likelihood.

    The nodes are centered at the mode of the integrand, which is between :math:`\mu` and :math:`\mu + v\, (\log
    f)'(\mu)`, and scaled by its width there, so that they also cover a narrow f. The absolute error is below 1e-10 for
    standard deviations up to 5 and below 1e-5 up to 30. The result is less accurate if f is not log-concave.
    """
    mean, scale = jnp.asarray(mean), deviation(variance)

    def integrand(white: Array) -> Array:
        return log_f(mean + scale * white) - 0.5 * (white**2 + LOG_TWO_PI)

    end = _slope(integrand, jnp.zeros_like(mean))  # the peak solves w = g(w) with a decreasing g: between 0 and g(0)
    return log_integral(integrand, jnp.minimum(end, 0.0), jnp.maximum(end, 0.0))


def log_integral(
    log_f: Callable[[Array], Array], lower: Float[AnyArray, " n"], upper: Float[AnyArray, " n"]
) -> Float[Array, " n"]:
    r"""Return :math:`\log \int f(t)\, dt` of n functions, each with one peak, (n,).

    `log_f` maps n numbers t to the n values of log f, elementwise, and is differentiable twice. log f does not decrease
    left of `lower` and does not increase right of `upper`, (n,) each. The result is differentiable with respect to the
    variables that `log_f` closes over.
    """

    def halve(_: object, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        rises = _slope(log_f, middle) > 0
        return jnp.where(rises, middle, ends[0]), jnp.where(rises, ends[1], middle)

    start = (jnp.asarray(lower), jnp.asarray(upper))
    peak = 0.5 * sum(jax.lax.fori_loop(0, _BISECTIONS, halve, jax.lax.stop_gradient(start)))
    curvature = -jax.jvp(lambda t: _slope(log_f, t), (peak,), (jnp.ones_like(peak),))[1]
    # The floor bounds the width of a nearly flat peak.
    width = 1.0 / jnp.sqrt(jnp.maximum(curvature, 1e-3))
    # The integral does not depend on where its nodes lie, so derivatives of the nodes are left out.
    peak, width = jax.lax.stop_gradient((peak, width))
    values = jax.vmap(lambda u: log_f(peak + width * jnp.sinh(u)) + jnp.log(width * jnp.cosh(u)))(jnp.asarray(_PEAK))
    return logsumexp(values, axis=0) + np.log(_PEAK[1] - _PEAK[0])


def _weighted_sum(f: Callable[[Array], Array], nodes: np.ndarray, weights: np.ndarray) -> Array:
    """Return the weighted sum over all nodes of a function of one node with values (n,)."""
    return jnp.asarray(weights) @ jax.vmap(f)(jnp.asarray(nodes))


def _slope(f: Callable[[Array], Array], at: Array) -> Array:
    """Differentiate n functions of one number each."""
    return jax.grad(lambda t: jnp.sum(f(t)))(at)


def expected_softplus(mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
    r"""Return :math:`E \log(1 + e^g)` for :math:`g \sim N(\mu, v)`, elementwise.

    For standard deviations above 2 the integral is over a logistic variable l instead, :math:`\int \sigma'(l)\, E (g -
    l)_+\, dl`, because then the normal density is the smoother one. The relative error is below 1e-10.
    """
    mean, scale = jnp.asarray(mean), deviation(variance)
    small = expectation(jax.nn.softplus, mean, jnp.minimum(scale, _LARGE_DEVIATION) ** 2)
    large = jnp.maximum(scale, _LARGE_DEVIATION)

    def positive_part(logistic: Array) -> Array:
        white = (mean - logistic) / large
        return large * (white * ndtr(white) + jnp.exp(-0.5 * (white**2 + LOG_TWO_PI)))

    return jnp.where(scale < _LARGE_DEVIATION, small, _weighted_sum(positive_part, _LOGISTIC, _LOGISTIC_WEIGHTS))


def expected_log_ndtr(mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
    r"""Return :math:`E \log \Phi(g)` for :math:`g \sim N(\mu, v)`, elementwise, to ten digits or 1e-10.

    For standard deviations above 1 and means within 4 of them the sum is over u in :math:`g = \sinh u`, because
    :math:`\log \Phi` bends near 0 on the scale 1 and elsewhere on the scale of g.
    """
    mean, scale = jnp.asarray(mean), deviation(variance)
    smooth = (scale < 1.0) | (jnp.abs(mean) > 4.0 * scale)
    small = expectation(log_ndtr, mean, jnp.where(smooth, scale, 1.0) ** 2)
    center, width = jnp.where(smooth, 0.0, mean), jnp.where(smooth, 1.0, scale)
    reach = jnp.arcsinh(jnp.abs(center) + 10.0 * width)  # beyond, the density is below exp(-50)

    def term(position: Array) -> Array:
        g = jnp.sinh(reach * position)
        return log_ndtr(g) * jnp.exp(normal_log_density(g, center, width**2)) * reach * jnp.cosh(reach * position)

    step = np.full(len(_WIDE), _WIDE[1] - _WIDE[0])
    return jnp.where(smooth, small, _weighted_sum(term, _WIDE, step))


def log_mixture_of_noises(
    residual: Float[AnyArray, " n"],
    variance: Float[AnyArray, " n"],
    log_noise_mean: Float[AnyArray, " n"],
    log_noise_variance: Float[AnyArray, " n"],
) -> Float[Array, " n"]:
    r"""Return :math:`\log \int N(r; 0, v + e^l)\, N(l; \mu, s^2)\, dl`, elementwise.

    For an outlier the integrand has two peaks: at a usual variance of the noise, and at one of the size of
    :math:`r^2`. All peaks lie between :math:`\mu - s^2 / 2` and the larger of :math:`\mu` and :math:`\log r^2`. A
    coarse grid over this interval finds where the integrand is not negligible, and a fine one integrates there.
    """
    residual, variance, center = jnp.asarray(residual), jnp.asarray(variance), jnp.asarray(log_noise_mean)
    scale = deviation(log_noise_variance)

    def integrand(white: Array) -> Array:
        given_noise = normal_log_density(residual, jnp.zeros_like(residual), variance + jnp.exp(center + scale * white))
        return given_noise - 0.5 * (white**2 + LOG_TWO_PI)

    def over(low: Array, high: Array, positions: np.ndarray) -> tuple[Array, Array]:
        nodes = jax.vmap(lambda position: low + (high - low) * position)(jnp.asarray(positions))
        return nodes, jax.vmap(integrand)(nodes)

    # The log of the normal density rises at most by r^2 / 8 v for each unit of l, so that no peak lies beyond.
    square = jnp.maximum(residual**2, jnp.finfo(scale.dtype).tiny)
    highest = jnp.minimum((jnp.log(square) - center) / scale, scale * square / (8.0 * variance))
    # 9 standard deviations beyond the outermost peaks leave out a factor of exp(-40).
    nodes, values = over(-0.5 * scale - 9.0, jnp.maximum(highest, 0.0) + 9.0, _COARSE)
    kept = values > jnp.max(values, axis=0, keepdims=True) - _NEGLIGIBLE
    step = nodes[1] - nodes[0]
    low = jnp.min(jnp.where(kept, nodes, jnp.inf), axis=0) - step
    high = jnp.max(jnp.where(kept, nodes, -jnp.inf), axis=0) + step
    # The integral does not depend on where its nodes lie, so derivatives of the nodes are left out.
    low, high = jax.lax.stop_gradient((low, high))
    return logsumexp(over(low, high, _FINE)[1], axis=0) + jnp.log((high - low) * _FINE[1])


def expected_log_one_plus_square(mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
    r"""Return :math:`E \log(1 + g^2)` for :math:`g \sim N(\mu, v)`, elementwise, to a relative error of 1e-10.

    .. math:: \log(1 + g^2) = \int_0^\infty \frac{1 - e^{-s g^2}}{s}\, e^{-s}\, ds, \qquad
        E e^{-s g^2} = \frac{\exp(-s \mu^2 / (1 + 2 s v))}{\sqrt{1 + 2 s v}}
    """
    square, variance = jnp.asarray(mean) ** 2, jnp.asarray(variance)

    def term(rate: Array) -> Array:
        widened = 1.0 + 2.0 * rate * variance
        return -jnp.expm1(-rate * square / widened - 0.5 * jnp.log1p(2.0 * rate * variance))

    return _weighted_sum(term, _EXPONENTIAL, _EXPONENTIAL_WEIGHTS)


def student_t_marginal(
    residual: Float[AnyArray, " n"],
    variance: Float[AnyArray, " n"],
    scale: AnyArray | float,
    degrees_of_freedom: AnyArray | float,
) -> Float[Array, " n"]:
    r"""Return the log density of a Gaussian plus a Student-t variable, elementwise.

    .. math:: \log \int_0^\infty N(r; 0, v + \sigma^2 / \lambda)\,
        \mathrm{Gamma}(\lambda; \tfrac\nu2, \tfrac\nu2)\, d\lambda

    The integral over :math:`\log \lambda` has one peak even if the integral over the Gaussian variable has two.
    """
    residual = jnp.asarray(residual)
    half = jnp.broadcast_to(0.5 * jnp.asarray(degrees_of_freedom), residual.shape)
    noise = jnp.broadcast_to(jnp.asarray(scale) ** 2, residual.shape)

    def integrand(log_rate: Array) -> Array:
        gamma = half * (jnp.log(half) + log_rate - jnp.exp(log_rate)) - gammaln(half)
        return gamma + normal_log_density(residual, jnp.zeros_like(residual), variance + noise * jnp.exp(-log_rate))

    # The derivative of the integrand is at most 0 at `upper` and at least 0 at `lower`, so the peak lies between them.
    upper = jnp.log1p(0.5 / half)
    lower = jnp.minimum(0.0, jnp.log(2.0 * half + 1.0) - jnp.log(2.0 * half + residual**2 / noise))
    return log_integral(integrand, lower, upper)
