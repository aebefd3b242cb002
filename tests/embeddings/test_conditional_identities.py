"""Identities of conditional expectation: the tower property, linearity, and witnesses of two conditional embeddings."""

from __future__ import annotations

import equinox as eqx
import numpy as np
import pytest

from kpp.data.bags import Bags
from kpp.embeddings import (
    ConditionalMeanEmbedding,
    MeanEmbedding,
    ReplicatedConditionalMeanEmbedding,
    ShrinkageConditionalMeanEmbedding,
    witness,
)
from kpp.functions import RKHSFunction
from kpp.kernels import RBF, Matern32

RNG = np.random.default_rng(0)
BAG = np.repeat(np.arange(4), [2, 1, 3, 2])
X, Y = RNG.normal(size=(8, 2)), np.array([[-1.5], [-0.4], [0.5], [1.6]])
QUERY, ELSEWHERE = np.array([[-1.0], [0.0], [1.0]]), RNG.normal(size=(3, 2))
KERNEL, INPUT_KERNEL = RBF(0.9, 1.3), Matern32(0.7)
FUNCTION = RKHSFunction(KERNEL, ELSEWHERE, np.array([1.0, -2.0, 0.5]), 0.3)


def embeddings(regularization):
    bags = Bags.create(X, BAG, Y)
    return {
        "points": ConditionalMeanEmbedding(
            kernel=KERNEL, input_kernel=INPUT_KERNEL, inputs=Y[BAG], points=X, regularization=regularization
        ),
        "shrinkage": ShrinkageConditionalMeanEmbedding(
            kernel=KERNEL, input_kernel=INPUT_KERNEL, bags=bags, regularization=regularization
        ),
        "replicated": ReplicatedConditionalMeanEmbedding(
            kernel=KERNEL, input_kernel=INPUT_KERNEL, bags=bags, regularization=regularization
        ),
    }


@eqx.filter_jit
def expectations(embedding):
    """Expectations of f at the inputs and at the queries, then what else they may be computed from."""
    of_values = embedding.expectation(FUNCTION(X), QUERY)
    at_inputs = embedding.expectation(FUNCTION, Y)
    found = embedding.expectation(FUNCTION, QUERY)
    return at_inputs, found, of_values, embedding.weights(QUERY), embedding.evaluate(ELSEWHERE, QUERY)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("points", "replicated")]


@pytest.mark.slow_variants("shrinkage")
@pytest.mark.parametrize("name", ["shrinkage", *SLOW])
def test_expectation_is_the_inner_product_with_the_embedding(name, tolerance):
    # <f, mu_y> for f in the space, from f's sections, and the weighted sum of its values; the constant counts with the
    # sum of the weights in the second.
    _, found, of_values, weights, sections = expectations(embeddings(0.02)[name])
    expected = np.asarray(sections) @ np.asarray(FUNCTION.coefficients) + 0.3 * np.asarray(weights).sum(0)
    np.testing.assert_allclose(found, expected, **tolerance())
    np.testing.assert_allclose(of_values, expected, **tolerance())


@pytest.mark.parametrize("name", ["shrinkage", SLOW[1]])
def test_mean_of_conditional_expectations_is_the_mean(name, tolerance):
    # E[E[f(X) | Y]] = E[f(X)] on the sample, as the regularization goes to 0: the expectation at the covariate of a bag
    # is then the mean over the bag.
    found = np.asarray(expectations(embeddings(1e-13)[name])[0])
    sizes, values = np.bincount(BAG), np.asarray(FUNCTION(X))
    np.testing.assert_allclose(found, np.bincount(BAG, values) / sizes, **tolerance(factor=10))
    np.testing.assert_allclose(np.average(found, weights=sizes), values.mean(), **tolerance(factor=10))


@pytest.mark.slow
def test_tower_property_through_the_space_of_the_condition(tolerance):
    # y -> E[f(X) | y] lies in the space of the condition's kernel: its mean under the embedding of Y is the mean of the
    # conditional expectations, for any regularization.
    found = np.asarray(expectations(embeddings(0.02)["shrinkage"])[1])
    system = np.asarray(INPUT_KERNEL.gram(Y)) + 4 * 0.02 * np.eye(4)
    means = np.bincount(BAG, np.asarray(FUNCTION(X))) / np.bincount(BAG)
    regression = RKHSFunction(INPUT_KERNEL, Y, np.linalg.solve(system, means))
    through_y = MeanEmbedding(INPUT_KERNEL, QUERY).expectation(regression)
    np.testing.assert_allclose(found.mean(), through_y[0], **tolerance())


@pytest.mark.slow
def test_tower_property_of_a_chain():
    # W -> Y -> X, standard normal with correlations 0.8 and 0.8: E[cos X | w] = cos(0.64 w) exp(-(1 - 0.64^2) / 2).
    # Conditioning first on Y, then that on W, gives the same; each of the two regressions on 500 pairs has an error of
    # about 0.5 sqrt(10 / 500) = 0.07 and the second averages that of the first; twice that is allowed.
    w, e1, e2 = np.random.default_rng(1).normal(size=(3, 500, 1))
    y = 0.8 * w + 0.6 * e1
    x = 0.8 * y + 0.6 * e2
    kernels = {"kernel": RBF(1.0), "input_kernel": RBF(1.0)}
    given_y, given_w = (
        ConditionalMeanEmbedding(**kernels, inputs=a, points=b, regularization=1e-3) for a, b in ((y, x), (w, y))
    )
    through = eqx.filter_jit(lambda first, then: then.expectation(first.expectation(np.cos(x[:, 0]), y), QUERY))
    found = through(given_y, given_w)
    expected = np.cos(0.64 * QUERY[:, 0]) * np.exp(-(1 - 0.64**2) / 2)
    np.testing.assert_allclose(found, expected, atol=0.14)


@eqx.filter_jit
def compare(first, second):
    difference = witness(first, second, QUERY, QUERY)
    norms = first.mmd_squared(second, QUERY, QUERY)
    values = first.evaluate(ELSEWHERE, QUERY) - second.evaluate(ELSEWHERE, QUERY)
    return difference(ELSEWHERE).T, values, difference.coefficients, norms


@pytest.mark.slow
def test_witness_of_two_conditional_embeddings(tolerance):
    first = embeddings(0.02)["shrinkage"]
    second = eqx.tree_at(lambda tree: tree.bags, first, Bags.create(X + 0.5, np.repeat(np.arange(4), 2), Y))
    found, values, coefficients, distances = map(np.asarray, compare(first, second))
    np.testing.assert_allclose(found, values, **tolerance())
    gram = np.asarray(KERNEL.gram(np.concatenate([first.points, second.points])))
    norms = np.sum(coefficients * (gram @ coefficients), axis=0)
    np.testing.assert_allclose(np.diagonal(distances), norms, **tolerance())
