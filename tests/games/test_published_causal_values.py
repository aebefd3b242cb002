"""Causal, conditional and asymmetric values beside those that the R package shapr publishes for the air quality data.

shapr explains three days by a linear model that was fitted to all days. Its values by regression are exact. Those of
Gaussian laws are means of 5 samples per coalition, independent between coalitions, so that their standard errors follow
from the variance of the predictions after an intervention. shapr's base value is the mean response, and its asymmetric
values are a least squares fit to the coalitions that respect the order, not the average over the orders.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kpp.causal import CausalOrder
from kpp.games import (
    Causal,
    GaussianConditional,
    all_coalitions,
    as_players,
    asymmetric_shapley_values,
    shapley_values_from_table,
)

TABLE = np.genfromtxt(Path(__file__).parents[1] / "data" / "airquality.csv", delimiter=",", names=True)
NAMES = ("Solar.R", "Wind", "Temp", "Month", "Day")
OZONE = TABLE["Ozone"]
FEATURES = np.stack([TABLE[name.replace(".", "")] for name in NAMES], axis=1)
DAYS = [(9, 5), (9, 9), (8, 21)]  # the days that are explained; the other 108 are the background
EXPLAINED = [int(np.flatnonzero((FEATURES[:, 3:] == day).all(axis=1))[0]) for day in DAYS]
POINTS, BACKGROUND = FEATURES[EXPLAINED], np.delete(FEATURES, EXPLAINED, axis=0)
INTERCEPT, *SLOPES = np.linalg.lstsq(np.column_stack([np.ones(len(OZONE)), FEATURES]), OZONE, rcond=None)[0]
BASE = np.delete(OZONE, EXPLAINED).mean()
ORDER = (NAMES[:2], NAMES[2:3], NAMES[3:])
# Samples per coalition in shapr, and samples per background row for the variances here, whose error is then 2 %.
NUM_SAMPLES, SAMPLES_PER_POINT = 5, 20


def linear(x):
    return INTERCEPT + x @ np.array(SLOPES)


def moments(x):
    return np.stack([linear(x), linear(x) ** 2], axis=1)


def respects(mask):
    """Whether a coalition holds all causes of its members in the order {Solar.R, Wind}, {Temp}, {Month, Day}."""
    return (mask[:2].all() or not mask[2:].any()) and (mask[2] or not mask[3:].any())


def least_squares(coalitions):
    """Return the map from values of coalitions to asymmetric values of shapr; coalitions of one size weigh alike."""
    sizes = coalitions.sum(axis=1)
    weights = np.full(len(sizes), 1e6)
    inner = (sizes > 0) & (sizes < 5)
    alike = np.array([np.sum(sizes == size) for size in sizes])
    weights[inner] = 1 / (alike * sizes * (5.0 - sizes))[inner]
    weights[inner] /= weights[inner].sum()
    design = np.column_stack([np.ones(len(sizes)), coalitions])
    return np.linalg.solve(design.T @ (weights[:, None] * design), design.T * weights)[1:]


def standardized(game, published, coalitions, solution):
    """Return the differences of published values from exact ones, divided by the standard errors of 5 samples."""
    values, squares = np.moveaxis(np.asarray(game(moments, POINTS, coalitions)), -1, 0)
    variances = np.maximum(squares - values**2, 0.0)
    values = np.concatenate([np.full((1, len(POINTS)), BASE), values[1:]])
    variances[0] = 0.0
    exact, errors = solution @ values, np.sqrt(solution**2 @ variances / NUM_SAMPLES)
    return (np.array(published) - exact.T) / errors.T


CASES = {
    "confounded": (
        CausalOrder(ORDER, True),
        [
            [-10.586, 9.603, 14.085, -2.429, 1.9293],
            [1.626, -3.712, -2.724, -7.310, -1.7595],
            [9.581, -25.344, 1.892, -4.089, 0.3918],
        ],
    ),
    "not confounded": (
        CausalOrder(ORDER, False),
        [
            [-8.606, 10.387, 13.963, -4.010, 0.8685],
            [3.506, -6.071, -4.521, -6.183, -0.6104],
            [2.371, -26.300, 2.790, 1.600, 1.9707],
        ],
    ),
    "first group confounded": (
        CausalOrder(ORDER, (True, False, False)),
        [
            [-10.60, 9.600, 14.068, -2.464, 1.9983],
            [1.62, -3.719, -2.722, -7.284, -1.7747],
            [9.58, -25.345, 1.893, -4.005, 0.3084],
        ],
    ),
    "marginal": (
        CausalOrder([NAMES], True),
        [
            [-8.1241, 6.631, 15.251, -2.3173, 1.161],
            [0.8798, -2.652, -6.971, -1.2012, -3.935],
            [3.3391, -14.550, -3.145, -0.4127, -2.800],
        ],
    ),
}
GROUPS = {
    "two groups": (
        {"A": NAMES[:2], "B": NAMES[2:3], "C": NAMES[3:]},
        CausalOrder([NAMES[:3], NAMES[3:]], True),
        [[11.547, 16.725, -15.67], [7.269, -10.685, -10.46], [-5.058, 1.578, -14.09]],
    ),
    "three groups": (
        {"A": NAMES[:1], "B": NAMES[1:3], "C": NAMES[3:]},
        CausalOrder([NAMES[:1], NAMES[1:3], NAMES[3:]], (True, True, False)),
        [[-13.728, 31.822, -5.493], [3.126, -6.343, -10.662], [5.310, -17.036, -5.842]],
    ),
}
ASYMMETRIC = {
    "confounded": [
        [-12.804, 11.755, 17.3723, -0.499, -3.222],
        [1.471, -2.609, -5.9820, -4.592, -2.168],
        [14.736, -31.711, -0.3884, -1.430, 1.225],
    ],
    "not confounded": [
        [-15.4362, 17.9420, 13.883, -0.626, -3.161],
        [-0.8741, -0.4898, -5.682, -4.634, -2.200],
        [7.2517, -30.3922, 5.763, -1.347, 1.156],
    ],
}
REGRESSION = [
    [-11.337, 15.032, 14.506, -2.656, -2.943],
    [5.546, -6.262, -4.518, -6.664, -1.982],
    [9.720, -32.555, 7.270, -3.377, 1.374],
]


def causal(order):
    return Causal(BACKGROUND, order, feature_names=NAMES, samples_per_point=SAMPLES_PER_POINT)


FIRST = {"confounded", "two groups"}
SLOW = pytest.mark.slow  # the others compile one program more for each order


def cases(names):
    return [pytest.param(name, marks=[] if name in FIRST else [SLOW]) for name in names]


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(CASES))
def test_causal_values_agree_within_the_error_of_sampling(name):
    """Of 15 numbers none is beyond 4 standard errors, but with a probability of 0.1 %."""
    order, published = CASES[name]
    coalitions = all_coalitions(5)
    found = standardized(causal(order), published, coalitions, np.asarray(shapley_values_from_table(np.eye(32))))
    assert np.abs(found).max() < 4
    assert np.mean(found**2) < 2
    if name == "confounded":  # the law without the intervention fits worse
        other = GaussianConditional(BACKGROUND, samples_per_point=SAMPLES_PER_POINT)
        wrong = standardized(other, published, coalitions, np.asarray(shapley_values_from_table(np.eye(32))))
        assert np.sum(wrong**2) > 2 * np.sum(found**2)


@pytest.mark.parametrize("name", cases(GROUPS))
def test_values_of_groups_agree_within_the_error_of_sampling(name):
    groups, order, published = GROUPS[name]
    coalitions = as_players(groups, 5, NAMES).expand(all_coalitions(3))
    found = standardized(causal(order), published, coalitions, np.asarray(shapley_values_from_table(np.eye(8))))
    assert np.abs(found).max() < 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ASYMMETRIC)
def test_asymmetric_values_agree_within_the_error_of_sampling(name):
    masks = all_coalitions(5)
    coalitions = masks[[respects(mask) for mask in masks]]
    found = standardized(causal(CASES[name][0]), ASYMMETRIC[name], coalitions, least_squares(coalitions))
    assert np.abs(found).max() < 4


@pytest.mark.slow
def test_conditional_values_by_regression_agree_to_all_digits():
    """A regression of a linear model's predictions on some features is the mean of the fitted Gaussian law."""
    masks = all_coalitions(5)
    coalitions = masks[[respects(mask) for mask in masks]]
    values = np.array(GaussianConditional(BACKGROUND)(linear, POINTS, coalitions))
    values[0] = BASE
    # Three printed decimals; the weights 1e6 of the empty and the full coalition leave 1e-4.
    np.testing.assert_allclose((least_squares(coalitions) @ values).T, REGRESSION, atol=6.5e-4)


@pytest.mark.slow
def test_the_average_over_orders_is_near_the_least_squares_fit():
    """The two definitions of asymmetric values differ here by up to 0.63 parts per billion of ozone."""
    game = GaussianConditional(BACKGROUND)
    found = np.array(asymmetric_shapley_values(game, linear, POINTS, CausalOrder(ORDER), feature_names=NAMES).values)
    found[:, :2] += (linear(BACKGROUND).mean() - BASE) / 2  # the first group starts from shapr's base value
    np.testing.assert_allclose(found, REGRESSION, atol=0.65)
    np.testing.assert_allclose(found.sum(axis=1) + BASE, linear(POINTS), rtol=1e-9)
