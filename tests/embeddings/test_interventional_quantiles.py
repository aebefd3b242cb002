"""Distribution functions and quantiles against NumPy's weighted ones and a normal distribution."""

from __future__ import annotations

import equinox as eqx
import numpy as np
import pytest
from scipy.stats import norm

from kpp.embeddings import (
    BayesianConditionalMeanEmbedding,
    ConditionalMeanEmbedding,
    MeanEmbedding,
    interventional_cdf,
    interventional_quantiles,
)
from kpp.kernels import RBF

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 1)), RNG.normal(size=(40, 1))
QUERY, LEVELS = np.array([[-0.5], [0.0], [1.0]]), np.array([0.05, 0.25, 0.5, 0.9, 1.0])
EMBEDDING = ConditionalMeanEmbedding(kernel=RBF(1.0), input_kernel=RBF(0.8), inputs=X, points=Y, regularization=0.01)
POSITIVE = ConditionalMeanEmbedding(
    kernel=RBF(1.0), input_kernel=RBF(0.8), inputs=X, points=Y, regularization=1e6
)  # the weights are those of a kernel smoother
THRESHOLDS = np.concatenate([np.sort(Y[:, 0]), [-9.0, 0.0, 0.7, 9.0]])


@eqx.filter_jit
def distribution(embedding):
    quantiles = interventional_quantiles(embedding, QUERY, LEVELS)
    doubled = interventional_quantiles(embedding, QUERY, LEVELS, values=2 * Y[:, 0])
    return embedding.weights(QUERY), interventional_cdf(embedding, QUERY, THRESHOLDS), quantiles, doubled


@pytest.mark.slow
def test_quantiles_are_those_of_numpy():
    weights, _, found, _ = distribution(POSITIVE)
    for row, column in zip(found, np.asarray(weights).T, strict=True):
        np.testing.assert_array_equal(row, np.quantile(Y[:, 0], LEVELS, weights=column, method="inverted_cdf"))


@pytest.mark.slow
def test_distribution_functions_increase_and_quantiles_invert_them():
    thresholds = THRESHOLDS[:40]
    weights, values, found, _ = map(np.asarray, distribution(EMBEDDING))
    assert (weights < -1e-3).any()  # or there would be nothing to rearrange
    values = values[:, :40]
    assert (np.diff(values, axis=1) >= 0).all()
    raw = np.cumsum(weights[np.argsort(Y[:, 0])], axis=0) / weights.sum(axis=0)
    np.testing.assert_allclose(values, np.sort(np.clip(raw, 0, 1), axis=0).T, rtol=1e-12)
    for row, heights in zip(found, values, strict=True):
        expected = [thresholds[heights >= level - 1e-13].min() for level in LEVELS]
        np.testing.assert_array_equal(row, expected)


@pytest.mark.slow
def test_quantiles_of_equal_weights_are_order_statistics():
    # Sums of 1/40 must not miss a level that they reach but for rounding.
    levels = np.arange(1, 41) / 40
    found = eqx.filter_jit(lambda embedding: interventional_quantiles(embedding, None, levels))(
        MeanEmbedding(RBF(1.0), Y)
    )
    np.testing.assert_array_equal(found[0], np.sort(Y[:, 0]))


def test_distribution_function_counts_what_lies_below(tolerance):
    weights, values, _, _ = map(np.asarray, distribution(POSITIVE))
    expected = [[column[Y[:, 0] <= t].sum() for t in THRESHOLDS[40:]] for column in (weights / weights.sum(axis=0)).T]
    np.testing.assert_allclose(values[:, 40:], expected, **tolerance())


def test_values_stand_for_the_points():
    _, _, quantiles, doubled = distribution(EMBEDDING)
    np.testing.assert_array_equal(doubled, 2 * np.asarray(quantiles))


@pytest.mark.slow
def test_quantiles_of_a_normal_distribution():
    # Y given x is normal with mean 2 x and scale 0.5. The mean error over three samples is 0.041 by a script in NumPy
    # that shares no code with this, and falls with n; with negative weights set to 0 it would be 0.19 at any n.
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2000, 1))
    y = 2 * x + 0.5 * rng.normal(size=(2000, 1))
    embedding = ConditionalMeanEmbedding(
        kernel=RBF(0.5), input_kernel=RBF(0.5), inputs=x, points=y, regularization=1e-3
    )
    levels = np.array([0.1, 0.5, 0.9])
    found = interventional_quantiles(embedding, QUERY, levels)
    assert np.abs(found - (2 * QUERY + norm.ppf(levels, scale=0.5)[None, :])).mean() < 0.08


@pytest.mark.slow
def test_mistakes_are_named():
    with pytest.raises(ValueError, match="`levels` must lie above 0 and at most at 1"):
        interventional_quantiles(EMBEDDING, QUERY, [0.0, 0.5])
    with pytest.raises(ValueError, match="`values` must be given, one number for each support point"):
        interventional_quantiles(MeanEmbedding(RBF(1.0), np.ones((3, 2))), None, [0.5])
    with pytest.raises(ValueError, match="`points` and `values` must have the same number of rows, got 40 and 3"):
        interventional_cdf(EMBEDDING, QUERY, [0.5], values=np.ones(3))
    with pytest.raises(
        ValueError, match="`query` must have weights that sum to something positive, got 0 at position 1"
    ):
        interventional_quantiles(EMBEDDING, np.array([[0.0], [1e3]]), [0.5])
    bayesian = BayesianConditionalMeanEmbedding(
        base_kernel=RBF(1.0), width=2.0, treatment_kernel=RBF(0.8), treatment=X, points=Y, noise_variance=0.1
    )
    with pytest.raises((TypeError, ValueError), match="embedding"):
        interventional_quantiles(bayesian, QUERY, [0.5])
