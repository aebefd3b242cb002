"""The laws of a value function. Each is a check of one example: a value function, an RKHS function and points."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from kpp.functions import RKHSFunction
from kpp.games import AbstractValueFunction
from kpp.testing.compare import assert_close, assert_raises, assert_same_tree, laws_in, rows, spec_copy
from kpp.typing import AnyArray


def values_have_a_row_a_coalition(value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree) -> None:
    """The values have shape (c, p), one row per coalition and one column per point; the output axis is last."""
    coalitions = _coalitions(x)
    values = value_function(function, x, coalitions)
    expected = (*function.batch_shape, coalitions.shape[0], _num_points(x), *function.output_shape)
    assert values.shape == expected, f"the values have shape {values.shape}, expected {expected}"
    assert np.isfinite(values).all(), "the values hold NaN or infinity"


def full_coalition_is_the_prediction(value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree) -> None:
    """The value of the full coalition is the prediction."""
    coalitions = np.ones((1, _num_features(x)), dtype=bool)
    values = _row(value_function(function, x, coalitions), function, 0)
    assert_close(values, function(x), "the value of the full coalition and the prediction", factor=100)


def empty_coalition_is_the_base(value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree) -> None:
    """The value of the empty coalition is the base value of the value function, for every point."""
    coalitions = np.zeros((1, _num_features(x)), dtype=bool)
    values = _row(value_function(function, x, coalitions), function, 0)
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
    leaves, structure = jax.tree.flatten(value_function)
    copy = jax.tree.unflatten(structure, leaves)
    assert_same_tree(copy, value_function, "the copy")
    coalitions = _coalitions(x)
    assert_close(copy(function, x, coalitions), value_function(function, x, coalitions), "values of the copy")


def survives_the_round_trip_through_a_spec(
    value_function: AbstractValueFunction, function: RKHSFunction, x: PyTree
) -> None:
    """A registered value function written as JSON and read back gives the same values."""
    copy = spec_copy(value_function)
    if copy is not None:
        coalitions = _coalitions(x)
        assert_close(copy(function, x, coalitions), value_function(function, x, coalitions), "values of the copy", 10)


LAWS = laws_in(globals())


def _num_points(x: PyTree) -> int:
    return jax.tree.leaves(x)[0].shape[0]


def _num_features(x: PyTree) -> int:
    return jax.tree.leaves(x)[0].shape[-1]


def _coalitions(x: PyTree) -> np.ndarray:
    """Return the empty coalition, each feature alone, all features but the first, and the full coalition."""
    d = _num_features(x)
    all_but_first = np.arange(d) > 0
    return np.concatenate([np.zeros((1, d), bool), np.eye(d, dtype=bool), all_but_first[None], np.ones((1, d), bool)])


def _row(values: AnyArray, function: RKHSFunction, index: int) -> np.ndarray:
    """Return the values of one coalition, with the draw axes first."""
    return np.take(np.asarray(values), index, axis=len(function.batch_shape))
