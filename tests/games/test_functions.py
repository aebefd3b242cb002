"""RKHSFunction: evaluation, draws, arithmetic, shapes."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.functions import RKHSFunction
from kpp.kernels import RBF


@pytest.fixture
def parts():
    rng = np.random.default_rng(0)
    return {"X": rng.normal(size=(6, 2)), "x": rng.normal(size=(4, 2)), "alpha": rng.normal(size=(2, 3, 6))}


def test_evaluation_is_the_sum_of_sections(parts):
    function = RKHSFunction(RBF(variance=2.0), parts["X"], parts["alpha"][0, 0], 0.5)
    distances = ((parts["x"][:, None] - parts["X"][None]) ** 2).sum(-1)
    np.testing.assert_allclose(function(parts["x"]), 2 * np.exp(-distances / 2) @ parts["alpha"][0, 0] + 0.5)


@pytest.mark.slow_variants("False")
@pytest.mark.parametrize("own_points", [False, True])
def test_draws_are_functions_of_their_own(parts, own_points):
    kernel = RBF(lengthscale=jnp.arange(1.0, 7.0).reshape(2, 3), variance=2.0)
    points = np.arange(2 * 3 * 6 * 2.0).reshape(2, 3, 6, 2) / 50 if own_points else parts["X"]
    function = RKHSFunction.over_draws(kernel, points, parts["alpha"], 0.5, batch_shape=(2, 3))
    values = function(parts["x"])
    assert values.shape == (2, 3, 4)
    one = RKHSFunction(
        RBF(lengthscale=6.0, variance=2.0), points[1, 2] if own_points else points, parts["alpha"][1, 2], 0.5
    )
    np.testing.assert_allclose(values[1, 2], one(parts["x"]), rtol=1e-12)
    np.testing.assert_allclose(eqx.filter_jit(lambda f, x: f(x))(function, parts["x"]), values, rtol=1e-12)


def test_map_draws_sees_one_function_at_a_time(parts):
    function = RKHSFunction.over_draws(RBF(), parts["X"], parts["alpha"], batch_shape=(2, 3))
    shapes = []

    def norms(draw):
        shapes.append(draw.batch_shape)
        return {"squared": draw.coefficients @ draw.kernel.gram(draw.points) @ draw.coefficients}

    result = jax.jit(lambda draws: draws.map_draws(norms, batch_size=4))(function)
    assert result["squared"].shape == (2, 3)
    assert set(shapes) == {()}


def test_several_outputs_and_arithmetic(parts):
    coefficients = np.moveaxis(parts["alpha"][0], 0, 1)
    function = RKHSFunction(RBF(), parts["X"], coefficients, [0.0, 1.0, 2.0])
    assert function.output_shape == (3,)
    expected = 1.0 - 2 * np.asarray(function(parts["x"]))
    np.testing.assert_allclose((1.0 + -(2 * function))(parts["x"]), expected, rtol=1e-12)
    np.testing.assert_allclose((function * -2.0 - -1.0)(parts["x"]), expected, rtol=1e-12)


def test_it_is_a_pytree(parts):
    function = RKHSFunction(RBF(), parts["X"], parts["alpha"][0, 0], 0.5)
    copy = jax.tree.unflatten(jax.tree.structure(function), jax.tree.leaves(function))
    np.testing.assert_array_equal(copy(parts["x"]), function(parts["x"]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones((6, 2)), np.ones(5)), "`points` must have as many rows as `coefficients`, 5"),
        ((np.ones((6, 2)), np.ones((6, 1, 1))), "`coefficients` must have shape"),
        ((np.ones((6, 2)), np.ones((6, 3)), np.ones(2)), "`intercept` must be a number or have shape"),
        ((np.ones((6, 2)), np.ones((2, 6)), 0.0, (2,)), "`kernel` must lead with batch_shape"),
        ((np.ones((6, 2)), np.ones((3, 6)), 0.0, (2,)), "`coefficients` must have shape"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        RKHSFunction(RBF(), *arguments)
