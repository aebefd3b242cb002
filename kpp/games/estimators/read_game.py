"""Reading a game from a user's arguments, without its null players, which are found before any other computation.

A feature that has the same value at all explained points and references does not change the value of any coalition that
it joins. Its contribution is exactly 0, and the game is solved for the other players only.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from kpp.foundation.validation import as_points, is_concrete
from kpp.functions import RKHSFunction
from kpp.games.estimators.game import Game
from kpp.games.players.players import Players, as_players
from kpp.games.values.abstract import AbstractProductValueFunction, AbstractValueFunction
from kpp.games.values.imputation import AbstractImputation
from kpp.games.values.product_games import is_product_game
from kpp.typing import AnyArray


def read_game(
    value_function: AbstractValueFunction, function: object, x: object, groups: object, *, null_players: bool = False
) -> Game:
    """Check the points and groups of a user, and leave out null players unless `null_players` is True."""
    x = as_points(x)
    if isinstance(function, RKHSFunction):
        x = as_points(x, num_features=function.num_features)
    players = as_players(groups, x.shape[1])
    if null_players:
        varying = np.ones(players.num_players, dtype=bool)
    else:
        varying = varying_players(value_function, function, x, players)
    return Game(value_function, function, jnp.asarray(x), players.keep(varying), varying)


def varying_players(value_function: Any, function: Any, x: Array, players: Players) -> Bool[np.ndarray, " g"]:
    """Return which of g players are not null players for at least one of the points (p, d); at least one is True.

    The features of null players are constant over the explained points and the references, or, if the value function
    does not have references, over the function's points. In a product game their kernel factors must agree. All are
    True if values are traced by JAX.
    """
    if not all(map(is_concrete, jax.tree.leaves((value_function, function, x)))):
        return np.ones(players.num_players, dtype=bool)
    varying = _varying_features(value_function, function, x)
    mask = np.array([varying[list(group)].any() for group in players.groups])
    mask[0] |= not mask.any()
    return mask


def _varying_features(value_function: Any, function: Any, x: Array) -> Bool[np.ndarray, " d"]:
    rows = np.asarray(x)
    if is_product_game(value_function, function):
        return ~_idle_factors(value_function, function, rows)
    if isinstance(value_function, AbstractImputation):
        return ~(_constant(rows) & _agrees(value_function.background, rows))
    return np.ones(rows.shape[1], dtype=bool)


def _idle_factors(
    value_function: AbstractProductValueFunction, function: RKHSFunction, rows: Float[np.ndarray, "p d"]
) -> Bool[np.ndarray, " d"]:
    """Return which features have the same factors for all explained points and references."""
    references = np.asarray(value_function.references(rows.shape[1]))
    points = function.points.reshape(-1, rows.shape[1]) if eqx.is_array(function.points) else references
    idle = _constant(rows) & _constant(references) & (_agrees(references, rows) | _agrees(points, rows))
    if idle.any():
        idle &= np.asarray(_agreeing_factors(value_function, function, jnp.asarray(rows[:1])))
    return idle


def _constant(rows: Float[np.ndarray, "p d"]) -> Bool[np.ndarray, " d"]:
    return (rows == rows[:1]).all(axis=0)


def _agrees(others: AnyArray, rows: Float[np.ndarray, "p d"]) -> Bool[np.ndarray, " d"]:
    """Return the columns in which all given points have the value of the first explained point."""
    return (np.asarray(others) == rows[:1]).all(axis=0)


@eqx.filter_jit
def _agreeing_factors(
    value_function: AbstractProductValueFunction, function: RKHSFunction, x: Float[Array, "1 d"]
) -> Bool[Array, " d"]:
    """Return which features have equal factors at the first explained point and the first reference."""

    def agree(draw: RKHSFunction) -> Array:
        references = value_function.references(x.shape[1])[:1].astype(x.dtype)
        same = [
            jnp.all(
                term.factors(x, part.points) == value_function.absent_factors(term, references, part.points), (1, 2)
            )
            for term, part in draw.product_parts()
        ]
        return jnp.all(jnp.stack(same), axis=0)

    return jnp.all(function.map_draws(agree).reshape(-1, x.shape[1]), axis=0)
