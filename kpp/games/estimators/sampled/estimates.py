"""Shapley values of any game: exact whenever an exact method applies, otherwise sampled, with standard errors."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kpp.foundation.validation import count, one_of, positive
from kpp.games.estimators.active.estimate_actively import estimate_actively
from kpp.games.estimators.game import Game, ShapleyEstimate, read_game
from kpp.games.estimators.methods import MAX_PLAYERS, check_batch_size, choose_for_game, solve_exactly
from kpp.games.estimators.quadrature import num_nodes
from kpp.games.estimators.sampled.coalition_weights import shapley_values_from_table
from kpp.games.estimators.sampled.draw_errors import draw_errors, has_draws, weights_of
from kpp.games.estimators.sampled.least_squares import shapley_values_from_pairs
from kpp.games.estimators.sampled.sampling import (
    coalition_pairs_in_rounds,
    coalitions_of_permutations,
    sample_permutations,
    shapley_values_from_permutations,
)
from kpp.games.players.players import MAX_ENUMERATED, all_coalitions
from kpp.games.values.abstract import AbstractValueFunction
from kpp.games.values.product_games import is_product_game
from kpp.runtime.memory import check_count
from kpp.typing import RngKey

_SAMPLED = ("least-squares", "permutation", "active")
# All coalitions of two players: a budget of this size leaves nothing to sample.
_FEW_COALITIONS = 4
# The default number of sampled coalitions: this number plus two per player.
_DEFAULT_COALITIONS = 2048
# The default number of chosen coalitions per player, without and with a tolerance. Of fewer players, all are valued.
_CHOSEN, _MOST_CHOSEN, _FEWEST_PLAYERS = 16, 64, 3
# With a tolerance, the default of the largest number, and the first number, in all and per player: standard
# errors from less are not reliable enough to stop.
_MOST_COALITIONS, _FIRST_COALITIONS, _FIRST_PER_PLAYER = 2**15, 128, 20
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
    tolerance: float | None = None,
    rng_key: RngKey | None = None,
    batch_size: int | None = None,
) -> ShapleyEstimate:
    """Compute Shapley values, exactly if possible, otherwise from sampled coalitions.

    "auto" takes quadrature or enumeration, whichever is cheaper, for a product game; for any other game enumeration up
    to 14 players, if `num_coalitions` allows for it, and else "least-squares", a fit to sampled pairs of complementary
    coalitions. All points and draws share the sampled coalitions. A budget that covers all coalitions gives the exact
    values by any method. Players without variation get the value 0 and are ignored in all counts.

    With a `tolerance` the number of coalitions is doubled until the largest standard error of all values is at most the
    tolerance, or `num_coalitions` is reached. If all coalitions come first, the values are exact, with errors of 0.

    If the values of coalitions are means over random draws, as those of `kpp.games.Causal`, the standard errors hold
    the errors of these means, which do not depend on the number of coalitions.

    Args:
        value_function: The game.
        function: The function to explain: an `RKHSFunction`, or another function that the value function accepts.
        x: The points to explain, (p, d).
        method: "auto", "quadrature", "enumeration", "least-squares", "permutation", which averages over sampled
            orders of the players and their reverses, or "active", which chooses each coalition by the posterior of a
            Gaussian process on coalitions: for slow functions.
        groups: Features that form one player, a mapping from names to features; see `as_players`. By default each
            feature is a player.
        num_coalitions: How many different coalitions may be valued by the sampling methods, the empty and the full one
            among them; by default 2048 and two for each player, and 32768 with a `tolerance`; of "active" 16 for each
            player, and 64 with a `tolerance`.
        tolerance: The largest standard error to be reached by the sampling methods, in the unit of the values.
        rng_key: A JAX random key, needed if something is sampled.
        batch_size: How many references are worked on at once by the exact methods for product games.

    Returns:
        The values with their standard errors, and how they were computed. `ShapleyEstimate.tolerance_reached` is False
        if `num_coalitions` were not enough.

    Raises:
        ValueError: If `x`, `method`, `groups`, `num_coalitions`, `tolerance` or `batch_size` are invalid, or there are
            too many players to enumerate.
        TypeError: If `method` is "quadrature" and does not apply, or coalitions must be sampled and `rng_key` is None.

    Example:
        >>> game, function = kpp.games.Interventional(x), kpp.as_rkhs_function(fit)
        >>> kpp.games.estimate_shapley(game, function, x[:1]).values.round(2)
        Array([[[[ 0.27, -0.03]]]], dtype=float64)
    """
    game = read_game(value_function, function, x, groups)
    check_batch_size(batch_size)
    if tolerance is not None:
        tolerance = float(positive(tolerance, "tolerance"))
    method = _choose(game, method, num_coalitions)
    budgets = _budgets(game.num_players, num_coalitions, tolerance, active=method == "active")
    if method not in _SAMPLED:
        return _solve(game, method, method, batch_size, tolerance)
    covered = game.num_players <= MAX_ENUMERATED and 2**game.num_players <= max(budgets[-1], _FEW_COALITIONS)
    if covered:
        budgets = [budget for budget in budgets[:-1] if budget < 2**game.num_players]
    if not budgets:
        return _solve(game, method, "enumeration", batch_size, tolerance)
    estimate = _sample(game, method, budgets, tolerance, rng_key)
    if not covered or estimate.tolerance_reached:
        return estimate
    exact = _solve(game, method, "enumeration", batch_size, tolerance)
    # Another key could have reached the tolerance by sampling: the errors are there for every key.
    errors = jnp.zeros_like(exact.values) if exact.standard_errors is None else exact.standard_errors
    return dataclasses.replace(exact, standard_errors=errors)


def _choose(game: Game, method: str, num_coalitions: int | None) -> str:
    if method in _SAMPLED:
        return method
    one_of(method, "method", ("auto", "quadrature", "enumeration", *_SAMPLED))
    if method == "auto" and not is_product_game(game.value_function, game.function):
        affordable = num_coalitions is None or 2**game.num_players <= num_coalitions
        return "enumeration" if game.num_players <= MAX_PLAYERS and affordable else "least-squares"
    return choose_for_game(game, method)


def _budgets(num_players: int, num_coalitions: int | None, tolerance: float | None, *, active: bool) -> list[int]:
    """Return how many coalitions may be valued; with a tolerance after each round, twice as many as before."""
    if num_coalitions is not None:
        last = count(num_coalitions, "num_coalitions")
    elif active:
        last = (_CHOSEN if tolerance is None else _MOST_CHOSEN) * num_players
    else:
        last = _DEFAULT_COALITIONS + 2 * num_players if tolerance is None else _MOST_COALITIONS
    if tolerance is None or (active and num_players < _FEWEST_PLAYERS):
        return [last]
    if active:  # it has its own rounds, and chooses at most all coalitions but one
        return [min(last, 2**num_players - 1), last]
    budgets = [max(_FIRST_COALITIONS, _FIRST_PER_PLAYER * num_players)]
    while budgets[-1] < last:
        budgets.append(2 * budgets[-1])
    return [*budgets[:-1], last]


def _solve(game: Game, method: str, solver: str, batch_size: int | None, tolerance: float | None) -> ShapleyEstimate:
    values = solve_exactly(game, solver, batch_size)
    if solver == "quadrature":
        return ShapleyEstimate(values, None, method, True, None, num_nodes(game.num_players), tolerance)
    size, errors = 2**game.num_players, None
    if has_draws(game):  # the values of coalitions are means over draws
        errors = draw_errors(game, all_coalitions(game.num_players), weights_of(shapley_values_from_table, size))
    return ShapleyEstimate(values, errors, method, errors is None, size, None, tolerance)


Solver = Callable[[Float[Array, "c *rest"]], tuple[Float[Array, "g *rest"], Float[Array, "g *rest"]]]


class _Sample(NamedTuple):
    """Sampled coalitions, (c, g), and the function from their values to Shapley values and standard errors."""

    coalitions: Bool[np.ndarray, "c g"]
    solve: Solver


def _sample(
    game: Game, method: str, budgets: Sequence[int], tolerance: float | None, rng_key: RngKey | None
) -> ShapleyEstimate:
    """Value more and more coalitions, until the standard errors are small enough or the last budget is spent."""
    if rng_key is None:
        raise TypeError(
            f"`rng_key` must be given to sample coalitions of {game.num_players} players by method {method!r}; "
            "write `rng_key=jax.random.key(0)`"
        )
    check_count(budgets[-1], "num_coalitions", 2 * game.num_players + len(game.x))
    if method == "active":
        chosen = estimate_actively(game, budgets[-1], tolerance, rng_key)
        return _with_errors_of_draws(game, chosen.estimate, chosen.coalitions, lambda: chosen.weights)
    samples = (_pairs if method == "least-squares" else _orders)(rng_key, game.num_players, budgets)
    tables: list[Array] = []
    valued = num_draw_axes = 0
    for coalitions, solve in samples:
        for start in range(valued, len(coalitions), budgets[0]):  # blocks of one size: programs are compiled once
            table, num_draw_axes = game.table(coalitions[start : start + budgets[0]])
            tables.append(table)
        valued = len(coalitions)
        results = solve(jnp.concatenate(tables))
        values, errors = (game.arrange(result.swapaxes(0, 1), num_draw_axes) for result in results)
        estimate = ShapleyEstimate(values, errors, method, False, valued, None, tolerance)
        if estimate.tolerance_reached:
            break
    weights = functools.partial(weights_of, lambda table: solve(jnp.asarray(table))[0], len(coalitions))
    return _with_errors_of_draws(game, estimate, coalitions, weights)


def _with_errors_of_draws(
    game: Game,
    estimate: ShapleyEstimate,
    coalitions: Bool[np.ndarray, "c g"],
    weights: Callable[[], Float[np.ndarray, "g c"]],
) -> ShapleyEstimate:
    """Add the errors of the values of coalitions to those of the sampled coalitions, if these values are drawn, too."""
    if not has_draws(game):
        return estimate
    errors = jnp.asarray(estimate.standard_errors), jnp.asarray(draw_errors(game, coalitions, weights()))
    return dataclasses.replace(estimate, standard_errors=jnp.hypot(*errors))


def _pairs(rng_key: RngKey, num_players: int, budgets: Sequence[int]) -> Iterator[_Sample]:
    """Yield for each budget the empty and the full coalition, and pairs of complementary ones."""
    needed = 2 * num_players + 2
    if budgets[0] < needed:
        raise ValueError(
            f"`num_coalitions` must be at least {needed} to fit {num_players} values to them, got {budgets[0]}"
        )
    ends = np.array([[False], [True]]).repeat(num_players, axis=1)
    nums_pairs = [(budget - 2) // 2 for budget in budgets]
    for coalitions, counts in coalition_pairs_in_rounds(rng_key, num_players, nums_pairs):
        both = np.stack([coalitions, ~coalitions], axis=1).reshape(-1, num_players)
        yield _Sample(np.concatenate([ends, both]), functools.partial(_fit_pairs, coalitions, counts))


def _fit_pairs(
    coalitions: Bool[np.ndarray, "k g"], counts: Int[np.ndarray, " k"], table: Float[Array, "c *rest"]
) -> tuple[Float[Array, "g *rest"], Float[Array, "g *rest"]]:
    return shapley_values_from_pairs(coalitions, counts, *_differences(table))


@jax.jit
def _differences(table: Float[Array, "c *rest"]) -> tuple[Float[Array, "k *rest"], Float[Array, "*rest"]]:
    """Return the differences of pairs of coalitions, and of the full coalition and the empty one."""
    return table[2::2] - table[3::2], table[1] - table[0]


def _orders(rng_key: RngKey, num_players: int, budgets: Sequence[int]) -> Iterator[_Sample]:
    """Yield for each budget the coalitions of orders of the players and of their reverses."""
    each = 2 * (num_players - 1)
    if budgets[0] < 2 * each + 2:
        raise ValueError(
            f"`num_coalitions` must be at least {2 * each + 2} for two orders of {num_players} players and their "
            f"reverses, got {budgets[0]}"
        )
    for budget in budgets:
        # More permutations of one key follow the same ones, and new coalitions the known ones.
        permutations = sample_permutations(rng_key, num_players, _SPARE_ORDERS * ((budget - 2) // each))
        coalitions, index = coalitions_of_permutations(permutations)
        different = np.maximum.accumulate(index.max(axis=(1, 2))) + 1
        orders = np.count_nonzero(different <= budget)
        solve = functools.partial(shapley_values_from_permutations, permutations[:orders], index[:orders])
        yield _Sample(coalitions[: different[orders - 1]], solve)
