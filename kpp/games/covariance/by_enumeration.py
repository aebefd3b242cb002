r"""Covariances of the Shapley values of any imputation under any kernel, by all pairs of imputed rows.

Shapley values are linear in the function. With the weights :math:`c_j(S)` that they give to the value of a coalition,

.. math:: \phi_j(x) = \sum_S c_j(S) \sum_b w_b(x, S)\, f(x_S, z_{b,S^c}) = \sum_a A_{ja}(x)\, f(r_a),

a sum over the imputed rows :math:`r_a`, :math:`2^g m` of them. So
:math:`\mathrm{Cov}(\phi(x), \phi(x')) = A(x)\, k(r, r')\, A(x')^\top`.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kpp.foundation.validation import as_points
from kpp.functionals import AbstractFunctional
from kpp.functions import RKHSFunction
from kpp.games.estimators.sampled.coalition_weights import shapley_values_from_table, shapley_weights
from kpp.games.players.players import Players, all_coalitions, as_coalitions, as_players
from kpp.games.values.imputation import AbstractImputation
from kpp.kernels import AbstractKernel
from kpp.runtime.batching import rows_that_fit, split_rows, split_weights, sum_over
from kpp.typing import Numbers, PointFunction, Points

# The largest number of entries of a kernel matrix in memory.
_MAX_ENTRIES = 2**22


class Solution(NamedTuple):
    """Shapley values, or their parts, as weighted sums of mean predictions of imputed rows."""

    coalitions: Bool[Array, "c d"]  # of the features whose rows are imputed
    shown: Bool[Array, "c d"]  # features that show the values of the point besides; see `effects`
    weights: Float[Array, "g c"]  # of the mean predictions


def solution_of(players: Players, coalitions: Bool[np.ndarray, "c g"], weights: Float[np.ndarray, "k c"]) -> Solution:
    """Return k sums of values of coalitions, such as the values of players, from the coalitions and their weights."""
    masks = jnp.asarray(players.expand(coalitions))
    return Solution(masks, jnp.zeros_like(masks), jnp.asarray(weights))


def solution_of_values(players: Players) -> Solution:
    """Return the Shapley values, sums over all coalitions."""
    coalitions = all_coalitions(players.num_players)
    with jax.ensure_compile_time_eval():  # numbers that are known, also where a function is traced
        shares = np.asarray(shapley_values_from_table(np.eye(len(coalitions))))
    return solution_of(players, coalitions, shares)


def solution_of_effects(players: Players) -> Solution:
    """Return the direct effects of all players and then the indirect ones, 2g sums."""
    coalitions = all_coalitions(players.num_players)
    masks, num_players = players.expand(coalitions), players.num_players
    steps = [(player, np.flatnonzero(~coalitions[:, player])) for player in range(num_players)]
    inserted = [masks[without] for _, without in steps]
    shown = [np.broadcast_to(players.membership == player, masks[without].shape) for player, without in steps]
    size = len(masks) // 2
    weights = np.zeros((2 * num_players, len(masks) + num_players * size))
    for player, without in steps:
        shares = shapley_weights(num_players)[coalitions[without].sum(axis=1)]
        places = len(masks) + player * size + np.arange(size)
        weights[player, places], weights[player, without] = shares, -shares
        weights[num_players + player, without + 2**player], weights[num_players + player, places] = shares, -shares
    all_shown = np.concatenate([np.zeros_like(masks), *shown])
    return Solution(jnp.asarray(np.concatenate([masks, *inserted])), jnp.asarray(all_shown), jnp.asarray(weights))


def enumeration_covariance(
    value_function: AbstractImputation,
    function: RKHSFunction,
    x: Float[Array, "p d"],
    x_other: Float[Array, "q d"],
    pairs: Int[Array, "k 2"],
    solution: Solution,
) -> Float[Array, "k g g"]:
    """Compute the covariances of Shapley values at pairs of points under a Gaussian process, (k, g, g).

    The process has the kernel of a function without draws as its covariance; weights are those of the unfolded
    function, which is the one that is explained. A pair is a row of `x` (p, d) and a row of `x_other` (q, d). The
    result is players of the first point by players of the second.
    """
    weights, weights_other = (_weights(value_function, function, points, solution) for points in (x, x_other))

    def of_pair(pair: Array) -> Array:
        i, j = pair[0], pair[1]
        rows, loads = _atoms(value_function, function, x[i], weights[i], solution)
        rows_other, loads_other = _atoms(value_function, function, x_other[j], weights_other[j], solution)
        sections = _weighted_sections(function.kernel, rows, loads, rows_other)
        return jnp.matmul(sections, loads_other.T, precision="highest")

    return jax.lax.map(of_pair, pairs)


def enumeration_sections(
    value_function: AbstractImputation, function: RKHSFunction, x: Float[Array, "p d"], solution: Solution
) -> Float[Array, "p g n"]:
    """Compute the Shapley values of the kernel's n sections at the points of a function without draws, (p, g, n)."""

    def of_point(point: tuple[Array, Array]) -> Array:
        rows, loads = _atoms(value_function, function, *point, solution)
        return _weighted_sections(function.kernel, rows, loads, function.points)

    return jax.lax.map(of_point, (x, _weights(value_function, function, x, solution)))


