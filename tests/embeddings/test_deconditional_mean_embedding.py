"""DeconditionalMeanEmbedding against dense formulas, ridge regression on explicit features, and reference vectors."""

from __future__ import annotations

import equinox as eqx
import numpy as np
import pytest

from kpp.data.bags import Bags
from kpp.embeddings import (
    ConditionalMeanEmbedding,
    DeconditionalMeanEmbedding,
    ReplicatedConditionalMeanEmbedding,
    ShrinkageConditionalMeanEmbedding,
    select_regularization,
)
from kpp.features import RandomFourier
from kpp.kernels import RBF

RNG = np.random.default_rng(0)
BAG = np.repeat(np.arange(4), [2, 1, 3, 2])
X, Y = RNG.normal(size=(8, 2)), np.array([[-1.5], [-0.4], [0.5], [1.6]])
TARGETS, QUERY, Z = np.array([[-1.2], [0.1], [1.3]]), RNG.normal(size=(5, 2)), RNG.normal(size=3)
KERNEL, INPUT_KERNEL, REGULARIZATION = RBF(0.8, 1.3), RBF(0.7), 0.01
CONDITIONALS = {
    "points": ConditionalMeanEmbedding(
        kernel=KERNEL, input_kernel=INPUT_KERNEL, inputs=Y[BAG], points=X, regularization=REGULARIZATION
    ),
    "shrinkage": ShrinkageConditionalMeanEmbedding(
        kernel=KERNEL, input_kernel=INPUT_KERNEL, bags=Bags.create(X, BAG, Y), regularization=REGULARIZATION
    ),
    "replicated": ReplicatedConditionalMeanEmbedding(
        kernel=KERNEL, input_kernel=INPUT_KERNEL, bags=Bags.create(X, BAG, Y), regularization=REGULARIZATION
    ),
}


@eqx.filter_jit
def recover(embedding):
    return embedding.weights(QUERY), embedding.expectation(Z, QUERY), embedding.function(Z)(QUERY)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["replicated", "points"])  # their weights are of two lengths
def test_weights_and_function_are_the_dense_formula(name, tolerance):
    conditional = CONDITIONALS[name]
    a = np.asarray(conditional.weights(TARGETS))
    q = a.T @ np.asarray(KERNEL.gram(X)) @ a + 3 * 0.05 * np.eye(3)
    expected = np.linalg.solve(q, a.T @ np.asarray(KERNEL(X, QUERY)))
    weights, expectation, function = recover(DeconditionalMeanEmbedding(conditional, TARGETS, 0.05))
    np.testing.assert_allclose(weights, expected, **tolerance())
    np.testing.assert_allclose(expectation, expected.T @ Z, **tolerance())
    np.testing.assert_allclose(function, expected.T @ Z, **tolerance())


@pytest.mark.slow
def test_mean_of_a_conditional_mean_process(root):
    vectors = np.load(root / "tests" / "data" / "cmp.npz")
    kernel, input_kernel = RBF(vectors["in_lx"]), RBF(vectors["in_ly"])
    x, y, targets = (vectors[f"in_{name}"] for name in ("X", "Y", "Yt"))
    conditional = ConditionalMeanEmbedding(
        kernel=kernel, input_kernel=input_kernel, inputs=y, points=x, regularization=vectors["in_lam"]
    )
    embedding = DeconditionalMeanEmbedding(conditional, targets, vectors["in_s2"] / len(targets))
    mean = eqx.filter_jit(lambda embedding: embedding.expectation(vectors["in_z"], vectors["in_Xq"]))(embedding)
    np.testing.assert_allclose(mean, vectors["out_mean"], rtol=1e-7, atol=1e-10)


@eqx.filter_jit
def condition_and_back(conditional):
    f = DeconditionalMeanEmbedding(conditional, TARGETS, 0.01).function(Z)
    recovered = DeconditionalMeanEmbedding(conditional, TARGETS, 1e-12).function(conditional.expectation(f, TARGETS))
    return f(QUERY), recovered(QUERY), conditional.inner(conditional, TARGETS, TARGETS)


