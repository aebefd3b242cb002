"""MeanEmbedding against brute force over pairs of points and closed forms for Gaussians."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.embeddings import AbstractEmbedding, AbstractEmpiricalEmbedding, MeanEmbedding
from kpp.functions import RKHSFunction
from kpp.kernels import RBF, Matern32


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    return rng.normal(size=(6, 2)), rng.normal(0.5, 1.5, size=(4, 2))


evaluate = eqx.filter_jit(lambda kernel, a, b: kernel.evaluate(a, b))


def brute(kernel, x1, x2):
    return np.array([[float(evaluate(kernel, a, b)) for b in x2] for a in x1])


@pytest.mark.slow
def test_values_are_means_of_kernel_sections(samples):
    x, z = samples
    kernel = RBF(jnp.array([0.7, 1.3]), variance=2.0)
    embedding = MeanEmbedding(kernel, x)
    np.testing.assert_allclose(embedding.weights(), np.full((6, 1), 1 / 6), rtol=1e-15)
    np.testing.assert_allclose(embedding.evaluate(z), brute(kernel, x, z).mean(0)[None], rtol=1e-12)


@pytest.mark.slow
def test_mmd_squared_is_the_v_statistic(samples):
    x, z = samples
    kernel = Matern32(0.9)
    v_statistic = brute(kernel, x, x).mean() - 2 * brute(kernel, x, z).mean() + brute(kernel, z, z).mean()
    first, second = MeanEmbedding(kernel, x), MeanEmbedding(kernel, z)
    np.testing.assert_allclose(first.mmd_squared(second), [[v_statistic]], rtol=1e-12)
    np.testing.assert_allclose(first.inner(second), [[brute(kernel, x, z).mean()]], rtol=1e-12)


@pytest.mark.slow
def test_mmd_of_a_sample_from_itself_is_zero_and_never_negative(samples):
    x, _ = samples
    embedding = MeanEmbedding(RBF(1.0), x)
    distance = embedding.mmd_squared(MeanEmbedding(RBF(1.0), x[::-1]))
    assert 0.0 <= float(distance[0, 0]) < 1e-15


def test_expectations_are_means_over_the_sample(samples):
    x, z = samples
    embedding = MeanEmbedding(RBF(1.0), x)
    np.testing.assert_allclose(embedding.expectation(x), x.mean(0)[None], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(embedding.expectation(x[:, 0]), [x[:, 0].mean()], rtol=1e-12)
    function = RKHSFunction(RBF(1.0), z, np.array([1.0, -2.0, 0.5, 0.0]), intercept=0.3)
    np.testing.assert_allclose(embedding.expectation(function), [function(x).mean()], rtol=1e-12)


@pytest.mark.slow
def test_expectation_of_draws_and_outputs_keeps_their_axes(samples):
    x, z = samples
    embedding = MeanEmbedding(RBF(1.0), x)
    coefficients = np.random.default_rng(1).normal(size=(2, 3, 4, 5))
    function = RKHSFunction.over_draws(RBF(1.0), z, coefficients, batch_shape=(2, 3))
    found = embedding.expectation(function)
    assert found.shape == (2, 3, 1, 5)
    np.testing.assert_allclose(found[:, :, 0], np.asarray(function(x)).mean(2), rtol=1e-12)


@pytest.mark.slow
def test_embedding_of_a_gaussian_sample_approaches_the_closed_form():
    # E k(X, z) = prod_j sqrt(l^2 / (l^2 + s^2)) exp(-z_j^2 / (2 (l^2 + s^2))) for X ~ N(0, s^2 I) and the RBF kernel
    # (Gaussian convolution). The standard error of a mean of 40000 numbers in [0, 1] is below 0.5 / 200 = 2.5e-3;
    # four of them are allowed.
    scale, lengthscale = 1.3, 0.8
    x = scale * np.random.default_rng(0).normal(size=(40_000, 2))
    z = np.array([[0.0, 0.0], [1.0, -0.5]])
    total = lengthscale**2 + scale**2
    closed_form = (lengthscale**2 / total) * np.exp(-(z**2).sum(1) / (2 * total))
    np.testing.assert_allclose(MeanEmbedding(RBF(lengthscale), x).evaluate(z)[0], closed_form, atol=1e-2)


@pytest.mark.slow
def test_mmd_squared_of_two_gaussian_samples_approaches_the_closed_form():
    # E k(X, Y) = l / sqrt(l^2 + s^2 + t^2) exp(-(m)^2 / (2 (l^2 + s^2 + t^2))) for X ~ N(0, s^2), Y ~ N(m, t^2), in one
    # dimension. The V-statistic's bias is at most 2 / 1500; its standard error at these sizes about 0.01.
    lengthscale, s, t, m = 1.0, 1.0, 0.5, 2.0
    keys = jax.random.split(jax.random.key(1))
    x, y = s * jax.random.normal(keys[0], (1500, 1)), m + t * jax.random.normal(keys[1], (1500, 1))

    def mean_value(a, b, shift):
        total = lengthscale**2 + a**2 + b**2
        return lengthscale / np.sqrt(total) * np.exp(-(shift**2) / (2 * total))

    closed_form = mean_value(s, s, 0.0) + mean_value(t, t, 0.0) - 2 * mean_value(s, t, m)
    found = MeanEmbedding(RBF(lengthscale), x).mmd_squared(MeanEmbedding(RBF(lengthscale), y))
    np.testing.assert_allclose(found, [[closed_form]], atol=0.04)


@pytest.mark.slow
def test_works_in_single_precision(samples):
    x, z = (points.astype(np.float32) for points in samples)
    first, second = MeanEmbedding(RBF(1.0), x), MeanEmbedding(RBF(1.0), z)
    assert first.mmd_squared(second).dtype == jnp.float32
    exact = MeanEmbedding(RBF(1.0), x.astype(float)).mmd_squared(MeanEmbedding(RBF(1.0), z.astype(float)))
    np.testing.assert_allclose(first.mmd_squared(second), exact, atol=1e-6)


def test_non_empirical_embedding_takes_functions_only(samples):
    x, z = samples

    class Negative(AbstractEmbedding):
        kernel: RBF
        points: jax.Array

        def weights(self, query=None):
            return -jnp.ones((self.points.shape[0], 1))

    embedding = Negative(RBF(1.0), jnp.asarray(x))
    function = RKHSFunction(RBF(1.0), z, np.ones(4), intercept=1.0)
    np.testing.assert_allclose(embedding.expectation(function), [1.0 - brute(RBF(1.0), x, z).sum()], rtol=1e-12)
    with pytest.raises(TypeError, match="`values` must be an RKHSFunction for Negative"):
        embedding.expectation(x)
    assert not issubclass(Negative, AbstractEmpiricalEmbedding)


def test_mistakes_are_named(samples):
    x, z = samples
    embedding = MeanEmbedding(RBF(1.0), x)
    with pytest.raises(ValueError, match="`query` must be None"):
        embedding.weights(z)
    with pytest.raises(
        ValueError, match=r"`values` must have one row for each of the 6 support points, got shape \(4, 2\)"
    ):
        embedding.expectation(z)
    with pytest.raises(ValueError, match="`other` must have the same kernel"):
        embedding.mmd_squared(MeanEmbedding(RBF(2.0), z))
    with pytest.raises(ValueError, match="`other` must have the same kernel"):
        embedding.inner(MeanEmbedding(Matern32(1.0), z))
    with pytest.raises(ValueError, match=r"`points` must hold at least one point, .* got shapes \[\(0, 2\)\]"):
        MeanEmbedding(RBF(1.0), x[:0])


@pytest.mark.slow
def test_distance_is_differentiable_in_the_kernel(samples):
    x, z = samples

    def distance(lengthscale):
        kernel = RBF(lengthscale)
        return MeanEmbedding(kernel, x).mmd_squared(MeanEmbedding(kernel, z))[0, 0]

    step = 1e-6
    difference = (distance(1.0 + step) - distance(1.0 - step)) / (2 * step)
    np.testing.assert_allclose(jax.jit(jax.grad(distance))(1.0), difference, rtol=1e-7)
