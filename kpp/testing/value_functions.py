"""The laws of a value function. Each is a check of one example: a value function, an RKHS function and points."""

from __future__ import annotations

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from kpp.functions import RKHSFunction
from kpp.games import AbstractValueFunction, all_coalitions, shapley_values, shapley_values_from_table
from kpp.testing.compare import (
    assert_close,
    assert_raises,
    laws_in,
    num_points,
    once_per_example,
    rows,
    spec_copy,
    tree_copy,
)

# The largest number of features whose coalitions are enumerated, for the axioms. The other laws ask for the same
# coalitions then, because each number of coalitions is a compiled program of its own.
_MOST = 6


def values_have_a_row_a_coalition(value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree) -> None:
    """The values have shape (c, p), one row per coalition and one column per point; the output axis is last."""
    coalitions = _coalitions(x)
    values = value_function(function, x, coalitions)
    expected = (*function.batch_shape, coalitions.shape[0], num_points(x), *function.output_shape)
    assert values.shape == expected, f"the values have shape {values.shape}, expected {expected}"
    assert np.isfinite(values).all(), "the values hold NaN or infinity"


def full_coalition_is_the_prediction(value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree) -> None:
    """The value of the full coalition is the prediction."""
    values = _value_of(value_function, function, x, present=True)
    assert_close(values, function(x), "the value of the full coalition and the prediction", factor=100)


def empty_coalition_is_the_base(value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree) -> None:
    """The value of the empty coalition is the base value of the value function, for every point."""
    values = _value_of(value_function, function, x, present=False)
    base = np.asarray(value_function.base_at(function, x))
    batch = len(function.batch_shape)
    if base.ndim == values.ndim - 1:
        base = np.expand_dims(base, batch)
    assert_close(values, np.broadcast_to(base, values.shape), "the value of the empty coalition and the base", 100)


def linear_in_the_function(value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree) -> None:
    """The values are linear in the function, and all values of a constant function are this constant."""
    coalitions = _coalitions(x)
    other = eqx.tree_at(lambda f: f.coefficients, function, jnp.cos(3 * function.coefficients))
    mixed = eqx.tree_at(
        lambda f: (f.coefficients, f.intercept),
        function,
        (2 * function.coefficients - other.coefficients, 2 * function.intercept - other.intercept),
    )
    first, second = value_function(function, x, coalitions), value_function(other, x, coalitions)
    expected = 2 * first - second
    assert_close(value_function(mixed, x, coalitions), expected, "values of 2 f - g and 2 v(f) - v(g)", factor=100)
    shifted = value_function(function + 3.0, x, coalitions)
    assert_close(shifted, first + 3.0, "values of f + 3 and v(f) + 3", factor=100)


def coalitions_and_points_are_independent(
    value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree
) -> None:
    """The value of a coalition at a point does not depend on the other coalitions and points."""
    coalitions = _coalitions(x)
    together = value_function(function, x, coalitions)
    alone = value_function(function, rows(x, slice(0, 1)), coalitions[1:2])
    batch = len(function.batch_shape)
    expected = jax.lax.slice_in_dim(jax.lax.slice_in_dim(together, 1, 2, axis=batch), 0, 1, axis=batch + 1)
    assert_close(alone, expected, "one coalition and point alone and among others", factor=100)


def draws_lead(value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree) -> None:
    """For a function with draws, the values are those of each draw, with the draw axes first."""
    if function.batch_shape:
        return
    coalitions = _coalitions(x)
    draws = RKHSFunction.over_draws(
        function.kernel,
        function.points,
        jnp.stack([function.coefficients, 2 * function.coefficients])[None],
        function.intercept,
        batch_shape=(1, 2),
    )
    values = value_function(draws, x, coalitions)
    double = RKHSFunction(function.kernel, function.points, 2 * function.coefficients, function.intercept)
    expected = jnp.stack([value_function(function, x, coalitions), value_function(double, x, coalitions)])[None]
    assert_close(values, expected, "values of a function with draws and of each draw", factor=100)


def refuses_coalitions_that_are_not_boolean(
    value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree
) -> None:
    """Coalitions must be a boolean array with one column per feature."""
    coalitions = _coalitions(x)
    for what, bad in (
        ("numbers", coalitions.astype(float)),
        ("indices", np.arange(_num_features(x))[None]),
        ("a column too many", np.pad(coalitions, ((0, 0), (0, 1)))),
        ("one axis", coalitions[0]),
    ):
        call = functools.partial(value_function, function, x, bad)
        assert_raises((TypeError, ValueError), call, f"coalitions with {what}")


