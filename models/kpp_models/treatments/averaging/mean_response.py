"""The mean of an observation given its latent value."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.gp import AbstractPointwiseLikelihood


def mean_is_latent(likelihood: object) -> bool:
    """Return whether the mean of an observation is the latent value, as it is for numbers with noise around it."""
    if not isinstance(likelihood, AbstractPointwiseLikelihood):
        return True
    return type(likelihood).response_mean is AbstractPointwiseLikelihood.response_mean


def mean_response(likelihood: AbstractPointwiseLikelihood, latent: Float[Array, " n"]) -> Float[Array, " n"]:
    """Return the means of new observations given their latent values, (n,)."""
    return likelihood.response_mean(latent, jnp.zeros_like(latent))
