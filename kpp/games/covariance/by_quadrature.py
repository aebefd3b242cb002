r"""Prior covariances of interventional Shapley values under a product kernel, in polynomial time.

The covariance is a game in two points at once. For backgrounds b and b' the multilinear extensions of both values give

.. math:: F_l(s, t) = s t\, k_l(x, x') + s (1-t)\, k_l(x, z_{b'}) + (1-s) t\, k_l(z_b, x')
    + (1-s)(1-t)\, k_l(z_b, z_{b'})

and, with every k taken at feature l alone,

.. math:: \Sigma_{jk} = \frac1{m^2} \sum_{b,b'} \int_0^1\!\!\int_0^1 \partial_s F_j\, \partial_t F_k
    \prod_{l \ne j,k} F_l \,ds\,dt \quad (j \ne k), \qquad
    \Sigma_{jj} = \frac1{m^2} \sum_{b,b'} \int_0^1\!\!\int_0^1 \partial_s \partial_t F_j \prod_{l \ne j} F_l \,ds\,dt,

polynomials of degree d - 1 in s and in t, for which :math:`\lceil d/2 \rceil^2` Gauss-Legendre nodes are exact.

Where no factor is negative, :math:`\partial_s F_j / F_j` is at most 1/s and 1/(1-s) in size, so that all pairs of
features take one matrix product at a node. Factors of both signs take the products of all but two of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.games.estimators.quadratures.nodes import gauss_legendre, num_nodes
from kpp.games.estimators.quadratures.quadrature import by_sign, products_of_others
from kpp.games.players.players import Players
from kpp.games.values.interventional import Interventional
from kpp.kernels import AbstractKernel, AbstractProductKernel
from kpp.runtime.batching import average_chunks, rows_that_fit, sum_arrays, sum_over

# Pairs of background points that are computed at a time; this number fits into the cache of a core.
_PAIRS = 2**11


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
    """Compute the covariances of interventional Shapley values at pairs of points under a Gaussian process, (k, g, g).

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
