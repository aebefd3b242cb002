r"""Interactions of pairs of players: the contribution of two players together beyond the contributions of each alone.

With the second difference :math:`\Delta_{ij} v(S) = v(S \cup ij) - v(S \cup i) - v(S \cup j) + v(S)`, the two indices
here are the Shapley interaction index and the Shapley-Taylor index of order 2,

.. math:: \text{SII}_{ij} = \sum_{S \not\ni i, j} \frac{s!\,(g-2-s)!}{(g-1)!}\,\Delta_{ij} v(S), \qquad
    \text{STII}_{ij} = \frac{2}{g} \sum_{S \not\ni i, j} \binom{g-1}{s}^{-1} \Delta_{ij} v(S),

where s is the size of S.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import comb

from kpp.foundation.validation import one_of
from kpp.games.estimators.game import Game, read_game
from kpp.games.estimators.methods import check_batch_size, choose_for_game, solve_exactly
from kpp.games.estimators.quadrature import quadrature_interactions
from kpp.games.players.players import all_coalitions
from kpp.games.values.abstract import AbstractValueFunction
from kpp.typing import AnyArray

_INDICES = ("SII", "STII")


def interaction_values(
    value_function: AbstractValueFunction,
    function: Any,
    x: object,
    *,
    index: str = "SII",
    method: str = "auto",
    groups: object = None,
    batch_size: int | None = None,
) -> Float[Array, "*draws p g g *outputs"]:
    r"""Compute exact interactions of all pairs of players.

    Args:
        value_function: The game.
        function: The function to explain: an `RKHSFunction`, or another function that the value function accepts.
        x: The points to explain, (p, d).
        index: "SII", the Shapley interaction index, whose diagonal is 0; or "STII", the Shapley-Taylor index of
            order 2, whose diagonal holds the contribution of each player alone, :math:`v(\{i\}) - v(\emptyset)`: its
            diagonal and upper triangle sum to :math:`v(D) - v(\emptyset)`.
        method: "quadrature", "enumeration", or "auto" for the cheaper one.
        groups: Features that form one player, a mapping from names to features; see `as_players`.
        batch_size: How many references are worked on at once.

    Returns:
        The interactions, symmetric, (p, g, g), led by draws, with the outputs last.

    Raises:
        ValueError: If `x`, `index`, `method`, `groups` or `batch_size` are invalid, or there are too many players
            to enumerate.
        TypeError: If quadrature does not apply, and is requested or is the only possible method.

    Example:
        >>> game, function = kpp.games.Interventional(x), kpp.as_rkhs_function(fit)
        >>> kpp.games.interaction_values(game, function, x[:1]).round(3)
        Array([[[[[0.   , 0.042],
                  [0.042, 0.   ]]]]], dtype=float64)

    References:
        Grabisch and Roubens, An axiomatic approach to the concept of interaction among players, 1999;
        Sundararajan, Dhamdhere and Agarwal, The Shapley Taylor interaction index, 2020.
    """
    one_of(index, "index", _INDICES)
    check_batch_size(batch_size)
    game = read_game(value_function, function, x, groups)

    def by_quadrature(*arguments: Any, **options: Any) -> Array:
        values = quadrature_interactions(*arguments, taylor=index == "STII", **options)
        return _add_diagonal(values, game) if index == "STII" else values

    return solve_exactly(game, choose_for_game(game, method), batch_size, _FROM_TABLE[index], by_quadrature, 2)


def interactions_from_table(values: Float[AnyArray, "c *rest"], *, index: str = "SII") -> Float[Array, "g g *rest"]:
    """Compute the interactions of all pairs of players from the values of all coalitions.

    Args:
        values: v, of shape (2^g, ...), in the order of `all_coalitions`.
        index: "SII" or "STII", as for `interaction_values`.

    Returns:
        The interactions, of shape (g, g, ...).

    Raises:
        ValueError: If the number of rows is not a power of two, or is 1, or `index` is unknown.
    """
    one_of(index, "index", _INDICES)
    values = jnp.asarray(values)
    rows = values.shape[0] if values.ndim else 0
    num_players = rows.bit_length() - 1
    if rows < 2 or rows != 2**num_players:
        raise ValueError(f"`values` must have 2^g rows, one per coalition, got shape {values.shape}")
    weights = jnp.asarray(_weights_by_size(num_players, index), dtype=values.dtype)
    table = _sum_differences(values, weights)
    return _set_diagonal(table, _empty_and_alone(values), 0) if index == "STII" else table


@jax.jit
def _empty_and_alone(values: Float[Array, "c *rest"]) -> Float[Array, "k *rest"]:
    """Return the values of the empty coalition and of those of one player."""
    return values[np.append(0, 2 ** np.arange(values.shape[0].bit_length() - 1))]


@jax.jit
def _sum_differences(values: Float[Array, "c *rest"], weights: Float[Array, " sizes"]) -> Float[Array, "g g *rest"]:
    """Sum all pairs' second differences, weighted by the size of the coalition that the two join."""
    num_players = values.shape[0].bit_length() - 1
    coalitions = all_coalitions(num_players)
    members, sizes = jnp.asarray(coalitions.T), jnp.asarray(coalitions.sum(axis=1))
    first, second = np.triu_indices(num_players, 1)

    def interaction(pair: tuple[Array, Array]) -> Array:
        joined = members[pair[0]].astype(int) + members[pair[1]]
        signs = 1 - 2 * (joined % 2)
        return jnp.tensordot(signs * weights[sizes - joined], values, axes=1, precision="highest")

    table = jnp.zeros((num_players, num_players, *values.shape[1:]), dtype=values.dtype)
    if num_players == 1:
        return table
    values_of_pairs = jax.lax.map(interaction, (jnp.asarray(first), jnp.asarray(second)))
    return table.at[first, second].set(values_of_pairs).at[second, first].set(values_of_pairs)


def _weights_by_size(num_players: int, index: str) -> Float[np.ndarray, " sizes"]:
    """Return the weights of second differences at coalitions of s = 0, ..., g - 2 players."""
    sizes = np.arange(max(1, num_players - 1))
    if index == "SII":
        return 1.0 / (max(1, num_players - 1) * comb(max(0, num_players - 2), sizes))  # Grabisch and Roubens (1999)
    return 2.0 / (num_players * comb(num_players - 1, sizes))  # Sundararajan, Dhamdhere and Agarwal (2020)


# Defined at module level, so that JAX finds their compiled versions again.
_FROM_TABLE = {index: functools.partial(interactions_from_table, index=index) for index in _INDICES}


def _add_diagonal(values: Float[Array, "*draws p g g *outputs"], game: Game) -> Float[Array, "..."]:
    """Put the contribution of each player alone on the diagonal."""
    empty_and_alone = np.concatenate([np.zeros((1, game.num_players), bool), np.eye(game.num_players, dtype=bool)])
    table, num_draw_axes = game.table(empty_and_alone)
    return _set_diagonal(values, jnp.moveaxis(table, (0, 1), (num_draw_axes + 1, num_draw_axes)), num_draw_axes + 1)


@functools.partial(jax.jit, static_argnums=2)
def _set_diagonal(values: Array, empty_and_alone: Array, axis: int) -> Array:
    """Replace the diagonal of (..., g, g, ...) at `axis` by the differences of (..., 1 + g, ...) from the first."""
    players = np.arange(values.shape[axis])
    leading = (slice(None),) * axis
    diagonal = empty_and_alone[(*leading, slice(1, None))] - empty_and_alone[(*leading, slice(1))]
    return values.at[(*leading, players, players)].set(diagonal)
