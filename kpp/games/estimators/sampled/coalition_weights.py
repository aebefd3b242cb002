r"""Shapley values of a game given by the values of all its coalitions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import comb

from kpp.games.players.players import all_coalitions
from kpp.typing import AnyArray


def shapley_weights(num_features: int) -> Float[np.ndarray, " d"]:
    r"""Return the weight of a marginal contribution by the size of the coalition that is joined.

    .. math:: w_s = \frac{s!\,(d-1-s)!}{d!} = \frac{1}{d \binom{d-1}{s}}

    Args:
        num_features: d, at least 1.

    Returns:
        The weights of sizes s = 0, ..., d - 1, of shape (d,). Over the subsets of d - 1 features they sum to 1.

    Raises:
        ValueError: If d is less than 1.

    Example:
        >>> kpp.games.shapley_weights(3).round(3)
        array([0.333, 0.167, 0.333])
    """
    if num_features < 1:
        raise ValueError(f"`num_features` must be at least 1, got {num_features}")
    return 1.0 / (num_features * comb(num_features - 1, np.arange(num_features)))


def shapley_values_from_table(values: Float[AnyArray, "c *rest"]) -> Float[Array, "d *rest"]:
    r"""Compute Shapley values from the values of all coalitions.

    .. math:: \phi_i = \sum_{S \not\ni i} \frac{|S|!\,(d-1-|S|)!}{d!} \bigl(v(S \cup i) - v(S)\bigr)

    Args:
        values: v, of shape (2^d, ...), in the order of `all_coalitions`.

    Returns:
        The Shapley values, of shape (d, ...).

    Raises:
        ValueError: If the number of rows is not a power of two, or is 1.

    Example:
        >>> kpp.games.shapley_values_from_table(np.array([0.0, 1.0, 2.0, 4.0]))
        Array([1.5, 2.5], dtype=float64)

    References:
        Shapley, A value for n-person games, 1953.
    """
    values = jnp.asarray(values)
    rows = values.shape[0] if values.ndim else 0
    num_features = rows.bit_length() - 1
    if rows < 2 or rows != 2**num_features:
        raise ValueError(f"`values` must have 2^d rows, one per coalition, got shape {values.shape}")
    sizes = all_coalitions(num_features).sum(axis=1)[: rows // 2]  # of the other d - 1 features
    weights = jnp.asarray(shapley_weights(num_features)[sizes], dtype=values.dtype)
    return _average_marginals(values, weights)


@jax.jit
def _average_marginals(values: Array, weights: Array) -> Float[Array, "d *rest"]:
    num_features = values.shape[0].bit_length() - 1
    return jnp.stack([_marginal(values, j, weights) for j in range(num_features)])


def _marginal(values: Array, feature: int, weights: Array) -> Array:
    """Average the marginal contributions of a feature to the coalitions of the d - 1 others, in their order."""
    rest = values.shape[1:]
    pairs = values.reshape(-1, 2, 2**feature, *rest)  # bit j of the row's number says whether j is a member
    gains = (pairs[:, 1] - pairs[:, 0]).reshape(-1, *rest)
    return jnp.tensordot(weights, gains, axes=1, precision="highest")
