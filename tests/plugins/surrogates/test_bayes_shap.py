"""BayesSHAP: the published formulas from its own coalitions, and the exact values that it tends to."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest

from kpp.games import as_players
from kpp_surrogates import BayesSHAP, KernelSHAP
from kpp_surrogates.perturbation import Coalitions

RNG = np.random.default_rng(0)
BACKGROUND, X = RNG.normal(size=(20, 4)), RNG.normal(size=(2, 4))
KEY, SIZE = jax.random.key(1), 60


def function(x):
    x = np.asarray(x)
    return np.stack([x[:, 0] * x[:, 1] + 7.0, np.sin(x[:, 2]) * x[:, 3]], axis=1)


def explain(f=function, **options):
    return BayesSHAP(BACKGROUND, progress=False, **{"num_perturbations": SIZE, **options}).explain(f, X, rng_key=KEY)


def kernel(size):
    """The Shapley kernel of four players, and 1 where it is infinite."""
    return 1.0 if size in (0, 4) else 3 / (math.comb(4, size) * size * (4 - size))


@pytest.mark.slow_variants("shapley")
@pytest.mark.parametrize("law", ["shapley", "uniform"])
def test_the_values_are_the_published_posterior(law, tolerance):
    explanation = explain(coalitions=law)
    draws = Coalitions(KEY, BACKGROUND, as_players(None, 4), law).sample(X, SIZE)
    base = function(BACKGROUND).mean(axis=0)
    for point, (rows, z) in enumerate(zip(draws.rows, draws.features, strict=True)):
        weights = np.ones(SIZE) if law == "shapley" else np.array([kernel(size) for size in z.sum(axis=1).astype(int)])
        design, pi = np.column_stack([np.ones(SIZE), z]), np.diag(weights)
        v = np.linalg.inv(design.T @ pi @ design + np.eye(5))
        for output, y in enumerate((function(rows) - base).T):
            mean = v @ design.T @ pi @ y
            residual = y - design @ mean
            variance = (residual @ pi @ residual + mean @ mean) * np.diag(v)[1:] / (SIZE - 2)
            np.testing.assert_allclose(explanation.values[point, :, output], mean[1:], **tolerance(factor=10))
            np.testing.assert_allclose(explanation.variance[point, :, output], variance, **tolerance(factor=10))
    np.testing.assert_allclose(explanation.base_values, base, **tolerance())


@pytest.mark.slow
def test_many_coalitions_tend_to_shapley_values():
    explanation = explain(num_perturbations=100_000)
    exact = KernelSHAP(BACKGROUND, progress=False).explain(function, X)
    scores = (explanation.values - exact.values) / explanation.variance**0.5
    assert float(abs(scores).max()) < 4.0  # sixteen of them
    assert float(explanation.variance.max()) < 1e-3


def test_another_level_and_unit_of_the_predictions_change_nothing_else():
    plain, moved = explain(), explain(lambda x: 10.0 * function(x) + 1e4)
    np.testing.assert_allclose(moved.values, 10 * plain.values, rtol=1e-7, atol=1e-9)  # 1e4 costs four digits
    np.testing.assert_allclose(moved.variance, 100 * plain.variance, rtol=1e-7)


@pytest.mark.slow
def test_a_single_player_has_the_whole_difference():
    explanation = explain(groups={"all": [0, 1, 2, 3]}, num_perturbations=20_000)
    expected = function(X) - function(BACKGROUND).mean(axis=0)
    error = 4 * np.asarray(explanation.variance[:, 0]) ** 0.5
    assert (np.abs(explanation.values[:, 0] - expected) < error).all()


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match="`num_perturbations` must be at least 3, got 0"):
        BayesSHAP(BACKGROUND, num_perturbations=0)
    with pytest.raises(ValueError, match=r"`coalitions` must be one of \('shapley', 'uniform'\), got 'kernel'"):
        BayesSHAP(BACKGROUND, coalitions="kernel")
    with pytest.raises(TypeError, match="`rng_key` must be given, since 'bayes-shap' samples"):
        BayesSHAP(BACKGROUND).explain(function, X)
