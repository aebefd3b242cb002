"""LIME and BayesLIME: the algorithm of `lime` and the published formulas, recomputed with NumPy and scikit-learn."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import pairwise_distances
from sklearn.preprocessing import StandardScaler

from kpp.games import as_players
from kpp_surrogates import LIME, BayesLIME
from kpp_surrogates.perturbation import Neighborhood

RNG = np.random.default_rng(0)
BACKGROUND = np.column_stack([RNG.normal(size=(30, 3)) * [1.0, 2.0, 0.5] + 1.0, RNG.integers(0, 3, 30)])
X = np.column_stack([RNG.normal(size=(2, 3)), [0.0, 2.0]])
KEY = jax.random.key(3)
SIZE = 60
KINDS = ("number", "number", "number", "category")
OPTIONS = {"num_perturbations": SIZE, "categorical": [3], "progress": False}


def function(x):
    x = np.asarray(x)
    return np.stack([x[:, 0] * x[:, 1] + (x[:, 3] == 2), np.sin(x[:, 2])], axis=1)


def neighbors(x=X):
    """The rows that the explainers draw from this key."""
    return Neighborhood(KEY, BACKGROUND, as_players(None, 4), KINDS, "background").sample(x, SIZE).rows


def scaled(rows, point):
    """What `lime` regresses on: standardized numbers, and whether a category is that of the point."""
    scaler = StandardScaler().fit(BACKGROUND)
    z = (rows - scaler.mean_) / scaler.scale_
    z[:, 3] = rows[:, 3] == point[3]
    return z


def proximity(z):
    """The kernel of `lime`, with its default width."""
    distances = pairwise_distances(z, z[:1])[:, 0]
    return np.sqrt(np.exp(-(distances**2) / (np.sqrt(z.shape[1]) * 0.75) ** 2))


@pytest.mark.slow
def test_lime_is_the_ridge_regression_that_lime_fits(tolerance):
    explanation = LIME(BACKGROUND, **OPTIONS).explain(function, X, rng_key=KEY)
    for point, (row, rows) in enumerate(zip(X, neighbors(), strict=True)):
        z = scaled(rows, row)
        peer = Ridge(alpha=1, fit_intercept=True).fit(z, function(rows), sample_weight=proximity(z))
        np.testing.assert_allclose(explanation.values[point], peer.coef_.T, **tolerance(factor=10))
        np.testing.assert_allclose(explanation.base_values[point], peer.intercept_, **tolerance(factor=10))


def test_quartiles_give_the_ridge_regression_on_the_intervals_of_the_point(tolerance):
    explanation = LIME(BACKGROUND, discretize="quartile", **OPTIONS).explain(function, X, rng_key=KEY)
    kinds = ("interval", "interval", "interval", "category")
    rows = Neighborhood(KEY, BACKGROUND, as_players(None, 4), kinds, "background", 4).sample(X, SIZE).rows
    quartiles = np.percentile(BACKGROUND[:, :3], [25, 50, 75], axis=0)
    in_interval = lambda points: (points[..., None, :3] > quartiles).sum(axis=-2)  # noqa: E731
    for point, (row, drawn) in enumerate(zip(X, rows, strict=True)):
        z = np.column_stack([in_interval(drawn) == in_interval(row), drawn[:, 3] == row[3]]).astype(float)
        peer = Ridge(alpha=1, fit_intercept=True).fit(z, function(drawn), sample_weight=proximity(z))
        np.testing.assert_allclose(explanation.values[point], peer.coef_.T, **tolerance(factor=10))
    assert explanation.attrs["discretize"] == "quartile"


def test_bayes_lime_is_the_published_posterior(tolerance):
    explanation = BayesLIME(BACKGROUND, **OPTIONS).explain(function, X, rng_key=KEY)
    base = function(BACKGROUND).mean(axis=0)
    for point, (row, rows) in enumerate(zip(X, neighbors(), strict=True)):
        z = scaled(rows, row)
        design, pi = np.column_stack([np.ones(SIZE), z]), np.diag(proximity(z))
        v = np.linalg.inv(design.T @ pi @ design + np.eye(5))
        for output, y in enumerate((function(rows) - base).T):
            mean = v @ design.T @ pi @ y
            residual = y - design @ mean
            s2 = (residual @ pi @ residual + mean @ mean) / SIZE
            variance = s2 * np.diag(v)[1:] * SIZE / (SIZE - 2)
            np.testing.assert_allclose(explanation.values[point, :, output], mean[1:], **tolerance(factor=10))
            np.testing.assert_allclose(explanation.variance[point, :, output], variance, **tolerance(factor=10))
            expected = mean[0] + base[output]
            np.testing.assert_allclose(explanation.base_values[point, output], expected, **tolerance(factor=10))


@pytest.mark.parametrize(
    "explainer", [LIME(BACKGROUND, **OPTIONS), BayesLIME(BACKGROUND, **OPTIONS)], ids=["", "bayes"]
)
def test_another_level_and_unit_of_the_predictions_change_nothing_else(explainer):
    plain = explainer.explain(function, X, rng_key=KEY)
    moved = explainer.explain(lambda x: 10.0 * function(x) + 1e4, X, rng_key=KEY)
    np.testing.assert_allclose(moved.values, 10 * plain.values, rtol=1e-8)  # 1e4 costs four digits
    np.testing.assert_allclose(moved.base_values, 10 * plain.base_values + 1e4, rtol=1e-8)
    if plain.variance is not None:
        np.testing.assert_allclose(moved.variance, 100 * plain.variance, rtol=1e-8)


@pytest.mark.slow_variants("LIME", "BayesLIME")
@pytest.mark.parametrize("cls", [LIME, BayesLIME])
def test_many_neighbors_find_the_slopes_of_a_linear_function(cls):
    """A slope in standard deviations of the background, and what being in one's category is worth."""
    weights = np.array([2.0, -1.0, 0.5])
    linear = lambda x: np.asarray(x)[:, :3] @ weights + 3.0 * (np.asarray(x)[:, 3] == 2)  # noqa: E731
    options = {**OPTIONS, "num_perturbations": 20_000, "kernel_width": 3.0}
    explanation = cls(BACKGROUND, **options).explain(linear, X[1:], rng_key=KEY)
    expected = [*(weights * BACKGROUND[:, :3].std(axis=0)), 3.0]
    np.testing.assert_allclose(explanation.values[0], expected, rtol=2e-3)  # a penalty of 1 against 4000 rows or more


