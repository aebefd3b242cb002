"""A game to be solved, a value function with a function, points and players, and its solution.

A game is read from a user's arguments without its null players. A feature that has the same value at all explained
points and references does not change the value of any coalition that it joins, so its contribution is exactly 0.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from kpp.foundation.validation import as_points, is_concrete
from kpp.functions import RKHSFunction
from kpp.games.players.players import Players, as_players
from kpp.games.values.abstract import AbstractProductValueFunction, AbstractValueFunction
from kpp.games.values.imputation import AbstractImputation
from kpp.games.values.product_games import is_product_game
from kpp.typing import AnyArray


@dataclasses.dataclass(frozen=True)
class Game:
    """A value function, a function, points and players: the input of every estimator."""

    value_function: Any
    function: Any
    x: Float[Array, "p d"]
    players: Players  # without null players, g'
    varying: Bool[np.ndarray, " g"]  # for each of all g players, True if it is one of `players`

    @property
    def num_players(self) -> int:
        """The number of players that are not null players, g'."""
        return self.players.num_players

    def table(self, coalitions: Bool[np.ndarray, "c g"]) -> tuple[Float[Array, "c p *draws_and_outputs"], int]:
        """Compute the values of coalitions (c, g') of the players that are not null players.

        They lead with the axes of coalitions and points, and are returned with the number of the following axes that
        are draws.
        """
        values = jnp.asarray(self.value_function(self.function, self.x, self.players.expand(coalitions)))
        # A plain function has the axes (chain, draw) or none; those of coalitions and points may have the same lengths.
        is_rkhs = isinstance(self.function, RKHSFunction)
        draws = len(self.function.batch_shape) if is_rkhs else 2 * (values.ndim >= 4)
        return jnp.moveaxis(values, (draws, draws + 1), (0, 1)) if draws else values, draws

    def arrange(self, results: Array, num_draw_axes: int, num_player_axes: int = 1) -> Float[Array, "..."]:
        r"""Return results with the axes (p, one or more of g', draws, outputs) as (\*draws, p, g, ..., \*outputs)."""
        first = 1 + num_player_axes
        if num_draw_axes:
            draws = tuple(range(first, first + num_draw_axes))
            results = jnp.moveaxis(results, draws, tuple(range(num_draw_axes)))
        return self.restore(results, num_draw_axes, num_player_axes)

    def restore(self, values: Array, num_draw_axes: int, num_player_axes: int = 1) -> Float[Array, "..."]:
        """Return values (*draws, p, g', ..., *outputs) with zeros for the null players, g in the place of each g'."""
        if self.varying.all():
            return values
        first = num_draw_axes + 1
        return _insert_zeros(values, tuple(self.varying.tolist()), tuple(range(first, first + num_player_axes)))


@functools.partial(jax.jit, static_argnums=(1, 2))
def _insert_zeros(values: Array, varying: tuple[bool, ...], axes: tuple[int, ...]) -> Array:
    kept = np.flatnonzero(varying)
    for axis in axes:
        shape = (*values.shape[:axis], len(varying), *values.shape[axis + 1 :])
        values = jnp.zeros(shape, dtype=values.dtype).at[(*[slice(None)] * axis, kept)].set(values)
    return values


class ShapleyEstimate(eqx.Module):
    """Shapley values, and how they were computed.

    Args:
        values: The values, (p, g), led by draws, with the outputs last.
        standard_errors: A standard error for each value, of their shape; None if nothing was sampled,
            and 0 if a tolerance was missed by sampling, so that all coalitions were valued.
        method: "quadrature", "enumeration", "least-squares", "permutation", "active" or
            "asymmetric".
        exact: Whether nothing was sampled: neither coalitions nor the rows behind their values.
        num_coalitions: How many different coalitions were valued, the empty and the full one among them; None for
            quadrature.
        num_nodes: The number of nodes of the quadrature, else None.
        tolerance: The requested bound of the standard errors, in the unit of the values; None if none was requested.
    """

    values: Float[AnyArray, "..."]
    standard_errors: Float[AnyArray, "..."] | None
    method: str = eqx.field(static=True)
    exact: bool = eqx.field(static=True)
    num_coalitions: int | None = eqx.field(static=True)
    num_nodes: int | None = eqx.field(static=True)
    tolerance: float | None = eqx.field(static=True, default=None)

    @property
    def tolerance_reached(self) -> bool | None:
        """Whether the largest standard error is at most the tolerance; None if none was requested."""
        if self.tolerance is None:
            return None
        return self.standard_errors is None or float(np.max(self.standard_errors)) <= self.tolerance


