r"""Likelihoods of aggregates: the law of each target given its latent value g, and its averages over a Gaussian g.

==========  ==================================  ===========================  ==========
likelihood  law of y given g                    y                            exposure
==========  ==================================  ===========================  ==========
gaussian    N(g, noise_variance)                numbers                      none
student_t   g + noise of Student's t            numbers                      none
poisson     Poisson(exposure * exp(g))          counts                       optional
bernoulli   Bernoulli(logits g)                 0 and 1                      none
binomial    Binomial(exposure, logits g)        counts up to the exposure    trials
==========  ==================================  ===========================  ==========

A function of (g, exposure) that returns a NumPyro distribution is also a likelihood.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float
from numpyro import distributions as dist
from numpyro.distributions import constraints

from kpp.gp import (
    deviation,
    expectation,
    expected_log_one_plus_square,
    expected_log_probability,
    expected_softplus,
    log_expectation,
    normal_log_density,
    student_t_marginal,
)
from kpp.random import standard_normal
from kpp.typing import AnyArray, Numbers
from kpp.validation import as_binary_labels, as_targets, check_same_rows, is_concrete

__all__ = [
    "LIKELIHOODS",
    "ExpectedLikelihood",
    "Observation",
    "as_aggregate_targets",
    "check_likelihood",
    "expected_log_density",
    "marginal_log_density",
    "observation",
    "response_mean",
]

#: A name of `LIKELIHOODS`, or a function of (g, exposure).
Likelihood = str | Callable[..., dist.Distribution]
LIKELIHOODS = ("gaussian", "poisson", "bernoulli", "binomial", "student_t")

_LARGEST_LOG_RATE = 500.0  # exp overflows in float64 above 709


def check_likelihood(likelihood: object) -> None:
    """Check that a likelihood is a known name or a function.

    Raises:
        ValueError: If it is neither; the message lists the names.
    """
    if not (callable(likelihood) or (isinstance(likelihood, str) and likelihood in LIKELIHOODS)):
        raise ValueError(
            f"`likelihood` must be one of {LIKELIHOODS} or a function of (g, exposure) that returns a NumPyro "
            f"distribution, got {likelihood!r}"
        )


def as_aggregate_targets(
    likelihood: Likelihood, y: Numbers, exposure: Numbers | Sequence[Numbers] | None = None
) -> tuple[Array, Array | None]:
    """Return the targets (M,) of a likelihood and their exposure (M,), or None, as float arrays.

    The exposure of "poisson" is the factor of the rate (people, area), that of "binomial" the number of trials, and
    that of a function its second argument; the others have none. Raises ValueError if they are invalid for the
    likelihood.
    """
    check_likelihood(likelihood)
    targets = as_binary_labels(y) if likelihood == "bernoulli" else as_targets(y)
    if likelihood in ("gaussian", "bernoulli", "student_t") and exposure is not None:
        raise ValueError(f"`exposure` must be None for the likelihood {likelihood!r}, which has none")
    if likelihood == "binomial" and exposure is None:
        raise ValueError("`exposure` must give the number of trials of every target for the likelihood 'binomial'")
    if exposure is not None:
        exposure = as_targets(exposure, name="exposure")
        check_same_rows(targets.shape[0], exposure.shape[0], "y", "exposure")
    if likelihood in ("poisson", "binomial") and is_concrete(targets):
        _check_counts(likelihood, np.asarray(targets), None if exposure is None else np.asarray(exposure))
    return targets, exposure


def _check_counts(likelihood: Likelihood, y: np.ndarray, exposure: np.ndarray | None) -> None:
    _refuse(y, (y < 0) | (y != np.round(y)), f"`y` must hold counts (integers, at least 0) for {likelihood!r}")
    if exposure is None:
        return
    _refuse(exposure, exposure <= 0, f"`exposure` must be positive for {likelihood!r}")
    if likelihood == "binomial":
        _refuse(exposure, exposure != np.round(exposure), "`exposure` must hold whole numbers of trials")
        _refuse(y, y > exposure, "`y` must not exceed `exposure`, the number of trials")


def _refuse(values: np.ndarray, wrong: np.ndarray, message: str) -> None:
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(f"{message}, got {values[first]:g} at index {first} ({int(wrong.sum())} such values)")


def observation(
    likelihood: Likelihood,
    g: Float[AnyArray, "*sample n"],
    exposure: Float[AnyArray, " n"] | None = None,
    noise_variance: AnyArray | float = 1.0,
    degrees_of_freedom: AnyArray | float = 4.0,
) -> dist.Distribution:
    r"""Return the distribution of the targets given their latent values g, (\*sample, M), with this batch shape.

    An exposure of None means 1 for "poisson". The noise variance, a scalar or (M,), is :math:`\sigma^2` of "gaussian"
    and the squared scale of "student_t"; the degrees of freedom are those of "student_t".
    """
    noise_variance = jnp.broadcast_to(noise_variance, jnp.shape(g))
    exposure = None if exposure is None else jnp.broadcast_to(exposure, jnp.shape(g))
    if likelihood == "poisson":
        return dist.Poisson(jnp.exp(g) if exposure is None else exposure * jnp.exp(g))
    if likelihood == "bernoulli":
        return dist.Bernoulli(logits=g)
    if likelihood == "binomial":
        return dist.Binomial(jnp.asarray(exposure, int), logits=g)
    if likelihood == "gaussian":
        return dist.Normal(g, jnp.sqrt(noise_variance))
    if likelihood == "student_t":
        return dist.StudentT(degrees_of_freedom, g, jnp.sqrt(noise_variance))
    assert callable(likelihood)  # the only other kind that `check_likelihood` accepts
    return likelihood(g, exposure)


class Observation(eqx.Module):
    """A likelihood with all its parameters, as a function of the latent values.

    Args:
        likelihood: A name or a function.
        exposure: Of shape (M,), or None.
        noise_variance: A scalar or (M,).
        degrees_of_freedom: A scalar.
    """

    likelihood: Likelihood = eqx.field(static=True)
    exposure: Float[AnyArray, " n"] | None = None
    noise_variance: Any = 1.0
    degrees_of_freedom: Any = 4.0

    def __call__(self, g: Float[AnyArray, "*sample n"]) -> dist.Distribution:
        """Return the distribution of the targets, with the batch shape of g."""
        return observation(self.likelihood, g, self.exposure, self.noise_variance, self.degrees_of_freedom)

    def log_density(self, y: Float[AnyArray, "*n"], g: Float[AnyArray, "*n"]) -> Float[Array, "*n"]:
        """Return log p(y | g), elementwise; for counts from the log rate, which neither under- nor overflows."""
        if self.likelihood != "poisson":
            return self(g).log_prob(y)
        log_rate = g + self.log_exposure
        capped = jnp.minimum(log_rate, _LARGEST_LOG_RATE)
        rate = jnp.exp(capped) * (1.0 + log_rate - capped)  # linear beyond the cap, so that slopes remain correct
        return y * log_rate - rate - gammaln(y + 1.0)

    def take(self, rows: Array) -> Observation:
        """Return the likelihood of some of the targets."""
        exposure = None if self.exposure is None else jnp.asarray(self.exposure)[rows]
        noise = jnp.asarray(self.noise_variance)
        return Observation(self.likelihood, exposure, noise[rows] if noise.ndim else noise, self.degrees_of_freedom)

    @property
    def log_exposure(self) -> Any:
        """The logarithm of the exposure, 0 without an exposure."""
        return 0.0 if self.exposure is None else jnp.log(self.exposure)

    @property
    def trials(self) -> Any:
        """The number of trials of "bernoulli" and "binomial"."""
        return 1.0 if self.exposure is None else self.exposure


def marginal_log_density(
    make: Observation, y: Float[AnyArray, " n"], mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]
) -> Float[Array, " n"]:
    r"""Return :math:`\log \int p(y \mid g)\, N(g; \mu, v)\, dg`, elementwise, (M,).

    In closed form for "gaussian"; for "bernoulli" see `kpp.gp.links.expected_log_probability`, for "student_t"
    `kpp.gp.expectations.student_t_marginal`, for the others `kpp.gp.expectations.log_expectation`.
    """
    y = jnp.asarray(y)
    if make.likelihood == "gaussian":
        return normal_log_density(y, mean, variance + make.noise_variance)
    if make.likelihood == "bernoulli":
        return expected_log_probability("logit", y, mean, deviation(variance) ** 2)
    if make.likelihood == "student_t":
        return student_t_marginal(y - mean, variance, jnp.sqrt(make.noise_variance), make.degrees_of_freedom)
    return log_expectation(lambda g: make.log_density(y, g), mean, variance)


def expected_log_density(
    make: Observation, y: Float[AnyArray, " n"], mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]
) -> Float[Array, " n"]:
    r"""Return :math:`E \log p(y \mid g)` for :math:`g \sim N(\mu, v)`, elementwise.

    .. math:: \text{poisson: } y (\mu + \log e) - e\, e^{\mu + v / 2} - \log y!, \qquad
        \text{gaussian: } \log N(y; \mu, \sigma^2) - \frac{v}{2 \sigma^2}

    "bernoulli" and "binomial" need :math:`E \log(1 + e^g)`, "student_t" :math:`E \log(1 + (y - g)^2 / \nu \sigma^2)`
    (`kpp.gp.expectations`); functions are averaged over 64 Gauss-Hermite nodes.

    Args:
        make: The likelihood.
        y: The targets, of shape (M,).
        mean: :math:`\mu`, of shape (M,).
        variance: v, of shape (M,).

    Returns:
        The expectations, of shape (M,).
    """
    y, mean, variance = jnp.asarray(y), jnp.asarray(mean), jnp.asarray(variance)
    if make.likelihood == "gaussian":
        noise = jnp.broadcast_to(make.noise_variance, y.shape)
        return normal_log_density(y, mean, noise) - 0.5 * variance / noise
    if make.likelihood == "poisson":
        log_rate = mean + make.log_exposure
        return y * log_rate - jnp.exp(log_rate + 0.5 * variance) - gammaln(y + 1.0)
    if make.likelihood in ("bernoulli", "binomial"):
        n = make.trials
        ways = gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(n - y + 1.0)
        return ways + y * mean - n * expected_softplus(mean, variance)
    if make.likelihood == "student_t":
        width = make.degrees_of_freedom * make.noise_variance
        excess = expected_log_one_plus_square((y - mean) / jnp.sqrt(width), variance / width)
        return make(y).log_prob(y) - 0.5 * (make.degrees_of_freedom + 1.0) * excess
    return expectation(lambda g: make.log_density(y, g), mean, variance)


def response_mean(
    make: Observation, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]
) -> Float[Array, " n"]:
    r"""Return :math:`E y` (M,), the mean of targets over :math:`g \sim N(\mu, v)` and their likelihood.

    The means are in units of y: rates of counts, probabilities, numbers of successes.
    """
    mean, variance = jnp.asarray(mean), jnp.asarray(variance)
    if make.likelihood in ("gaussian", "student_t"):
        return mean
    if make.likelihood == "poisson":
        return jnp.exp(make.log_exposure + mean + 0.5 * variance)
    if make.likelihood in ("bernoulli", "binomial"):
        ones = jnp.ones_like(mean)
        return make.trials * jnp.exp(expected_log_probability("logit", ones, mean, deviation(variance) ** 2))
    return expectation(lambda g: make(g).mean, mean, variance)


class ExpectedLikelihood(dist.Distribution):
    r"""Targets whose latent values are Gaussian, for the evidence lower bound.

    .. math:: \log p(y) := E_{N(g; \mu, v)} \log p(y \mid g) \le \log \int p(y \mid g)\, N(g; \mu, v)\, dg

    `sample` is exact: it draws g and then y.

    Args:
        make: The likelihood, whose arrays are (B,).
        mean: :math:`\mu`, of shape (B,).
        variance: v, of shape (B,).
        validate_args: As for every NumPyro distribution.

    References:
        J. Hensman, A. Matthews and Z. Ghahramani (2015). Scalable variational Gaussian process classification.
    """

    arg_constraints = {"loc": constraints.real, "latent_variance": constraints.nonnegative}
    pytree_data_fields = ("make", "loc", "latent_variance")

    def __init__(
        self,
        make: Observation,
        mean: Float[AnyArray, " b"],
        variance: Float[AnyArray, " b"],
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.make, self.loc, self.latent_variance = make, jnp.asarray(mean), jnp.asarray(variance)
        super().__init__(self.loc.shape, (), validate_args=validate_args)

    @property
    def support(self) -> Any:
        """The constraint on the targets."""
        return self.make(self.loc).support

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw targets, of shape (*sample_shape, b)."""
        first, second = jax.random.split(key)
        white = standard_normal(first, (*sample_shape, *self.batch_shape), self.loc.dtype)
        scale = jnp.sqrt(self.latent_variance)
        g = jnp.broadcast_to(self.loc, white.shape) + jnp.broadcast_to(scale, white.shape) * white
        return self.make(g).sample(second)

    def log_prob(self, value: Float[AnyArray, " b"], intermediates: object = None) -> Array:
        """Return the expected log densities of targets, of shape (b,)."""
        return expected_log_density(self.make, value, self.loc, self.latent_variance)

    @property
    def mean(self) -> Array:
        """The means of the targets, of shape (b,)."""
        return response_mean(self.make, self.loc, self.latent_variance)