def enumeration_representer(
    value_function: AbstractImputation, kernel: AbstractKernel, x: Float[Array, "p d"], solution: Solution
) -> tuple[Float[Array, "pa d"], Float[Array, "pa p g"]]:
    """Return the imputed rows of all points, and the weights of their sections in the representers of the values."""
    zero = RKHSFunction(kernel, x[:1], jnp.zeros(1, dtype=x.dtype))
    weights = _weights(value_function, zero, x, solution)
    rows, loads = jax.lax.map(lambda point: _atoms(value_function, zero, point[0], point[1], solution), (x, weights))
    spread = jnp.einsum("pga,pq->paqg", loads, jnp.eye(len(x), dtype=loads.dtype))
    return rows.reshape(-1, x.shape[1]), spread.reshape(-1, *spread.shape[2:])


def _weights(
    value_function: AbstractImputation, function: RKHSFunction, x: Array, solution: Solution
) -> Float[Array, "p c m"]:
    """Return the weights of the imputed rows, one coalition after another."""
    unfolded = function.unfold()
    weights = jax.lax.map(
        lambda mask: value_function.imputation_weights(unfolded, x, mask[None])[0], solution.coalitions
    )
    return jnp.swapaxes(weights, 0, 1)


def _atoms(
    value_function: AbstractImputation, function: RKHSFunction, x: Array, weights: Array, solution: Solution
) -> tuple[Float[Array, "a d"], Float[Array, "g a"]]:
    """Return the imputed rows of a point, and the weights of the function's values at them in the Shapley values."""
    imputed = value_function.impute(function.unfold(), x[None], solution.coalitions)
    rows = jnp.where(solution.shown[:, None, None], x, imputed).reshape(-1, x.shape[0])
    shares = solution.weights.astype(weights.dtype)
    return rows, (shares[:, :, None] * weights[None]).reshape(shares.shape[0], -1)


def _weighted_sections(
    kernel: AbstractKernel, rows: Float[Array, "a d"], loads: Float[Array, "g a"], points: Points
) -> Float[Array, "g n"]:
    """Return the weighted sums of kernel sections at points, some rows at a time."""
    size = rows_that_fit(rows.shape[0], points.shape[0], _MAX_ENTRIES)
    parts = split_rows(rows, size), split_weights(loads.T, size)
    return sum_over(lambda part: jnp.matmul(part[1].T, kernel(part[0], points), precision="highest"), parts)


class CoalitionValues(AbstractFunctional):
    r"""The values :math:`v(S)` of coalitions at points: all points of the first coalition before those of the second.

    Args:
        game: The game, an `AbstractImputation`.
        x: The points, (p, d).
        coalitions: The coalitions, booleans (c, d). There are q = c p values.

    Raises:
        ValueError: If points or coalitions do not fit the game.
    """

    game: AbstractImputation
    x: Float[Array, "p d"]
    coalitions: tuple[tuple[bool, ...], ...] = eqx.field(static=True)

    def __init__(self, game: AbstractImputation, x: Numbers, coalitions: object) -> None:
        self.game = game
        self.x = as_points(x, num_features=game.background.shape[1])
        read = as_coalitions(coalitions, self.x.shape[1])
        self.coalitions = tuple(map(tuple, np.asarray(read).tolist()))

    @property
    def num_values(self) -> int:
        """The number of coalitions times the number of points."""
        return len(self.coalitions) * self.x.shape[0]

    def apply(self, function: PointFunction) -> Float[Array, "q *outputs"]:
        values = self.game(function, self.x, np.array(self.coalitions))
        return values.reshape(-1, *values.shape[2:])

    def representer(self, kernel: AbstractKernel) -> PointFunction:
        players = as_players(None, self.x.shape[1], None)
        solution = solution_of(players, np.array(self.coalitions), np.eye(len(self.coalitions)))
        rows, weights = enumeration_representer(self.game, kernel, self.x, solution)
        return RKHSFunction(kernel, rows, jnp.swapaxes(weights, 1, 2).reshape(len(rows), -1))
