"""Area-to-point kriging and cokriging as models of bags, against kriging systems solved directly."""

import jax
import numpy as np
import pytest

import kpp
from kpp.kernels import Linear, Matern12
from kpp_models import BaggGP

NUGGET, SILL, PRACTICAL_RANGE = 0.1, 1.0, 1.5
SIDE = (np.arange(6) + 0.5) / 2
POINTS = np.stack(np.meshgrid(SIDE, SIDE, indexing="ij"), axis=-1).reshape(-1, 2)
AREA = (POINTS // 1).astype(int) @ [3, 1]
AVERAGE = (AREA[None, :] == np.arange(9)[:, None]) / 4.0  # 9 areas of 4 points
MEANS = np.array([2.1, 1.7, 0.4, 1.2, 0.9, -0.3, 0.2, -0.5, -1.4])
KERNEL = Matern12(PRACTICAL_RANGE / 3, SILL - NUGGET)


def conditioned(model, *data):
    """A fit without the groups of ArviZ: there is nothing to infer."""
    model, data, schema = model.prepare(*data)
    return kpp.Fit(model, None, data, schema, {}, kpp.MAP(progress=False))


def distances(a, b):
    return np.sqrt(((a[:, None] - b[None]) ** 2).sum(axis=-1))


def variogram(h):
    """The exponential model without nugget, at distances h > 0."""
    return (SILL - NUGGET) * (1.0 - np.exp(-3.0 * h / PRACTICAL_RANGE))


def ordinary_kriging(nugget):
    """Solve the area-to-point kriging system of semivariances, with a multiplier that makes the weights unbiased."""
    between_points = variogram(distances(POINTS, POINTS))
    between_areas = AVERAGE @ between_points @ AVERAGE.T - nugget * AVERAGE @ AVERAGE.T
    to_points = AVERAGE @ between_points
    ones = np.ones((9, 1))
    system = np.block([[between_areas, ones], [ones.T, np.zeros((1, 1))]])
    weights = np.linalg.solve(system, np.vstack([to_points, np.ones(36)]))
    estimate = weights[:9].T @ MEANS
    variance = (weights * np.vstack([to_points, np.ones(36)])).sum(axis=0)
    return estimate, variance


@pytest.mark.slow
@pytest.mark.parametrize("nugget", [0.0, NUGGET])
def test_a_constant_of_large_variance_gives_the_ordinary_kriging_system(nugget):
    model = BaggGP(KERNEL + 1e5, noise_variance=0.0, high_resolution_variance=nugget)
    fit = conditioned(model, kpp.Bags.create(POINTS, AREA), MEANS)
    found = fit.predict(POINTS)
    estimate, variance = ordinary_kriging(nugget)
    # The prior of the mean with a variance of 1e5 shrinks it by about 1e-6; differences of 1e5 lose 1e-10.
    np.testing.assert_allclose(found["mean"].values[0, 0], estimate, atol=1e-5)
    np.testing.assert_allclose(found["latent_variance"].values[0, 0], variance, atol=1e-5)
    if nugget == 0.0:
        np.testing.assert_allclose(AVERAGE @ found["mean"].values[0, 0], MEANS, atol=1e-6)


def test_cokriging_is_a_kernel_of_location_and_variable():
    stations = np.random.default_rng(0).uniform(0.0, 3.0, size=(5, 2))
    measured = 1.5 - stations.sum(axis=1) / 2
    flags = np.array([[1.0, 0.0]] * 36 + [[0.0, 1.0]] * 5)
    located = np.hstack([np.vstack([POINTS, stations]), flags])
    bags = kpp.Bags.create(located, np.concatenate([AREA, 9 + np.arange(5)]))
    kernel = Matern12(0.5, 0.7).on((0, 1)) + Matern12(0.8, 1.0).on((0, 1)) * Linear(np.array([0.2, 0.3])).on((2, 3))
    data = np.concatenate([MEANS, measured])
    fit = BaggGP(kernel, 0.01, noise="per_bag").fit(jax.random.key(0), bags, data, num_prior_samples=0)
    found = fit.predict(located[:36])

    def covariance(a, b, own):
        return 0.7 * np.exp(-distances(a, b) / 0.5) + own * np.exp(-distances(a, b) / 0.8)

    own, cross = covariance(POINTS, POINTS, 0.2), covariance(POINTS, stations, 0.0)
    of_data = np.block(
        [
            [AVERAGE @ own @ AVERAGE.T, AVERAGE @ cross],
            [cross.T @ AVERAGE.T, covariance(stations, stations, 0.3)],
        ]
    )
    to_points = np.vstack([AVERAGE @ own, cross.T])
    weights = np.linalg.solve(of_data + 0.01 * np.eye(14), to_points)
    np.testing.assert_allclose(found["mean"].values[0, 0], weights.T @ data, rtol=1e-9, atol=1e-10)
    variance = np.diag(own) - (weights * to_points).sum(axis=0)
    np.testing.assert_allclose(found["latent_variance"].values[0, 0], variance, rtol=1e-9)
