"""Quantiles by way of the distribution function."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression
from sklearn.metrics import d2_pinball_score
from sklearn.neighbors import KNeighborsRegressor

from kpp.causal import Independence
from kpp_models.estimators import ProjectedQuantileRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(70, 3))
Y = X[:, 2] + RNG.normal(size=70)
X[:, 0] += Y + X[:, 1]
NEW = RNG.normal(size=(40, 3))
LEVELS = [0.05, 0.3, 0.5, 0.8, 0.95]
GENERAL = Independence("y", (1,), (2,))


def normal_distribution(x: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    return norm.cdf(thresholds - x[:, :1])


def test_quantiles_and_distribution_functions_are_in_order():
    model = ProjectedQuantileRegressor(KNeighborsRegressor(7), levels=LEVELS, collider=GENERAL, check=False).fit(X, Y)
    assert (np.diff(model.predict(NEW), axis=1) >= 0).all()
    values = model.predict_distribution(NEW)
    assert (np.diff(values, axis=1) >= 0).all() and values.min() >= 0 and values.max() <= 1
    assert not (np.diff(model.projected_values(NEW), axis=1) >= 0).all()  # before it is sorted


def test_without_features_quantiles_are_those_of_the_sample():
    model = ProjectedQuantileRegressor(DummyRegressor(), levels=LEVELS, num_thresholds=70).fit(X, Y)
    expected = np.quantile(Y, LEVELS, method="interpolated_inverted_cdf")
    np.testing.assert_allclose(model.predict(NEW), np.broadcast_to(expected, (40, 5)), rtol=1e-10, atol=1e-10)


def test_a_distribution_function_is_inverted():
    y = np.linspace(-6.0, 6.0, 1201)
    x = np.zeros((1201, 1))
    model = ProjectedQuantileRegressor(normal_distribution, levels=LEVELS, num_thresholds=1201, prefit=True).fit(x, y)
    # Between thresholds 0.01 apart, a straight line is off by at most (0.01)^2 / 8 times F'' / F', below 2 here.
    expected = np.array([[0.0], [1.5]]) + norm.ppf(LEVELS)
    np.testing.assert_allclose(model.predict(np.array([[0.0], [1.5]])), expected, atol=2.5e-5)


def test_levels_beyond_the_thresholds_give_the_outermost():
    model = ProjectedQuantileRegressor(normal_distribution, levels=[0.01, 0.99], prefit=True).fit(
        np.zeros((3, 1)), [0, 1, 2]
    )
    np.testing.assert_array_equal(model.predict(np.array([[-9.0], [9.0]])), [[0.0, 0.0], [2.0, 2.0]])


def test_the_projection_by_hand():
    model = ProjectedQuantileRegressor(KNeighborsRegressor(7), num_thresholds=10, collider=GENERAL, check=False)
    model.fit(X, Y)
    below = (Y[:, None] <= model.thresholds_).astype(float)
    plain = KNeighborsRegressor(7).fit(X, below)
    start = LinearRegression().fit(X[:, [2]], below)
    excess = plain.predict(X) - start.predict(X[:, [2]])
    expected = plain.predict(NEW) - LinearRegression().fit(X[:, 1:], excess).predict(NEW[:, 1:])
    np.testing.assert_allclose(model.projected_values(NEW), expected, rtol=1e-10, atol=1e-10)
    assert model.thresholds_[-1] == Y.max() and len(model.thresholds_) == 10


def test_the_score_is_the_share_of_pinball_loss_that_is_saved():
    several = ProjectedQuantileRegressor(KNeighborsRegressor(7), levels=LEVELS).fit(X, Y)
    expected = [d2_pinball_score(Y, q, alpha=level) for q, level in zip(several.predict(X).T, LEVELS, strict=True)]
    assert several.score(X, Y) == pytest.approx(np.mean(expected), rel=1e-12)
    one = ProjectedQuantileRegressor(KNeighborsRegressor(7), levels=0.3).fit(X, Y)
    assert one.score(X, Y) == pytest.approx(expected[1], rel=1e-12)


REFUSED = {
    "level": ({"levels": 1.0}, ValueError, "`levels` must be a number between 0 and 1"),
    "levels": ({"levels": [0.1, -0.5]}, ValueError, "`levels` must be"),
    "no level": ({"levels": []}, ValueError, "`levels` must be"),
    "thresholds": ({"num_thresholds": 0}, ValueError, "`num_thresholds` must be at least 1, got 0"),
    "prefit": ({"estimator": 3, "prefit": True}, TypeError, "a kpp.Fit or a callable of rows and thresholds"),
    "shape": (
        {"estimator": lambda rows, thresholds: np.ones(len(rows)), "prefit": True},
        ValueError,
        r"`estimator` must predict the shape \(70, 70\), got \(70,\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_arguments_are_refused(name):
    options, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        ProjectedQuantileRegressor(
            **{"estimator": KNeighborsRegressor(), "collider": GENERAL, "check": False, **options}
        ).fit(X, Y)
