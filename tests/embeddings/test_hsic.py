"""HSIC against its definition as a mean over quadruples of rows, and backward elimination against a direct search."""

from __future__ import annotations

import itertools

import equinox as eqx
import numpy as np
import pytest

from kpp.embeddings import hsic, rank_features
from kpp.kernels import RBF, Linear, median_heuristic
from oracles.kernels import rbf

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(7, 3)), RNG.normal(size=(7, 2))
Y[:, 0] += X[:, 0]
KERNELS = (RBF(np.array([1.0, 1.5, 0.8])), RBF(1.2))
compiled_hsic = eqx.filter_jit(hsic)


def over_quadruples(k, m, quadruples):
    """The mean over rows (i, j, q, r) of k_ij m_ij + k_ij m_qr - 2 k_ij m_iq."""
    terms = [k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q]) for i, j, q, r in quadruples]
    return np.mean(terms)


@pytest.mark.parametrize("unbiased", [True, False])
def test_it_is_the_mean_over_quadruples(unbiased, tolerance):
    k, m = rbf(X, X, [1.0, 1.5, 0.8]), rbf(Y, Y, 1.2)
    quadruples = itertools.permutations(range(7), 4) if unbiased else itertools.product(range(7), repeat=4)
    expected = over_quadruples(k, m, quadruples)
    np.testing.assert_allclose(hsic(*KERNELS, X, Y, unbiased=unbiased), expected, **tolerance())
    np.testing.assert_allclose(hsic(*KERNELS[::-1], Y, X, unbiased=unbiased), expected, **tolerance())


def test_of_linear_kernels_it_is_the_squared_covariance(tolerance):
    found = hsic(Linear(1.0), Linear(1.0), X, Y, unbiased=False)
    covariance = (X - X.mean(0)).T @ (Y - Y.mean(0)) / 7
    np.testing.assert_allclose(found, np.sum(covariance**2), **tolerance())


def test_the_unbiased_estimate_is_0_on_average_for_independent_samples():
    rng = np.random.default_rng(1)
    found = [float(compiled_hsic(*KERNELS, rng.normal(size=(7, 3)), rng.normal(size=(7, 2)))) for _ in range(60)]
    assert abs(np.mean(found)) < 4 * np.std(found) / np.sqrt(60)  # four standard errors


def eliminate(x, y, kernel_of):
    """Remove, one after the other, the feature without which HSIC is largest; the last one first."""
    left, gone = list(range(x.shape[1])), []
    while len(left) > 1:
        kernel = kernel_of(left)
        values = [float(compiled_hsic(kernel[j], Linear(1.0), x[:, [i for i in left if i != j]], y)) for j in left]
        gone.append(left.pop(int(np.argmax(values))))
    return left + gone[::-1]


@pytest.mark.slow
def test_features_are_removed_as_by_a_direct_search():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(30, 4))
    y = np.sign(x[:, [1]] * x[:, [3]])
    scales = np.asarray(median_heuristic(x))

    def kernel_of(left):
        return {j: RBF(np.sqrt(len(left)) * scales[[i for i in left if i != j]]) for j in left}

    assert rank_features(x, y, Linear(1.0)).tolist() == eliminate(x, y, kernel_of)


@pytest.mark.slow
def test_features_that_matter_only_together_are_found():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(200, 6))
    y = np.sign(x[:, [1]] * x[:, [4]])  # no single feature says anything about y
    assert set(rank_features(x, y, Linear(1.0))[:2].tolist()) == {1, 4}
    assert sorted(rank_features(x, y, Linear(1.0), x_kernel=RBF(2.0), fraction=0.5).tolist()) == list(range(6))


def test_errors():
    with pytest.raises(ValueError, match="`y`"):
        hsic(*KERNELS, X, Y[:5])
    with pytest.raises(ValueError, match=r"`x` must have at least 4 rows, got shape \(3, 3\)"):
        hsic(*KERNELS, X[:3], Y[:3])
    with pytest.raises(ValueError, match="`fraction` must be between 0 and 1, got 1"):
        rank_features(X, Y, Linear(1.0), fraction=1.0)
