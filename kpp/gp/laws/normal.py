"""The density of independent normal numbers."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.typing import AnyArray

LOG_TWO_PI = 1.8378770664093453


def normal_log_density(
    value: Float[AnyArray, "*n"], mean: Float[AnyArray, "*n"], variance: Float[AnyArray, "*n"] | Float[AnyArray, ""]
) -> Float[Array, "*n"]:
    """Return the log density of independent normal variables, elementwise."""
    return -0.5 * (LOG_TWO_PI + jnp.log(variance) + (value - mean) ** 2 / variance)
