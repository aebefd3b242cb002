"""Kernel Bayes' rule: discrete posteriors, a Gaussian model, the published formula, and conditioning as a case."""

from __future__ import annotations

import equinox as eqx
import numpy as np
import pytest

from kpp.embeddings import ConditionalMeanEmbedding, KernelBayesRule
from kpp.features import RandomFourier
from kpp.kernels import RBF, Categorical

RNG = np.random.default_rng(0)
X, Y, U = RNG.normal(size=(7, 2)), RNG.normal(size=(7, 1)), RNG.normal(size=(4, 2))
GAMMA, QUERY = np.array([0.5, 0.4, 0.3, -0.2]), np.array([[-0.5], [0.8]])
LIKELIHOOD = ConditionalMeanEmbedding(kernel=RBF(0.8), input_kernel=RBF(1.1), inputs=X, points=Y, regularization=0.02)

# Numbers of the pairs (x, y): P(x) = (3, 4, 5) / 12, and P(y | x) are the rows divided by their sums.
COUNTS = np.array([[1, 2, 0], [1, 1, 2], [0, 1, 4]])
PRIOR = np.array([0.5, 0.2, 0.3])
STATES = np.arange(3.0)[:, None]

weights = eqx.filter_jit(lambda posterior, query: posterior.weights(query))
feature_map = eqx.filter_jit(lambda kernel, x: kernel.feature_map(x))


def discrete_posterior(epsilon, delta):
    """The weight of each state of X given each state of Y, with kernels that are 1 for equal states and otherwise 0."""
    x, y = np.repeat(np.indices(COUNTS.shape).reshape(2, -1), COUNTS.ravel(), axis=1)
    likelihood = ConditionalMeanEmbedding(
        kernel=Categorical(), input_kernel=Categorical(), inputs=STATES[x], points=STATES[y], regularization=epsilon
    )
    found = weights(KernelBayesRule(likelihood, STATES, delta, PRIOR), STATES)
    return np.stack([np.asarray(found)[x == state].sum(axis=0) for state in range(3)])


@pytest.mark.slow
def test_without_regularization_it_is_the_rule_of_bayes():
    joint = PRIOR[:, None] * COUNTS / COUNTS.sum(axis=1, keepdims=True)
    # The regularizations change masses of at least 0.1 by the factors 1 + 1e-9 and 1 + 1e-14 / 0.01.
    np.testing.assert_allclose(discrete_posterior(1e-10, 1e-14), joint / joint.sum(axis=0), atol=1e-8)


def test_regularization_of_a_discrete_law_in_closed_form(tolerance):
    # Equal states share one row of the matrices: the sum rule divides by n_x + n eps, the inverse 1 / q of the mass of
    # y becomes q / (q^2 + delta).
    epsilon, delta = 0.05, 0.02
    joint = (PRIOR / (COUNTS.sum(axis=1) + COUNTS.sum() * epsilon))[:, None] * COUNTS
    mass = joint.sum(axis=0)
    np.testing.assert_allclose(discrete_posterior(epsilon, delta), joint * mass / (mass**2 + delta), **tolerance())


def published(delta, gram, sections):
    """The weights of the paper: its matrix R times the sections of the query."""

    def k(first, second):
        return np.exp(-((first[:, None] - second[None]) ** 2).sum(axis=2) / 2 / 1.1**2)

    masses = np.linalg.solve(k(X, X) + 7 * 0.02 * np.eye(7), k(X, U) @ GAMMA)
    scaled = masses[:, None] * gram
    return scaled @ np.linalg.solve(scaled @ scaled + delta * np.eye(7), masses[:, None] * sections)


@pytest.mark.slow
def test_weights_are_the_published_ones():
    gram, sections = (np.exp(-((Y - other.T) ** 2) / 2 / 0.8**2) for other in (Y, QUERY))
    found = weights(KernelBayesRule(LIKELIHOOD, U, 1e-3, GAMMA), QUERY)
    # The formula squares the condition number, of about 1e3 here.
    np.testing.assert_allclose(found, published(1e-3, gram, sections), rtol=1e-9)


