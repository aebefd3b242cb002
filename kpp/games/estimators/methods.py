"""The exact methods, quadrature and enumeration: the choice of the cheaper one, and its Shapley values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.foundation.validation import count, one_of
from kpp.functions import RKHSFunction
from kpp.games.estimators.game import Game, read_game
from kpp.games.estimators.quadrature import num_nodes, quadrature_shapley
from kpp.games.estimators.sampled.coalition_weights import shapley_values_from_table
from kpp.games.players.players import MAX_ENUMERATED, Players, all_coalitions
from kpp.games.values.abstract import AbstractProductValueFunction, AbstractValueFunction
from kpp.games.values.interventional import Interventional
from kpp.games.values.product_games import is_product_game, weigh_null_players
from kpp.kernels import AbstractProductKernel
from kpp.runtime.batching import average_chunks, map_rows, rows_that_fit, split_rows, split_weights, sum_arrays
from kpp.typing import Points

Reduction = Callable[[Float[Array, "c *rest"]], Float[Array, "..."]]

# Measured in nanoseconds on one core of 2023: a factor at a node, an averaged entry of a table, a multiply-add.
_QUADRATURE_COST, _AVERAGE_COST, _ENUMERATION_COST = 0.6, 0.15, 0.5
# Above this number of players, coalitions of a general value function are enumerated only on request.
MAX_PLAYERS = 14
# Points of the function and references per batch, and the largest number of entries of a table of values.
_POINTS = 8
# With more outputs than this, and this number of points per batch, a matrix product over points takes less time.
_FEW_OUTPUTS, _POINTS_OF_MANY = 8, 64
_REFERENCES = 512
_MAX_VALUES = 2**22
# The largest number of values that are summed over points at once: they stay in the cache of a core.
_MAX_SUMS = 2**15


def choose_method(
    value_function: AbstractValueFunction,
    function: object,
    num_points: int,
    num_features: int,
    method: str = "auto",
    *,
    num_players: int | None = None,
) -> Literal["quadrature", "enumeration"]:
    """Choose the cheaper of the exact methods that apply.

    Quadrature takes p n m g g/2 steps and needs a value function and a kernel that are products over the features;
    enumeration takes n (m + p) 2^g steps for such games, and 2^g values of any other value function.

    Args:
        value_function: The value function.
        function: The function to explain.
        num_points: How many points are explained, p.
        num_features: d.
        method: "auto", or the requested method.
        num_players: g, by default d.

    Returns:
        "quadrature" or "enumeration".

    Raises:
        ValueError: If `method` is unknown, or there are too many players to enumerate.
        TypeError: If quadrature does not apply, and is requested or is the only possible method.
    """
    players = num_features if num_players is None else num_players
    one_of(method, "method", ("auto", "quadrature", "enumeration"))
    if method == "enumeration" and players > MAX_ENUMERATED:
        raise ValueError(
            f"`method` 'enumeration' takes at most {MAX_ENUMERATED} features or groups, got {players}, which have "
            f"2^{players} coalitions"
        )
    if not is_product_game(value_function, function):
        if method == "quadrature" or (method == "auto" and players > MAX_PLAYERS):
            raise TypeError(_explain_refusal(value_function, function, players))
        return "enumeration"
    if method == "enumeration":
        return "enumeration"
    if method == "quadrature" or players > MAX_ENUMERATED:
        return "quadrature"
    num_references = value_function.references(num_features).shape[0]
    quadrature = _QUADRATURE_COST * num_points * num_references * players * num_nodes(players)
    enumeration = (_AVERAGE_COST * num_references + _ENUMERATION_COST * num_points) * 2**players
    return "quadrature" if quadrature <= enumeration else "enumeration"


def choose_for_game(game: Game, method: str) -> Literal["quadrature", "enumeration"]:
    """Choose an exact method for a game as `choose_method` does, ignoring null players."""
    num_points, num_features = game.x.shape
    return choose_method(
        game.value_function, game.function, num_points, num_features, method, num_players=game.num_players
    )


def solve_exactly(
    game: Game,
    method: str,
    batch_size: int | None = None,
    reduce: Reduction = shapley_values_from_table,
    by_quadrature: Callable[..., Array] = quadrature_shapley,
    num_player_axes: int = 1,
) -> Float[Array, "..."]:
    """Compute Shapley values (p, g), led by draws, with the outputs last, by the method that `choose_method` chose.

    `batch_size` is the number of references that are worked on at once. Other values, with one or more axes of players,
    come from the reduction of a table of values, and from a quadrature.
    """
    value_function, function = game.value_function, game.function
    if not is_product_game(value_function, function):
        table, num_draw_axes = game.table(all_coalitions(game.num_players))
        return game.arrange(_reduce_points(reduce, table), num_draw_axes, num_player_axes)
    options: dict[str, Any] = {"players": game.players, "batch_size": batch_size}
    if method == "quadrature":
        values = by_quadrature(value_function, function, game.x, **options)
    else:
        values = enumerate_products(reduce, value_function, function, game.x, **options)
    return game.restore(values, len(function.batch_shape), num_player_axes)


@eqx.filter_jit
def _reduce_points(reduce: Reduction, table: Float[Array, "c p *rest"]) -> Float[Array, "p *result"]:
    return jax.vmap(reduce, in_axes=1)(table)


def check_batch_size(batch_size: int | None) -> None:
    """Raise ValueError unless a batch size is a positive integer or None."""
    if batch_size is not None:
        count(batch_size, "batch_size")


def _explain_refusal(value_function: AbstractValueFunction, function: object, num_players: int) -> str:
    game, kind = type(value_function).__name__, type(function).__name__
    if isinstance(function, RKHSFunction):
        kind = f"an RKHSFunction with kernel {type(function.kernel).__name__}"
    return (
        f"exact Shapley values of {num_players} features by quadrature need a value function and a kernel that are "
        f"products over the features, got {game} and {kind}; enumeration takes up to {MAX_PLAYERS} features, "
        f"and up to {MAX_ENUMERATED} with method='enumeration'"
    )


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

    The products of the present and of the absent players' factors are tabulated for the subsets of each half of the
    players, :math:`2^{g/2}` rows each. The absent ones are averaged over the references by matrix products of the two
    tables, once for all explained points.

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


def shapley_values(
    value_function: AbstractValueFunction,
    function: object,
    x: object,
    *,
    method: str = "auto",
    groups: object = None,
    batch_size: int | None = None,
) -> Float[Array, "*draws p g *outputs"]:
    """Compute exact Shapley values.

    Features that are constant over the points and the references get the value 0 and take no time.

    Args:
        value_function: The game.
        function: The function to explain: an `RKHSFunction`, or another function that the value function accepts.
        x: The points to explain, (p, d).
        method: "quadrature", "enumeration", or "auto" for the cheaper one.
        groups: Features that form one player, a mapping from names to features; see `as_players`. By default each
            feature is a player.
        batch_size: How many references are worked on at once; by default what fits a processor's cache.

    Returns:
        The Shapley values, (p, g), led by draws, with the outputs last. Without groups g = d.

    Raises:
        ValueError: If `x`, `method`, `groups` or `batch_size` are invalid, or there are too many players to
            enumerate.
        TypeError: If quadrature does not apply, and is requested or is the only possible method.

    Example:
        >>> game = kpp.games.Interventional(x)
        >>> kpp.games.shapley_values(game, kpp.as_rkhs_function(fit), x[:1]).round(2)
        Array([[[[ 0.27, -0.03]]]], dtype=float64)
    """
    game = read_game(value_function, function, x, groups)
    check_batch_size(batch_size)
    return solve_exactly(game, choose_for_game(game, method), batch_size)


def interventional_shapley(
    function: object,
    x: object,
    background: Any,
    *,
    method: str = "auto",
    groups: object = None,
    batch_size: int | None = None,
) -> Float[Array, "*draws p g *outputs"]:
    """Compute exact Shapley values of `Interventional` with background points (m, d); see `shapley_values`.

    Example:
        >>> kpp.games.interventional_shapley(lambda rows: rows[:, 0], x[:1], x).round(2)
        Array([[0.4, 0. ]], dtype=float64)
    """
    return shapley_values(Interventional(background), function, x, method=method, groups=groups, batch_size=batch_size)
