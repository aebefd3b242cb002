r"""Bernoulli likelihoods with a logit or a probit link: density, derivatives, expectations.

Labels y are 0 or 1; :math:`p(y = 1 \mid f)` is :math:`1 / (1 + e^{-f})` for "logit" and :math:`\Phi(f)` for "probit".
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, logsumexp, ndtr
from jaxtyping import Array, Float

from kpp.gp.laws.normal import LOG_TWO_PI
from kpp.typing import AnyArray

#: "logit" or "probit"; models check the link, the functions below do not.
Link = str
LINKS = ("logit", "probit")

# Trapezoidal rules converge geometrically for analytic integrands that vanish at both ends. `_LATENT` integrates over
# the latent variable, in standard deviations, `_LOGISTIC` over the logistic distribution; they share the range of
# deviations.
_LATENT = np.linspace(-9.0, 14.0, 193)  # the sigmoid moves the peak up by at most the deviation, 5
_LOGISTIC = np.linspace(-60.0, 60.0, 241)
_LARGE_DEVIATION = 5.0  # above this standard deviation, integrate over the logistic variable


class Derivatives(NamedTuple):
    """First, negated second, and third derivative of log p(y | f) with respect to f, each of shape (n,)."""

    gradient: Float[Array, " n"]
    curvature: Float[Array, " n"]
    third: Float[Array, " n"]


def probability(link: Link, f: Float[AnyArray, "*n"]) -> Float[Array, "*n"]:
    """Return p(y = 1 | f), elementwise."""
    return jax.nn.sigmoid(f) if link == "logit" else ndtr(f)


def log_likelihood(link: Link, y: Float[AnyArray, "*n"], f: Float[AnyArray, "*n"]) -> Float[Array, "*n"]:
    """Return log p(y | f) for labels in {0, 1}, elementwise, without underflow."""
    margin = (2.0 * y - 1.0) * f
    return jax.nn.log_sigmoid(margin) if link == "logit" else log_ndtr(margin)


def derivatives(link: Link, y: Float[AnyArray, " n"], f: Float[AnyArray, " n"]) -> Derivatives:
    r"""Return the derivatives of log p(y | f) that Laplace's approximation needs.

    Returns:
        :math:`\partial_f \log p`, :math:`W = -\partial_f^2 \log p > 0` and :math:`\partial_f^3 \log p`.

    References:
        Rasmussen and Williams (2006), equations 3.15 and 3.16.
    """
    sign = 2.0 * jnp.asarray(y) - 1.0
    if link == "logit":
        # Labels differ by a linear term: log(1 - p) = log p - f.
        return softplus_derivatives(f)._replace(gradient=sign * jax.nn.sigmoid(-sign * f))
    margin = sign * f
    ratio = jnp.exp(-0.5 * (margin**2 + LOG_TWO_PI) - log_ndtr(margin))  # by logs: both parts underflow far below 0
    third = ratio * ((2.0 * ratio + margin) * (ratio + margin) - 1.0)
    return Derivatives(sign * ratio, ratio * (ratio + margin), sign * third)


def softplus_derivatives(f: Float[AnyArray, "*n"]) -> Derivatives:
    r"""Return the derivatives of :math:`-\log(1 + e^f)`, elementwise, in the form of `Derivatives`."""
    chance = jax.nn.sigmoid(f)
    curvature = chance * jax.nn.sigmoid(-f)
    return Derivatives(-chance, curvature, curvature * jnp.tanh(f / 2.0))  # tanh(f / 2) = 2 p - 1


def expected_log_probability(
    link: Link, y: Float[AnyArray, " n"], mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]
) -> Float[Array, " n"]:
    r"""Return :math:`\log \int p(y \mid f)\, N(f; \mu, v)\, df`, elementwise.

    The probit has the closed form :math:`\Phi(s \mu / \sqrt{1 + v})`, s = 2y - 1. For the logit the integral is a
    trapezoidal sum: over f if :math:`\sqrt v < 5`, otherwise over the logistic variable l in :math:`\int \sigma'(l)\,
    \Phi((s\mu - l)/\sqrt v)\, dl`, because then the normal density is the smoother one. The absolute error of the
    probability is below 1e-9 for every mean and variance (Gauss-Hermite rules lose accuracy as v grows).
    """
    margin = (2.0 * jnp.asarray(y) - 1.0) * mean
    if link == "probit":
        return log_ndtr(margin / jnp.sqrt(1.0 + variance))
    return jax.vmap(_expected_log_sigmoid)(margin, jnp.sqrt(jnp.asarray(variance)))


def _expected_log_sigmoid(mean: Array, deviation: Array) -> Array:
    small = jnp.minimum(deviation, _LARGE_DEVIATION)
    large = jnp.maximum(deviation, _LARGE_DEVIATION)
    nodes = jnp.asarray(_LATENT, dtype=mean.dtype)
    over_latent = jax.nn.log_sigmoid(mean + small * nodes) - 0.5 * (nodes**2 + LOG_TWO_PI)
    logistic = jnp.asarray(_LOGISTIC, dtype=mean.dtype)
    density = jax.nn.log_sigmoid(logistic) + jax.nn.log_sigmoid(-logistic)
    over_logistic = density + log_ndtr((mean - logistic) / large)
    return jnp.where(
        deviation < _LARGE_DEVIATION,
        logsumexp(over_latent) + np.log(_LATENT[1] - _LATENT[0]),
        logsumexp(over_logistic) + np.log(_LOGISTIC[1] - _LOGISTIC[0]),
    )
