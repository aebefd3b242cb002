"""Compressed functions are projections in the norm of the RKHS, by dense formulas."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.features import compress
from kpp.functions import RKHSFunction
from kpp.kernels import RBF, Linear
from kpp.linalg import FactorizationError

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(15, 2)), RNG.normal(size=(4, 2))
KERNEL = RBF(jnp.array([0.5, 0.8]), 1.4)
ALPHA = RNG.normal(size=15)


evaluate = eqx.filter_jit(lambda function, x: function(x))


def norm(points, coefficients):
    scaled = points / np.array([0.5, 0.8])
    gram = 1.4 * np.exp(-0.5 * np.square(scaled[:, None] - scaled[None]).sum(2))
    return float(coefficients @ gram @ coefficients) ** 0.5


@pytest.mark.slow
def test_is_the_nearest_function_and_says_how_near():
    function = RKHSFunction(KERNEL, X, ALPHA, 0.6)
    found = compress(function, Z)
    together = np.concatenate([X, Z])

    def distance(beta):
        return norm(together, np.concatenate([ALPHA, -beta]))

    beta = np.asarray(found.function.coefficients)
    np.testing.assert_allclose(found.error, distance(beta), rtol=1e-9)
    np.testing.assert_allclose(found.norm, norm(X, ALPHA), rtol=1e-12)
    for step in 1e-3 * RNG.normal(size=(5, 4)):
        assert distance(beta + step) > distance(beta)
    values, compressed = evaluate(function, together), evaluate(found.function, together)
    np.testing.assert_allclose(compressed[15:], values[15:], rtol=1e-10)
    assert np.abs(compressed - values).max() <= float(found.error) * 1.4**0.5


@pytest.mark.slow
def test_a_function_on_its_own_points_is_itself():
    function = RKHSFunction(KERNEL, X, ALPHA, 0.6)
    found = compress(function, X)
    np.testing.assert_allclose(found.function.coefficients, ALPHA, rtol=1e-8)
    assert float(found.error) < 1e-6 * float(found.norm)  # the root of rounding errors


@pytest.mark.slow
def test_draws_and_outputs_are_compressed_one_by_one():
    coefficients = RNG.normal(size=(1, 3, 15, 2))
    function = RKHSFunction.over_draws(KERNEL, X, coefficients, 0.6, batch_shape=(1, 3))
    found = compress(function, Z)
    assert found.error.shape == found.norm.shape == (1, 3, 2)
    one = compress(RKHSFunction(KERNEL, X, coefficients[0, 1], 0.6), Z)
    np.testing.assert_allclose(found.function.coefficients[0, 1], one.function.coefficients, rtol=1e-10)
    assert found.function(Z).shape == (1, 3, 4, 2)
    np.testing.assert_allclose(found.error[0, 1], one.error, rtol=1e-8)


def test_landmarks_of_another_width_are_refused():
    with pytest.raises(ValueError, match="points"):
        compress(RKHSFunction(KERNEL, X, ALPHA), np.zeros((3, 5)))


@pytest.mark.slow
def test_repeated_landmarks_of_a_singular_matrix_are_refused():
    with pytest.raises(FactorizationError, match="the kernel matrix of `landmarks` is numerically singular"):
        compress(RKHSFunction(Linear(1.0) + -0.0, X, ALPHA), np.full((4, 2), 1e-200))
