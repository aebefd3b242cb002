r"""Values of coalitions under a product value function, by the product terms of the kernel.

With factors :math:`a_{ij} = k_j(x_j, X_{ij})` of the explained point and :math:`c_{bij}` of the m references,

.. math:: v(S) = \sigma^2 \sum_i \alpha_i \prod_{j \in S} a_{ij} \cdot \frac1m \sum_{b=1}^m \prod_{j \notin S} c_{bij},

summed over the product terms of the kernel, plus the intercept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from kpp.functions import RKHSFunction
from kpp.games.players.players import CoalitionTable, Players
from kpp.games.values.abstract import AbstractProductValueFunction
from kpp.kernels import RBF, AbstractProductKernel
from kpp.runtime.batching import average_chunks, rows_that_fit, split_rows, sum_over
from kpp.typing import Points, RngKey

# The largest number of elements of an array of factors.
_MAX_ELEMENTS = 2**20


def example_functions(rng_key: RngKey) -> Iterator[tuple[RKHSFunction, Float[Array, "p d"]]]:
    """Yield small functions with points: one kernel, a sum with a constant, several outputs."""
    points, x = jax.random.normal(rng_key, (5, 3)), jax.random.normal(rng_key, (2, 3)) - 0.5
    coefficients = jnp.cos(jnp.arange(10.0)).reshape(5, 2)
    kernel = RBF(lengthscale=jnp.array([0.8, 1.0, 1.5]), variance=1.3)
    yield RKHSFunction(kernel, points, coefficients[:, 0], 0.5), x
    yield RKHSFunction(kernel + 0.7, points, coefficients[:, 1], -0.2), x
    yield RKHSFunction(kernel, points, coefficients, jnp.array([0.5, -1.0])), x


def is_product_game(value_function: object, function: object) -> TypeGuard[AbstractProductValueFunction]:
    """Return whether quadrature applies to a game: a product value function, and a kernel of product terms."""
    return (
        isinstance(value_function, AbstractProductValueFunction)
        and isinstance(function, RKHSFunction)
        and function.has_product_parts
        # Absent features of an added function can be filled in, and their factors cannot be replaced.
        and (function.spanned is function or hasattr(value_function, "impute"))
    )


def weigh_null_players(
    term: AbstractProductKernel, function: RKHSFunction, x: Float[Array, "p d"], players: Players
) -> Float[Array, "n *outputs"]:
    """Return the function's coefficients times the kernel factors of null players, which are equal for all x."""
    if sum(map(len, players.groups)) == players.num_features:
        return function.coefficients
    factors = term.factors(x[:1], function.points)[np.flatnonzero(players.membership < 0), 0].prod(axis=0)
    return function.coefficients * factors.reshape(-1, *[1 for _ in function.output_shape])


@eqx.filter_jit
def product_values(
    value_function: AbstractProductValueFunction, function: RKHSFunction, x: Array, coalitions: Array
) -> CoalitionTable:
    """Value coalitions by the product terms of the kernel; see `AbstractValueFunction`.

    The value function averages absent features' factors over references, and the kernel is a sum of product kernels.
    """

    def value(draw: RKHSFunction) -> Array:
        total = jnp.zeros((coalitions.shape[0], x.shape[0], *draw.output_shape), dtype=draw.coefficients.dtype)
        for term, part in draw.product_parts():
            total = total + _term_values(value_function, term, part, x, coalitions)
        return total + jnp.broadcast_to(draw.intercept, total.shape)

    return function.map_draws(value)


def _term_values(
    game: AbstractProductValueFunction, term: AbstractProductKernel, draw: RKHSFunction, x: Array, masks: Array
) -> Float[Array, "c p *outputs"]:
    """Return the values of coalitions for one product term, without the intercept."""
    points = draw.points
    references = game.references(x.shape[1]).astype(x.dtype)

    def averages(chunk: tuple[Array, Array]) -> Array:
        factors = game.absent_factors(term, chunk[0], points)
        return jax.lax.map(lambda mask: chunk[1] @ masked_product(factors, ~mask), masks)

    absent = sum_over(averages, average_chunks(references, _chunk_size(references, points)))

    def values_at(rows: Array) -> Array:
        factors = term.factors(rows, points)

        def value(coalition: tuple[Array, Array]) -> Array:
            weighted = masked_product(factors, coalition[0]) * coalition[1][None]
            return jnp.matmul(weighted, draw.coefficients, precision="highest")

        return jax.lax.map(value, (masks, absent))

    values = jnp.moveaxis(jax.lax.map(values_at, split_rows(x, _chunk_size(x, points))), 0, 1)
    return term.scale * values.reshape(values.shape[0], -1, *values.shape[3:])[:, : x.shape[0]]


def masked_product(factors: Float[Array, "d b n"], mask: Bool[Array, " d"]) -> Float[Array, "b n"]:
    """Multiply the factors of some features."""
    return jnp.prod(jnp.where(mask[:, None, None], factors, jnp.ones_like(factors)), axis=0)


def _chunk_size(rows: Array, points: Points) -> int:
    return rows_that_fit(rows.shape[0], rows.shape[1] * points.shape[0], _MAX_ELEMENTS)
