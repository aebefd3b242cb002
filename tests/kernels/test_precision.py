"""Values have the precision of the points, and rounding stays where the documentation says."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.gaussian_process import kernels as sk

from kpp.kernels import RBF, Matern12, Matern32, Matern52, Periodic


@pytest.mark.slow_variants("sum_of_selections", "matern12")
def test_values_have_the_precision_of_the_points(kernel, x, compiled, tolerance):
    with jax.numpy_dtype_promotion("strict"):
        single = eqx.filter_jit(lambda kernel, x: (kernel(x, x), kernel.gram(x), kernel.diagonal(x)))(
            kernel, x.astype(np.float32)
        )
        double = compiled.matrices(kernel, x)[1]
    assert {value.dtype for value in single} == {np.dtype(np.float32)}
    assert double.dtype == np.float64
    # The function itself moves by about 1e-6 when its points are rounded to single precision.
    np.testing.assert_allclose(single[1], double, **tolerance(np.float32))


@pytest.mark.slow_variants("sum_of_selections", "matern12")
def test_gradients_in_single_precision_are_finite(kernel, x):
    arrays, static = eqx.partition(kernel, eqx.is_inexact_array)
    gradient = jax.jit(jax.grad(lambda leaves, x: jnp.sum(eqx.combine(leaves, static).gram(x)), argnums=(0, 1)))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient(arrays, x.astype(np.float32))))


def test_points_of_different_precision_meet_in_the_higher(x):
    with jax.numpy_dtype_promotion("strict"):
        assert RBF(0.7)(x.astype(np.float32), x).dtype == np.float64


def test_numpy_arrays_lists_and_integers_are_points():
    kernel, expected = RBF(0.7), np.exp(-0.5 * np.array([[0.0, 5.0], [5.0, 0.0]]) / 0.49)
    for points in (np.array([[0, 0], [1, 2]]), [[0, 0], [1, 2]], np.array([[0.0, 0.0], [1.0, 2.0]])):
        np.testing.assert_allclose(kernel(points, points), expected, rtol=1e-14)


@pytest.mark.slow_variants("1-0.0", "40-0.0", "8-0.0", "32-0.0", "40-1000000.0")
@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("d", [1, 8, 32, 40])
def test_distances_are_accurate_for_any_number_of_features(d, offset, compiled):
    """Both ways of computing them, near duplicates and points far from the origin included."""
    x = np.random.default_rng(0).normal(size=(20, d)) + offset
    x[1], x[2] = x[0], x[0] + 1e-7
    for kernel, reference in ((RBF(2.0), sk.RBF(2.0)), (Matern12(2.0), sk.Matern(2.0, nu=0.5))):
        np.testing.assert_allclose(compiled.gram(kernel, x), reference(x), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("radius", "error"), [(10, 1e-13), (100, 1e-11), (1000, 1e-9)])
def test_the_error_of_the_matrix_product_is_as_documented(radius, error, compiled):
    x = np.random.default_rng(0).normal(size=(20, 40))
    x *= radius / np.linalg.norm(x, axis=1, keepdims=True)
    x[1::2] = x[::2] + np.random.default_rng(1).normal(size=(10, 40)) * 0.1
    expected = np.exp(-0.5 * cdist(x, x, "sqeuclidean"))
    assert 0.1 < expected[0, 1] < 0.95
    np.testing.assert_allclose(compiled.gram(RBF(1.0), x), expected, rtol=0, atol=error)


def test_near_duplicates_keep_their_distance_in_matern12(compiled):
    """A squared distance wrong by 1e-16 would be a distance wrong by 1e-8."""
    x = np.vstack([np.random.default_rng(0).normal(size=(4, 40)) * 10, np.zeros((2, 40))])
    x[5, 0] = 1e-9
    np.testing.assert_allclose(1 - compiled.gram(Matern12(1.0), x)[4, 5], 1e-9, rtol=1e-6)


@pytest.mark.parametrize("kernel", [RBF(0.3), Matern32(0.3), Matern52(0.3), Periodic(0.3)], ids=repr)
def test_no_value_exceeds_the_variance(kernel, compiled):
    """Near duplicates far from the center: rounding makes some squared distances negative before they are clipped."""
    x = np.random.default_rng(0).normal(size=(20, 40)) * 100
    assert np.all(np.asarray(compiled.call(kernel, x, x + 1e-9)) <= 1.0)


def test_periodic_after_many_periods(compiled):
    """Times in seconds since 1970 with a period of about a minute: angles of 1e8, unless points are centered."""
    t = np.arange(20) * 1234.0
    found = compiled.gram(Periodic(1.0, period=66.5), (t + 1.7e9)[:, None])
    expected = np.exp(-2 * np.sin(np.pi * (t[:, None] - t[None, :]) / 66.5) ** 2)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
