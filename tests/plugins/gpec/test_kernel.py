"""The WEG kernel against its vectors, dense NumPy, its limits, and boundaries that are hard."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import kpp
from kpp.kernels import RBF
from kpp_gpec import WeightedExponentialGeodesic

# Compiled once for all boundaries of one shape.
GRAM = eqx.filter_jit(lambda kernel, x: kernel.gram(x))
CROSS = eqx.filter_jit(lambda kernel, x1, x2: kernel(x1, x2))
WEIGHTS = eqx.filter_jit(lambda kernel, x: kernel.weights(x))
NUM_POINTS = 6


def by_hand(x1, x2, points, similarity, concentration, normalized):
    """Equations (9) and (10), term by term."""

    def weights(x):
        raw = np.exp(-concentration * ((x[:, None] - points[None]) ** 2).sum(axis=-1))
        return raw / raw.sum(axis=1, keepdims=True)

    first, second = weights(x1), weights(x2)
    values = first @ similarity @ second.T
    if not normalized:
        return values
    own = [np.einsum("ij,jk,ik->i", w, similarity, w) for w in (first, second)]
    return values / np.sqrt(np.outer(*own))


@pytest.mark.slow
def test_vectors(vectors):
    kernel = WeightedExponentialGeodesic(
        vectors["in_DB"], vectors["in_geodesic"], vectors["in_lam"], vectors["in_rho"], normalized=False
    )
    np.testing.assert_allclose(WEIGHTS(kernel, vectors["in_X"]), vectors["out_W"], rtol=1e-7, atol=1e-10)
    for one in (kernel, kernel.precompute(), kernel.thin(9)):
        np.testing.assert_allclose(GRAM(one, vectors["in_X"]), vectors["out_K"], rtol=1e-7, atol=1e-10)


@pytest.mark.slow_variants("False", "True")
@pytest.mark.parametrize("normalized", [False, True])
def test_it_is_the_sum_over_pairs_of_samples(normalized, boundaries):
    points, distances = boundaries["circle"]
    rng = np.random.default_rng(0)
    x1, x2 = rng.normal(size=(5, 2)), rng.normal(size=(4, 2))
    kernel = WeightedExponentialGeodesic(points, distances, 0.7, 1.3, normalized)
    expected = by_hand(x1, x2, points, np.exp(-0.7 * distances), 1.3, normalized)
    # G of a circle is positive definite for any decay, so nothing is clipped.
    np.testing.assert_allclose(CROSS(kernel, x1, x2), expected, rtol=1e-12)
    np.testing.assert_allclose(CROSS(kernel.precompute(), x1, x2), expected, rtol=1e-11)


def test_at_the_samples_it_becomes_the_exponential_geodesic_kernel(boundaries):
    """Theorem 1: as rho grows, each sample weighs itself alone."""
    points, distances = boundaries["circle"]
    kernel = WeightedExponentialGeodesic(points, distances, 0.7, 1e6, normalized=False)
    np.testing.assert_allclose(GRAM(kernel, points), np.exp(-0.7 * distances), rtol=1e-12)


def test_negative_eigenvalues_are_clipped():
    """The geodesics of K_{3,3} at lambda = 0.1 give the eigenvalue 1 + 2 exp(-0.2) - 3 exp(-0.1) = -0.077."""
    kernel, _ = next(iter(WeightedExponentialGeodesic.examples(jax.random.key(0))))
    exponential = np.exp(-0.1 * np.asarray(kernel.distances))
    values, vectors = np.linalg.eigh(exponential)
    assert values[0] == pytest.approx(1 + 2 * np.exp(-0.2) - 3 * np.exp(-0.1), abs=1e-12) and values[0] < -0.07
    nearest = (vectors * np.maximum(values, 0.0)) @ vectors.T
    x = np.random.default_rng(1).normal(size=(NUM_POINTS, 2))
    points = np.asarray(kernel.points)
    np.testing.assert_allclose(GRAM(kernel, x), by_hand(x, x, points, nearest, 0.8, True), rtol=1e-12)


@pytest.mark.slow_variants("0.1-circle")
@pytest.mark.parametrize("name", ["plane", "circle", "sphere", "step", "apart", "duplicates"])
@pytest.mark.parametrize("concentration", [0.1, 100.0])
def test_positive_semi_definite_for_every_decay(name, concentration, boundaries):
    """The allowed rounding is 1e-12 of the largest eigenvalue, for matrices of 60 rows."""
    points, distances = boundaries[name]
    x = jnp.asarray(np.random.default_rng(2).normal(size=(60, points.shape[1])) * 2.0)
    for decay in (0.0, 1e-3, 0.03, 0.3, 1.0, 10.0, 1e4):
        matrix = np.asarray(GRAM(WeightedExponentialGeodesic(points, distances, decay, concentration), x))
        values = np.linalg.eigvalsh(matrix)
        assert np.isfinite(matrix).all() and values[0] >= -1e-12 * values[-1]
        np.testing.assert_allclose(np.diagonal(matrix), 1.0, rtol=1e-12)


@pytest.mark.slow
def test_far_points_have_finite_weights(boundaries):
    points, distances = boundaries["circle"]
    kernel = WeightedExponentialGeodesic(points, distances, 1.0, 5.0)
    far = np.array([[1e3, 0.0], [0.0, 1e8], [-1e100, 1e100], [0.0, -1e3], [-1e8, 0.0], [1e100, 0.0]])
    weights = np.asarray(WEIGHTS(kernel, far))
    assert np.isfinite(weights).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)
    # The nearest sample of the unit circle is the one in the point's own direction, and it takes all.
    directions = far / np.linalg.norm(far, axis=1, keepdims=True)
    assert (weights.argmax(axis=1) == (points @ directions.T).argmax(axis=0)).all()
    assert np.isfinite(np.asarray(GRAM(kernel, far))).all()


def test_distances_far_from_the_origin_lose_nothing(boundaries):
    """The samples and the points moved together by 1e6 give weights whose logarithms differ by rounding, 1e-9."""
    points, distances = boundaries["circle"]
    x = np.random.default_rng(3).normal(size=(NUM_POINTS, 2))
    here = WEIGHTS(WeightedExponentialGeodesic(points, distances, 1.0, 2.0), x)
    there = WEIGHTS(WeightedExponentialGeodesic(points + 1e6, distances, 1.0, 2.0), x + 1e6)
    np.testing.assert_allclose(there, here, rtol=1e-8)


@pytest.mark.slow
def test_parts_that_are_not_connected_are_not_similar(boundaries):
    points, distances = boundaries["apart"]
    kernel = WeightedExponentialGeodesic(points, distances, 0.0, 50.0, normalized=False)
    left, right = np.array([[-5.0, 0.0]]), np.array([[5.0, 0.0]])
    assert float(CROSS(kernel, left, right)[0, 0]) < 1e-12
    assert float(CROSS(kernel, left, left)[0, 0]) == pytest.approx(1.0, abs=1e-12)
    gradient = jax.grad(lambda decay: WeightedExponentialGeodesic(points, distances, decay, 1.0)(left, right)[0, 0])
    assert np.isfinite(jax.jit(gradient)(0.5))


@pytest.mark.slow
def test_thinning_is_off_by_no_more_than_the_distances_to_landmarks(boundaries):
    points, distances = boundaries["circle"]
    full = WeightedExponentialGeodesic(points, distances, 0.4, 3.0, normalized=False)
    thin = full.thin(10)
    assert thin.distances.shape == (10, 10)
    x = np.random.default_rng(4).normal(size=(NUM_POINTS, 2))
    # 40 samples around a circle and 10 landmarks: no sample is further than half the gap of two landmarks from one.
    radius = 2 * np.pi / 40 * 2
    assert np.abs(np.asarray(GRAM(thin, x)) - np.asarray(GRAM(full, x))).max() <= 2 * 0.4 * radius
    np.testing.assert_allclose(WEIGHTS(thin, x), WEIGHTS(full, x), rtol=1e-14)
    assert full.thin(40) is full


@pytest.mark.slow
def test_samples_that_coincide_are_joined_exactly(boundaries):
    points, distances = boundaries["duplicates"]
    full = WeightedExponentialGeodesic(points, distances, 0.4, 3.0)
    thin = full.thin(len(points) - 1)
    assert thin.distances.shape[0] == len(np.unique(points, axis=0))
    x = np.random.default_rng(5).normal(size=(NUM_POINTS, 2))
    np.testing.assert_allclose(GRAM(thin, x), GRAM(full, x), rtol=1e-10)
    np.testing.assert_allclose(GRAM(thin.precompute(), x), GRAM(full, x), rtol=1e-10)


def test_thinning_twice_is_thinning(boundaries):
    points, distances = boundaries["circle"]
    once = WeightedExponentialGeodesic(points, distances, 0.4, 3.0).thin(20).thin(5)
    assert once.distances.shape == (5, 5) and once.members.shape == (40,)
    assert np.unique(once.members).tolist() == list(range(5))


@pytest.mark.slow
def test_parameters_take_priors(boundaries):
    points, distances = boundaries["circle"]
    kernel = WeightedExponentialGeodesic(points, distances, dist.Gamma(2.0, 2.0), dist.LogNormal(0.0, 1.0))
    product = kernel * RBF(dist.LogNormal(0.0, 1.0))
    x = np.random.default_rng(6).normal(size=(NUM_POINTS, 2))
    with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as trace:
        drawn = kpp.sample("kernel", product)
    sites = {"kernel.kernels.0.decay", "kernel.kernels.0.concentration", "kernel.kernels.1.lengthscale"}
    assert set(trace) == sites
    assert np.isfinite(np.asarray(GRAM(drawn, x))).all()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"distances": np.ones((3, 4))}, r"`distances` must have shape \(4, 4\)"),
        ({"distances": -np.ones((4, 4))}, "`distances` must be zero or positive"),
        ({"distances": np.triu(np.ones((4, 4)))}, "`distances` must be symmetric"),
        ({"points": np.zeros((0, 2))}, "`points` must have shape .* at least one row"),
        ({"members": [0, 0]}, r"`members` must have shape \(4,\)"),
        ({"decay": -1.0}, "`decay` must be at least 0"),
        ({"concentration": -1.0}, "`concentration` must be at least 0"),
    ],
)
def test_bad_arguments_are_refused(change, match):
    good = {"points": np.zeros((4, 2)), "distances": np.ones((4, 4)), "decay": 1.0, "concentration": 1.0}
    with pytest.raises(ValueError, match=match):
        WeightedExponentialGeodesic(**{**good, **change})
    with pytest.raises(ValueError, match="`num_landmarks` must be at least 1"):
        WeightedExponentialGeodesic(**good).thin(0)


@pytest.mark.nightly
def test_five_thousand_samples_take_bounded_time_and_memory():
    """The distances are 100 MB and belong to the caller; the thinned kernel holds 1000 x 1000 of them."""
    angles = np.sort(np.random.default_rng(8).uniform(0, 2 * np.pi, size=5_000)).astype(np.float32)
    gaps = np.abs(angles[:, None] - angles[None, :])
    distances = np.minimum(gaps, np.float32(2 * np.pi) - gaps)
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(float)
    kernel = WeightedExponentialGeodesic(points, distances, 1.0, 10.0).thin(1000)
    kernel = WeightedExponentialGeodesic(points, np.asarray(kernel.distances, float), 1.0, 10.0, members=kernel.members)
    x = np.random.default_rng(9).normal(size=(50, 2))
    matrix = np.asarray(kernel.precompute().gram(x))
    assert kernel.distances.shape == (1000, 1000)
    weights = np.asarray(WEIGHTS(kernel, x))
    expected = weights @ np.exp(-distances.astype(float)) @ weights.T
    own = np.sqrt(np.diagonal(expected))
    # No sample is more than two gaps of about 2 pi / 1000 from its landmark.
    np.testing.assert_allclose(matrix, expected / np.outer(own, own), atol=2 * 2 * 2 * np.pi / 1000)
