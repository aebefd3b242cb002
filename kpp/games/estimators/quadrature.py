r"""Exact Shapley values and interactions of product kernels in polynomial time.

For one point of the function and one reference, with factors :math:`a_j` of the explained point and :math:`c_j` of the
reference, the game is :math:`v(S) = \prod_{j \in S} a_j \prod_{j \notin S} c_j`, and by Owen's multilinear extension

.. math:: \phi_j = \int_0^1 (a_j - c_j) \prod_{l \ne j} F_l(t)\,dt, \qquad F_l(t) = (1-t)\,c_l + t\,a_l,

a polynomial of degree d - 1, for which :math:`\lceil d/2 \rceil` Gauss-Legendre nodes are exact.

Where no factor is negative, write :math:`s_l = (a_l + c_l)/2`, :math:`r_l = (c_l - a_l)/(c_l + a_l)` and
:math:`\delta = 1 - 2t`. Then :math:`F_l = s_l (1 + r_l \delta)` and :math:`a_j - c_j = -2 s_j r_j`, so that

.. math:: \phi_j = -2\, r_j \prod_l s_l \int_0^1 \frac{Q(\delta)}{1 + r_j \delta}\,dt, \qquad
    Q(\delta) = \prod_l (1 + r_l \delta).

This divides only by :math:`1 + r_j\delta \ge 2t_1 > 0`, with :math:`t_1` the first node, for any factors, zero and
underflow included; it sums only terms of one sign; and it costs four operations per factor and node. Factors of both
signs take prefix and suffix products instead.

The interactions of two players are, with the same factors,

.. math:: \text{SII}_{jk} = \int_0^1 (a_j - c_j)(a_k - c_k) \prod_{l \ne j, k} F_l(t)\,dt,

and the Shapley-Taylor index of order 2 has the additional factor 2 (1 - t) under the integral. The integrands are
polynomials of degree g - 2 and g - 1, for which :math:`\lceil (g-1)/2 \rceil` and :math:`\lceil g/2 \rceil`
Gauss-Legendre nodes are exact.

Where no factor is negative, :math:`\rho_j = (a_j - c_j) / F_j` is bounded at interior nodes, by 1/t and 1/(1 - t), and
the sum over all N pairs of a reference with a point of the function is, at each node, one product of matrices (g, N)
and (N, g), :math:`\sum_N w_N \rho_j \rho_k` with :math:`w_N = \alpha \prod_l F_l`. Factors of both signs take the
products that leave two out, from prefix and suffix products.

References:
    Owen, Multilinear extensions of games, 1972.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.functions import RKHSFunction
from kpp.games.players.players import Players, as_players
from kpp.games.values.abstract import AbstractProductValueFunction
from kpp.games.values.product_games import weigh_null_players
from kpp.kernels import AbstractProductKernel
from kpp.runtime.batching import average_chunks, even_size, map_rows, split_rows, split_weights, sum_arrays, sum_over
from kpp.typing import Points

# Explained points per batch, and pairs of references and points of the function per batch: they fit into a cache.
_POINTS = 8
_PAIRS = 600
# The same pairs for interactions: large enough for efficient matrix products.
_PAIRS_OF_INTERACTIONS = 4096
# Above this number of features XLA writes the factors to memory before it multiplies them; a loop avoids this.
_FUSED = 32
# Up to this number, products of others are one fused loop, which compiles faster than two loops over the features.
_MULTIPLIED_AT_ONCE = 8


def by_sign(
    term: AbstractProductKernel, nonnegative: Callable[..., Array], any_sign: Callable[..., Array]
) -> Callable[..., Array]:
    """Return a function of arrays of factors, and of operands, that calls one of two functions of the operands.

    It calls the first where no factor is negative, else the second. A program holds both only if the kernel does not
    tell which it needs.
    """

    def call(factors: Iterable[Array], *operands: Any) -> Array:
        if term.nonnegative:
            return nonnegative(*operands)
        known = jnp.all(jnp.stack([jnp.all(array >= 0) for array in factors]))
        return jax.lax.cond(known, nonnegative, any_sign, *operands)

    return call


@eqx.filter_jit
def quadrature_shapley(
    value_function: AbstractProductValueFunction,
    function: RKHSFunction,
    x: Array,
    *,
    players: Players | None = None,
    batch_size: int | None = None,
) -> Float[Array, "*draws p g *outputs"]:
    """Compute exact Shapley values by quadrature.

    Args:
        value_function: A value function that averages absent features' factors over references.
        function: The function, whose kernel is a sum of product kernels.
        x: The points to explain, (p, d).
        players: The players, groups of features; by default each feature is a player. At x and the references the
            features of no player must each have one factor.
        batch_size: How many references are worked on at once. Memory grows as ``batch_size * n * d``.

    Returns:
        The Shapley values, (p, g), led by draws, with the outputs last.
    """
    players = players or as_players(None, x.shape[1])
    references = value_function.references(x.shape[1]).astype(x.dtype)
    rows = min(references.shape[0], batch_size or max(1, _PAIRS // function.num_points))
    chunks = average_chunks(references, rows)
    columns = max(1, _PAIRS // rows)

    def explain(draw: RKHSFunction) -> Array:
        def block(points: Array) -> Array:
            parts = draw.product_parts()
            return sum_arrays(_term_values(value_function, *part, points, players, chunks, columns) for part in parts)

        # For a single point XLA fuses the steps after all; with many features two points then take less time than one.
        return map_rows(block, x, min(max(x.shape[0], 2 if x.shape[1] > 16 else 1), _POINTS))

    return function.map_draws(explain)


def _term_values(
    value_function: AbstractProductValueFunction,
    term: AbstractProductKernel,
    function: RKHSFunction,
    x: Array,
    players: Players,
    chunks: tuple[Array, Array],
    columns: int,
) -> Float[Array, "p g *outputs"]:
    """Return the Shapley values for one product term, from at most `columns` points of the function at once."""
    columns = even_size(function.num_points, columns)
    coefficients = split_weights(weigh_null_players(term, function, x, players), columns)
    sections = by_sign(term, _ratio_sections, _signed_sections)

    def add_points(values: Array, part: tuple[Points, Array]) -> tuple[Array, None]:
        points, weights = part
        present = jnp.swapaxes(players.multiply(term.factors(x, points)), 0, 1)

        def add(total: Array, chunk: tuple[Array, Array]) -> tuple[Array, None]:
            absent = players.multiply(value_function.absent_factors(term, chunk[0], points))
            return total + sections((present, absent), present, absent, chunk[1]), None

        total = jax.lax.scan(add, jnp.zeros_like(present), chunks)[0]
        return values + jnp.matmul(total, weights, precision="highest"), None

    start = jnp.zeros((x.shape[0], players.num_players, *function.output_shape), dtype=x.dtype)
    return term.scale * jax.lax.scan(add_points, start, (split_rows(function.points, columns), coefficients))[0]


def _ratio_sections(present: Array, absent: Array, weights: Array) -> Float[Array, "p d n"]:
    """Return the Shapley values of the kernel sections at each point of the function, summed over references.

    This is for factors that are not negative.

    Pairs of references and points of the function are one axis, along which XLA's loops run as vector instructions.
    Each step is a separate loop over the explained points: otherwise XLA would fuse the steps and compute the result of
    the first again for every feature.
    """
    num_features, num_references, num_points = absent.shape
    nodes, node_weights = gauss_legendre(num_nodes(num_features))
    half = len(nodes) // 2
    deltas, middle = 1 - 2 * nodes[:half], node_weights[half] if len(nodes) % 2 else 0.0

    def ratios(factors: Array) -> tuple[Array, Array]:
        sums = absent + factors[:, None]
        ratio = jnp.where(sums > 0, (absent - factors[:, None]) / sums, 0.0)
        scale = -2 * weights[:, None] * jnp.prod(sums / 2, axis=0)
        return ratio.reshape(num_features, -1), scale.reshape(-1)

    def products(pair: tuple[Array, Array]) -> Array:
        signed = jnp.asarray(np.concatenate([deltas, -deltas])[:, None], dtype=absent.dtype)
        if num_features <= _FUSED:
            return pair[1][None] * jnp.prod(1 + pair[0][:, None] * signed[None], axis=0)
        start = jnp.broadcast_to(pair[1][None], (len(signed), pair[1].shape[0]))
        return jax.lax.scan(lambda total, ratio: (total * (1 + ratio[None] * signed), None), start, pair[0])[0]

    def even_and_odd(triple: tuple[Array, Array, Array]) -> tuple[Array, ...]:
        ratio, scale, product = triple
        weight = jnp.asarray(node_weights[:half, None], dtype=product.dtype)
        slope = jnp.asarray(deltas[:, None], dtype=product.dtype) * weight
        low, high = product[:half], product[half:]
        return ratio, middle * scale, weight * (low + high), slope * (low - high)

    def integral(parts: tuple[Array, ...]) -> Array:
        ratio, constant, even, odd = parts
        total = jnp.broadcast_to(constant[None], ratio.shape)
        for numerator, denominator in _fractions(ratio, even, odd, deltas):
            total = total + numerator / denominator
        return ratio * total

    ratio, scale = jax.lax.map(ratios, present)
    product = jax.lax.map(products, (ratio, scale))
    sections = _map_prepared(integral, even_and_odd, (ratio, scale, product))
    return sections.reshape(-1, num_features, num_references, num_points).sum(axis=2)


def _fractions(ratio: Array, even: Array, odd: Array, deltas: np.ndarray) -> Iterator[tuple[Array, Array]]:
    """Yield the integrand's fractions at pairs of opposite nodes, with a common denominator for two pairs."""
    square = ratio * ratio
    for start in range(0, len(deltas), 2):
        numerator, denominator = even[start][None] - ratio * odd[start][None], 1 - square * deltas[start] ** 2
        if start + 1 < len(deltas):
            own, other = even[start + 1][None] - ratio * odd[start + 1][None], 1 - square * deltas[start + 1] ** 2
            numerator, denominator = numerator * other + own * denominator, denominator * other
        yield numerator, denominator


