r"""Shapley values as averages over sampled orders in which the players join.

The value of a player is its mean marginal contribution :math:`v(S \cup j) - v(S)` over all orders, where S are the
players before it. Each order that is drawn comes with its reverse (antithetic sampling), whose coalitions are the
complements.

References:
    Castro, Gomez and Tejada, Polynomial calculation of the Shapley value based on sampling, 2009;
    Mitchell, Cooper, Frank and Holmes, Sampling permutations for Shapley value estimation, 2022.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kpp.games.players.players import from_integers, to_integers
from kpp.typing import AnyArray


def coalitions_of_permutations(
    permutations: Int[np.ndarray, "k g"],
) -> tuple[Bool[np.ndarray, "c g"], Int[np.ndarray, "k 2 steps"]]:
    """Return the coalitions that are formed when players join in the given orders and in the reverse orders.

    Args:
        permutations: The orders, (k, g).

    Returns:
        The different coalitions, booleans of shape (c, g), in the order of their first occurrence; and for each order
        the positions in this array of the coalition of the players present after s = 0, ..., g steps, and of its
        complement, of shape (k, 2, g + 1).
    """
    num_orders, num_players = permutations.shape
    ranks = np.argsort(permutations, axis=1)
    present = ranks[:, None, :] < np.arange(num_players + 1)[None, :, None]
    integers = to_integers(np.stack([present, ~present], axis=1).reshape(-1, num_players))
    positions = {integer: position for position, integer in enumerate(dict.fromkeys(integers))}
    index = np.array([positions[integer] for integer in integers])
    return from_integers(positions, num_players), index.reshape(num_orders, 2, num_players + 1)


def shapley_values_from_permutations(
    permutations: Int[np.ndarray, "k g"], index: Int[np.ndarray, "k 2 steps"], values: Float[AnyArray, "c *rest"]
) -> tuple[Float[Array, "g *rest"], Float[Array, "g *rest"]]:
    """Average marginal contributions over orders and their reverses.

    Args:
        permutations: The orders, (k, g), at least two of them.
        index: The positions of their coalitions, as `coalitions_of_permutations` returns them.
        values: The coalitions' values, (c, ...).

    Returns:
        The values, and their standard errors over the k independent pairs of an order with its reverse; (g, ...) each.

    Raises:
        ValueError: If there are fewer than two orders.
    """
    num_orders = permutations.shape[0]
    if num_orders < 2:
        raise ValueError(f"`permutations` must be at least two to tell a standard error, got {num_orders}")
    steps = np.argsort(permutations, axis=1)[:, None]
    before, after = (np.take_along_axis(index, steps + step, axis=2) for step in (0, 1))
    return _average_gains(before, after, jnp.asarray(values))


@jax.jit
def _average_gains(
    before: Int[AnyArray, "k 2 g"], after: Int[AnyArray, "k 2 g"], values: Float[Array, "c *rest"]
) -> tuple[Float[Array, "g *rest"], Float[Array, "g *rest"]]:
    """Average the differences of successive coalitions; the reverse orders are stored in the opposite direction."""
    gains = values[after[:, 0]] - values[before[:, 0]] + values[before[:, 1]] - values[after[:, 1]]
    # An order and its reverse are one draw, because their gains are not independent.
    return gains.mean(axis=0) / 2, jnp.std(gains, axis=0, ddof=1) / 2 / gains.shape[0] ** 0.5