@pytest.mark.slow
def test_sampling_around_the_instance_finds_its_gradient():
    square = lambda x: np.asarray(x)[:, 0] ** 2  # noqa: E731
    options = {**OPTIONS, "num_perturbations": 50_000, "around": "instance", "kernel_width": 0.5, "penalty": 1e-3}
    explanation = LIME(BACKGROUND, **options).explain(square, X, rng_key=KEY)
    expected = 2 * X[:, 0] * BACKGROUND[:, 0].std()
    np.testing.assert_allclose(explanation.values[:, 0], expected, atol=0.03)  # some thousand neighbors weigh


@pytest.mark.slow
def test_points_are_explained_alike_in_blocks_of_any_size(monkeypatch, tolerance):
    explainer = BayesLIME(BACKGROUND, **OPTIONS)
    whole = explainer.explain(function, BACKGROUND[:5], rng_key=KEY)
    monkeypatch.setattr("kpp_surrogates.local_linear._MAX_ENTRIES", 2 * SIZE * 4)
    parts = explainer.explain(function, BACKGROUND[:5], rng_key=KEY)
    np.testing.assert_allclose(parts.values, whole.values, **tolerance())
    np.testing.assert_allclose(parts.variance, whole.variance, **tolerance())


WRONG = [
    ({"num_perturbations": 2}, "`num_perturbations` must be at least 3, got 2"),
    ({"kernel_width": 0.0}, "`kernel_width` must be positive, got 0.0"),
    ({"discretize": "entropy"}, "`discretize` must be one of .*'quartile', 'decile'.*, got 'entropy'"),
    ({"discretize": "quartile", "around": "instance"}, "`around` must be 'background' with `discretize`"),
    ({"around": "mean"}, r"`around` must be one of \('background', 'instance'\), got 'mean'"),
]


@pytest.mark.parametrize("cls", [LIME, BayesLIME])
@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_options_are_refused(cls, options, message):
    with pytest.raises(ValueError, match=message):
        cls(BACKGROUND, **options)


def test_a_wrong_penalty_category_or_key_is_refused():
    with pytest.raises(ValueError, match="`penalty` must be positive, got 0"):
        LIME(BACKGROUND, penalty=0)
    for wrong, message in (([4], "positions from 0 to 3, got .4."), (["color"], "unknown feature name 'color'")):
        explainer = dataclasses.replace(LIME(BACKGROUND, **OPTIONS), categorical=wrong)
        with pytest.raises(ValueError, match=message):
            explainer.explain(function, X, rng_key=KEY)
    with pytest.raises(TypeError, match="`rng_key` must be given, since 'lime' samples"):
        LIME(BACKGROUND).explain(function, X)