def _map_prepared(f: Callable[[Any], Array], prepare: Callable[[Any], Any], xs: Any) -> Array:
    """Return ``jax.lax.map(lambda x: f(prepare(x)), xs)``, with what `prepare` makes written out before `f` reads it.

    The prepared value is the carry of the loop, computed one step ahead. Reading slices at a moving offset would
    prevent XLA from using vector instructions.
    """

    def step(prepared: Any, following: Any) -> tuple[Any, Array]:
        return prepare(following), f(prepared)

    first = prepare(jax.tree.map(lambda leaf: leaf[0], xs))
    return jax.lax.scan(step, first, jax.tree.map(lambda leaf: jnp.roll(leaf, -1, axis=0), xs))[1]


def _signed_sections(present: Array, absent: Array, weights: Array) -> Float[Array, "p d n"]:
    """Return the same for factors of any sign, by prefix and suffix products."""
    nodes, node_weights = gauss_legendre(num_nodes(absent.shape[0]))

    def section(factors: Array) -> Array:
        difference = factors[:, None] - absent

        def add(total: Array, node: tuple[Array, Array]) -> tuple[Array, None]:
            others = products_of_others(absent + node[0] * difference)  # no division: factors may be 0
            return total + node[1] * jnp.einsum("b,dbn->dn", weights, difference * others, precision="highest"), None

        table = jnp.asarray(nodes, dtype=absent.dtype), jnp.asarray(node_weights, dtype=absent.dtype)
        return jax.lax.scan(add, jnp.zeros_like(factors), table)[0]

    return jax.lax.map(section, present)


