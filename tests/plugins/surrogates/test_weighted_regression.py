"""Weighted regressions against dense formulas, quadrature of the model itself, and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from sklearn.linear_model import Ridge

from kpp_surrogates.local_linear import bayesian_regression, ridge_regression

RNG = np.random.default_rng(0)
POINTS, ROWS, FEATURES, TARGETS = 3, 20, 4, 2
Z = RNG.normal(size=(POINTS, ROWS, FEATURES))
WEIGHTS = RNG.uniform(0.01, 1.0, size=(POINTS, ROWS))
Y = RNG.normal(size=(POINTS, ROWS, TARGETS)) + Z[..., :1]


def dense(z, weights, y):
    """The formulas as they are printed, one point and target, with an inverse."""
    x = np.column_stack([np.ones(len(z)), z])
    pi = np.diag(weights)
    v = np.linalg.inv(x.T @ pi @ x + np.eye(x.shape[1]))
    mean = v @ x.T @ pi @ y
    residual = y - x @ mean
    return mean, (residual @ pi @ residual + mean @ mean) / len(z) * np.diag(v)


@pytest.mark.slow_variants("0")
@pytest.mark.parametrize("target", range(TARGETS))
def test_the_posterior_is_that_of_the_dense_formulas(target, tolerance):
    posterior = bayesian_regression(Z, WEIGHTS, Y)
    for point in range(POINTS):
        mean, squared_scales = dense(Z[point], WEIGHTS[point], Y[point, :, target])
        np.testing.assert_allclose(posterior.mean[point, :, target], mean, **tolerance())
        np.testing.assert_allclose(posterior.squared_scales[point, :, target], squared_scales, **tolerance())
        law = scipy.stats.t(df=ROWS, loc=mean, scale=squared_scales**0.5)
        np.testing.assert_allclose(posterior.variance[point, :, target], law.var(), **tolerance())


@pytest.mark.slow
def test_the_marginals_are_those_of_the_model_by_quadrature():
    """Likelihood times prior on a grid of intercept, slope and log noise, which knows none of the formulas."""
    z, weights, y = Z[:1, :8, :1], WEIGHTS[:1, :8], Y[:1, :8, :1]
    posterior = bayesian_regression(z, weights, y)
    mean, scales = (np.asarray(array)[0, :, 0] for array in (posterior.mean, posterior.squared_scales**0.5))
    axis = np.linspace(-14.0, 14.0, 113)
    intercept, slope = (mean[i] + scales[i] * axis for i in range(2))
    log_variance = np.linspace(-6.0, 6.0, 61)
    grid = np.meshgrid(intercept, slope, log_variance, indexing="ij")
    terms = zip(weights[0], y[0, :, 0], z[0, :, 0], strict=True)
    squares = sum(w * (y_i - grid[0] - grid[1] * z_i) ** 2 for w, y_i, z_i in terms) + grid[0] ** 2 + grid[1] ** 2
    # Eight observations and two coefficients, each with a variance in proportion to the noise's.
    density = np.exp(-0.5 * squares * np.exp(-grid[2]) - 0.5 * (8 + 2) * grid[2])
    marginal = density.sum(axis=(0, 2))
    marginal /= marginal.sum() * (slope[1] - slope[0])
    expected = scipy.stats.t.pdf(slope, df=8, loc=mean[1], scale=scales[1])
    np.testing.assert_allclose(marginal, expected, atol=2e-3 * expected.max())  # the grid ends at 14 scales


@pytest.mark.slow
def test_the_ridge_regression_is_scikit_learns(tolerance):
    intercepts, coefficients = ridge_regression(Z, WEIGHTS, Y, 0.7)
    for point in range(POINTS):
        peer = Ridge(alpha=0.7).fit(Z[point], Y[point], sample_weight=WEIGHTS[point])
        np.testing.assert_allclose(intercepts[point], peer.intercept_, **tolerance())
        np.testing.assert_allclose(coefficients[point], peer.coef_.T, **tolerance())


def test_weights_that_vanish_give_finite_numbers():
    """A point far from all others has weight on itself alone: the coefficients are those of the prior."""
    weights = np.zeros_like(WEIGHTS)
    weights[:, 0] = 1.0
    intercepts, coefficients = ridge_regression(Z, weights, Y, 1.0)
    np.testing.assert_allclose(intercepts, Y[:, 0], atol=1e-12)
    np.testing.assert_allclose(coefficients, 0.0, atol=1e-12)
    posterior = bayesian_regression(Z, weights, Y)
    assert np.isfinite(posterior.variance).all() and (np.asarray(posterior.variance) > 0).all()
