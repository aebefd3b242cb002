"""Gaussian-process regression of targets that are a function of the points, without noise."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import r2_score

import kpp
from kpp_models.estimators import GPRegressor

POINTS = np.random.default_rng(0).normal(size=(40, 2))
REPEATED = np.repeat(POINTS[:8], 5, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("points", "targets"),
    [
        (POINTS, POINTS[:, 0]),
        (POINTS, 1e-8 * POINTS[:, 1]),
        (POINTS, POINTS[:, 0] ** 2 + POINTS[:, 1]),
        (REPEATED, np.sin(REPEATED[:, 0])),
    ],
    ids=["column", "small_column", "polynomial", "repeated_rows"],
)
def test_targets_without_noise_are_fitted(points, targets):
    predicted = GPRegressor(random_state=0).fit(points, targets).predict(points)
    assert r2_score(targets, predicted) > 0.995


@pytest.mark.nightly
def test_draws_of_a_function_without_noise():
    inference = kpp.Laplace(num_samples=100, progress=False)
    targets = np.sin(POINTS[:, 0])
    predicted = GPRegressor(inference=inference, random_state=0).fit(POINTS, targets).predict(POINTS)
    assert r2_score(targets, predicted) > 0.995


@pytest.mark.slow_variants("0.0", "-3.0")
@pytest.mark.parametrize("value", [0.0, 0.1, -3.0])
def test_constant_targets_are_predicted(value):
    estimator = GPRegressor(random_state=0).fit(POINTS, np.full(40, value))
    np.testing.assert_allclose(estimator.predict(POINTS), value, atol=1e-3)