@pytest.mark.slow
def test_features_of_the_condition_give_the_same_weights():
    kernel = RandomFourier(RNG.normal(size=(2, 1)), 0.8)
    likelihood = ConditionalMeanEmbedding(kernel=kernel, input_kernel=RBF(1.1), inputs=X, points=Y, regularization=0.02)
    features, at_query = np.split(np.asarray(feature_map(kernel, np.concatenate([Y, QUERY]))), [7])
    found = weights(KernelBayesRule(likelihood, U, 1e-3, GAMMA), QUERY)
    np.testing.assert_allclose(found, published(1e-3, features @ features.T, features @ at_query.T), rtol=1e-9)


@pytest.mark.slow
def test_with_the_prior_of_the_sample_it_is_the_conditional_mean_embedding():
    # Without the regularization of the prior, the pairs have the weights 1 / n. Then L (L^2 + n^2 delta I)^-1 and
    # (L + n eps I)^-1 tend to the inverse of L, whose eigenvalues are above 0.1 for points that are apart.
    y = np.linspace(-3.0, 3.0, 7)[:, None]
    likelihood = ConditionalMeanEmbedding(
        kernel=RBF(0.5), input_kernel=RBF(0.5), inputs=y + 1.0, points=y, regularization=1e-13
    )
    conditional = ConditionalMeanEmbedding(
        kernel=RBF(0.5), input_kernel=RBF(0.5), inputs=y, points=y + 1.0, regularization=1e-13
    )
    posterior = KernelBayesRule(likelihood, likelihood.inputs, 1e-18)
    pair_weights = eqx.filter_jit(lambda posterior: posterior.pair_weights())(posterior)
    np.testing.assert_allclose(pair_weights, 1 / 7, atol=1e-10)
    np.testing.assert_allclose(weights(posterior, QUERY), weights(conditional, QUERY), atol=1e-9)


@pytest.mark.slow
def test_a_gaussian_prior_and_likelihood():
    # The pairs have X ~ N(0, 1), y = x + 0.5 e; the prior is N(0.5, 0.6^2), so that the posterior mean is known. Over
    # 8 seeds the largest error was 0.098, and .11 is allowed. Without the prior, the first mean would
    # be wrong by 0.27.
    rng = np.random.default_rng(0)
    x, e = rng.normal(size=(2, 300, 1))
    likelihood = ConditionalMeanEmbedding(
        kernel=RBF(0.7), input_kernel=RBF(0.7), inputs=x, points=x + 0.5 * e, regularization=1e-4
    )
    posterior = KernelBayesRule(likelihood, 0.5 + 0.6 * rng.normal(size=(300, 1)), 1e-5)
    query = np.array([[-0.3], [0.5], [1.3]])
    found = x[:, 0] @ np.asarray(weights(posterior, query))
    precision = 1 / 0.36 + 1 / 0.25
    np.testing.assert_allclose(found, (0.5 / 0.36 + query[:, 0] / 0.25) / precision, atol=0.11)


WRONG = [
    ({"regularization": 0.0}, "`regularization` must be positive, got 0"),
    ({"prior_points": U[:0]}, r"`prior_points` must hold at least one point, got an array of shape \(0, 2\)"),
    ({"prior_weights": GAMMA[:3]}, "`prior_points` and `prior_weights` must have the same number of rows, got 4 and 3"),
    ({"prior_weights": GAMMA[:, None]}, r"`prior_weights` must have shape \(m,\).*got shape \(4, 1\)"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_mistakes_are_named(change, message):
    options = {"prior_points": U, "regularization": 0.01, "prior_weights": GAMMA} | change
    with pytest.raises(ValueError, match=message):
        KernelBayesRule(LIKELIHOOD, **options)


def test_a_missing_query_is_named():
    with pytest.raises(ValueError, match="`query` must hold values of the condition, one row each, got None"):
        KernelBayesRule(LIKELIHOOD, U, 0.01).weights()