def products_of_others(factors: Float[Array, "d b n"]) -> Float[Array, "d b n"]:
    """Return for each feature the product of all other features' factors."""
    num_features = factors.shape[0]
    if num_features <= _MULTIPLIED_AT_ONCE:
        own = jnp.eye(num_features, dtype=bool)[:, :, None, None]
        return jnp.prod(jnp.where(own, jnp.ones_like(factors), factors[None]), axis=1)

    def step(product: Array, factor: Array) -> tuple[Array, Array]:
        return product * factor, product

    one = jnp.ones_like(factors[0])
    before = jax.lax.scan(step, one, factors)[1]
    after = jax.lax.scan(step, one, factors, reverse=True)[1]
    return before * after


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
    rows = min(references.shape[0], batch_size or max(1, _PAIRS_OF_INTERACTIONS // function.num_points))
    chunks = average_chunks(references, rows)
    nodes = _nodes(players.num_players, taylor)
    pairs = ~np.eye(players.num_players, dtype=bool)

    def explain(draw: RKHSFunction) -> Array:
        parts = draw.product_parts()
        values = sum_arrays(_term_interactions(value_function, *part, x, players, chunks, nodes) for part in parts)
        values = jnp.moveaxis(jnp.where(pairs[None, None], values, 0.0), 1, -1)
        return values.reshape(*values.shape[:3], *draw.output_shape)

    return function.map_draws(explain)


def _nodes(num_players: int, taylor: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights, which hold the factor 2 (1 - t) of the Shapley-Taylor index."""
    nodes, weights = gauss_legendre(max(1, (num_players + taylor) // 2))  # exact up to the degree g - 2 (+ 1)
    return nodes, weights * 2 * (1 - nodes) if taylor else weights


def _term_interactions(
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


def gauss_legendre(num_nodes: int) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
    """Return nodes and weights of Gauss-Legendre quadrature on [0, 1], exact for polynomials of degree 2 q - 1.

    Args:
        num_nodes: q, at least 1.

    Returns:
        The nodes, ascending, and the weights, which sum to 1; both of shape (q,).

    Raises:
        ValueError: If q is less than 1.
    """
    if num_nodes < 1:
        raise ValueError(f"`num_nodes` must be at least 1, got {num_nodes}")
    nodes, weights = np.polynomial.legendre.leggauss(num_nodes)
    return (nodes + 1) / 2, weights / 2


def num_nodes(num_features: int) -> int:
    """Return the number of nodes that is exact for Shapley values of d features, d/2 rounded up."""
    return (num_features + 1) // 2  # the integrand has degree d - 1 <= 2 q - 1