@pytest.mark.slow
def test_undoes_conditioning_on_its_range():
    # f in the span of the embeddings at the targets: its conditional expectations there say all about it. What the
    # regularization of 1e-12 leaves is 3e-12 over the lowest eigenvalue of Q, above 1e-2 here, a factor of 3e-10.
    f, recovered, q = condition_and_back(CONDITIONALS["shrinkage"])
    assert np.linalg.eigvalsh(np.asarray(q))[0] > 1e-2
    np.testing.assert_allclose(recovered, f, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_minimizes_the_reconstruction_loss(tolerance):
    # With explicit features of both kernels the operator is a matrix, and the loss that of ridge regression, whose
    # normal equations are solved here. There are more targets than features, so the features are used.
    kernel = RandomFourier(RNG.normal(size=(2, 2)), 0.8, 1.3)
    input_kernel = RandomFourier(RNG.normal(size=(3, 1)), 0.7)
    conditional = ConditionalMeanEmbedding(
        kernel=kernel, input_kernel=input_kernel, inputs=Y[BAG], points=X, regularization=REGULARIZATION
    )
    targets, z = RNG.normal(size=(7, 1)), RNG.normal(size=7)
    psi, phi = np.asarray(input_kernel.feature_map(targets)).T, np.asarray(kernel.feature_map(X)).T
    weights = np.asarray(eqx.filter_jit(lambda conditional: conditional.weights(targets))(conditional))
    images = phi @ weights
    operator = np.linalg.solve(images @ images.T + 7 * 0.05 * np.eye(4), images @ psi.T).T
    gradient = (operator @ images - psi) @ images.T / 7 + 0.05 * operator
    np.testing.assert_allclose(gradient, 0.0, atol=1e-12)
    embedding = DeconditionalMeanEmbedding(conditional, targets, 0.05)
    values, function, expectation = eqx.filter_jit(
        lambda embedding: (embedding.evaluate(Y, QUERY), embedding.function(z)(QUERY), embedding.expectation(z, QUERY))
    )(embedding)
    expected = np.asarray(kernel.feature_map(QUERY)) @ operator.T @ np.asarray(input_kernel.feature_map(Y)).T
    np.testing.assert_allclose(values, expected, **tolerance())
    np.testing.assert_allclose(function, expectation, **tolerance())


@pytest.mark.slow
def test_regularization_is_selected_by_what_other_targets_say(tolerance):
    embedding = DeconditionalMeanEmbedding(CONDITIONALS["points"], TARGETS, 0.05)
    chosen = select_regularization(embedding, [0.05, 10.0])
    weights = np.asarray(CONDITIONALS["points"].weights(TARGETS))
    q = weights.T @ np.asarray(KERNEL.gram(X)) @ weights
    gram, losses = np.asarray(INPUT_KERNEL.gram(TARGETS)), []
    for j in range(3):
        rest = np.delete(np.arange(3), j)
        residual = np.ones(3)
        residual[rest] = -np.linalg.solve(q[np.ix_(rest, rest)] + 0.15 * np.eye(2), q[rest, j])
        losses.append(residual @ gram @ residual)
    np.testing.assert_allclose(chosen.losses[0], np.mean(losses), **tolerance(factor=10))


def test_mistakes_are_named():
    embedding = DeconditionalMeanEmbedding(CONDITIONALS["points"], TARGETS, 0.05)
    with pytest.raises(ValueError, match="`points` and `values` must have the same number of rows, got 3 and 2"):
        embedding.function(Z[:2])
    with pytest.raises(ValueError, match="`points` must hold values of the condition, at least one"):
        DeconditionalMeanEmbedding(CONDITIONALS["points"], TARGETS[:0], 0.05)
    with pytest.raises(ValueError, match="`regularization` must be at least 0, got -1"):
        DeconditionalMeanEmbedding(CONDITIONALS["points"], TARGETS, -1.0)
    with pytest.raises(ValueError, match="`query` must hold"):
        embedding.weights()
