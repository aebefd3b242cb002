r"""Covariances of the Shapley values of pairs of points under a Gaussian process.

For interventional values and a product kernel they are integrals, computed in polynomial time. For any imputation and
kernel they are sums over all pairs of imputed rows, because Shapley values are linear in the function. With the weights
:math:`c_j(S)` that they give to the value of a coalition,

.. math:: \phi_j(x) = \sum_S c_j(S) \sum_b w_b(x, S)\, f(x_S, z_{b,S^c}) = \sum_a A_{ja}(x)\, f(r_a),

a sum over the imputed rows :math:`r_a`, :math:`2^g m` of them. So
:math:`\mathrm{Cov}(\phi(x), \phi(x')) = A(x)\, k(r, r')\, A(x')^\top`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kpp.foundation.validation import as_points
from kpp.functionals import AbstractFunctional
from kpp.functions import RKHSFunction
from kpp.games.estimators.quadrature import by_sign, gauss_legendre, num_nodes, products_of_others
from kpp.games.estimators.sampled.coalition_weights import shapley_values_from_table, shapley_weights
from kpp.games.players.players import Players, all_coalitions, as_coalitions, as_players
from kpp.games.values.imputation import AbstractImputation
from kpp.games.values.interventional import Interventional
from kpp.kernels import AbstractKernel, AbstractProductKernel
from kpp.runtime.batching import average_chunks, rows_that_fit, split_rows, split_weights, sum_arrays, sum_over
from kpp.typing import Numbers, PointFunction, Points

# Pairs of background points that are computed at a time; this number fits into the cache of a core.
_PAIRS = 2**11
# The largest number of entries of a kernel matrix in memory.
_MAX_ENTRIES = 2**22


class _Factors(NamedTuple):
    """The factors of each player, named after the two arguments of the kernel: points or their backgrounds."""

    both: Float[Array, " g"]
    right: Float[Array, "g m"]
    left: Float[Array, "g b"]
    neither: Float[Array, "g b m"]


def interventional_covariance(
    value_function: Interventional,
    kernel: AbstractKernel,
    x: Float[Array, "k d"],
    x_other: Float[Array, "k d"],
    players: Players,
    *,
    same: bool = False,
) -> Float[Array, "k g g"]:
    r"""Compute the covariances of interventional Shapley values at pairs of points under a Gaussian process, (k, g, g).

    The covariance is a game in two points at once. For backgrounds b and b' the multilinear extensions of both values
    give

    .. math:: F_l(s, t) = s t\, k_l(x, x') + s (1-t)\, k_l(x, z_{b'}) + (1-s) t\, k_l(z_b, x')
        + (1-s)(1-t)\, k_l(z_b, z_{b'})

    and, with every k taken at feature l alone,

    .. math:: \Sigma_{jk} = \frac1{m^2} \sum_{b,b'} \int_0^1\!\!\int_0^1 \partial_s F_j\, \partial_t F_k
        \prod_{l \ne j,k} F_l \,ds\,dt \quad (j \ne k), \qquad
        \Sigma_{jj} = \frac1{m^2} \sum_{b,b'} \int_0^1\!\!\int_0^1 \partial_s \partial_t F_j
        \prod_{l \ne j} F_l \,ds\,dt,

    polynomials of degree d - 1 in s and in t, for which :math:`\lceil d/2 \rceil^2` Gauss-Legendre nodes are exact.

    Where no factor is negative, :math:`\partial_s F_j / F_j` is at most 1/s and 1/(1-s) in size, so that all pairs of
    features take one matrix product at a node. Factors of both signs take the products of all but two of them.

    The kernel, the covariance of the process, is a sum of product kernels, whose covariances add up. The points of the
    pairs are (k, d) each; if they are the `same`, half of the computation suffices. The result is players of the first
    point by players of the second.
    """
    background = value_function.references(x.shape[1]).astype(x.dtype)
    nodes = _node_pairs(players.num_players, same)
    covariance = sum_arrays(
        term.scale * _term_covariance(term, background, x, x_other, players, nodes) for term in kernel.product_terms()
    )
    return covariance + jnp.swapaxes(covariance, 1, 2) if same else covariance


def _node_pairs(num_players: int, same: bool) -> Float[np.ndarray, "q 3"]:
    """Return pairs of nodes and weights; for a point with itself only half of them, to be added to the transpose."""
    nodes, weights = gauss_legendre(num_nodes(num_players))
    pairs = itertools.product(range(len(nodes)), repeat=2)
    half = {1: 1.0, 0: 0.5, -1: 0.0}  # exchanged nodes give the transpose
    rows = [
        (nodes[i], nodes[j], weights[i] * weights[j] * (half[int(np.sign(j - i))] if same else 1.0)) for i, j in pairs
    ]
    return np.array([row for row in rows if row[2] > 0])


def _term_covariance(
    term: AbstractProductKernel, background: Array, x: Array, x_other: Array, players: Players, nodes: np.ndarray
) -> Float[Array, "p g g"]:
    """Sum over chunks of the first background, whose factors are shared by all pairs of points."""
    chunks = average_chunks(background, rows_that_fit(background.shape[0], background.shape[0], _PAIRS))

    def of_chunk(chunk: tuple[Array, Array]) -> Array:
        rows, weights = chunk
        neither = players.multiply(term.factors(rows, background))

        def of_pair(pair: tuple[Array, Array]) -> Array:
            factors = _Factors(
                players.multiply(term.factors(pair[0][None], pair[1][None]))[:, 0, 0],
                players.multiply(term.factors(pair[0][None], background))[:, 0],
                players.multiply(term.factors(rows, pair[1][None]))[:, :, 0],
                neither,
            )
            return _sum_nodes(term, factors, weights / background.shape[0], nodes)

        return jax.lax.map(of_pair, (x, x_other))  # vmap would hold the factors of all pairs

    return sum_over(of_chunk, chunks)


def _sum_nodes(
    term: AbstractProductKernel, factors: _Factors, weights: Float[Array, " b"], nodes: np.ndarray
) -> Float[Array, "g g"]:
    table = jnp.asarray(nodes, dtype=weights.dtype)

    def integrate(moments: Callable[..., Array]) -> Callable[[_Factors, Array], Array]:
        def total(factors: _Factors, weights: Array) -> Array:
            def at_node(node: Array) -> Array:
                return moments(*_derivatives(factors, node[0], node[1]), node[2] * weights[:, None])

            return jax.lax.map(at_node, table).sum(axis=0)

        return total

    return by_sign(term, integrate(_ratio_moments), integrate(_signed_moments))(factors, factors, weights)


def _derivatives(factors: _Factors, s: Array, t: Array) -> tuple[Array, Array, Array, Array]:
    """Return F and its derivatives by s, by t, and by both, each (g, b, m)."""
    both, left, right = factors.both[:, None, None], factors.left[:, :, None], factors.right[:, None, :]
    present, absent = s * both + (1 - s) * left, s * right + (1 - s) * factors.neither
    by_s_present, by_s_absent = both - left, right - factors.neither
    value = t * present + (1 - t) * absent
    by_s = t * by_s_present + (1 - t) * by_s_absent
    return value, by_s, present - absent, by_s_present - by_s_absent


def _ratio_moments(value: Array, by_s: Array, by_t: Array, by_both: Array, weights: Array) -> Float[Array, "g g"]:
    """Sum over pairs of backgrounds for factors that are not negative.

    A derivative vanishes with its factor, so what is 0 or too small to divide by may be left out.
    """
    inverse = jnp.where(value >= jnp.finfo(value.dtype).tiny, 1 / value, 0.0)
    product = weights * jnp.prod(value, axis=0)
    first, second = by_s * inverse, product[None] * (by_t * inverse)
    num_players = value.shape[0]
    mixed = jnp.matmul(first.reshape(num_players, -1), second.reshape(num_players, -1).T, precision="highest")
    own = jnp.sum(product[None] * (by_both * inverse), axis=(1, 2))
    return jnp.where(jnp.eye(num_players, dtype=bool), own[:, None], mixed)


def _signed_moments(value: Array, by_s: Array, by_t: Array, by_both: Array, weights: Array) -> Float[Array, "g g"]:
    """Sum over pairs of backgrounds for factors of any sign, by the products of all factors but two."""

    def row(player: Array) -> Array:
        others = products_of_others(value.at[player].set(1.0))  # leaves two out: `player` counts as 1
        derivatives = (by_s[player][None] * by_t).at[player].set(by_both[player])
        return jnp.sum(weights[None] * derivatives * others, axis=(1, 2))

    return jax.lax.map(row, jnp.arange(value.shape[0]))


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
