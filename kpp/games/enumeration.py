r"""Exact Shapley values from the values of all :math:`2^d` coalitions.

For a product kernel the products of the present and of the absent features' factors are tabulated for the subsets of
each half of the features, :math:`2^{d/2}` rows each. The absent ones are averaged over the references by matrix
products of the two tables, once for all explained points.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.functions import RKHSFunction
from kpp.games.batching import average_chunks, map_rows, split_rows, sum_arrays
from kpp.games.coalitions import all_coalitions
from kpp.games.shapley import shapley_values_from_table
from kpp.games.value_functions import AbstractProductValueFunction, AbstractValueFunction
from kpp.kernels import AbstractProductKernel

__all__ = ["enumeration_shapley", "product_enumeration_shapley"]

# Points of the function at once, references at once, and entries of a table of values.
_POINTS = 64
_REFERENCES = 512
_MAX_VALUES = 2**22


def enumeration_shapley(
    value_function: AbstractValueFunction, function: Any, x: Array
) -> Float[Array, "*draws p d *outputs"]:
    """Compute Shapley values of any value function by asking it for all coalitions.

    Args:
        value_function: A value function.
        function: The function.
        x: The points to explain, (p, d).

    Returns:
        The Shapley values, (p, d), led by draws, with the outputs last.
    """
    coalitions = all_coalitions(x.shape[1])
    values = value_function(function, x, coalitions)
    batch = _coalition_axis(values, function, coalitions.shape[0])
    return jnp.moveaxis(shapley_values_from_table(jnp.moveaxis(values, batch, 0)), 0, batch + 1)


def _coalition_axis(values: Array, function: Any, num_coalitions: int) -> int:
    if isinstance(function, RKHSFunction):
        return len(function.batch_shape)
    return values.shape.index(num_coalitions)


@eqx.filter_jit
def product_enumeration_shapley(
    value_function: AbstractProductValueFunction, function: RKHSFunction, x: Array, *, batch_size: int | None = None
) -> Float[Array, "*draws p d *outputs"]:
    """Compute exact Shapley values by tabulating the products of the halves of the features.

    Args:
        value_function: A value function that averages absent features' factors over references.
        function: The function, whose kernel is a sum of product kernels.
        x: The points to explain, (p, d).
        batch_size: How many references are worked on at once.

    Returns:
        The Shapley values, (p, d), led by draws, with the outputs last.
    """
    references = value_function.references(x.shape[1]).astype(x.dtype)
    chunks = average_chunks(references, min(references.shape[0], batch_size or _REFERENCES))
    size = max(1, min(x.shape[0], _MAX_VALUES >> x.shape[1]))

    def explain(draw: RKHSFunction) -> Array:
        def block(rows: Array) -> Array:
            terms = draw.kernel.product_terms()
            values = sum_arrays(_term_values(value_function, term, draw, rows, chunks) for term in terms)
            return jnp.swapaxes(shapley_values_from_table(values), 0, 1)

        return map_rows(block, x, size)

    return function.map_draws(explain)


def _term_values(
    value_function: AbstractProductValueFunction,
    term: AbstractProductKernel,
    function: RKHSFunction,
    x: Array,
    chunks: tuple[Array, Array],
) -> Float[Array, "c p *outputs"]:
    """Return the values of all coalitions for one product term, without the intercept."""
    size = min(function.num_points, _POINTS)
    missing = -function.num_points % size
    padding = [(0, missing)] + [(0, 0)] * len(function.output_shape)
    coefficients = jnp.pad(function.coefficients, padding).reshape(-1, size, *function.output_shape)
    num_features = x.shape[1]

    def add(total: Array, part: tuple[Array, Array]) -> tuple[Array, None]:
        points, weights = part
        absent = _absent_tables(value_function, term, points, chunks)
        low, high = _half_tables(term.factors(x, points))
        return total + _contract(low, high, absent, weights), None

    low_size = 2 ** (num_features // 2)
    start = jnp.zeros((x.shape[0], 2**num_features // low_size, low_size, *function.output_shape), dtype=x.dtype)
    total = jax.lax.scan(add, start, (split_rows(function.points, size), coefficients))[0]
    values = total.reshape(x.shape[0], 2**num_features, *function.output_shape)
    return term.scale * jnp.swapaxes(values, 0, 1)


def _absent_tables(
    value_function: AbstractProductValueFunction,
    term: AbstractProductKernel,
    points: Array,
    chunks: tuple[Array, Array],
) -> Float[Array, "n high low"]:
    """Average over the references the products over each coalition's complement."""

    def add(total: Array, chunk: tuple[Array, Array]) -> tuple[Array, None]:
        low, high = _half_tables(value_function.absent_factors(term, chunk[0], points))
        weighted = high * chunk[1][None, :, None]
        return total + jnp.einsum("hbn,lbn->nhl", weighted, low, precision="highest"), None

    num_features = chunks[0].shape[-1]
    low_size = 2 ** (num_features // 2)
    start = jnp.zeros((points.shape[0], 2**num_features // low_size, low_size), dtype=points.dtype)
    return jax.lax.scan(add, start, chunks)[0][:, ::-1, ::-1]


def _half_tables(factors: Float[Array, "d b n"]) -> tuple[Float[Array, "low b n"], Float[Array, "high b n"]]:
    half = factors.shape[0] // 2
    return _subset_products(factors[:half], factors), _subset_products(factors[half:], factors)


def _subset_products(factors: Float[Array, "d b n"], like: Array) -> Float[Array, "subsets b n"]:
    """Return the products over all subsets of the features, in the order of their bit masks."""
    table = jnp.ones((1, *like.shape[1:]), dtype=like.dtype)
    for factor in factors:
        table = jnp.concatenate([table, table * factor[None]])
    return table


def _contract(
    low: Float[Array, "low p n"], high: Float[Array, "high p n"], absent: Array, weights: Float[Array, "n *outputs"]
) -> Float[Array, "p high low *outputs"]:
    """Sum over the function's points the products of present factors, absent ones and coefficients."""
    outputs = weights.shape[1:]
    table = absent.reshape(*absent.shape, *[1 for _ in outputs]) * weights.reshape(-1, 1, 1, *outputs)

    def one(tables: tuple[Array, Array]) -> Array:
        present = tables[1].T[:, :, None] * tables[0].T[:, None, :]
        return jnp.sum(present.reshape(*present.shape, *[1 for _ in outputs]) * table, axis=0)

    return jax.lax.map(one, (jnp.swapaxes(low, 0, 1), jnp.swapaxes(high, 0, 1)))
