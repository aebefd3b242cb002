"""The evidence of an embedding's regression against Gaussian densities with Kronecker covariances by SciPy."""

from __future__ import annotations

import equinox as eqx
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from kpp.data.bags import Bags
from kpp.embeddings import ConditionalMeanEmbedding, ReplicatedConditionalMeanEmbedding, select_regularization
from kpp.features import RandomFourier
from kpp.kernels import RBF

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(4, 2)), RNG.normal(size=(4, 1))
KERNEL, INPUT_KERNEL = RBF(0.7), RBF(1.1)
FEATURES = RandomFourier(np.array([[0.8]]), 1.1)
log_evidence = eqx.filter_jit(lambda embedding: embedding.log_evidence())
gram_of = eqx.filter_jit(lambda kernel, x: kernel.gram(x))


def log_density(gram, covariance, amplitude):
    """The density of the outputs' coordinates: of their inner products, and the Jacobian between the two."""
    density = multivariate_normal.logpdf(gram.ravel(), cov=np.kron(covariance, amplitude * gram))
    return density + 0.5 * len(gram) * np.linalg.slogdet(gram)[1]


def assert_is_the_highest_density(embedding, gram, covariance, tolerance):
    amplitude = np.trace(np.linalg.solve(covariance, gram)) / gram.size
    found = float(log_evidence(embedding))
    np.testing.assert_allclose(found, log_density(gram, covariance, amplitude), **tolerance(factor=10))
    assert found > max(log_density(gram, covariance, factor * amplitude) for factor in (0.9, 1.1))


DENSE, BY_FEATURES = pytest.param(INPUT_KERNEL, id="dense"), pytest.param(FEATURES, id="features")
SLOW_DENSE = pytest.param(INPUT_KERNEL, id="dense", marks=pytest.mark.slow)
SLOW_BY_FEATURES = pytest.param(FEATURES, id="features", marks=pytest.mark.slow)


@pytest.mark.slow_variants("dense")
@pytest.mark.parametrize("kernel", [DENSE, SLOW_BY_FEATURES])
def test_evidence_of_pairs(kernel, tolerance):
    embedding = ConditionalMeanEmbedding(kernel=KERNEL, input_kernel=kernel, inputs=Y, points=X, regularization=0.05)
    covariance = np.asarray(gram_of(kernel, Y)) + 4 * 0.05 * np.eye(4)
    assert_is_the_highest_density(embedding, np.asarray(gram_of(KERNEL, X)), covariance, tolerance)


@pytest.mark.slow_variants("features")
@pytest.mark.parametrize("kernel", [SLOW_DENSE, BY_FEATURES])
def test_evidence_of_bags_of_unequal_sizes(kernel, tolerance):
    embedding = ReplicatedConditionalMeanEmbedding(
        kernel=KERNEL, input_kernel=kernel, bags=Bags.create(X, [0, 1, 1, 2], Y[:3]), regularization=0.05
    )
    means = np.array([[1, 0, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0, 1]])
    gram = means @ np.asarray(gram_of(KERNEL, X)) @ means.T
    covariance = np.asarray(gram_of(kernel, Y[:3])) + 4 * 0.05 * np.diag([1, 0.5, 1])
    assert_is_the_highest_density(embedding, gram, covariance, tolerance)


@pytest.mark.slow
def test_selection_takes_the_highest_evidence_and_regularizes_noise_more():
    x, noise = np.random.default_rng(1).normal(size=(2, 60, 1))
    chosen = [
        select_regularization(
            ConditionalMeanEmbedding(kernel=RBF(1.0), input_kernel=RBF(1.0), inputs=x, points=z, regularization=1.0),
            criterion="evidence",
        )
        for z in (np.sin(2 * x) + 0.1 * noise, noise)
    ]
    for case in chosen:
        assert float(case.embedding.regularization) == case.grid[np.argmin(case.losses)]
    assert chosen[0].embedding.regularization < chosen[1].embedding.regularization


def test_mistakes_are_named():
    embedding = ConditionalMeanEmbedding(
        kernel=KERNEL, input_kernel=INPUT_KERNEL, inputs=Y, points=X, regularization=0.05
    )
    with pytest.raises(ValueError, match=r"`criterion` must be one of \('loss', 'evidence'\), got 'aic'"):
        select_regularization(embedding, criterion="aic")
    with pytest.raises(ValueError, match="`num_folds` must be None for the criterion 'evidence', got 2"):
        select_regularization(embedding, criterion="evidence", num_folds=2)
