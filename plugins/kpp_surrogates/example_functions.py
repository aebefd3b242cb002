"""The functions in the examples of the explainers, for the conformance suite."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from kpp import RKHSFunction
from kpp.kernels import RBF
from kpp.typing import RngKey


def points(rng_key: RngKey) -> tuple[Float[Array, "m d"], Float[Array, "p d"]]:
    """Return a background and points to explain; the last column holds categories 0 and 1."""
    rows = jax.random.normal(rng_key, (7, 5)).at[:, 4].set(jnp.array([0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0]))
    return rows[:5], rows[5:]


def product(x: ArrayLike) -> Float[np.ndarray, " n"]:
    """Return numbers with interactions of features."""
    x = np.asarray(x)
    return x[:, 0] * x[:, 1] + np.sin(x[:, 2]) * x[:, 3] - x[:, 4]


def two_outputs(x: ArrayLike) -> Float[np.ndarray, "n 2"]:
    """Return two outputs."""
    return np.stack([product(x), np.asarray(x)[:, 0] ** 2], axis=1)


def function_with_draws(centers: Float[Array, "m d"]) -> RKHSFunction:
    """Return a function with draws (1, 2)."""
    coefficients = jnp.sin(jnp.arange(2.0 * len(centers))).reshape(1, 2, -1)
    return RKHSFunction.over_draws(RBF(lengthscale=1.0), centers, coefficients, 0.4, batch_shape=(1, 2))
