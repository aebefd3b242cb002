"""The Gaussian processes of explanations against their vectors, dense inversion and scikit-learn."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF as SklearnRBF
from sklearn.gaussian_process.kernels import ConstantKernel

from kpp.kernels import RBF
from kpp_gpec import ExplanationProcess, WeightedExponentialGeodesic


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 2))
    values = np.stack([np.sin(2 * x[:, 0]), x[:, 1] ** 2, 0.1 * x.sum(axis=1)], axis=1)
    return x, values, 0.05 + 0.2 * rng.random(values.shape), np.array([0.8, 2.0, 0.3]), rng.normal(size=(7, 2))


@pytest.fixture(scope="module")
def process(data):
    x, values, noise, variance, _ = data
    return ExplanationProcess.condition(RBF(0.9), x, values, noise, variance)


@pytest.mark.slow_variants("False-True", "True-False")
@pytest.mark.parametrize(
    ("normalized", "precomputed"),
    [
        (False, True),
        (True, False),
        pytest.param(False, False, marks=pytest.mark.slow),
        pytest.param(True, True, marks=pytest.mark.slow),
    ],
)
def test_vectors(vectors, normalized, precomputed):
    kernel = WeightedExponentialGeodesic(
        vectors["in_DB"], vectors["in_geodesic"], vectors["in_lam"], vectors["in_rho"], normalized=normalized
    )
    kernel = kernel.precompute() if precomputed else kernel
    process = ExplanationProcess.condition(
        kernel, vectors["in_X"], vectors["in_E"], vectors["in_noise_var"], np.ones(2)
    )
    law = process.predict(vectors["in_Xq"])
    name = "out_var_normalised" if normalized else "out_var"
    np.testing.assert_allclose(law.variance, vectors[name], rtol=1e-7, atol=1e-10)
    if not normalized:
        np.testing.assert_allclose(law.mean, vectors["out_mean"], rtol=1e-7, atol=1e-10)


def dense(x, values, noise, variance, new):
    """Means, variances and noiseless variances of the formula, by inverses."""

    def gram(a, b):
        return np.exp(-((a[:, None] - b[None]) ** 2).sum(axis=-1) / (2 * 0.9**2))

    means, variances = [], []
    for d in range(values.shape[1]):
        inverse = np.linalg.inv(variance[d] * gram(x, x) + np.diag(noise[:, d]))
        cross = variance[d] * gram(new, x)
        means.append(cross @ inverse @ values[:, d])
        variances.append(variance[d] - np.einsum("pn,nm,pm->p", cross, inverse, cross))
    return np.stack(means, axis=1), np.stack(variances, axis=1)


@pytest.mark.slow
def test_the_law_is_that_of_dense_inversion(data, process):
    law = process.predict(data[-1])
    mean, variance = dense(*data)
    np.testing.assert_allclose(law.mean, mean, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(law.variance, variance, rtol=1e-9)
    x, values, _, scale, new = data
    # The condition number of the noise-free matrix is 1e9, of which inversion in NumPy loses as many digits.
    np.testing.assert_allclose(
        law.noiseless_variance, dense(x, values, np.zeros(values.shape), scale, new)[1], atol=1e-6
    )


@pytest.mark.parametrize("feature", [0, 1])
def test_one_feature_is_scikit_learns_process(data, process, feature):
    x, values, noise, variance, new = data
    theirs = GaussianProcessRegressor(
        ConstantKernel(variance[feature]) * SklearnRBF(0.9), alpha=noise[:, feature], optimizer=None
    ).fit(x, values[:, feature])
    mean, deviation = theirs.predict(new, return_std=True)
    law = process.predict(new)
    np.testing.assert_allclose(law.mean[:, feature], mean, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(law.variance[:, feature], deviation**2, rtol=1e-8)
    evidence = theirs.log_marginal_likelihood(theirs.kernel_.theta)
    assert float(process.log_evidence()[feature]) == pytest.approx(evidence, rel=1e-10)


def test_leaving_one_out_is_the_law_without_it(data, process):
    x, values, noise, variance, _ = data
    means, variances = (np.asarray(array) for array in process.leave_one_out())
    for row in (0, 7, 19):
        kept = np.arange(len(x)) != row
        mean, left = dense(x[kept], values[kept], noise[kept], variance, x[row : row + 1])
        np.testing.assert_allclose(means[row], mean[0], rtol=1e-9)
        np.testing.assert_allclose(variances[row], left[0] + noise[row], rtol=1e-9)


@pytest.mark.slow
def test_monte_carlo(data, process):
    """The law is the distribution of f(x*) among joint draws of f, weighted by the density of E around f(x)."""
    x, values, noise, variance, new = data
    kept, rng = slice(0, 2), np.random.default_rng(1)
    small = ExplanationProcess.condition(RBF(0.9), x[kept], values[kept], noise[kept], variance)
    law = small.predict(new[:1])
    points = np.concatenate([x[kept], new[:1]])
    root = np.linalg.cholesky(np.asarray(RBF(0.9).gram(points)) + 1e-12 * np.eye(3))
    for d in range(3):
        draws = np.sqrt(variance[d]) * root @ rng.normal(size=(3, 400_000))
        log_weights = -0.5 * ((values[kept, d][:, None] - draws[:2]) ** 2 / noise[kept, d][:, None]).sum(axis=0)
        weights = np.exp(log_weights - log_weights.max())
        weights /= weights.sum()
        mean = weights @ draws[2]
        spread = weights @ (draws[2] - mean) ** 2
        error = 4 * np.sqrt(spread * (weights**2).sum())  # four standard errors
        assert abs(law.mean[0, d] - mean) < error
        assert law.variance[0, d] == pytest.approx(spread, rel=4 * np.sqrt(2 * (weights**2).sum()))


@pytest.mark.slow
def test_features_with_the_same_noise_share_a_factor(data):
    x, values, _, _, new = data
    noise = np.full((20, 3), 0.1)
    shared = ExplanationProcess.condition(RBF(0.9), x, values, noise, np.ones(3))
    own = ExplanationProcess.condition(RBF(0.9), x, values, noise * [1, 1, 1 + 1e-13], np.ones(3))
    assert shared.factors.shape == (1, 20, 20) and own.factors.shape == (3, 20, 20)
    for first, second in zip(shared.predict(new)[:3], own.predict(new)[:3], strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-9)
    np.testing.assert_allclose(shared.log_evidence(), own.log_evidence(), rtol=1e-9)
    for first, second in zip(shared.leave_one_out(), own.leave_one_out(), strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-9)


def test_noise_only_adds_to_the_variance_and_nothing_is_negative(data, process):
    everywhere = np.concatenate([data[0], data[-1], [[1e6, -1e6]]])
    law = process.predict(everywhere)
    assert (law.noiseless_variance >= 0).all() and (law.variance >= law.noiseless_variance).all()
    assert law.noiseless_variance[:20].max() < 1e-6
    np.testing.assert_allclose(law.variance[-1], data[3], rtol=1e-12)
    np.testing.assert_allclose(law.mean[-1], 0.0, atol=1e-12)


@pytest.mark.slow
def test_a_deterministic_explainer_with_more_points_than_boundary_samples(boundaries):
    """K has rank 10 at most; its factor needs jitter, and explanations that the kernel can give are met."""
    points, distances = boundaries["circle"]
    kernel = WeightedExponentialGeodesic(points[::4], distances[::4, ::4], 1.0, 2.0).precompute()
    x = np.random.default_rng(2).normal(size=(30, 2))
    values = np.asarray(jax.jit(kernel.__call__)(x, points[:2]))
    process = ExplanationProcess.condition(kernel, x, values, np.zeros((30, 2)), np.ones(2))
    law = process.predict(x)
    # The jitter is 1e-10 of the diagonal, and the coefficients are of order 10.
    np.testing.assert_allclose(law.mean, values, atol=1e-7)
    assert (law.variance >= 0).all() and law.variance.max() < 1e-8


@pytest.mark.slow
def test_points_twice_with_different_explanations_are_averaged():
    x = np.array([[0.0], [0.0], [3.0]])
    process = ExplanationProcess.condition(RBF(1.0), x, [[1.0], [2.0], [0.0]], np.full((3, 1), 1e-3), np.ones(1))
    # The mean of two observations with noise 1e-3 each, shrunk by 1 / (1 + 5e-4), but for the far third point.
    law = process.predict(x)
    assert law.mean[0, 0] == pytest.approx(1.5 / (1 + 5e-4), rel=1e-3)
    assert np.isfinite(law.variance).all()


def test_many_points_are_predicted_in_blocks(process, monkeypatch):
    x = np.random.default_rng(3).normal(size=(30, 2))
    whole = process.predict(x)
    assert whole.mean.shape == (30, 3)
    monkeypatch.setattr(ExplanationProcess, "block_size", 8)
    np.testing.assert_allclose(process.predict(x).variance, whole.variance, rtol=1e-9)
