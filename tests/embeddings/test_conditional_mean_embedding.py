"""ConditionalMeanEmbedding against dense formulas, refits, scikit-learn and a closed form for Gaussians."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

from kpp.embeddings import (
    BayesianConditionalMeanEmbedding,
    ConditionalMeanEmbedding,
    InterventionalMeanEmbedding,
    ReplicatedConditionalMeanEmbedding,
    ShrinkageConditionalMeanEmbedding,
    select_regularization,
)
from kpp.functions import RKHSFunction
from kpp.kernels import RBF

RNG = np.random.default_rng(0)
N = 8
X, Z = RNG.normal(size=(N, 2)), RNG.normal(size=(N, 1))
KERNEL, INPUT_KERNEL, REGULARIZATION = RBF(0.9, 1.3), RBF(1.1), 0.02


GRAM, INPUT_GRAM = np.asarray(KERNEL.gram(Z)), np.asarray(INPUT_KERNEL.gram(X))


def embedding(regularization=REGULARIZATION):
    return ConditionalMeanEmbedding(
        kernel=KERNEL, input_kernel=INPUT_KERNEL, inputs=X, points=Z, regularization=regularization
    )


def refitted_losses(folds, regularization):
    """The definition: refit without each fold, with the same number on the diagonal."""
    losses = np.zeros(N)
    for fold in map(np.asarray, folds):
        rest = np.setdiff1d(np.arange(N), fold)
        regularized = INPUT_GRAM[np.ix_(rest, rest)] + N * regularization * np.eye(len(rest))
        weights = np.linalg.solve(regularized, INPUT_GRAM[np.ix_(rest, fold)])
        norms = np.sum(weights * (GRAM[np.ix_(rest, rest)] @ weights), axis=0)
        cross = np.sum(weights * GRAM[np.ix_(rest, fold)], axis=0)
        losses[fold] = np.diagonal(GRAM)[fold] - 2 * cross + norms
    return losses


@pytest.mark.slow
def test_weights_are_the_dense_formula(tolerance):
    query = X[:3] + 0.2
    gram = INPUT_GRAM + N * REGULARIZATION * np.eye(N)
    expected = np.linalg.solve(gram, np.asarray(INPUT_KERNEL(X, query)))
    np.testing.assert_allclose(embedding().weights(query), expected, **tolerance())
    np.testing.assert_allclose(embedding().evaluate(Z, query), expected.T @ GRAM, **tolerance())


def test_expectations_are_those_of_kernel_ridge_regression(tolerance):
    query = X[:3] + 0.2
    targets = np.stack([Z[:, 0] ** 2, np.sin(Z[:, 0])], axis=1)
    ridge = KernelRidge(alpha=N * REGULARIZATION, kernel="rbf", gamma=0.5 / 1.1**2).fit(X, targets)
    np.testing.assert_allclose(embedding().expectation(targets, query), ridge.predict(query), **tolerance())


def test_expectation_of_a_function_of_the_space_is_its_inner_product(tolerance):
    function = RKHSFunction(KERNEL, RNG.normal(size=(3, 1)), np.array([1.0, -2.0, 0.5]), 0.3)
    weights = np.asarray(embedding().weights(X[:3]))
    expected = weights.T @ np.asarray(function(Z))
    np.testing.assert_allclose(embedding().expectation(function, X[:3]), expected, **tolerance())


@pytest.mark.slow
def test_conditional_expectation_of_a_gaussian_pair():
    # Z | X = x ~ N(0.8 x, 0.36), so E cos(Z) = cos(0.8 x) exp(-0.18). 500 pairs: the error of the estimate is about
    # 0.5 / sqrt(500 / 10) = 0.07 with some ten degrees of freedom; twice that is allowed.
    x, noise = np.random.default_rng(1).normal(size=(2, 500, 1))
    z = 0.8 * x + 0.6 * noise
    query = np.array([[-1.0], [0.0], [1.0]])
    found = ConditionalMeanEmbedding(
        kernel=RBF(1.0), input_kernel=RBF(1.0), inputs=x, points=z, regularization=1e-3
    ).expectation(np.cos(z[:, 0]), query)
    np.testing.assert_allclose(found, np.cos(0.8 * query[:, 0]) * np.exp(-0.18), atol=0.14)


@pytest.mark.slow_variants("0.001")
@pytest.mark.parametrize("regularization", [1e-3, 0.3])
def test_leave_one_out_losses_are_those_of_refits(regularization, tolerance):
    expected = refitted_losses(np.arange(N)[:, None], regularization)
    found = eqx.filter_jit(lambda embedding: embedding.leave_one_out_losses())(embedding(regularization))
    np.testing.assert_allclose(found, expected, **tolerance(factor=10))


@pytest.mark.slow
def test_held_out_losses_are_those_of_refits(tolerance):
    folds = np.array([[0, 3, 5, 7], [1, 2, 4, 6]])
    expected = refitted_losses(folds, REGULARIZATION)
    found = eqx.filter_jit(lambda embedding: embedding.held_out_losses(folds))(embedding())
    np.testing.assert_allclose(found, expected, **tolerance(factor=10))


@pytest.mark.slow
def test_selection_takes_the_lowest_loss(tolerance):
    grid = np.array([1e-4, 1e-2, 1.0])
    chosen = select_regularization(embedding(), grid)
    expected = [refitted_losses(np.arange(N)[:, None], value).mean() for value in grid]
    np.testing.assert_allclose(chosen.losses, expected, **tolerance(factor=10))
    assert float(chosen.embedding.regularization) == grid[np.argmin(expected)]
    folded = select_regularization(embedding(), grid, num_folds=2, rng_key=jax.random.key(0))
    order = np.asarray(jax.random.permutation(jax.random.key(0), N))
    expected = [refitted_losses(np.array_split(order, 2), value).mean() for value in grid]
    np.testing.assert_allclose(folded.losses, expected, **tolerance(factor=10))


@pytest.mark.slow
def test_noise_is_regularized_more():
    x, noise = np.random.default_rng(1).normal(size=(2, 60, 1))
    dependent, independent = (
        ConditionalMeanEmbedding(kernel=RBF(1.0), input_kernel=RBF(1.0), inputs=x, points=z, regularization=1.0)
        for z in (np.sin(2 * x) + 0.1 * noise, noise)
    )
    found = [float(select_regularization(case).embedding.regularization) for case in (dependent, independent)]
    assert found[0] < found[1]


MISTAKES = [
    (lambda: embedding(regularization=-1.0), ValueError, "`regularization` must be at least 0, got -1"),
    (
        lambda: ConditionalMeanEmbedding(
            kernel=KERNEL, input_kernel=KERNEL, inputs=X, points=Z[:3], regularization=0.1
        ),
        ValueError,
        "`inputs`.*`points`",
    ),
    (
        lambda: ConditionalMeanEmbedding(
            kernel=KERNEL, input_kernel=KERNEL, inputs=X[:0], points=Z[:0], regularization=0.1
        ),
        ValueError,
        "at least one pair",
    ),
    (lambda: embedding().weights(), ValueError, "`query` must hold values of the condition"),
    (lambda: select_regularization(embedding(), [0.1, 0.0]), ValueError, "`grid` must hold positive numbers, got 0"),
    (
        lambda: select_regularization(embedding(), num_folds=1),
        ValueError,
        "`num_folds` must be between 2 and 8 \\(the number of inputs\\), got 1",
    ),
    (lambda: select_regularization(embedding(), num_folds=2), TypeError, "`rng_key` must be a single JAX random key"),
]


@pytest.mark.parametrize(("call", "error", "message"), MISTAKES)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_kernels_and_samples_without_names_are_refused():
    """The kernel of the points would come before that of the inputs, and the points after the inputs."""
    arguments = {
        ConditionalMeanEmbedding: (KERNEL, INPUT_KERNEL, X, Z, 0.1),
        InterventionalMeanEmbedding: (KERNEL, INPUT_KERNEL, X, Z, 0.1),
        ShrinkageConditionalMeanEmbedding: (KERNEL, INPUT_KERNEL, None, 0.1),
        ReplicatedConditionalMeanEmbedding: (KERNEL, INPUT_KERNEL, None, 0.1),
        BayesianConditionalMeanEmbedding: (KERNEL, 2.0, INPUT_KERNEL, X, Z, 0.1),
    }
    for cls, given in arguments.items():
        with pytest.raises(TypeError, match="positional argument"):
            cls(*given)
