"""Exact Shapley values of any value function, by the cheaper of two methods."""

from __future__ import annotations

from typing import Any

from jaxtyping import Array, Float

from kpp.games.estimators.methods import check_batch_size, choose_for_game, solve_exactly
from kpp.games.estimators.read_game import read_game
from kpp.games.values.abstract import AbstractValueFunction
from kpp.games.values.interventional import Interventional


def shapley_values(
    value_function: AbstractValueFunction,
    function: object,
    x: object,
    *,
    method: str = "auto",
    groups: object = None,
    batch_size: int | None = None,
) -> Float[Array, "*draws p g *outputs"]:
    """Compute exact Shapley values.

    Features that are constant over the points and the references get the value 0 and take no time.

    Args:
        value_function: The game.
        function: The function to explain: an `RKHSFunction`, or another function that the value function accepts.
        x: The points to explain, (p, d).
        method: "quadrature", "enumeration", or "auto" for the cheaper one.
        groups: Features that form one player, a mapping from names to features; see `as_players`. By default each
            feature is a player.
        batch_size: How many references are worked on at once; by default what fits a processor's cache.

    Returns:
        The Shapley values, (p, g), led by draws, with the outputs last. Without groups g = d.

    Raises:
        ValueError: If `x`, `method`, `groups` or `batch_size` are invalid, or there are too many players to
            enumerate.
        TypeError: If quadrature does not apply, and is requested or is the only possible method.
    """
    game = read_game(value_function, function, x, groups)
    check_batch_size(batch_size)
    return solve_exactly(game, choose_for_game(game, method), batch_size)


def interventional_shapley(
    function: object,
    x: object,
    background: Any,
    *,
    method: str = "auto",
    groups: object = None,
    batch_size: int | None = None,
) -> Float[Array, "*draws p g *outputs"]:
    """Compute exact Shapley values of `Interventional` with background points (m, d); see `shapley_values`."""
    return shapley_values(Interventional(background), function, x, method=method, groups=groups, batch_size=batch_size)
