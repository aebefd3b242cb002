"""Values are those of scikit-learn and tinygp, or of the formula written out."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import tinygp.kernels as tiny
from sklearn.gaussian_process import kernels as sk
from sklearn.metrics import pairwise

from kpp.kernels import (
    RBF,
    Categorical,
    Constant,
    Linear,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Polynomial,
    ProductKernel,
    RationalQuadratic,
)

ARD = np.array([0.5, 1.0, 3.0])
L2 = tiny.distance.L2Distance()

SCIKIT_LEARN = {
    "rbf": (RBF(0.7, 1.3), 1.3 * sk.RBF(0.7)),
    "rbf_ard": (RBF(ARD), sk.RBF(ARD)),
    "matern12": (Matern12(ARD, 1.3), 1.3 * sk.Matern(ARD, nu=0.5)),
    "matern32": (Matern32(ARD), sk.Matern(ARD, nu=1.5)),
    "matern52": (Matern52(0.7), sk.Matern(0.7, nu=2.5)),
    "matern": (Matern(ARD, variance=1.3, nu=0.8), 1.3 * sk.Matern(ARD, nu=0.8)),
    "rational_quadratic": (RationalQuadratic(0.7, alpha=0.8), sk.RationalQuadratic(0.7, alpha=0.8)),
    "linear": (Linear() + 0.25, sk.DotProduct(sigma_0=0.5)),
    "constant": (Constant(0.7), sk.ConstantKernel(0.7)),
    "sum": (RBF(ARD) + 0.5 * Matern32(0.7), sk.RBF(ARD) + 0.5 * sk.Matern(0.7, nu=1.5)),
    "product": (RBF(ARD) * Linear(), sk.RBF(ARD) * sk.DotProduct(sigma_0=0.0)),
}

TINYGP = {
    "rbf": (RBF(0.7, 1.3), 1.3 * tiny.ExpSquared(0.7)),
    "matern12": (Matern12(0.7), tiny.Exp(0.7, distance=L2)),
    "matern32": (Matern32(0.7), tiny.Matern32(0.7, distance=L2)),
    "matern52": (Matern52(0.7), tiny.Matern52(0.7, distance=L2)),
    "rational_quadratic": (RationalQuadratic(0.7, alpha=0.8), tiny.RationalQuadratic(0.7, alpha=0.8, distance=L2)),
    "linear": (Linear(), tiny.DotProduct()),
    "polynomial": (Polynomial(3, 2.0, offset=0.25), tiny.Polynomial(order=3, scale=2.0, sigma=0.5)),
}


@pytest.mark.slow_variants("linear", "sum", "matern")
@pytest.mark.parametrize("name", SCIKIT_LEARN)
def test_scikit_learn(name, x, compiled, tolerance):
    kernel, reference = SCIKIT_LEARN[name]
    expected = reference(np.asarray(x))
    some, matrix, _ = compiled.matrices(kernel, x)
    np.testing.assert_allclose(matrix, expected, **tolerance())
    np.testing.assert_allclose(some, expected[:4], **tolerance())


@pytest.mark.slow_variants("matern32")
@pytest.mark.parametrize("name", TINYGP)
def test_tinygp(name, x, compiled, tolerance):
    kernel, reference = TINYGP[name]
    np.testing.assert_allclose(compiled.matrices(kernel, x)[0], eqx.filter_jit(reference)(x[:4], x), **tolerance())


def test_periodic_in_one_dimension(x, tolerance):
    kernel, line = Periodic(0.9, period=1.7), x[:, :1]
    np.testing.assert_allclose(kernel(line, line), sk.ExpSineSquared(0.9, 1.7)(line), **tolerance())
    # tinygp's gamma is 2 / l^2.
    np.testing.assert_allclose(kernel(line, line), tiny.ExpSineSquared(1.7, gamma=2 / 0.81)(line, line), **tolerance())


def test_periodic_is_a_product_over_features(x, tolerance):
    lengthscale, period = np.array([0.5, 1.0, 3.0]), np.array([1.0, 2.0, 0.5])
    difference = np.asarray(x)[:, None, :] - np.asarray(x)[None, :, :]
    expected = 1.3 * np.exp(-2 * np.sum((np.sin(np.pi * difference / period) / lengthscale) ** 2, axis=-1))
    np.testing.assert_allclose(Periodic(lengthscale, variance=1.3, period=period).gram(x), expected, **tolerance())


def test_polynomial_like_scikit_learn(x, tolerance):
    expected = 2.0 * pairwise.polynomial_kernel(x, degree=3, gamma=0.25, coef0=0.5)
    np.testing.assert_allclose(Polynomial(3, 2.0, 2.0, offset=0.5).gram(x), expected, **tolerance())


def test_linear_with_a_variance_for_each_feature(x, tolerance):
    np.testing.assert_allclose(Linear(ARD).gram(x), np.asarray(x) @ np.diag(ARD) @ np.asarray(x).T, **tolerance())


def test_categorical_by_hand():
    kernel = Categorical(correlation=jnp.array([0.5, 0.1]), variance=2.0)
    codes = jnp.array([[0.0, 0.0], [1.0, 0.0], [2.0, 3.0]])
    np.testing.assert_allclose(kernel.gram(codes), [[2.0, 1.0, 0.1], [1.0, 2.0, 0.1], [0.1, 0.1, 2.0]], rtol=1e-15)


def test_categorical_takes_integer_codes():
    codes = np.array([[0, 1], [1, 1]])
    np.testing.assert_array_equal(Categorical(0.5).gram(codes), [[1.0, 0.5], [0.5, 1.0]])


def test_one_kernel_for_each_feature(x, compiled, tolerance):
    kernel, x = ProductKernel((RBF(0.7), Matern12(1.5, 2.0), Linear() + 1.0)), np.asarray(x)
    expected = sk.RBF(0.7)(x[:, :1]) * 2.0 * sk.Matern(1.5, nu=0.5)(x[:, 1:2]) * sk.DotProduct(1.0)(x[:, 2:])
    some, matrix, _ = compiled.matrices(kernel, x)
    np.testing.assert_allclose(matrix, expected, **tolerance())
    np.testing.assert_allclose(some, expected[:4], **tolerance())


@pytest.mark.parametrize("kernel", [Periodic, Matern, RationalQuadratic])
def test_a_second_number_without_a_name_is_refused_where_it_could_be_the_period_or_the_smoothness(kernel):
    for numbers in ((1.0, 7.0), (0.8, 1.2, 3.0)):
        with pytest.raises(TypeError, match="positional arguments"):
            kernel(*numbers)
