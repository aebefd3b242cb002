r"""A likelihood that a function of the latent values describes by a NumPyro distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.gp.integrals.expectations import expectation
from kpp.gp.likelihoods.base import AbstractPointwiseLikelihood, observed_field
from kpp.typing import AnyArray, RngKey


class FunctionLikelihood(AbstractPointwiseLikelihood):
    """The law of the observations as a function of their latent values and exposures.

    Args:
        function: Takes f (n,) and the exposure, and returns a NumPyro distribution with the batch shape (n,).
        y: The observations, (n,), or None.
        exposure: (n,), or None.
    """

    per_observation: ClassVar[tuple[str, ...]] = ("y", "exposure")

    function: Callable[[Any, Any], dist.Distribution] = eqx.field(static=True)
    y: Any = observed_field()
    exposure: Any = observed_field("exposure")

    @property
    def support(self) -> Any:
        like = self.exposure if self.y is None else self.y  # the support is taken at latent values of 0
        return self.function(jnp.zeros(()) if like is None else jnp.zeros_like(like), self.exposure).support

    def log_density(self, f: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return self.function(f, self.exposure).log_prob(self.y)

    def draw(self, rng_key: RngKey, f: Float[AnyArray, "*p"]) -> Array:
        """Draw observations at an exposure of 1, or without an exposure if there is none."""
        exposure = None if self.exposure is None else jnp.ones_like(jnp.asarray(f))
        return self.function(f, exposure).sample(rng_key)

    def draw_observed(self, rng_key: RngKey, f: Float[AnyArray, " n"]) -> Array:
        exposure = None if self.exposure is None else jnp.broadcast_to(self.exposure, jnp.shape(f))
        return self.function(f, exposure).sample(rng_key)

    def response_mean(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return expectation(lambda f: self.function(f, self.exposure).mean, mean, variance)
