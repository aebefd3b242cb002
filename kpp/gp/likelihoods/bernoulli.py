"""Labels 0 and 1."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from kpp.foundation.validation import as_binary_labels, one_of
from kpp.gp.integrals.expectations import expected_log_ndtr, expected_softplus
from kpp.gp.integrals.links import (
    LINKS,
    Derivatives,
    Link,
    derivatives,
    expected_log_probability,
    log_likelihood,
    probability,
)
from kpp.gp.likelihoods.base import AbstractPointwiseLikelihood, observed_field
from kpp.storage.serialization import data_class
from kpp.typing import AnyArray, RngKey


@data_class
class BernoulliLikelihood(AbstractPointwiseLikelihood):
    """Labels 0 and 1.

    Args:
        y: Labels in {0, 1}, of shape (n,), or None.
        link: "logit" or "probit".
    """

    y: Any = observed_field()
    link: Link = eqx.field(static=True, default="logit")

    def __check_init__(self) -> None:
        one_of(self.link, "link", LINKS)

    @property
    def support(self) -> Any:
        return constraints.boolean

    def read_targets(self, y: object, name: str = "y") -> Float[Array, " n"]:
        """Read labels in {0, 1}, both of which must occur."""
        return as_binary_labels(y, name=name)

    def log_density(self, f: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return log_likelihood(self.link, self.y, f)

    def derivatives(self, f: Float[AnyArray, " n"]) -> Derivatives:
        return derivatives(self.link, self.y, f)

    def draw(self, rng_key: RngKey, f: Float[AnyArray, "*p"]) -> Float[Array, "*p"]:
        return jax.random.bernoulli(rng_key, probability(self.link, f)).astype(jnp.asarray(f).dtype)

    def predict(self, mean: Float[AnyArray, " p"], variance: Float[AnyArray, " p"]) -> dict[str, Float[Array, " p"]]:
        """Return the ``probability`` of label 1."""
        return {"probability": self.response_mean(mean, variance)}

    def response_mean(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return jnp.exp(expected_log_probability(self.link, jnp.ones_like(mean), mean, variance))

    def marginal_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return expected_log_probability(self.link, self.y, mean, variance)

    def expected_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        if self.link == "logit":
            return self.y * jnp.asarray(mean) - expected_softplus(jnp.asarray(mean), jnp.asarray(variance))
        return expected_log_ndtr((2.0 * self.y - 1.0) * mean, variance)