def jit_changes_nothing(value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree) -> None:
    """The values are the same inside jit."""
    coalitions = jnp.asarray(_coalitions(x))
    compiled = eqx.filter_jit(lambda v, f, x, coalitions: v(f, x, coalitions))(value_function, function, x, coalitions)
    assert_close(compiled, value_function(function, x, coalitions), "values with and without jit", factor=100)


def survives_the_round_trip_as_a_pytree(
    value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree
) -> None:
    """Flattening and unflattening gives the same value function."""
    coalitions, copy = _coalitions(x), tree_copy(value_function)
    assert_close(copy(function, x, coalitions), value_function(function, x, coalitions), "values of the copy")


def survives_the_round_trip_through_a_spec(
    value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree
) -> None:
    """A registered value function written as JSON and read back gives the same values."""
    copy = spec_copy(value_function)
    if copy is not None:
        coalitions = _coalitions(x)
        assert_close(copy(function, x, coalitions), value_function(function, x, coalitions), "values of the copy", 10)


def shapley_values_are_efficient(value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree) -> None:
    """The Shapley values of a point add up to the value of the full coalition minus the value of the empty one."""
    table, values = _game(value_function, function, x)
    assert_close(values.sum(axis=0), table[-1] - table[0], "sums of Shapley values and v(full) - v(empty)", factor=1000)


def shapley_values_are_linear(value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree) -> None:
    """The Shapley values of 2 f + 3 are twice those of f."""
    doubled = eqx.tree_at(lambda f: (f.coefficients, f.intercept), function, replace_fn=lambda leaf: 2 * leaf)
    values, expected = (_game(value_function, f, x)[1] for f in (doubled + 3.0, function))
    assert_close(values, 2 * expected, "Shapley values of 2 f + 3 and twice those of f", factor=1000)


def null_players_get_nothing(value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree) -> None:
    """A Shapley value is between the least and the largest that a feature adds to a coalition: 0 if it adds nothing."""
    table, values = _game(value_function, function, x)
    numbers = np.arange(len(table))  # bit j of the number of a coalition says whether feature j is in it
    for j, value in enumerate(values):
        others = numbers[numbers >> j & 1 == 0]
        gains = table[others + 2**j] - table[others]
        inside = np.clip(value, gains.min(axis=0), gains.max(axis=0))
        assert_close(value, inside, f"the value of feature {j} and the nearest that it may have", factor=1000)


def symmetric_players_get_the_same(value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree) -> None:
    """Shapley values of two features differ at most by the largest difference of what they add to a coalition."""
    table, values = _game(value_function, function, x)
    numbers = np.arange(len(table))
    for i, j in itertools.combinations(range(len(values)), 2):
        others = numbers[(numbers >> i | numbers >> j) & 1 == 0]
        allowed = np.abs(table[others + 2**i] - table[others + 2**j]).max(axis=0)
        found = np.maximum(np.abs(values[i] - values[j]), allowed)
        assert_close(found, allowed, f"the difference of the values of features {i} and {j} and its limit", factor=1000)


LAWS = laws_in(globals())


@once_per_example
def _game(value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of all coalitions, (2^d, ...), and the Shapley values, (d, ...); nothing for many features."""
    if _num_features(x) > _MOST:
        return np.zeros((2, 0)), np.zeros((0, 0))
    batch = len(function.batch_shape)
    table = np.moveaxis(np.asarray(value_function(function, x, all_coalitions(_num_features(x)))), batch, 0)
    if isinstance(x, tuple) or x.ndim > 2:  # `shapley_values` takes points, (p, d)
        return table, np.asarray(shapley_values_from_table(table))
    return table, np.moveaxis(np.asarray(shapley_values(value_function, function, x)), batch + 1, 0)


def _num_features(x: PyTree) -> int:
    return jax.tree.leaves(x)[0].shape[-1]


def _coalitions(x: PyTree) -> np.ndarray:
    """Return all coalitions of few features; otherwise none, each feature alone, all but the first, and all."""
    d = _num_features(x)
    if d <= _MOST:
        return all_coalitions(d)
    all_but_first = np.arange(d) > 0
    return np.concatenate([np.zeros((1, d), bool), np.eye(d, dtype=bool), all_but_first[None], np.ones((1, d), bool)])


def _value_of(value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree, present: bool) -> np.ndarray:
    """Return the values of the coalition of all features or of none, with the draw axes first."""
    coalitions = np.full((1, _num_features(x)), present)
    return np.take(np.asarray(value_function(function, x, coalitions)), 0, axis=len(function.batch_shape))
