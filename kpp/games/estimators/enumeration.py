r"""The values of all :math:`2^g` coalitions of players, reduced to Shapley values or interactions.

For a product kernel the products of the present and of the absent players' factors are tabulated for the subsets of
each half of the players, :math:`2^{g/2}` rows each. The absent ones are averaged over the references by matrix
products of the two tables, once for all explained points.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.functions import RKHSFunction
from kpp.games.players.players import Players
from kpp.games.values.abstract import AbstractProductValueFunction
from kpp.games.values.product_games import weigh_null_players
from kpp.kernels import AbstractProductKernel
from kpp.runtime.batching import average_chunks, map_rows, rows_that_fit, split_rows, split_weights, sum_arrays
from kpp.typing import Points

Reduction = Callable[[Float[Array, "c *rest"]], Float[Array, "..."]]

# Points of the function and references per batch, and the largest number of entries of a table of values.
_POINTS = 8
# With more outputs than this, and this number of points per batch, a matrix product over points takes less time.
_FEW_OUTPUTS, _POINTS_OF_MANY = 8, 64
_REFERENCES = 512
_MAX_VALUES = 2**22
# The largest number of values that are summed over points at once: they stay in the cache of a core.
_MAX_SUMS = 2**15


@eqx.filter_jit
def enumerate_products(
    reduce: Reduction,
    value_function: AbstractProductValueFunction,
    function: RKHSFunction,
    x: Array,
    *,
    players: Players,
    batch_size: int | None = None,
) -> Float[Array, "*draws p *result"]:
    r"""Reduce the values of all coalitions of a product game, by tabulating the products of the halves of the players.

    `reduce` takes a table of values (2^g, ...), without the intercept, to an array (\*result, ...); define it at module
    level, because JAX compiles a new function again. The results are led by draws and points, with the outputs last.
    The other arguments are those of `quadrature_shapley`.
    """
    references = value_function.references(x.shape[1]).astype(x.dtype)
    chunks = average_chunks(references, min(references.shape[0], batch_size or _REFERENCES))
    size = rows_that_fit(x.shape[0], 2**players.num_players, _MAX_VALUES)

    def explain(draw: RKHSFunction) -> Array:
        def block(rows: Array) -> Array:
            parts = draw.product_parts()
            values = sum_arrays(_term_values(value_function, *part, rows, players, chunks) for part in parts)
            return jax.vmap(reduce, in_axes=1)(values)

        return map_rows(block, x, size)

    return function.map_draws(explain)


def _term_values(
    value_function: AbstractProductValueFunction,
    term: AbstractProductKernel,
    function: RKHSFunction,
    x: Array,
    players: Players,
    chunks: tuple[Array, Array],
) -> Float[Array, "c p *outputs"]:
    """Return the values of all coalitions for one product term, without the intercept."""
    many = function.output_shape > (_FEW_OUTPUTS,)
    size = min(function.num_points, _POINTS_OF_MANY if many else _POINTS)
    coefficients = split_weights(weigh_null_players(term, function, x, players), size)
    num_rows = rows_that_fit(x.shape[0], 2**players.num_players, _MAX_SUMS)

    def add(total: Array, part: tuple[Points, Array]) -> tuple[Array, None]:
        points, weights = part
        absent = _absent_tables(value_function, term, points, players, chunks)
        table = absent.reshape(*absent.shape, *[1 for _ in function.output_shape]) * weights[:, None, None]

        def add_point(sums: Array, point: tuple[Array, Array, Array]) -> tuple[Array, None]:
            present = point[1].T[:, :, None] * point[0].T[:, None, :]
            return sums + present.reshape(*present.shape, *[1 for _ in sums.shape[3:]]) * point[2][None], None

        def add_block(block: tuple[Array, Array]) -> Array:
            rows, sums = block
            low, high = _half_tables(players.multiply(term.factors(rows, points)))
            if not many:
                return jax.lax.scan(add_point, sums, (low, high, table))[0]
            present = jnp.swapaxes(high, 1, 2)[..., None] * jnp.swapaxes(low, 1, 2)[:, :, None]
            return sums + jnp.tensordot(present * absent[:, None], weights, (0, 0), precision="highest")

        return map_rows(add_block, (x, total), num_rows), None

    low_size = 2 ** (players.num_players // 2)
    start = jnp.zeros((x.shape[0], 2**players.num_players // low_size, low_size, *function.output_shape), dtype=x.dtype)
    total = jax.lax.scan(add, start, (split_rows(function.points, size), coefficients))[0]
    values = total.reshape(x.shape[0], 2**players.num_players, *function.output_shape)
    return term.scale * jnp.swapaxes(values, 0, 1)


def _absent_tables(
    value_function: AbstractProductValueFunction,
    term: AbstractProductKernel,
    points: Points,
    players: Players,
    chunks: tuple[Array, Array],
) -> Float[Array, "n high low"]:
    """Average over the references the products over each coalition's complement."""

    def add(total: Array, chunk: tuple[Array, Array]) -> tuple[Array, None]:
        references, weights = chunk
        factors = players.multiply(value_function.absent_factors(term, references, points))
        low, high = _half_tables(factors, weights)
        return total + jnp.einsum("nhb,nlb->nhl", high, low, precision="highest"), None

    low_size = 2 ** (players.num_players // 2)
    start = jnp.zeros((points.shape[0], 2**players.num_players // low_size, low_size), dtype=points.dtype)
    return jax.lax.scan(add, start, chunks)[0][:, ::-1, ::-1]  # the complement of subset i is 2^k - 1 - i


def _half_tables(
    factors: Float[Array, "g b n"], weights: Float[Array, " b"] | None = None
) -> tuple[Float[Array, "n low b"], Float[Array, "n high b"]]:
    """Return the products over the subsets of each half of the players, those of the second times the weights."""
    half, by_point = factors.shape[0] // 2, jnp.swapaxes(factors, 1, 2)
    ones = jnp.ones(by_point.shape[1:], dtype=factors.dtype)
    weighted = ones if weights is None else jnp.broadcast_to(weights, ones.shape)
    return _subset_products(by_point[:half], ones), _subset_products(by_point[half:], weighted)


def _subset_products(factors: Float[Array, "g n b"], empty: Float[Array, "n b"]) -> Float[Array, "n subsets b"]:
    """Return the products over all subsets of some players, in the order of their bit masks, times `empty`."""
    table = empty[:, None]
    for factor in factors:
        table = jnp.concatenate([table, table * factor[:, None]], axis=1)
    return table
