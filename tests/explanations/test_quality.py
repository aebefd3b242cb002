"""Deletion, insertion, infidelity and stability, by closed forms for linear models and by loops over all coalitions."""

from __future__ import annotations

import functools
import itertools
import math

import jax
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import kpp
from kpp.explanations import Explanation, compare
from kpp.games import Baseline, all_coalitions, shapley_values_from_table
from kpp.plots import credible_interval

RNG = np.random.default_rng(3)
BACKGROUND = RNG.normal(size=(9, 3))
X = RNG.normal(size=(4, 3))
WEIGHTS = np.array([[1.0, -2.0, 0.5], [0.3, 0.3, -1.0]])  # of two outputs


def quality(explanation, predictor, background, **options):
    """Return the measures of one explanation."""
    return compare({"one": explanation}, predictor, background, **options).isel(explanation=0)


def linear(points):
    return np.asarray(points) @ WEIGHTS[0]


def curved(points):
    points = np.asarray(points)
    return np.sin(points[:, 0]) * points[:, 1] + points[:, 2] ** 2


def explain(function, errors=0.0, x=X, background=BACKGROUND, **options):
    """Return the interventional Shapley values of a function, with errors added, by enumeration with NumPy."""
    games = np.array(
        [[value(function, row, present, background) for row in x] for present in all_coalitions(x.shape[1])]
    )
    values = np.asarray(shapley_values_from_table(games)).T + errors
    return Explanation.create(values, games[0, 0], function(x), x, **options)


def value(function, row, present, background=BACKGROUND):
    return function(np.where(present, row, background)).mean()


def shapley_kernel(num_features):
    """Return the proper coalitions with their weights, by their definition."""
    for present in itertools.product([False, True], repeat=num_features):
        s = sum(present)
        if 0 < s < num_features:
            size = sum(1 / (r * (num_features - r)) for r in range(1, num_features))
            yield np.array(present), 1 / (s * (num_features - s)) / size / math.comb(num_features, s)


def test_of_a_linear_model_by_closed_forms():
    # v(S) = f(x) - sum of the absent contributions, so the exact values have no infidelity, and errors e have
    # sum_jk e_j e_k P(j and k absent). With three features two are absent together in half of the sizes 1 and 2,
    # where a pair is chosen with probability 1/3, and one is absent with probability 1/2.
    errors = np.array([0.5, -0.2, 0.0])
    explanation = explain(linear, errors)
    measured = quality(explanation, linear, BACKGROUND)
    exact = WEIGHTS[0] * (X - BACKGROUND.mean(axis=0))
    order = np.argsort(-(exact + errors), axis=1)
    falls = np.take_along_axis(exact, order, axis=1).cumsum(axis=1)
    np.testing.assert_allclose(measured.deletion[:, 0], linear(X), atol=1e-14)
    np.testing.assert_allclose(measured.deletion[:, 1:], linear(X)[:, None] - falls, atol=1e-14)
    np.testing.assert_allclose(measured.insertion[:, 1:], linear(BACKGROUND).mean() + falls, atol=1e-14)
    together = np.full((3, 3), 1 / 6) + np.diag(np.full(3, 1 / 2 - 1 / 6))
    np.testing.assert_allclose(measured.infidelity, errors @ together @ errors, rtol=1e-12)
    np.testing.assert_allclose(quality(explain(linear), linear, BACKGROUND).infidelity, 0.0, atol=1e-28)


def test_stability_is_the_largest_rate_of_change_among_neighbors():
    measured = quality(explain(linear), linear, BACKGROUND, neighbors=2).stability
    scaled = X / BACKGROUND.std(axis=0)
    for i, row in enumerate(X):
        distances = np.linalg.norm(scaled - scaled[i], axis=1)
        nearest = np.argsort(distances)[1:3]
        rates = np.linalg.norm(WEIGHTS[0] * (X[nearest] - row), axis=1) / distances[nearest]
        np.testing.assert_allclose(measured[i], rates.max(), rtol=1e-12)
    assert np.isnan(quality(explain(linear)[:1], linear, BACKGROUND).stability).all()
    twice = quality(explain(linear, x=X[[0, 0]]), linear, BACKGROUND).stability
    assert np.isnan(twice).all()  # a copy says nothing of changes


def test_with_draws_and_outputs_by_loops():
    # The second draw and output have other functions, orders and errors, so a mixed-up axis shows.
    scales = np.array([[[1.0, 0.5]], [[-2.0, 1.5]]])  # chain, draw = 1, output

    def one(points, chain, output):
        return scales[chain, 0, output] * curved(points) + points @ WEIGHTS[output]

    def draws(points):
        return np.stack([np.stack([one(points, c, o) for o in (0, 1)], axis=-1)[None] for c in (0, 1)])

    values = RNG.normal(size=(2, 1, 4, 3, 2))
    explanation = Explanation.create(values, np.zeros((2, 1, 2)), draws(X), X, draws=True)
    measured = quality(explanation, kpp.DrawFunction(draws), BACKGROUND)
    assert measured.deletion.dims == ("chain", "draw", "instance", "step", "output")
    assert measured.infidelity.dims == ("chain", "draw", "instance", "output")
    assert credible_interval(measured.infidelity, 0.9).dims == ("instance", "output", "bound")
    for c, i, o in itertools.product((0, 1), range(4), (0, 1)):
        phi = values[c, 0, i, :, o]
        function = functools.partial(one, chain=c, output=o)
        order, present = np.argsort(-phi), np.ones(3, dtype=bool)
        for step in range(4):
            found = measured.isel(chain=c, draw=0, instance=i, step=step, output=o)
            np.testing.assert_allclose(found.deletion, value(function, X[i], present), rtol=1e-12)
            np.testing.assert_allclose(found.insertion, value(function, X[i], ~present), rtol=1e-12)
            present[order[step : step + 1]] = False
        expected = sum(
            weight * (phi[~kept].sum() - (function(X[i : i + 1])[0] - value(function, X[i], kept))) ** 2
            for kept, weight in shapley_kernel(3)
        )
        np.testing.assert_allclose(measured.infidelity[c, 0, i, o], expected, rtol=1e-12)


