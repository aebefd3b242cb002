"""Compressed functions are projections in the norm of the RKHS, by dense formulas."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from kpp.features import compress, landmarks
from kpp.functions import RKHSFunction
from kpp.kernels import RBF

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(15, 2)), RNG.normal(size=(4, 2))
KERNEL = RBF(jnp.array([0.5, 0.8]), 1.4)
ALPHA = RNG.normal(size=15)


def norm(points, coefficients):
    return float(coefficients @ np.asarray(KERNEL.gram(points)) @ coefficients) ** 0.5


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
    np.testing.assert_allclose(found.function(Z), function(Z), rtol=1e-10)
    bound = float(found.error) * np.sqrt(1.4)
    assert np.abs(np.asarray(found.function(X) - function(X))).max() <= bound


def test_a_function_on_its_own_points_is_itself():
    function = RKHSFunction(KERNEL, X, ALPHA, 0.6)
    found = compress(function, X)
    np.testing.assert_allclose(found.function.coefficients, ALPHA, rtol=1e-8)
    assert float(found.error) < 1e-6 * float(found.norm)  # the root of rounding errors


def test_draws_and_outputs_are_compressed_one_by_one():
    coefficients = RNG.normal(size=(1, 3, 15, 2))
    function = RKHSFunction.over_draws(KERNEL, X, coefficients, 0.6, batch_shape=(1, 3))
    found = compress(function, Z)
    assert found.error.shape == found.norm.shape == (1, 3, 2)
    one = compress(RKHSFunction(KERNEL, X, coefficients[0, 1], 0.6), Z)
    np.testing.assert_allclose(found.function(X)[0, 1], one.function(X), rtol=1e-10)
    np.testing.assert_allclose(found.error[0, 1], one.error, rtol=1e-8)


def test_more_landmarks_are_nearer():
    function = RKHSFunction(KERNEL, X, ALPHA)
    errors = [float(compress(function, landmarks(X, num, kernel=KERNEL).points).error) for num in (4, 12)]
    assert errors[1] < errors[0]


def test_landmarks_of_another_width_are_refused():
    with pytest.raises(ValueError, match="points"):
        compress(RKHSFunction(KERNEL, X, ALPHA), np.zeros((3, 5)))
