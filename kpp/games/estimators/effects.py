r"""The direct and the indirect part of each player's Shapley value.

A player that joins a coalition changes the prediction directly, as its feature gets the value of the point, and
indirectly, as the law of the absent features changes.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from kpp.games.estimators.game import Game, read_game
from kpp.games.estimators.methods import MAX_PLAYERS
from kpp.games.estimators.sampled.coalition_weights import shapley_weights
from kpp.games.players.players import Coalitions, Instances, all_coalitions
from kpp.games.values.imputation import AbstractImputation
from kpp.games.values.weighted import AbstractWeighted
from kpp.typing import AnyArray, PointFunction


class ShapleyEffects(NamedTuple):
    """The two parts of Shapley values, each led by draws, with the outputs last.

    Attributes:
        direct: The direct effects, (p, g).
        indirect: The indirect effects, (p, g).
    """

    direct: Float[Array, "..."]
    indirect: Float[Array, "..."]


def direct_and_indirect_effects(
    value_function: AbstractImputation, function: PointFunction, x: object, *, groups: object = None
) -> ShapleyEffects:
    r"""Split Shapley values into direct and indirect effects, which add up to them.

    .. math:: v(S \cup j) - v(S) = \underbrace{\mathrm{E}_S f(x_{S \cup j}, X_{rest}) - \mathrm{E}_S f(x_S, X_{S^c})
        }_{\text{direct}} + \underbrace{\mathrm{E}_{S \cup j} f(x_{S \cup j}, X_{rest}) -
        \mathrm{E}_S f(x_{S \cup j}, X_{rest})}_{\text{indirect}}

    where :math:`\mathrm{E}_S` is the expectation over the absent features given the coalition, such as
    :math:`do(X_S = x_S)`. Both parts are averaged with the weights of the Shapley value, over all coalitions. Indirect
    effects of the interventional value function are 0. The empty coalition has the law of the background, so that for
    a fitted law the indirect effects also hold the difference between this law and the background.

    Args:
        value_function: A value function that fills in absent features beside the present ones, such as
            `kpp.games.Causal`, `kpp.games.GaussianConditional` or `kpp.games.Interventional`.
        function: The function to explain.
        x: The points, (p, d).
        groups: Features that form one player; see `as_players`.

    Returns:
        The direct and the indirect effects, (p, g) each, led by draws, with the outputs last.

    Raises:
        TypeError: If the value function does not fill in absent features beside the present ones.
        ValueError: If there are more than 14 players that are not null players, or `x` is invalid.

    References:
        Heskes, Sijben, Bucur and Claassen, Causal Shapley values, 2020, section 4, equations 6 and 7.
    """
    value_function = check_effects(value_function)
    game = read_game(value_function, function, x, groups)
    if game.num_players > MAX_PLAYERS:
        raise ValueError(f"`groups` must leave at most {MAX_PLAYERS} players, got {game.num_players}")
    coalitions = all_coalitions(game.num_players)
    table, draws = game.table(coalitions)
    parts = [_effects_of(game, player, coalitions, table) for player in range(game.num_players)]
    direct, indirect = (jnp.stack(part, axis=1) for part in zip(*parts, strict=True))
    return ShapleyEffects(game.arrange(direct, draws), game.arrange(indirect, draws))


def check_effects(value_function: object, order: object = None) -> AbstractImputation:
    """Return a value function whose values have direct and indirect effects, without an order of the players.

    Raises:
        TypeError: If it does not fill in absent features beside the present ones.
        ValueError: If there is an order.
    """
    if not isinstance(value_function, AbstractImputation) or isinstance(value_function, AbstractWeighted):
        raise TypeError(
            "`value_function` must fill in absent features beside the present ones, such as Causal, "
            f"GaussianConditional or Interventional, got {type(value_function).__name__}"
        )
    if order is not None:
        raise ValueError("`effects` are parts of symmetric Shapley values; leave out `order`")
    return value_function


def _effects_of(
    game: Game, player: int, coalitions: Bool[np.ndarray, "c g"], table: Float[Array, "c p *rest"]
) -> tuple[Float[Array, "p *rest"], Float[Array, "p *rest"]]:
    """Return the direct and the indirect effect of one player."""
    joined = coalitions[:, player]
    without = coalitions[~joined]
    weights = jnp.asarray(shapley_weights(game.num_players)[without.sum(axis=1)], dtype=table.dtype)
    features = jnp.asarray(game.players.membership == player)
    shown = _Shown(game.value_function.background, game.value_function, features)
    inserted, _ = Game(shown, game.function, game.x, game.players, game.varying).table(without)
    # From coalitions without the player to those that it joined.
    direct, indirect = inserted - table[~joined], table[joined] - inserted
    return jnp.tensordot(weights, direct, axes=1), jnp.tensordot(weights, indirect, axes=1)


class _Shown(AbstractImputation):
    """An imputation that shows the values of the point in some more features, and keeps the law of the others."""

    background: Float[AnyArray, "m d"]
    game: AbstractImputation
    features: Bool[Array, " d"]

    def imputation_weights(self, function: object, x: Instances, coalitions: Coalitions) -> Float[Array, "c p m"]:
        return self.game.imputation_weights(function, x, coalitions)

    def impute(self, function: object, x: Instances, coalitions: Coalitions) -> Float[Array, "c p m d"]:
        rows = self.game.impute(function, x, coalitions)
        return jnp.where(self.features, jnp.asarray(x)[None, :, None, :], rows)
