"""The Tanimoto kernel against sets, scikit-learn's Jaccard distance, and its series of positive semi-definite terms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from sklearn.metrics import pairwise_distances

from kpp_structures import Tanimoto

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def binary():
    rows = (np.random.default_rng(1).uniform(size=(30, 12)) < 0.3).astype(float)
    rows[[4, 9]] = 0.0
    return rows


@pytest.mark.slow
def test_on_zeros_and_ones_it_is_the_jaccard_index_of_sets(binary):
    sets = [set(np.flatnonzero(row)) for row in binary]
    expected = [[len(a & b) / len(a | b) if a | b else 1.0 for b in sets] for a in sets]
    np.testing.assert_allclose(Tanimoto(2.5).gram(binary), 2.5 * np.array(expected), rtol=1e-14)


def test_on_zeros_and_ones_it_is_one_minus_the_jaccard_distance_of_scikit_learn(binary):
    distances = pairwise_distances(binary[:20].astype(bool), binary.astype(bool), metric="jaccard")
    np.testing.assert_allclose(Tanimoto()(binary[:20], binary), 1 - distances, atol=1e-14)


def test_on_counts_it_is_the_formula_one_pair_at_a_time():
    x = RNG.poisson(1.5, size=(8, 6)).astype(float)
    expected = [[a @ b / (a @ a + b @ b - a @ b) for b in x] for a in x]
    np.testing.assert_allclose(Tanimoto().gram(x), expected, rtol=1e-14)


@pytest.mark.slow_variants("rows1")
@pytest.mark.parametrize("rows", [RNG.normal(size=(60, 4)), RNG.poisson(0.4, size=(60, 4)).astype(float)])
def test_it_is_positive_semi_definite_and_the_limit_of_its_series(rows):
    matrix = np.asarray(Tanimoto().gram(rows))
    assert np.linalg.eigvalsh(matrix)[0] > -1e-12
    rows = rows[(rows != 0).any(axis=1)]
    norms = (rows**2).sum(axis=1)
    ratio = rows @ rows.T / (norms[:, None] + norms[None])
    series = sum(ratio**power for power in range(1, 60))
    np.testing.assert_allclose(Tanimoto().gram(rows), series, atol=1e-12)


def test_fingerprints_without_entries_are_equal_to_each_other_alone():
    zero, other = np.zeros((1, 3)), np.array([[1.0, 0.0, 2.0]])
    assert float(Tanimoto(1.7)(zero, zero)[0, 0]) == 1.7
    assert float(Tanimoto(1.7)(zero, other)[0, 0]) == 0.0
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(Tanimoto()(x, x))))(jnp.zeros((2, 3)))
    assert np.all(np.asarray(gradient) == 0.0)


def test_its_gradient_is_that_of_finite_differences():
    x, y = jnp.asarray(RNG.poisson(2.0, size=(2, 5)).astype(float))
    evaluate = jax.jit(jax.value_and_grad(lambda point: Tanimoto(1.3).evaluate(point, y)))
    differences = [(evaluate(x + step)[0] - evaluate(x - step)[0]) / 2e-6 for step in 1e-6 * np.eye(5)]
    np.testing.assert_allclose(evaluate(x)[1], differences, atol=1e-8)


@pytest.mark.parametrize("variance", [-1.0, np.nan, np.inf, dist.Normal(0.0, 1.0)])
def test_a_variance_is_at_least_zero(variance):
    with pytest.raises(ValueError, match="`variance` must be"):
        Tanimoto(variance)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros(3), r"`x1` must have shape \(n, d\)|takes points `x` in arrays of shape"),
        (np.array([[1.0, np.nan, 0.0]]), "`x1` has NaN|NaN"),
        (np.zeros((2, 2)), "same number of features"),
    ],
)
def test_bad_points_are_refused(x, message):
    with pytest.raises(ValueError, match=message):
        Tanimoto()(x, np.ones((2, 3)))
