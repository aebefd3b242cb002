"""Shapley values from coalitions that are chosen one after the other by the law of a Gaussian process."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from kpp.games.estimators.active.coalition_process import CoalitionProcess, as_kernel, fit_parameters, prior_parameters
from kpp.games.estimators.game import Game, ShapleyEstimate
from kpp.games.estimators.sampled.sampling import sample_coalition_pairs
from kpp.games.players.players import all_coalitions, from_integers, to_integers
from kpp.typing import RngKey

# Of many players random coalitions are candidates: at least the first number, and the second per valued coalition.
_CANDIDATES, _CANDIDATES_PER_COALITION = 2048, 2
# The coalitions of a round are chosen for the same hyperparameters: at most this share of those that are known.
_SHARE = 0.25


class ActiveEstimate(NamedTuple):
    """Shapley values, the coalitions they come from, (c, g), and the weights of their values, (g, c)."""

    estimate: ShapleyEstimate
    coalitions: Bool[np.ndarray, "c g"]
    weights: Float[np.ndarray, "g c"]


def estimate_actively(game: Game, budget: int, tolerance: float | None, rng_key: RngKey) -> ActiveEstimate:
    r"""Value coalitions until the standard errors are small enough or the budget is spent.

    The empty and the full coalition come first, then all players alone, and then rounds of coalitions that
    `CoalitionProcess.choose` selects among candidates. After every round the hyperparameters, which all points, draws
    and outputs share, are fitted again. A game with the estimated squared scale :math:`s^2` on m = n - g - 1 degrees of
    freedom has Shapley values with the variances

    .. math:: \frac{m + 2}{m}\, s^2\, c(\phi_i, \phi_i),

    the variances of a Student law to first order in 1/m. The game has at least 3 players, and the budget is less than
    all coalitions. Before 2 g + 2 coalitions the tolerance is not looked at. Raises ValueError if the budget is less
    than g + 2.
    """
    num_players = game.num_players
    if budget < num_players + 2:
        raise ValueError(
            f"`num_coalitions` must be at least {num_players + 2} to choose coalitions of {num_players} players, two "
            f"more than players, got {budget}"
        )
    coalitions = np.concatenate([np.zeros((1, num_players)), np.ones((1, num_players)), np.eye(num_players)]) > 0
    candidates = _candidates(num_players, budget, rng_key)
    parameters = prior_parameters(num_players)
    tables: list[Array] = []
    valued = 0
    while True:
        table, num_draw_axes = game.table(coalitions[valued:])
        tables.append(table)
        valued = len(coalitions)
        values = jnp.concatenate(tables)
        parameters = fit_parameters(coalitions, _flat(values), parameters)
        process = CoalitionProcess(as_kernel(parameters), coalitions)
        estimate = _estimate(game, process, values, num_draw_axes, tolerance)
        enough = estimate.tolerance_reached and valued >= 2 * num_players + 2
        if enough or valued == budget:
            return ActiveEstimate(estimate, coalitions, process.shapley_weights)
        known = set(to_integers(coalitions))
        candidates = from_integers([each for each in to_integers(candidates) if each not in known], num_players)
        # A power of two, so that the function is called in few sizes.
        size = 1 << int(np.log2(max(1.0, _SHARE * valued)))
        chosen = process.choose(candidates, min(size, budget - valued))
        coalitions = np.concatenate([coalitions, chosen])


def _estimate(
    game: Game, process: CoalitionProcess, values: Array, num_draw_axes: int, tolerance: float | None
) -> ShapleyEstimate:
    """Return the means and standard deviations of the law of the Shapley values of all games."""
    flat = _flat(values)
    degrees = len(flat) - game.num_players - 1
    variances = np.outer(np.diag(process.shapley_covariance), process.squared_scales(flat)) * (degrees + 2) / degrees

    def arrange(array: Float[np.ndarray, "g r"]) -> Array:
        shaped = jnp.asarray(array.reshape(-1, *values.shape[1:]), dtype=values.dtype)
        return game.arrange(shaped.swapaxes(0, 1), num_draw_axes)

    means, errors = arrange(process.shapley_weights @ flat), arrange(np.sqrt(np.maximum(variances, 0.0)))
    return ShapleyEstimate(means, errors, "active", False, len(flat), None, tolerance)


def _flat(values: Array) -> Float[np.ndarray, "c r"]:
    """Return one column for each game, minus the value of the empty coalition."""
    flat = np.asarray(values, dtype=float).reshape(len(values), -1)
    return flat - flat[:1]


def _candidates(num_players: int, budget: int, rng_key: RngKey) -> Bool[np.ndarray, "m g"]:
    """Return all coalitions of few players; of many players random ones, each with its complement."""
    num_candidates = max(_CANDIDATES, _CANDIDATES_PER_COALITION * budget)
    if 2**num_players <= 2 * num_candidates:
        return all_coalitions(num_players)
    drawn = sample_coalition_pairs(rng_key, num_players, num_candidates // 2)[0]
    return np.concatenate([drawn, ~drawn])
