"""Embeddings on kernels of few features: equal to the exact ones with all points, and to dense formulas with fewer."""

from __future__ import annotations

import equinox as eqx
import numpy as np
import pytest

from kpp.data.bags import Bags
from kpp.embeddings import (
    ConditionalMeanEmbedding,
    ReplicatedConditionalMeanEmbedding,
    select_regularization,
)
from kpp.features import Nystrom, RandomFourier
from kpp.kernels import Matern32

RNG = np.random.default_rng(0)
SIZES = np.array([1, 3, 2, 1, 2])
X, Y = RNG.normal(size=(9, 2)), RNG.normal(size=(9, 1))
BAGS = Bags.create(X, np.repeat(np.arange(5), SIZES), Y[:5])
QUERY, ELSEWHERE = Y[:3] + 0.2, RNG.normal(size=(3, 2))
KERNEL, INPUT_KERNEL, REGULARIZATION = Matern32(0.9), Matern32(1.1), 0.02


@eqx.filter_jit
def parts(embedding):
    values = embedding.evaluate(ELSEWHERE, QUERY), embedding.inner(embedding, QUERY, QUERY)
    return embedding.input_weights(QUERY), *values, embedding.leave_one_out_losses()


def of_pairs(kernel, input_kernel):
    return ConditionalMeanEmbedding(
        kernel=kernel, input_kernel=input_kernel, inputs=Y, points=X, regularization=REGULARIZATION
    )


def of_bags(kernel, input_kernel):
    return ReplicatedConditionalMeanEmbedding(
        kernel=kernel, input_kernel=input_kernel, bags=BAGS, regularization=REGULARIZATION
    )


@pytest.mark.nightly
def test_landmarks_at_all_points_change_nothing():
    exact = of_bags(KERNEL, INPUT_KERNEL)
    by_features = of_bags(Nystrom(KERNEL, X), Nystrom(INPUT_KERNEL, exact.inputs))
    for found, expected in zip(parts(by_features), parts(exact), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


FEATURES = {
    "landmarks": Nystrom(INPUT_KERNEL, Y[[0, 3]]),
    "random": RandomFourier(RNG.normal(size=(1, 1)), 1.1),
    "more than inputs": RandomFourier(RNG.normal(size=(6, 1)), 1.1),
}
CASES = [
    pytest.param(of_pairs, "landmarks", id="landmarks", marks=pytest.mark.slow),
    pytest.param(of_bags, "random", id="random"),
    pytest.param(of_bags, "more than inputs", id="more than inputs", marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize(("build", "name"), CASES)
def test_weights_and_losses_are_the_dense_formula(build, name, tolerance):
    kernel = FEATURES[name]
    inputs, sizes = (Y, np.ones(9)) if build is of_pairs else (Y[:5], SIZES)
    system = np.asarray(kernel.gram(inputs)) + np.diag(9 * REGULARIZATION / sizes)
    expected = np.linalg.solve(system, np.asarray(kernel(inputs, QUERY)))
    embedding = build(KERNEL, kernel)
    inverse, gram = np.linalg.inv(system), np.asarray(embedding.outputs.gram())
    losses = np.diagonal(inverse @ gram @ inverse) / np.diagonal(inverse) ** 2
    found = parts(embedding)
    np.testing.assert_allclose(found[0], expected, **tolerance())
    np.testing.assert_allclose(found[3], losses, **tolerance(factor=10))


@pytest.mark.slow
def test_twenty_thousand_pairs():
    # A matrix of all pairs would take 3.2 GB. cos(Z) given X = x is cos(0.8 x) exp(-0.18) on average for
    # Z | X = x ~ N(0.8 x, 0.36); some 15 degrees of freedom leave an error of about 0.5 sqrt(15 / 20000) = 0.014.
    x, noise = np.random.default_rng(1).normal(size=(2, 20_000, 1))
    z = 0.8 * x + 0.6 * noise
    kernel, input_kernel = (RandomFourier(frequencies) for frequencies in RNG.normal(size=(2, 20, 1)))
    embedding = ConditionalMeanEmbedding(
        kernel=kernel, input_kernel=input_kernel, inputs=x, points=z, regularization=1e-3
    )
    query = np.array([[-1.0], [0.0], [1.0]])
    chosen = select_regularization(embedding, np.logspace(-6, 0, 4)).embedding
    found, distances = eqx.filter_jit(
        lambda embedding: (
            embedding.expectation(np.cos(z[:, 0]), query),
            embedding.mmd_squared(embedding, query, query),
        )
    )(chosen)
    np.testing.assert_allclose(found, np.cos(0.8 * query[:, 0]) * np.exp(-0.18), atol=0.05)
    np.testing.assert_allclose(np.diagonal(distances), 0.0, atol=1e-10)
