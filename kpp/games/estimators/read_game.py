"""Reading a game from a user's arguments, without its null players."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from kpp.foundation.validation import as_points
from kpp.functions import RKHSFunction
from kpp.games.estimators.game import Game
from kpp.games.players.players import as_players
from kpp.games.values.abstract import AbstractValueFunction
from kpp.games.values.null_players import varying_players


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
