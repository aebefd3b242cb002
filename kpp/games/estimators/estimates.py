"""Shapley values of any game: exact whenever an exact method applies, otherwise sampled, with standard errors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from kpp.games.estimators.estimate import ShapleyEstimate
from kpp.games.estimators.game import Game
from kpp.games.estimators.least_squares import shapley_values_from_pairs
from kpp.games.estimators.methods import MAX_PLAYERS, check_batch_size, choose_for_game, solve_exactly
from kpp.games.estimators.permutations import coalitions_of_permutations, shapley_values_from_permutations
from kpp.games.estimators.quadrature import num_nodes
from kpp.games.estimators.read_game import read_game
from kpp.games.estimators.sampling import sample_coalition_pairs, sample_permutations
from kpp.games.players.coalitions import MAX_ENUMERATED
from kpp.games.values.abstract import AbstractValueFunction
from kpp.games.values.product_games import is_product_game
from kpp.typing import RngKey
from kpp.validation import count, one_of

__all__ = ["estimate_shapley"]

_SAMPLED = ("least-squares", "permutation")
# All coalitions of two players: a budget of this size leaves nothing to sample.
_FEW_COALITIONS = 4
# The default number of sampled coalitions: this number plus two per player.
_DEFAULT_COALITIONS = 2048
# Draw this many times more orders than needed: orders of few players share coalitions, each of which is valued once.
_SPARE_ORDERS = 4


def estimate_shapley(
    value_function: AbstractValueFunction,
    function: object,
    x: object,
    *,
    method: str = "auto",
    groups: object = None,
    num_coalitions: int | None = None,
    rng_key: RngKey | None = None,
    batch_size: int | None = None,
) -> ShapleyEstimate:
    """Compute Shapley values, exactly if possible, otherwise from sampled coalitions.

    "auto" takes quadrature or enumeration, whichever is cheaper, for a product game; for any other game enumeration up
    to 14 players, if `num_coalitions` allows for it, and else "least-squares", a fit to sampled pairs of complementary
    coalitions. All points and draws share the sampled coalitions. A budget that covers all coalitions gives the exact
    values by any method. Players without variation get the value 0 and are ignored in all counts.

    Args:
        value_function: The game.
        function: The function to explain: an `RKHSFunction`, or another function that the value function accepts.
        x: The points to explain, (p, d).
        method: "auto", "quadrature", "enumeration", "least-squares", or "permutation", which averages over sampled
            orders of the players and their reverses.
        groups: Features that form one player, a mapping from names to features; see `as_players`. By default each
            feature is a player.
        num_coalitions: How many different coalitions may be valued by the sampling methods, the empty and the full one
            among them; by default 2048 and two for each player.
        rng_key: A JAX random key, needed if something is sampled.
        batch_size: How many references are worked on at once by the exact methods for product games.

    Returns:
        The values with their standard errors, and how they were computed.

    Raises:
        ValueError: If `x`, `method`, `groups`, `num_coalitions` or `batch_size` are invalid, or there are too many
            players to enumerate.
        TypeError: If `method` is "quadrature" and does not apply, or coalitions must be sampled and `rng_key` is None.
    """
    game = read_game(value_function, function, x, groups)
    check_batch_size(batch_size)
    budget = _check_budget(num_coalitions, game.num_players)
    method = _choose(game, method, num_coalitions)
    if method not in _SAMPLED:
        return _solve(game, method, method, batch_size)
    if game.num_players <= MAX_ENUMERATED and 2**game.num_players <= max(budget, _FEW_COALITIONS):
        return _solve(game, method, "enumeration", batch_size)
    if rng_key is None:
        raise TypeError(
            f"`rng_key` must be given to sample coalitions of {game.num_players} players by method {method!r}; "
            "write `rng_key=jax.random.key(0)`"
        )
    return (_sample_pairs if method == "least-squares" else _sample_orders)(game, budget, rng_key)


def _choose(game: Game, method: str, num_coalitions: int | None) -> str:
    if method in _SAMPLED:
        return method
    one_of(method, "method", ("auto", "quadrature", "enumeration", *_SAMPLED))
    if method == "auto" and not is_product_game(game.value_function, game.function):
        affordable = num_coalitions is None or 2**game.num_players <= num_coalitions
        return "enumeration" if game.num_players <= MAX_PLAYERS and affordable else "least-squares"
    return choose_for_game(game, method)


def _check_budget(num_coalitions: int | None, num_players: int) -> int:
    """Return how many coalitions may be valued."""
    if num_coalitions is None:
        return _DEFAULT_COALITIONS + 2 * num_players
    return count(num_coalitions, "num_coalitions")


def _solve(game: Game, method: str, solver: str, batch_size: int | None) -> ShapleyEstimate:
    values = solve_exactly(game, solver, batch_size)
    nodes = num_nodes(game.num_players) if solver == "quadrature" else None
    coalitions = None if solver == "quadrature" else 2**game.num_players
    return ShapleyEstimate(values, None, method, True, coalitions, nodes)


def _sample_pairs(game: Game, budget: int, rng_key: RngKey) -> ShapleyEstimate:
    needed = 2 * game.num_players + 2
    if budget < needed:
        raise ValueError(
            f"`num_coalitions` must be at least {needed} to fit {game.num_players} values to them, got {budget}"
        )
    coalitions, counts = sample_coalition_pairs(rng_key, game.num_players, (budget - 2) // 2)
    ends = np.array([[False], [True]]).repeat(game.num_players, axis=1)
    every = np.concatenate([ends, coalitions, ~coalitions])
    table, num_draw_axes = game.table(every)
    results = shapley_values_from_pairs(coalitions, counts, *_differences(table))
    return _sampled(game, "least-squares", results, every, num_draw_axes)


@jax.jit
def _differences(table: Float[Array, "c *rest"]) -> tuple[Float[Array, "k *rest"], Float[Array, "*rest"]]:
    """Return the differences of pairs of coalitions, and of the full coalition and the empty one."""
    present, absent = jnp.split(table[2:], 2)
    return present - absent, table[1] - table[0]


def _sample_orders(game: Game, budget: int, rng_key: RngKey) -> ShapleyEstimate:
    each = 2 * (game.num_players - 1)
    if budget < 2 * each + 2:
        raise ValueError(
            f"`num_coalitions` must be at least {2 * each + 2} for two orders of {game.num_players} players and their "
            f"reverses, got {budget}"
        )
    permutations = sample_permutations(rng_key, game.num_players, _SPARE_ORDERS * ((budget - 2) // each))
    coalitions, index = coalitions_of_permutations(permutations)
    different = np.maximum.accumulate(index.max(axis=(1, 2))) + 1
    orders = np.count_nonzero(different <= budget)
    coalitions = coalitions[: different[orders - 1]]
    table, num_draw_axes = game.table(coalitions)
    results = shapley_values_from_permutations(permutations[:orders], index[:orders], table)
    return _sampled(game, "permutation", results, coalitions, num_draw_axes)


def _sampled(
    game: Game, method: str, results: tuple[Array, Array], coalitions: Bool[np.ndarray, "c g"], num_draw_axes: int
) -> ShapleyEstimate:
    values, errors = (game.arrange(result.swapaxes(0, 1), num_draw_axes) for result in results)
    return ShapleyEstimate(values, errors, method, False, len(coalitions), None)
