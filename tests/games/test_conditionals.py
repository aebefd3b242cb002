"""Observational values by Gaussian and copula sampling and by masked regression, against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from kpp.functions import RKHSFunction
from kpp.games import CopulaConditional, GaussianConditional, MaskedRegression, all_coalitions
from kpp.kernels import RBF

COALITIONS = all_coalitions(3)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(200, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 1.0, -0.7], [0.3, 0.0, 0.8]]) + [1.0, 0.0, -2.0]


def conditional(mean, covariance, x, mask):
    """The mean, for each point, and the covariance of all features given the present ones."""
    present = np.ix_(mask, mask)
    gain = np.linalg.solve(covariance[present], covariance[mask]) if mask.any() else np.zeros((0, 3))
    return mean + (x[:, mask] - mean[mask]) @ gain, covariance - covariance[:, mask] @ gain


def linear(rows):
    return rows @ np.array([1.0, -2.0, 0.5]) + 3.0


@pytest.mark.slow
def test_gaussian_values_of_a_linear_function_are_exact(data):
    """The samples' means are those of the conditional distribution, to the ridge of 1e-9."""
    x, mean, covariance = data[:4], data.mean(axis=0), np.cov(data.T, bias=True)
    values = GaussianConditional(data)(linear, x, COALITIONS)
    expected = [linear(conditional(mean, covariance, x, mask)[0]) for mask in COALITIONS]
    np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_gaussian_values_of_an_rbf_function(data):
    """E k(x, X) has a closed form; 2000 samples leave an error of about 1/sqrt(2000) of the spread, below 0.05."""
    x, mean, covariance = data[:4], data.mean(axis=0), np.cov(data.T, bias=True)
    function = RKHSFunction(RBF(lengthscale=1.5), data[:6], np.cos(np.arange(6.0)))
    game = GaussianConditional(data, samples_per_point=10)
    expected = []
    for mask in COALITIONS[1:]:
        means, spread = conditional(mean, covariance, x, mask)
        inverse = np.linalg.inv(spread + 1.5**2 * np.eye(3))
        scale = 1.5**3 * np.sqrt(np.linalg.det(inverse))
        difference = means[:, None] - data[None, :6]
        sections = scale * np.exp(-0.5 * np.einsum("pnd,de,pne->pn", difference, inverse, difference))
        expected.append(sections @ np.cos(np.arange(6.0)))
    values = game(function, x, COALITIONS)
    np.testing.assert_allclose(values[1:], expected, atol=0.05)
    np.testing.assert_allclose(values[0], np.mean(function(data)), rtol=1e-12)


@pytest.mark.slow
def test_samples_have_the_conditional_covariance(data):
    game, mask = GaussianConditional(data, samples_per_point=20), np.array([[True, False, False]])
    samples = np.asarray(game.impute(None, data[:1], mask))[0, 0]
    expected = conditional(data.mean(axis=0), np.cov(data.T, bias=True), data[:1], mask[0])[1]
    np.testing.assert_allclose(np.cov(samples.T), expected, atol=0.08)  # 4000 samples of variances near 1


@pytest.mark.slow
def test_a_copula_keeps_margins_and_follows_monotone_changes(data):
    """Ranks do not change under monotone functions of features, so samples change along with them."""
    mask, x = np.array([[False, True, False], [False, False, True]]), data[:5]
    rows = np.asarray(CopulaConditional(data).impute(None, x, mask))
    np.testing.assert_array_equal(rows[0, :, :, 1], np.broadcast_to(x[:, None, 1], rows.shape[1:3]))
    assert np.isin(rows[..., 0], data[:, 0]).all()
    changed = np.asarray(CopulaConditional(np.exp(data)).impute(None, np.exp(x), mask))
    np.testing.assert_allclose(changed, np.exp(rows), rtol=1e-12)


@pytest.mark.slow
def test_a_copula_agrees_with_a_gaussian_where_features_are_gaussian(data):
    """Both estimate the same conditional means, with errors of the fit to 200 points."""
    x = data[:20]
    gaussian, copula = (game(data)(linear, x, COALITIONS) for game in (GaussianConditional, CopulaConditional))
    assert np.sqrt(np.mean((copula - gaussian) ** 2)) < 0.1 * np.std(gaussian)


@pytest.mark.slow
def test_masked_regression_learns_conditional_means(data):
    """Within a quarter of their spread, from 200 points, and exactly at both ends."""
    x, mean, covariance = data[:20], data.mean(axis=0), np.cov(data.T, bias=True)
    values = np.asarray(MaskedRegression(data)(linear, x, COALITIONS))
    expected = np.array([linear(conditional(mean, covariance, x, mask)[0]) for mask in COALITIONS])
    assert np.sqrt(np.mean((values - expected) ** 2)) < 0.25 * np.std(expected)
    np.testing.assert_allclose(values[-1], linear(x), rtol=1e-12)
    np.testing.assert_allclose(values[0], linear(data).mean(), rtol=1e-12)


@pytest.mark.slow
def test_masked_regression_is_ridge_regression_on_masked_rows(data):
    """The weights against NumPy's, from the rows and coalitions that the object says."""
    game = MaskedRegression(data[:6], 0.01, kernel=RBF(lengthscale=1.2, variance=2.0), masks_per_point=2, seed=3)
    x, mask = data[6:8], np.array([True, False, True])
    rows, masks = np.tile(data[:6], (2, 1)), np.asarray(game.masks())
    center = data[:6].mean(axis=0)

    def features(points, present):
        return np.column_stack([np.where(present, points, center) / 1.2, present])

    def gram(a, b):
        return np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1))

    train, test = features(rows, masks), features(x, np.broadcast_to(mask, x.shape))
    weights = np.linalg.solve(gram(train, train) + 12 * 0.01 * np.eye(12), gram(train, test))
    found = game.imputation_weights(None, x, mask[None])[0]
    np.testing.assert_allclose(found.T, weights[:6] + weights[6:], rtol=1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda data: GaussianConditional(data, samples_per_point=0), "`samples_per_point` must be at least 1"),
        (lambda data: MaskedRegression(data, masks_per_point=0), "`masks_per_point` must be at least 1"),
        (lambda data: MaskedRegression(data, 0.0), "`regularization` must be positive"),
    ],
)
def test_options_are_checked(data, make, message):
    with pytest.raises(ValueError, match=message):
        make(data)