def read_game(
    value_function: AbstractValueFunction, function: object, x: object, groups: object, *, null_players: bool = False
) -> Game:
    """Check the points and groups of a user, and leave out null players unless `null_players` is True."""
    x = as_points(x)
    if isinstance(function, RKHSFunction):
        x = as_points(x, num_features=function.num_features)
    players = as_players(groups, x.shape[1])
    if null_players:
        varying = np.ones(players.num_players, dtype=bool)
    else:
        varying = varying_players(value_function, function, x, players)
    return Game(value_function, function, jnp.asarray(x), players.keep(varying), varying)


def varying_players(value_function: Any, function: Any, x: Array, players: Players) -> Bool[np.ndarray, " g"]:
    """Return which of g players are not null players for at least one of the points (p, d); at least one is True.

    The features of null players are constant over the explained points and the references, or, if the value function
    does not have references, over the function's points. In a product game their kernel factors must agree. All are
    True if values are traced by JAX.
    """
    if not all(map(is_concrete, jax.tree.leaves((value_function, function, x)))):
        return np.ones(players.num_players, dtype=bool)
    varying = _varying_features(value_function, function, x)
    mask = np.array([varying[list(group)].any() for group in players.groups])
    mask[0] |= not mask.any()
    return mask


def _varying_features(value_function: Any, function: Any, x: Array) -> Bool[np.ndarray, " d"]:
    rows = np.asarray(x)
    if is_product_game(value_function, function):
        return ~_idle_factors(value_function, function, rows)
    if isinstance(value_function, AbstractImputation):
        return ~(_constant(rows) & _agrees(value_function.background, rows))
    return np.ones(rows.shape[1], dtype=bool)


def _idle_factors(
    value_function: AbstractProductValueFunction, function: RKHSFunction, rows: Float[np.ndarray, "p d"]
) -> Bool[np.ndarray, " d"]:
    """Return which features have the same factors for all explained points and references."""
    references = np.asarray(value_function.references(rows.shape[1]))
    points = function.points.reshape(-1, rows.shape[1]) if eqx.is_array(function.points) else references
    idle = _constant(rows) & _constant(references) & (_agrees(references, rows) | _agrees(points, rows))
    if idle.any():
        idle &= np.asarray(_agreeing_factors(value_function, function, jnp.asarray(rows[:1])))
    return idle


def _constant(rows: Float[np.ndarray, "p d"]) -> Bool[np.ndarray, " d"]:
    return (rows == rows[:1]).all(axis=0)


def _agrees(others: AnyArray, rows: Float[np.ndarray, "p d"]) -> Bool[np.ndarray, " d"]:
    """Return the columns in which all given points have the value of the first explained point."""
    return (np.asarray(others) == rows[:1]).all(axis=0)


@eqx.filter_jit
def _agreeing_factors(
    value_function: AbstractProductValueFunction, function: RKHSFunction, x: Float[Array, "1 d"]
) -> Bool[Array, " d"]:
    """Return which features have equal factors at the first explained point and the first reference."""

    def agree(draw: RKHSFunction) -> Array:
        references = value_function.references(x.shape[1])[:1].astype(x.dtype)
        same = [
            jnp.all(
                term.factors(x, part.points) == value_function.absent_factors(term, references, part.points), (1, 2)
            )
            for term, part in draw.product_parts()
        ]
        return jnp.all(jnp.stack(same), axis=0)

    return jnp.all(function.map_draws(agree).reshape(-1, x.shape[1]), axis=0)
