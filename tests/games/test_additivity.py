"""Base value plus contributions is the prediction: for every instance, chain and draw, however many features."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.functions import RKHSFunction
from kpp.games import Baseline, Interventional, shapley_values
from kpp.kernels import RBF

RELATIVE = 1e-8


def gap(value_function, function, x, values):
    batch = len(function.batch_shape)
    base = np.expand_dims(value_function.base(function), batch)
    predictions = np.asarray(function(x))
    return np.abs(base + np.sum(values, axis=batch + 1) - predictions).max() / np.abs(predictions).max()


@pytest.mark.slow_variants("baseline-enumeration")
@pytest.mark.parametrize(
    ("game", "method"),
    [
        ("interventional", "quadrature"),
        ("baseline", "enumeration"),
        pytest.param("interventional", "enumeration", marks=pytest.mark.slow),
        pytest.param("baseline", "quadrature", marks=pytest.mark.slow),
    ],
)
def test_every_instance_chain_and_draw(data, method, game):
    rng = np.random.default_rng(0)
    kernel = RBF(lengthscale=rng.uniform(0.5, 2.0, size=(2, 3, 4)), variance=rng.uniform(1, 2, size=(2, 3)))
    function = RKHSFunction.over_draws(
        kernel + 0.5, data["X"], rng.normal(size=(2, 3, 7)), rng.normal(size=(2, 3)), batch_shape=(2, 3)
    )
    value_function = Interventional(data["Z"]) if game == "interventional" else Baseline()
    values = shapley_values(value_function, function, data["x"], method=method)
    assert values.shape == (2, 3, 3, 4)
    assert gap(value_function, function, data["x"], values) < RELATIVE
    one = RKHSFunction(
        RBF(lengthscale=kernel.lengthscale[1, 2], variance=kernel.variance[1, 2]) + 0.5,
        data["X"],
        function.coefficients[1, 2],
    )
    alone = shapley_values(value_function, one, data["x"], method=method)
    np.testing.assert_allclose(values[1, 2], alone, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("num_features", [31, 100])
def test_many_features(num_features):
    rng = np.random.default_rng(num_features)
    points, x = rng.normal(size=(12, num_features)), rng.normal(size=(3, num_features))
    function = RKHSFunction(RBF(lengthscale=num_features**0.5), points, rng.normal(size=12))
    value_function = Interventional(points[:5])
    values = shapley_values(value_function, function, x)
    assert gap(value_function, function, x, values) < RELATIVE


@pytest.mark.slow
def test_far_away_points_underflow_without_nan():
    """With x = 60 and z = 70 at lengthscale 1 factors underflow to 0 on both sides (exp(-1800), exp(-2450))."""
    points = np.array([[0.0, 0.1], [60.0, 0.2], [70.0, -0.3]])
    function = RKHSFunction(RBF(lengthscale=1.0), points, [1.0, 2.0, -1.0])
    value_function = Interventional([[70.0, 0.0]])
    x = np.array([[60.0, 0.0], [0.0, 70.0], [35.0, 35.0]])
    values = shapley_values(value_function, function, x, method="quadrature")
    assert np.isfinite(values).all()
    np.testing.assert_allclose(
        values, shapley_values(value_function, function, x, method="enumeration"), rtol=1e-10, atol=1e-12
    )
    assert gap(value_function, function, x, values) < RELATIVE


@pytest.mark.slow
def test_an_outlier_keeps_its_digits(brute_force):
    """A point far out in one of eight features; every product of the others must survive the tiny factor."""
    rng = np.random.default_rng(5)
    points, background, x = rng.normal(size=(5, 8)), rng.normal(size=(4, 8)), rng.normal(size=8)
    x[3] = 30.0
    function = RKHSFunction(RBF(lengthscale=1.5), points, rng.normal(size=5))
    values = shapley_values(Interventional(background), function, x[None], method="quadrature")[0]
    np.testing.assert_allclose(values, brute_force(function, x, background), rtol=1e-10, atol=1e-15)


@pytest.mark.slow
def test_single_precision():
    rng = np.random.default_rng(1)
    points = jnp.asarray(rng.normal(size=(6, 5)), dtype=jnp.float32)
    with jax.enable_x64(False):
        function = RKHSFunction(RBF(lengthscale=2.0), points, jnp.ones(6, dtype=jnp.float32))
        value_function = Interventional(points[:3])
        quadrature, enumeration = (
            shapley_values(value_function, function, points[:2], method=method)
            for method in ("quadrature", "enumeration")
        )
    assert quadrature.dtype == enumeration.dtype == jnp.float32
    np.testing.assert_allclose(quadrature, enumeration, rtol=1e-4, atol=1e-5)
