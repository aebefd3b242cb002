"""The witness and the two-sample test against sums over pairs, SciPy's permutation test, and 2^d coalitions."""

from __future__ import annotations

import itertools
import math

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy.stats import permutation_test

import kpp
from kpp.embeddings import ConditionalMeanEmbedding, MeanEmbedding, two_sample_test, witness
from kpp.kernels import RBF, Matern32

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(6, 3)), RNG.normal(size=(5, 3)) + np.array([1.0, 0.0, 0.0])
KERNEL = RBF(np.array([1.0, 1.5, 0.8]))


POOLED = np.concatenate([X, Z])
GRAM = np.asarray(KERNEL.gram(POOLED))
evaluate = eqx.filter_jit(lambda function, x: function(x))


def u_statistic(first, second):
    """The statistic of two sets of rows of the points put together."""

    def within(rows):
        gram = GRAM[np.ix_(rows, rows)]
        return (gram.sum() - np.trace(gram)) / (len(rows) * (len(rows) - 1))

    return within(first) + within(second) - 2 * GRAM[np.ix_(first, second)].mean()


def test_witness_is_the_difference_of_the_means(tolerance):
    found = np.asarray(evaluate(witness(MeanEmbedding(KERNEL, X), MeanEmbedding(KERNEL, Z)), POOLED))
    np.testing.assert_allclose(found, GRAM[:6].mean(0) - GRAM[6:].mean(0), **tolerance())
    distance = GRAM[:6, :6].mean() - 2 * GRAM[:6, 6:].mean() + GRAM[6:, 6:].mean()
    np.testing.assert_allclose(found[:6].mean() - found[6:].mean(), distance, **tolerance())


@pytest.mark.slow
def test_witness_of_conditional_embeddings_has_an_output_a_query(tolerance):
    conditional = ConditionalMeanEmbedding(
        kernel=KERNEL, input_kernel=RBF(1.0), inputs=X[:, :1], points=X, regularization=0.1
    )
    query = np.array([[-1.0], [1.0]])
    found = evaluate(witness(conditional, MeanEmbedding(KERNEL, Z), query), POOLED)
    weights = np.asarray(conditional.weights(query))
    np.testing.assert_allclose(found, GRAM[:, :6] @ weights - GRAM[:, 6:].mean(1)[:, None], **tolerance())
    with pytest.raises(ValueError, match="`other_query` must hold as many queries as `query`, 2, or one, got 3"):
        witness(conditional, conditional, query, X[:3, :1])
    with pytest.raises(ValueError, match="`other` must have the same kernel"):
        witness(MeanEmbedding(KERNEL, X), MeanEmbedding(Matern32(1.0), Z))


@pytest.mark.slow
def test_shapley_values_of_the_witness_are_those_of_all_coalitions(tolerance):
    function = witness(MeanEmbedding(KERNEL, X), MeanEmbedding(KERNEL, Z))
    point, background = X[0], POOLED

    def value(coalition):
        imputed = background.copy()
        imputed[:, list(coalition)] = point[list(coalition)]
        return float(np.asarray(evaluate(function, imputed)).mean())

    expected = np.zeros(3)
    for j in range(3):
        for size in range(3):
            weight = math.factorial(size) * math.factorial(2 - size) / math.factorial(3)
            for others in itertools.combinations([k for k in range(3) if k != j], size):
                expected[j] += weight * (value((*others, j)) - value(others))
    found = kpp.explain(function, point[None], value_function="interventional", background=background)
    np.testing.assert_allclose(np.asarray(found.values).ravel(), expected, **tolerance())


@pytest.mark.slow
def test_statistic_is_the_unbiased_one(tolerance):
    found = two_sample_test(jax.random.key(0), KERNEL, X, Z, num_permutations=99)
    np.testing.assert_allclose(found.statistic, u_statistic(np.arange(6), np.arange(6, 11)), **tolerance())
    np.testing.assert_array_equal(found.witness.coefficients, np.repeat([1 / 6, -1 / 5], [6, 5]))
    assert found.p_value == (1 + np.sum(found.permuted >= found.statistic - 1e-13)) / 100


@pytest.mark.slow
def test_p_value_is_the_share_of_all_splits():
    # All 462 splits of 11 points, by SciPy; 19999 random ones have a standard error of at most 0.0036.
    exact = permutation_test(
        (np.arange(6), np.arange(6, 11)),
        u_statistic,
        permutation_type="independent",
        alternative="greater",
        n_resamples=np.inf,
    ).pvalue
    found = two_sample_test(jax.random.key(0), KERNEL, X, Z, num_permutations=19_999)
    assert abs(found.p_value - exact) < 4 * 0.0036


@pytest.mark.slow
def test_level_is_kept_and_a_shift_is_found():
    # The p-value of equal distributions is uniform: of 100 tests at level 0.2, 20 reject, with a standard deviation of
    # 4 (four are allowed).
    rng, rejected = np.random.default_rng(1), {0.0: 0, 1.5: 0}
    for seed, shift in itertools.product(range(100), rejected):
        x, z = rng.normal(size=(6, 3)), rng.normal(shift, size=(5, 3))
        rejected[shift] += two_sample_test(jax.random.key(seed), KERNEL, x, z, num_permutations=99).p_value <= 0.2
    assert 4 <= rejected[0.0] <= 36
    assert rejected[1.5] >= 80


MISTAKES = [
    ({"first": X[:1]}, "`first` must hold at least two points, got 1"),
    ({"second": Z[:, :2]}, r"`second` must have 3 columns \(features\), got shape \(5, 2\)"),
    ({"num_permutations": 0}, "`num_permutations` must be at least 1, got 0"),
]


@pytest.mark.parametrize(("changed", "message"), MISTAKES)
def test_mistakes_are_named(changed, message):
    with pytest.raises(ValueError, match=message):
        two_sample_test(**({"rng_key": jax.random.key(0), "kernel": KERNEL, "first": X, "second": Z} | changed))