def test_shapley_values_have_the_least_infidelity_of_all_that_add_up():
    # Lundberg and Lee, 2017, theorem 2; the errors of the others sum to zero.
    least = quality(explain(curved), curved, BACKGROUND).infidelity
    for seed in range(3):
        errors = np.random.default_rng(seed).normal(size=X.shape)
        errors -= errors.mean(axis=1, keepdims=True)
        assert (quality(explain(curved, errors), curved, BACKGROUND).infidelity > least).all()


@pytest.mark.slow
def test_draws_of_a_law_add_their_covariance_to_the_infidelity():
    covariance = np.array([[0.4, 0.1, 0.0], [0.1, 0.3, -0.1], [0.0, -0.1, 0.2]])
    explanation = explain(curved, covariance=np.broadcast_to(covariance, (4, 3, 3)))
    drawn = quality(explanation.sample(jax.random.key(0), 4000), curved, BACKGROUND)
    added = sum(weight * (~kept) @ covariance @ (~kept) for kept, weight in shapley_kernel(3))
    error = drawn.infidelity.std(["chain", "draw"]) / 4000**0.5
    gap = drawn.infidelity.mean(["chain", "draw"]) - quality(explanation, curved, BACKGROUND).infidelity - added
    assert (abs(gap) < 4 * error).all()


def test_many_features_take_a_sample_of_coalitions():
    # Standard errors of a mean of squared sums of 12 errors over 400 coalitions are about a tenth of it.
    x, background = RNG.normal(size=(1, 12)), RNG.normal(size=(2, 12))
    errors = RNG.normal(size=12)
    explanation = Explanation.create(x - background.mean(axis=0) + errors, 0.0, x.sum(axis=1), x)
    measured = quality(
        explanation, lambda points: np.sum(points, axis=1), background, num_coalitions=400, rng_key=jax.random.key(1)
    )
    expected = sum(weight * errors[~kept].sum() ** 2 for kept, weight in shapley_kernel(12))
    np.testing.assert_allclose(measured.infidelity, expected, rtol=0.3)


@pytest.mark.slow
def test_other_games_and_one_feature():
    function = kpp.RKHSFunction(kpp.kernels.RBF(1.0), BACKGROUND, RNG.normal(size=9), intercept=0.2)
    measured = quality(Explanation.create(X, 0.0, function(X), X), function, Baseline())
    np.testing.assert_allclose(measured.insertion[:, 0], np.sum(function.coefficients) + 0.2, rtol=1e-12)
    np.testing.assert_allclose(measured.insertion[:, -1], function(X), rtol=1e-12)
    single = Explanation.create(X[:, :1] + 0.5, 0.0, X[:, 0], X[:, :1])
    measured = quality(single, LinearRegression().fit(X[:, :1], X[:, 0]), np.zeros((2, 1)))
    np.testing.assert_allclose(measured.infidelity, 0.25, rtol=1e-12)


def test_bad_arguments_are_refused():
    explanation = explain(linear)
    groups = Explanation.create(
        np.zeros((2, 1)), 0.0, np.zeros(2), np.full((2, 1), np.nan), feature_names=["g"], groups={"g": ["a", "b"]}
    )
    twice = Explanation.create(np.zeros((1, 2, 4, 3)), np.zeros((1, 2)), np.zeros((1, 2, 4)), X, draws=True)
    draws = kpp.DrawFunction(lambda points: np.zeros((1, 3, len(points))))
    for call, message in (
        (lambda: quality(explanation, curved, BACKGROUND), "`predictor` must predict what was explained"),
        (lambda: quality(explanation, linear, BACKGROUND[:, :2]), "`background` must have 3 columns"),
        (lambda: quality(explanation, linear, BACKGROUND, num_coalitions=1), "`num_coalitions`"),
        (lambda: quality(explanation, linear, BACKGROUND, neighbors=0), "`neighbors`"),
        (lambda: quality(groups, linear, BACKGROUND), "several columns"),
        (
            lambda: quality(twice, draws, BACKGROUND),
            r"draws of the explanation, \(chain, draw\) = \(1, 2\), got \(1, 3\)",
        ),
        (lambda: quality(explanation, lambda p: p @ WEIGHTS.T, BACKGROUND), "the outputs of the explanation"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="`predictor` is a builtins.str"):
        quality(explanation, "model", BACKGROUND)
    many = Explanation.create(np.zeros((1, 12)), 0.0, np.zeros(1), np.zeros((1, 12)))
    with pytest.raises(TypeError, match="rng_key"):
        quality(many, lambda points: np.zeros(len(points)), np.zeros((2, 12)), num_coalitions=100)
