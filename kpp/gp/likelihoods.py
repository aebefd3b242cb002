r"""Likelihoods of n observations, each of which depends on a latent value of its own."""

from __future__ import annotations

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.gp.expectations import expectation, log_expectation
from kpp.gp.links import (
    Derivatives,
    Link,
    derivatives,
    expected_log_probability,
    log_likelihood,
)
from kpp.typing import AnyArray

__all__ = ["AbstractPointwiseLikelihood", "BernoulliLikelihood"]


class AbstractPointwiseLikelihood(eqx.Module):
    r"""The likelihood of n observations, :math:`\prod_i p_i(y_i \mid f_i)`, a function of n latent values.

    Its arrays hold the observations and whatever parameters it has; Laplace's approximation is differentiable in them.
    Law: :math:`\log p_i` is concave, and `derivatives` are its derivatives.
    """

    @abstractmethod
    def log_density(self, f: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        r"""Return :math:`\log p_i(y_i \mid f_i)` for every i."""

    @abstractmethod
    def derivatives(self, f: Float[AnyArray, " n"]) -> Derivatives:
        r"""Return :math:`\partial \log p_i`, :math:`-\partial^2 \log p_i` and :math:`\partial^3 \log p_i`."""

    def marginal_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        r"""Return :math:`\log \int p_i(y_i \mid f)\, N(f; \mu_i, v_i)\, df` for every i."""
        return log_expectation(self.log_density, mean, variance)

    def expected_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        r"""Return :math:`\int \log p_i(y_i \mid f)\, N(f; \mu_i, v_i)\, df` for every i."""
        return expectation(self.log_density, mean, variance)


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

    def marginal_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        """Return the log probability of every label; see `kpp.gp.links.expected_log_probability`."""
        return expected_log_probability(self.link, self.y, mean, variance)
