"""Kernels of distances far from the origin, with tiny lengthscales and huge points, against NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.kernels import RBF, Matern12, Matern32, Matern52, RationalQuadratic

CORRELATIONS = {
    RBF: lambda r: np.exp(-0.5 * r**2),
    Matern12: lambda r: np.exp(-r),
    Matern32: lambda r: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
    Matern52: lambda r: (1 + np.sqrt(5) * r + 5 / 3 * r**2) * np.exp(-np.sqrt(5) * r),
    RationalQuadratic: lambda r: 1 / (1 + 0.5 * r**2),
}


@pytest.mark.slow_variants("Matern12-2", "Matern32-2", "Matern52-2", "RationalQuadratic-2", "RBF-2")
@pytest.mark.parametrize("num_features", [2, *(pytest.param(count, marks=pytest.mark.slow) for count in (40,))])
@pytest.mark.parametrize("kernel", CORRELATIONS)
def test_float32_far_from_the_origin_gives_the_kernel_of_its_points(kernel, num_features):
    x = (1e8 + 8.0 * np.random.default_rng(0).integers(0, 6, (5, num_features))).astype(np.float32)
    lengthscale = np.linspace(13.0, 29.0, num_features)
    distances = np.sqrt(np.sum(((x.astype(float)[:, None] - x.astype(float)) / lengthscale) ** 2, axis=2))
    expected = CORRELATIONS[kernel](distances)
    found = kernel(lengthscale)
    for matrix in (found.gram(x), found(x, x), jax.jit(lambda x: found.gram(x))(x)):
        np.testing.assert_allclose(matrix, expected, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(found.evaluate(x[0], x[1]), expected[0, 1], rtol=2e-5, atol=1e-6)
    if kernel is RBF:
        np.testing.assert_allclose(jnp.prod(found.factors(x, x), axis=0), expected, rtol=2e-5, atol=1e-6)


@pytest.mark.slow_variants("1e+200-1.0-Matern12-2", "1e+200-1.0-RationalQuadratic-2")
@pytest.mark.parametrize("num_features", [2, 9])
@pytest.mark.parametrize("kernel", CORRELATIONS)
@pytest.mark.parametrize(("size", "lengthscale"), [(1e200, 1.0), (1.0, 1e-300), (1e300, 1e-300)])
def test_points_that_are_infinitely_many_lengthscales_apart_are_not_correlated(kernel, num_features, size, lengthscale):
    x = size * np.array([[1.0], [1.0], [-1.0], [0.5]]) * np.ones((4, num_features))
    expected = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    found = kernel(lengthscale)
    for matrix in (found.gram(x), found(x, x), [[found.evaluate(a, b) for b in x] for a in x]):
        np.testing.assert_array_equal(matrix, expected)


def test_what_overflows_is_refused():
    x = np.ones((2, 40))
    x[1] = -1.0
    with pytest.raises(ValueError, match=r"not be farther than 1e\+154 lengthscales .* float64; got 1e\+200"):
        Matern32().gram(1e200 * x)
    with pytest.raises(ValueError, match="`lengthscale` must be at least 1.2e-38, .*float32.*; got 0.0"):
        RBF(1e-300).gram(x.astype(np.float32))
    with pytest.raises(ValueError, match="`lengthscale` must be at least 2.2e-308"):
        Matern52(1e-310)(x, x)
