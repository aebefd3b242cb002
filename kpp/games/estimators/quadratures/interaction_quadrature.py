r"""Exact interactions of product kernels in polynomial time.

For one point of the function and one reference, with factors :math:`a_j` of the explained point, :math:`c_j` of the
reference and :math:`F_l(t) = (1-t)\,c_l + t\,a_l`,

.. math:: \text{SII}_{jk} = \int_0^1 (a_j - c_j)(a_k - c_k) \prod_{l \ne j, k} F_l(t)\,dt,

and the Shapley-Taylor index of order 2 has the additional factor 2 (1 - t) under the integral. The integrands are
polynomials of degree g - 2 and g - 1, for which :math:`\lceil (g-1)/2 \rceil` and :math:`\lceil g/2 \rceil`
Gauss-Legendre nodes are exact.

Where no factor is negative, :math:`\rho_j = (a_j - c_j) / F_j` is bounded at interior nodes, by 1/t and 1/(1 - t), and
the sum over all N pairs of a reference with a point of the function is, at each node, one product of matrices (g, N)
and (N, g), :math:`\sum_N w_N \rho_j \rho_k` with :math:`w_N = \alpha \prod_l F_l`. Factors of both signs take the
products that leave two out, from prefix and suffix products.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.functions import RKHSFunction
from kpp.games.estimators.quadratures.nodes import gauss_legendre
from kpp.games.estimators.quadratures.quadrature import by_sign, products_of_others
from kpp.games.players.players import Players
from kpp.games.values.abstract import AbstractProductValueFunction
from kpp.games.values.product_games import weigh_null_players
from kpp.kernels import AbstractProductKernel
from kpp.runtime.batching import average_chunks, sum_arrays, sum_over

# Pairs of references and points of the function per batch: large enough for efficient matrix products.
_PAIRS = 4096


@eqx.filter_jit
def quadrature_interactions(
    value_function: AbstractProductValueFunction,
    function: RKHSFunction,
    x: Array,
    *,
    taylor: bool,
    players: Players,
    batch_size: int | None = None,
) -> Float[Array, "*draws p g g *outputs"]:
    """Compute exact interactions (p, g, g) by quadrature, with zeros on the diagonal.

    They are led by draws, with the outputs last: the Shapley-Taylor index of order 2 with `taylor`, otherwise the
    Shapley interaction index. The arguments are those of `quadrature_shapley`.
    """
    references = value_function.references(x.shape[1]).astype(x.dtype)
    rows = min(references.shape[0], batch_size or max(1, _PAIRS // function.num_points))
    chunks = average_chunks(references, rows)
    nodes = _nodes(players.num_players, taylor)
    pairs = ~np.eye(players.num_players, dtype=bool)

    def explain(draw: RKHSFunction) -> Array:
        terms = draw.kernel.product_terms()
        values = sum_arrays(_term_values(value_function, term, draw, x, players, chunks, nodes) for term in terms)
        values = jnp.moveaxis(jnp.where(pairs[None, None], values, 0.0), 1, -1)
        return values.reshape(*values.shape[:3], *draw.output_shape)

    return function.map_draws(explain)


def _nodes(num_players: int, taylor: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights, which hold the factor 2 (1 - t) of the Shapley-Taylor index."""
    nodes, weights = gauss_legendre(max(1, (num_players + taylor) // 2))  # exact up to the degree g - 2 (+ 1)
    return nodes, weights * 2 * (1 - nodes) if taylor else weights


def _term_values(
    value_function: AbstractProductValueFunction,
    term: AbstractProductKernel,
    function: RKHSFunction,
    x: Array,
    players: Players,
    chunks: tuple[Array, Array],
    nodes: tuple[np.ndarray, np.ndarray],
) -> Float[Array, "p o g g"]:
    """Return the interactions of one product term, outputs flattened; the diagonal has no meaning."""
    present = jnp.swapaxes(players.multiply(term.factors(x, function.points)), 0, 1)
    coefficients = weigh_null_players(term, function, x, players).reshape(function.num_points, -1)

    interactions = by_sign(term, _by_ratios(nodes), _by_products(nodes))

    def add(total: Array, chunk: tuple[Array, Array]) -> tuple[Array, None]:
        absent = players.multiply(value_function.absent_factors(term, chunk[0], function.points))
        return total + interactions((present, absent), present, absent, chunk[1], coefficients), None

    shape = (x.shape[0], coefficients.shape[1], players.num_players, players.num_players)
    return term.scale * jax.lax.scan(add, jnp.zeros(shape, dtype=present.dtype), chunks)[0]


def _by_ratios(nodes: tuple[np.ndarray, np.ndarray]) -> Callable[..., Float[Array, "p o g g"]]:
    """Return the computation for factors that are not negative, by products of matrices."""

    def interactions(present: Array, absent: Array, weights: Array, coefficients: Array) -> Array:
        def of_point(factors: Array) -> Array:
            sums = absent + factors[:, None]
            # Where both are 0, so is `scale`.
            ratio = jnp.where(sums > 0, (absent - factors[:, None]) / sums, 0.0).reshape(absent.shape[0], -1)
            scale = 4 * weights[:, None] * jnp.prod(sums / 2, axis=0)
            scale = (scale[None] * coefficients.T[:, None]).reshape(coefficients.shape[1], -1)

            def at_node(node: tuple[Array, Array]) -> Array:
                denominators = 1 + ratio * (1 - 2 * node[0])
                scaled = ratio / denominators
                weighted = node[1] * scale * jnp.prod(denominators, axis=0)[None]
                return jnp.matmul(scaled[None] * weighted[:, None], scaled.T, precision="highest")

            return sum_over(at_node, tuple(jnp.asarray(values, dtype=absent.dtype) for values in nodes))

        return jax.lax.map(of_point, present)

    return interactions


def _by_products(nodes: tuple[np.ndarray, np.ndarray]) -> Callable[..., Float[Array, "p o g g"]]:
    """Return the computation for factors of any sign, by the products that leave two players out."""

    def interactions(present: Array, absent: Array, weights: Array, coefficients: Array) -> Array:
        def of_point(factors: Array) -> Array:
            differences = factors[:, None] - absent

            def at_node(node: tuple[Array, Array]) -> Array:
                mixed = absent + node[0] * differences

                def of_player(player: Array) -> Array:
                    gains = differences * products_of_others(mixed.at[player].set(differences[player]))
                    sums = jnp.einsum("b,kbn->kn", weights, gains, precision="highest")
                    return jnp.matmul(sums, coefficients, precision="highest").T

                parts = jax.lax.map(of_player, jnp.arange(absent.shape[0]))
                return node[1] * jnp.swapaxes(parts, 0, 1)

            return sum_over(at_node, tuple(jnp.asarray(values, dtype=absent.dtype) for values in nodes))

        return jax.lax.map(of_point, present)

    return interactions
