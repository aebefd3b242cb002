"""RandomFourier: its means are the kernels, its spread is the published one, and the diagonal is exact."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.spatial.distance import cdist
from sklearn.kernel_approximation import RBFSampler

from kpp.features import RandomFourier
from kpp.kernels import RBF, Matern, Matern12, Matern32, Matern52, Periodic

LENGTHSCALE = np.array([0.7, 1.5])
gram = eqx.filter_jit(lambda kernel, x: kernel(x, x))
X = np.random.default_rng(0).normal(size=(8, 2))


PROFILES = {
    RBF: lambda r: np.exp(-(r**2) / 2),
    Matern12: lambda r: np.exp(-r),
    Matern32: lambda r: (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r),
    Matern52: lambda r: (1 + 5**0.5 * r + 5 / 3 * r**2) * np.exp(-(5**0.5) * r),
}


@pytest.mark.slow
@pytest.mark.parametrize("base", PROFILES)
def test_many_frequencies_give_the_kernel(base):
    # Each entry is a mean of 40000 cosines, of variance at most 1/2: its standard error is at most 3.6e-3, and five are
    # allowed for 28 pairs.
    approximate = RandomFourier.approximate(jax.random.key(0), base(LENGTHSCALE, 1.0), 40_000, 2)
    distances = cdist(X / LENGTHSCALE, X / LENGTHSCALE)
    np.testing.assert_allclose(gram(approximate, X), PROFILES[base](distances), atol=5 * (0.5 / 40_000) ** 0.5)


@pytest.mark.slow
def test_frequencies_of_any_smoothness_are_those_of_the_closed_form():
    key = jax.random.key(0)
    np.testing.assert_allclose(
        RandomFourier.approximate(key, Matern(nu=2.5), 5, 2).frequencies,
        RandomFourier.approximate(key, Matern52(), 5, 2).frequencies,
        rtol=1e-12,  # the same draws up to rounding
    )


@pytest.mark.slow
def test_spread_is_the_published_one_and_smaller_than_that_of_random_phases():
    # Sutherland and Schneider, proposition 1, for pairs: variance (1 + k(2d) - 2 k(d)^2) / (2 q) at the difference d,
    # q being the frequencies. 4000 repetitions: the relative standard error of a variance is (2 / 4000)^(1/2) = 2.2 %.
    difference, count, repetitions = np.array([0.8, -0.4]), 10, 4000
    points = np.stack([np.zeros(2), difference])
    frequencies = jax.random.normal(jax.random.key(1), (repetitions, count, 2))
    found = np.asarray(jax.jit(jax.vmap(lambda omega: RandomFourier(omega)(points, points)[0, 1]))(frequencies))
    k = lambda scale: float(np.exp(-0.5 * (scale * difference) @ (scale * difference)))  # noqa: E731
    assert abs(found.mean() - k(1.0)) < 4 * found.std() / repetitions**0.5
    np.testing.assert_allclose(found.var(), (1 + k(2.0) - 2 * k(1.0) ** 2) / (2 * count), rtol=0.1)
    theirs = [RBFSampler(gamma=0.5, n_components=2 * count, random_state=seed).fit(points) for seed in range(200)]
    theirs = [np.prod(sampler.transform(points), axis=0).sum() for sampler in theirs]
    assert np.var(theirs) > 1.5 * found.var()  # at this difference theirs is (1 + k(2d)/2 - k(d)^2) / (2 q), twice ours


@pytest.mark.slow
def test_variance_on_the_diagonal_is_exact():
    kernel = RandomFourier.approximate(jax.random.key(0), Matern32(0.5, 1.7), 3, 2)
    features = np.asarray(eqx.filter_jit(lambda kernel, x: kernel.feature_map(x))(kernel, X))
    assert features.shape == (8, 6)
    np.testing.assert_allclose(np.square(features).sum(1), np.full(8, 1.7), rtol=1e-14)


def test_priors_of_the_kernel_are_handed_on():
    prior = dist.LogNormal(0.0, 1.0)
    kernel = RandomFourier.approximate(jax.random.key(0), RBF(prior), 3, 2)
    assert kernel.lengthscale is prior


def test_mistakes_are_named():
    with pytest.raises(TypeError, match="`kernel` must be one of RBF, Matern, .*, got Periodic"):
        RandomFourier.approximate(jax.random.key(0), Periodic(1.0), 3, 2)
    with pytest.raises(TypeError, match="the `nu` of a Matern `kernel` must be a number"):
        RandomFourier.approximate(jax.random.key(0), Matern(nu=dist.LogNormal(0.0, 1.0)), 3, 2)
    with pytest.raises(TypeError, match="`rng_key` must be a single JAX random key"):
        RandomFourier.approximate(0, RBF(1.0), 3, 2)
    with pytest.raises(ValueError, match=r"`frequencies` are for 2 features, got points `x` of shape \(8, 3\)"):
        RandomFourier.approximate(jax.random.key(0), RBF(1.0), 3, 2)(np.zeros((8, 3)), np.zeros((8, 3)))
    with pytest.raises(ValueError, match="`lengthscale` must be positive"):
        RandomFourier(np.ones((3, 2)), -1.0)
