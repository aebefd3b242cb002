r"""Likelihoods of n observations, each of which depends on its own latent value."""

from __future__ import annotations

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.gp.expectations import expectation, expected_softplus, log_expectation
from kpp.gp.gaussian import LatentPredictive, draw_joint, normal_log_density
from kpp.gp.links import Derivatives, Link, derivatives, expected_log_probability, log_likelihood, probability
from kpp.typing import AnyArray, RngKey

__all__ = ["AbstractPointwiseLikelihood", "BernoulliLikelihood", "GaussianLikelihood"]


class AbstractPointwiseLikelihood(eqx.Module):
    r"""The likelihood of n observations, :math:`\prod_i p_i(y_i \mid f_i)`, as a function of n latent values.

    Its arrays hold the observations and the parameters, if any; Laplace's approximation is differentiable in them. Law:
    :math:`\log p_i` is concave, and `derivatives` are its derivatives.
    """

    @abstractmethod
    def log_density(self, f: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        r"""Return :math:`\log p_i(y_i \mid f_i)` for every i."""

    @abstractmethod
    def derivatives(self, f: Float[AnyArray, " n"]) -> Derivatives:
        r"""Return :math:`\partial \log p_i`, :math:`-\partial^2 \log p_i` and :math:`\partial^3 \log p_i`."""

    @abstractmethod
    def draw(self, rng_key: RngKey, f: Float[AnyArray, "*p"]) -> Array:
        """Draw one new observation per latent value; the latent values may differ from those of the observations."""

    def predict(self, mean: Float[AnyArray, " p"], variance: Float[AnyArray, " p"]) -> dict[str, Float[Array, " p"]]:
        r"""Return predictive quantities besides the latent moments, for :math:`f \sim N(\mu, v)`; none by default.

        Args:
            mean: :math:`\mu`, (p,).
            variance: v, (p,).

        Returns:
            Some of ``noise_variance`` and ``probability``, each (p,), or quantities specific to the likelihood.
        """
        return {}

    def draw_predictive(self, rng_key: RngKey, latent: LatentPredictive, scale: Float[AnyArray, ""]) -> Array:
        """Draw one new observation at each of p points; their latent values are drawn jointly.

        Args:
            rng_key: A random key.
            latent: The law of the latent values, with their covariance.
            scale: The prior variance of the latent values, for `kpp.gp.draw_joint`.

        Returns:
            The observations, with the axis of the p points first.
        """
        latent_key, observation_key = jax.random.split(rng_key)
        return self.draw(observation_key, draw_joint(latent_key, latent, scale))

    def draw_again(self, rng_key: RngKey, latent: LatentPredictive, scale: Float[AnyArray, ""]) -> Array:
        """Draw the n observations anew, given the law of their latent values; by default as at any other points."""
        return self.draw_predictive(rng_key, latent, scale)

    def marginal_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        r"""Return :math:`\log \int p_i(y_i \mid f)\, N(f; \mu_i, v_i)\, df` for every i."""
        return log_expectation(self.log_density, mean, variance)

    def expected_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        r"""Return :math:`\int \log p_i(y_i \mid f)\, N(f; \mu_i, v_i)\, df` for every i."""
        return expectation(self.log_density, mean, variance)


class GaussianLikelihood(AbstractPointwiseLikelihood):
    r"""Numbers with Gaussian noise, :math:`y_i \sim N(f_i, \sigma^2 + s_i)`.

    Args:
        y: The observations, (n,).
        noise_variance: :math:`\sigma^2`, a number, the variance of the noise of a new observation.
        row_variances: s, (n,), what the variance of each of the n observations has in addition; None for nothing.
    """

    y: Float[Array, " n"] = eqx.field(converter=jnp.asarray)
    noise_variance: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    row_variances: Float[Array, " n"] | None = None

    @property
    def variances(self) -> Float[Array, "*n"]:
        """The variances of the n observations, (n,), or one number if all are equal."""
        return self.noise_variance if self.row_variances is None else self.noise_variance + self.row_variances

    def log_density(self, f: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        """Return the log density of every observation."""
        return normal_log_density(self.y, jnp.asarray(f), self.variances)

    def derivatives(self, f: Float[AnyArray, " n"]) -> Derivatives:
        """Return its derivatives."""
        precision = jnp.broadcast_to(1.0 / self.variances, jnp.shape(f))
        return Derivatives((self.y - f) * precision, precision, jnp.zeros_like(precision))

    def draw(self, rng_key: RngKey, f: Float[AnyArray, "*p"]) -> Float[Array, "*p"]:
        """Draw numbers."""
        f = jnp.asarray(f)
        return f + jnp.sqrt(self.noise_variance) * jax.random.normal(rng_key, f.shape, f.dtype)

    def predict(self, mean: Float[AnyArray, " p"], variance: Float[AnyArray, " p"]) -> dict[str, Float[Array, " p"]]:
        """Return the ``noise_variance``, repeated for each point."""
        return {"noise_variance": jnp.broadcast_to(self.noise_variance, mean.shape)}

    def draw_predictive(self, rng_key: RngKey, latent: LatentPredictive, scale: Float[AnyArray, ""]) -> Array:
        """Draw numbers from the Gaussian whose covariance includes the noise."""
        return draw_joint(rng_key, latent, scale, self.noise_variance)

    def draw_again(self, rng_key: RngKey, latent: LatentPredictive, scale: Float[AnyArray, ""]) -> Array:
        """Draw numbers, each with the variance of its row."""
        return draw_joint(rng_key, latent, scale, self.variances)

    def marginal_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        """Return the log density of every observation, in closed form."""
        return normal_log_density(self.y, jnp.asarray(mean), variance + self.variances)

    def expected_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        """Return the expected log density of every observation, in closed form."""
        return self.log_density(mean) - 0.5 * jnp.asarray(variance) / self.variances


class BernoulliLikelihood(AbstractPointwiseLikelihood):
    """Labels 0 and 1.

    Args:
        y: Labels in {0, 1}, of shape (n,).
        link: "logit" or "probit".
    """

    y: Float[Array, " n"] = eqx.field(converter=jnp.asarray)
    link: Link = eqx.field(static=True, default="logit")

    def log_density(self, f: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        """Return the log probability of every label."""
        return log_likelihood(self.link, self.y, f)

    def derivatives(self, f: Float[AnyArray, " n"]) -> Derivatives:
        """Return its derivatives; see `kpp.gp.links.derivatives`."""
        return derivatives(self.link, self.y, f)

    def draw(self, rng_key: RngKey, f: Float[AnyArray, "*p"]) -> Float[Array, "*p"]:
        """Draw labels, as numbers 0 and 1."""
        return jax.random.bernoulli(rng_key, probability(self.link, f)).astype(jnp.asarray(f).dtype)

    def predict(self, mean: Float[AnyArray, " p"], variance: Float[AnyArray, " p"]) -> dict[str, Float[Array, " p"]]:
        """Return the ``probability`` of label 1."""
        return {"probability": jnp.exp(expected_log_probability(self.link, jnp.ones_like(mean), mean, variance))}

    def marginal_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        """Return the log probability of every label; see `kpp.gp.links.expected_log_probability`."""
        return expected_log_probability(self.link, self.y, mean, variance)

    def expected_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        r"""Return the expected log probability of every label; for the logit by :math:`E \log(1 + e^f)`."""
        if self.link == "logit":
            return self.y * jnp.asarray(mean) - expected_softplus(jnp.asarray(mean), jnp.asarray(variance))
        return super().expected_log_density(mean, variance)
