"""The scores against SciPy, quadrature, sums over pairs, Monte Carlo and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.calibration import calibration_curve
from sklearn.metrics import mean_pinball_loss

from kpp import metrics

RNG = np.random.default_rng(0)
Y = RNG.normal(size=6)
MEAN, SCALE = RNG.normal(size=6), RNG.uniform(0.3, 2.0, size=6)


def test_gaussian_log_score_is_scipys(tolerance):
    np.testing.assert_allclose(metrics.gaussian_log_score(Y, MEAN, SCALE), -norm.logpdf(Y, MEAN, SCALE), **tolerance())


def test_gaussian_crps_is_the_integral():
    def integral(y, mean, scale):
        below = quad(lambda t: norm.cdf(t, mean, scale) ** 2, -np.inf, y)[0]
        return below + quad(lambda t: norm.sf(t, mean, scale) ** 2, y, np.inf)[0]

    expected = [integral(*case) for case in zip(Y, MEAN, SCALE, strict=True)]
    np.testing.assert_allclose(metrics.gaussian_crps(Y, MEAN, SCALE), expected, rtol=1e-7)  # what quad promises


def test_crps_from_draws_is_the_sum_over_pairs(tolerance):
    draws = RNG.normal(size=(5, 6))
    pairs = np.abs(draws[:, None] - draws[None]).sum((0, 1)) / (2 * 5 * 4)
    expected = np.abs(draws - Y).mean(0) - pairs
    np.testing.assert_allclose(metrics.crps_from_draws(Y, draws), expected, **tolerance())


@pytest.mark.slow
def test_crps_from_draws_has_no_bias():
    # 4000 sets of 4 draws of N(0, 1) at y = 0.5; the scores deviate by less than 0.6; four standard errors.
    draws = RNG.normal(size=(4, 4000))
    found = metrics.crps_from_draws(np.full(4000, 0.5), draws).mean()
    np.testing.assert_allclose(found, metrics.gaussian_crps([0.5], 0.0, 1.0)[0], atol=4 * 0.6 / 4000**0.5)


def test_interval_score_is_two_pinball_losses(tolerance):
    # Gneiting and Raftery (2007): the score is 2 / (1 - p) times the sum of the pinball losses of the two quantiles.
    lower, upper = MEAN - SCALE, MEAN + 0.5 * SCALE
    losses = mean_pinball_loss(Y, lower, alpha=0.1) + mean_pinball_loss(Y, upper, alpha=0.9)
    np.testing.assert_allclose(metrics.interval_score(Y, lower, upper, 0.8).mean(), 2 / 0.2 * losses, **tolerance())


def test_coverage_counts_both_ends():
    assert metrics.interval_coverage([0.0, 1.0, 2.0, 3.0], 1.0, [5.0, 5.0, 2.0, 2.5]) == 0.5


def test_calibration_error_is_that_of_scikit_learns_curve(tolerance):
    probabilities = np.concatenate([RNG.uniform(size=50), [0.0, 1.0]])
    labels = (RNG.uniform(size=52) < probabilities**2).astype(int)
    frequencies, means = calibration_curve(labels, probabilities, n_bins=7)
    counts = np.histogram(probabilities, bins=7, range=(0, 1))[0]
    expected = counts[counts > 0] @ np.abs(frequencies - means) / 52
    found = metrics.expected_calibration_error(labels, probabilities, num_bins=7)
    np.testing.assert_allclose(found, expected, **tolerance())


@pytest.mark.parametrize("score", [metrics.gaussian_crps, metrics.gaussian_log_score])
def test_true_distribution_scores_best(score):
    y = RNG.normal(1.0, 2.0, size=4000)
    best = score(y, 1.0, 2.0).mean()
    assert all(score(y, *other).mean() > best for other in ((1.5, 2.0), (1.0, 1.5), (1.0, 3.0)))


MISTAKES = [
    (lambda: metrics.gaussian_crps(Y, MEAN[:2], SCALE), r"`mean` must have the shape of `y`, \(6,\), or be one number"),
    (lambda: metrics.gaussian_crps(Y, MEAN, 0.0), "`scale` must be positive, got 0 at index 0"),
    (lambda: metrics.gaussian_log_score(Y, np.nan, SCALE), "`mean` must be finite"),
    (lambda: metrics.crps_from_draws(Y, np.zeros((6, 3))), r"`draws` must have shape \(s, 6\), s > 1, .* got \(6, 3\)"),
    (lambda: metrics.crps_from_draws(Y, np.zeros((1, 6))), r"`draws` must have shape \(s, 6\), s > 1, .* got \(1, 6\)"),
    (lambda: metrics.interval_coverage(Y, 1.0, 0.0), "`upper` must be at least `lower`, got 0 at index 0"),
    (lambda: metrics.interval_score(Y, 0.0, 1.0, 95.0), "`probability` must be between 0 and 1, got 95.0"),
    (lambda: metrics.expected_calibration_error([0, 2], [0.1, 0.2]), "`labels` must be 0 or 1, got 2 at index 1"),
    (
        lambda: metrics.expected_calibration_error([0, 1], [0.1, 1.2]),
        "`probabilities` must be between 0 and 1, got 1.2",
    ),
    (lambda: metrics.expected_calibration_error([0, 1], 0.5, num_bins=0), "`num_bins` must be at least 1, got 0"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
