"""Embeddings from bags against dense formulas, repeated covariates, refits without a bag, and reference vectors."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.data.bags import Bags
from kpp.embeddings import (
    ConditionalMeanEmbedding,
    MeanEmbedding,
    ReplicatedConditionalMeanEmbedding,
    ShrinkageConditionalMeanEmbedding,
    select_regularization,
)
from kpp.functions import RKHSFunction
from kpp.kernels import RBF

RNG = np.random.default_rng(0)
SIZES = np.array([1, 4, 2, 3, 5])
N, NUM_POINTS = len(SIZES), SIZES.sum()
BAG, EQUAL = np.repeat(np.arange(N), SIZES), np.repeat(np.arange(N), 3)  # both of five bags and fifteen points
X, Y = RNG.normal(size=(NUM_POINTS, 2)), RNG.normal(size=(N, 1))
QUERY, ELSEWHERE = Y[:3] + 0.2, RNG.normal(size=(4, 2))
KERNEL, INPUT_KERNEL, REGULARIZATION = RBF(0.9, 1.3), RBF(1.1), 0.02
GRAM, INPUT_GRAM = np.asarray(KERNEL.gram(X)), np.asarray(INPUT_KERNEL.gram(Y))
SECTIONS = np.asarray(INPUT_KERNEL(Y, QUERY))
MEANS = (BAG == np.arange(N)[:, None]) / SIZES[:, None]
BAG_GRAM = MEANS @ GRAM @ MEANS.T
OTHER = MeanEmbedding(KERNEL, ELSEWHERE)
RIDGES = {
    ShrinkageConditionalMeanEmbedding: N * REGULARIZATION * np.ones(N),
    ReplicatedConditionalMeanEmbedding: NUM_POINTS * REGULARIZATION / SIZES,
}
CLASSES = pytest.mark.parametrize("cls", list(RIDGES), ids=["shrinkage", "replicated"])


def embedding(cls, bag=BAG, regularization=REGULARIZATION):
    return cls(kernel=KERNEL, input_kernel=INPUT_KERNEL, bags=Bags.create(X, bag, Y), regularization=regularization)


def bag_weights(cls):
    return np.linalg.solve(INPUT_GRAM + np.diag(RIDGES[cls]), SECTIONS)


@eqx.filter_jit
def parts(embedding):
    return (
        embedding.weights(QUERY),
        embedding.evaluate(ELSEWHERE, QUERY),
        embedding.inner(embedding, QUERY, QUERY),
        embedding.inner(OTHER, QUERY),
        OTHER.inner(embedding, None, QUERY),
        embedding.mmd_squared(OTHER, QUERY),
        embedding.expectation(X, QUERY),
    )


@pytest.mark.slow
@CLASSES
def test_everything_follows_from_the_weights_of_the_dense_formula(cls, tolerance):
    weights, values, gram, cross, crossed, distances, expectations = parts(embedding(cls))
    expected = MEANS.T @ bag_weights(cls)
    sections = np.asarray(KERNEL(X, ELSEWHERE))
    norms, norm = np.diagonal(expected.T @ GRAM @ expected), np.asarray(KERNEL(ELSEWHERE, ELSEWHERE)).mean()
    inner = (expected.T @ sections).mean(1)
    np.testing.assert_allclose(weights, expected, **tolerance())
    np.testing.assert_allclose(values, expected.T @ sections, **tolerance())
    np.testing.assert_allclose(gram, expected.T @ GRAM @ expected, **tolerance())
    np.testing.assert_allclose(cross[:, 0], inner, **tolerance())
    np.testing.assert_allclose(crossed[0], inner, **tolerance())
    np.testing.assert_allclose(distances[:, 0], norms - 2 * inner + norm, **tolerance())
    np.testing.assert_allclose(expectations, expected.T @ X, **tolerance())


@pytest.mark.slow
@pytest.mark.parametrize("bag", [BAG, EQUAL], ids=["unequal", "equal"])
def test_replicated_is_the_naive_estimator_on_repeated_covariates(bag, tolerance):
    naive = parts(
        ConditionalMeanEmbedding(
            kernel=KERNEL, input_kernel=INPUT_KERNEL, inputs=Y[bag], points=X, regularization=REGULARIZATION
        )
    )
    replicated, shrinkage = (parts(embedding(cls, bag)) for cls in reversed(RIDGES))
    for found, expected in zip(replicated, naive, strict=True):
        np.testing.assert_allclose(found, expected, **tolerance())
    if bag is EQUAL:  # and then, and only then, shrinkage is the same
        for found, expected in zip(shrinkage, naive, strict=True):
            np.testing.assert_allclose(found, expected, **tolerance())
    else:
        assert np.abs(shrinkage[0] - naive[0]).max() > 1e-3


@pytest.mark.slow
def test_inner_products_with_other_bags(tolerance):
    cls = ReplicatedConditionalMeanEmbedding
    other = embedding(ShrinkageConditionalMeanEmbedding, EQUAL)
    found = eqx.filter_jit(lambda first, second: first.inner(second, QUERY, QUERY))(embedding(cls), other)
    expected = (MEANS.T @ bag_weights(cls)).T @ GRAM @ np.asarray(parts(other)[0])
    np.testing.assert_allclose(found, expected, **tolerance())


@pytest.mark.slow
def test_expectations_of_functions_with_draws_are_those_of_their_values(tolerance):
    cls = ShrinkageConditionalMeanEmbedding
    coefficients = RNG.normal(size=(2, 3, 4))
    kernel = RBF(jnp.full((2, 3), 0.7), jnp.ones((2, 3)))
    function = RKHSFunction(kernel, ELSEWHERE, coefficients, jnp.full((2, 3), 0.3), (2, 3))
    expectation = eqx.filter_jit(lambda embedding, function: embedding.expectation(function, QUERY))
    distances = ((X[:, None] - ELSEWHERE) ** 2).sum(-1)
    values = coefficients @ np.exp(-distances / (2 * 0.7**2)).T + 0.3
    np.testing.assert_allclose(
        expectation(embedding(cls), function), values @ MEANS.T @ bag_weights(cls), **tolerance()
    )


def refitted_losses(cls):
    """The definition: refit without each bag, with the same number on the diagonal."""
    losses = np.zeros(N)
    for j in range(N):
        rest = np.delete(np.arange(N), j)
        system = (INPUT_GRAM + np.diag(RIDGES[cls]))[np.ix_(rest, rest)]
        residual = np.zeros(N)
        residual[j], residual[rest] = 1.0, -np.linalg.solve(system, INPUT_GRAM[rest, j])
        losses[j] = residual @ BAG_GRAM @ residual
    return losses


SLOW = pytest.param(ShrinkageConditionalMeanEmbedding, id="shrinkage", marks=pytest.mark.slow)


@pytest.mark.slow_variants("replicated")
@pytest.mark.parametrize("cls", [SLOW, pytest.param(ReplicatedConditionalMeanEmbedding, id="replicated")])
def test_leave_one_out_losses_are_those_of_refits_without_a_bag(cls, tolerance):
    found = eqx.filter_jit(lambda embedding: embedding.leave_one_out_losses())(embedding(cls))
    np.testing.assert_allclose(found, refitted_losses(cls), **tolerance(factor=10))


@pytest.mark.slow
def test_selection_counts_replicated_bags_as_the_naive_estimator_does(tolerance):
    """The naive estimator is refitted without all points of a bag, and its loss is the mean over all points."""
    losses = []
    for j in range(N):
        rest, left = np.flatnonzero(BAG != j), np.flatnonzero(BAG == j)
        repeated = INPUT_GRAM[np.ix_(BAG[rest], BAG[rest])] + NUM_POINTS * REGULARIZATION * np.eye(len(rest))
        weights = np.linalg.solve(repeated, INPUT_GRAM[BAG[rest], j])
        norm = weights @ GRAM[np.ix_(rest, rest)] @ weights
        losses.extend(GRAM[i, i] - 2 * weights @ GRAM[rest, i] + norm for i in left)
    # Over the points of a bag |k(x, .) - mu|^2 averages to |bag mean - mu|^2 and the bag's own spread.
    spread = np.mean(np.diagonal(GRAM) - np.diagonal(BAG_GRAM)[BAG])
    chosen = select_regularization(embedding(ReplicatedConditionalMeanEmbedding), [REGULARIZATION, 10.0])
    np.testing.assert_allclose(chosen.losses[0], np.mean(losses) - spread, **tolerance(factor=10))
    assert float(chosen.embedding.regularization) == chosen.grid[np.argmin(chosen.losses)]


def largest_array(jaxpr):
    """The number of entries of the largest array that a traced program forms."""
    sizes = [variable.aval.size for equation in jaxpr.eqns for variable in equation.outvars]
    inner = [largest_array(part) for equation in jaxpr.eqns for part in jaxprs(equation.params.values())]
    return max([0, *sizes, *inner])


def jaxprs(parameters):
    for parameter in parameters:
        if isinstance(parameter, (tuple, list)):
            yield from jaxprs(parameter)
        elif hasattr(parameter, "eqns") or hasattr(parameter, "jaxpr"):
            yield getattr(parameter, "jaxpr", parameter)


def test_no_matrix_of_all_pairs_of_points_is_formed():
    points, bag = np.zeros((4000, 1)), np.arange(4000) % 20
    bags = Bags.create(points, bag, np.zeros((20, 1)))
    large = ShrinkageConditionalMeanEmbedding(kernel=RBF(1.0), input_kernel=RBF(1.0), bags=bags, regularization=0.1)
    other = MeanEmbedding(RBF(1.0), points[:5])
    traced = jax.make_jaxpr(lambda query: (large.mmd_squared(large, query, query), large.inner(other, query)))
    assert 512**2 <= largest_array(traced(np.zeros((3, 1))).jaxpr) < 1e6  # blocks of 512; all pairs would be 1.6e7


@pytest.mark.slow
def test_reference_vectors(root):
    vectors = np.load(root / "tests" / "data" / "cmp.npz")
    bag = np.repeat(np.arange(4), vectors["in_bag_sizes"].astype(int))
    bags = Bags.create(vectors["in_bag_points"], bag, vectors["in_Yb"])
    weights = eqx.filter_jit(lambda embedding: embedding.input_weights(vectors["in_Yt"]))
    for cls, name in zip(RIDGES, ("shrink", "replicate"), strict=True):
        kernels = {"kernel": KERNEL, "input_kernel": RBF(vectors["in_ly"])}
        found = weights(cls(**kernels, bags=bags, regularization=vectors["in_lam"]))
        np.testing.assert_allclose(found, vectors[f"out_{name}_A"], rtol=1e-7, atol=1e-10)


@CLASSES
def test_mistakes_are_named(cls):
    with pytest.raises(ValueError, match="`bags` must have covariates"):
        cls(kernel=KERNEL, input_kernel=INPUT_KERNEL, bags=Bags.create(X, BAG), regularization=0.1)
    with pytest.raises(ValueError, match="`regularization` must be at least 0, got -1"):
        embedding(cls, regularization=-1.0)
    with pytest.raises(ValueError, match="`query` must hold values of the condition"):
        embedding(cls).weights()
