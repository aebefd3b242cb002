"""The test of mean independence against refits, all permutations, all signs, and data with and without the property."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.stats import permutation_test
from sklearn.kernel_ridge import KernelRidge

from kpp.causal import CausalDAG, Independence
from kpp.embeddings import independence_test, mean_independence_test
from kpp.kernels import RBF, Constant

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(8, 2)), RNG.normal(size=(8, 1))
Y = X[:, 0] + Z[:, 0] + RNG.normal(size=8)
KEY, KERNEL, GIVEN_KERNEL = jax.random.key(0), RBF(1.5), RBF(0.8)
OPTIONS = {"kernel": KERNEL, "num_permutations": 4999}  # in all tests of eight rows, so that few programs are compiled
GIVEN = OPTIONS | {"given_kernel": GIVEN_KERNEL, "regularization": 0.05}
GRAM, GIVEN_GRAM = np.asarray(KERNEL.gram(X)), np.asarray(GIVEN_KERNEL.gram(Z))
H = np.eye(8) - 1 / 8


def ratio(terms):
    """The statistic from m, by loops over i and j."""
    pairs = [terms[i, j] for i, j in itertools.permutations(range(len(terms)), 2)]
    return sum(pairs) / np.sqrt(2 * sum(pair**2 for pair in pairs))


def residual_maker(ridge):
    """The matrix of the residuals of a ridge regression on Z, from its definition."""
    return H @ (np.eye(8) - GIVEN_GRAM @ np.linalg.inv(GIVEN_GRAM + ridge * np.eye(8))) @ H


def residuals_given(ridge):
    """The residuals of Y, by scikit-learn."""
    centered = Y - Y.mean()
    return H @ (centered - KernelRidge(alpha=ridge, kernel="precomputed").fit(GIVEN_GRAM, centered).predict(GIVEN_GRAM))


def terms_given(e, ridge):
    """The terms m with Z, from residuals of Y and the ridge of the regression of X."""
    return np.outer(e, e) * (residual_maker(ridge) @ GRAM @ residual_maker(ridge).T) * GIVEN_GRAM


@pytest.mark.slow
def test_statistic_is_that_of_the_definition(tolerance):
    e = Y - Y.mean()
    found = mean_independence_test(KEY, Y, X, **OPTIONS)
    np.testing.assert_allclose(found.statistic, ratio(np.outer(e, e) * (H @ GRAM @ H)), **tolerance())
    assert (found.num_permutations, found.num_rows) == (4999, 8)
    found = mean_independence_test(KEY, Y, X, Z, **GIVEN)
    np.testing.assert_allclose(found.statistic, ratio(terms_given(residuals_given(0.4), 0.4)), **tolerance())


@pytest.mark.slow
def test_p_value_is_the_share_of_all_permutations():
    # All 40320 permutations of eight residuals; 4999 random ones have a standard error of at most 0.0071.
    gram = (H @ GRAM @ H) * (1 - np.eye(8))

    def statistic(y):
        e = y - y.mean(axis=-1, keepdims=True)
        return np.sum((e @ gram) * e, axis=-1) / np.sqrt(2 * np.sum((e**2 @ gram**2) * e**2, axis=-1))

    found = mean_independence_test(KEY, Y, X, **OPTIONS)
    exact = permutation_test(
        (Y,),
        lambda y, axis: statistic(np.moveaxis(y, axis, -1)),
        permutation_type="pairings",
        alternative="greater",
        n_resamples=np.inf,
        vectorized=True,
    )
    assert abs(found.p_value - exact.pvalue) < 4 * 0.0071


@pytest.mark.slow
def test_p_value_is_the_share_of_all_signs():
    """Residuals with signs, in units of what the regression leaves of independent noise, are regressed again."""
    maker, e = residual_maker(0.4), residuals_given(0.4)
    noise = e / np.sqrt(np.sum(maker**2, axis=1))
    signs = np.array(list(itertools.product([-1, 1], repeat=8)))
    drawn = [ratio(terms_given(maker @ (sign * noise), 0.4)) for sign in signs]
    exact = np.mean(np.array(drawn) >= ratio(terms_given(e, 0.4)) - 1e-9)
    assert abs(mean_independence_test(KEY, Y, X, Z, **GIVEN).p_value - exact) < 4 * 0.0071


@pytest.mark.slow
def test_two_classes_are_one_label(tolerance):
    labels = (Y > 0).astype(float)
    one = mean_independence_test(KEY, labels, X, **OPTIONS)
    two = mean_independence_test(KEY, np.stack([labels, 1 - labels], axis=1), X, **OPTIONS)
    np.testing.assert_allclose(two.statistic, one.statistic, **tolerance())
    assert two.p_value == one.p_value


def test_without_variation_there_is_nothing_to_reject():
    for y, x in ((np.ones(8), X), (Y, np.ones((8, 2)))):
        assert mean_independence_test(KEY, y, x, **OPTIONS)[:2] == (0.0, 1.0)


@pytest.mark.slow
def test_a_constant_kernel_rejects_nothing():
    assert mean_independence_test(KEY, Y, X, kernel=Constant(1.0)).p_value == 1.0


@pytest.mark.slow
def test_of_many_rows_some_are_drawn():
    x = RNG.normal(size=(25_000, 1))  # a matrix of all pairs would take 5 GB
    y = x[:, 0] + RNG.normal(size=25_000)
    found = mean_independence_test(KEY, y, x, kernel=KERNEL, num_permutations=99, max_rows=60)
    assert found.num_rows == 60
    assert found.p_value == 0.01  # no p-value is lower
    other = mean_independence_test(jax.random.key(1), y, x, kernel=KERNEL, num_permutations=99, max_rows=60)
    assert other.statistic != found.statistic


def hsic_p_value(rng, y, x, num_permutations=99):
    """The p-value of independence by permutations, with RBFs of unit lengthscale."""
    centring = np.eye(len(y)) - 1 / len(y)
    first, second = (centring @ np.exp(-0.5 * (v[:, None] - v[None]) ** 2) for v in (y, x))
    orders = [np.arange(len(y)), *(rng.permutation(len(y)) for _ in range(num_permutations))]
    statistics = np.array([np.sum(first[order][:, order] * second.T) for order in orders])
    return np.mean(statistics >= statistics[0] - 1e-12)


def rejections(draw, num_sets, level=0.05, *, key=0, **options):
    """The share of data sets (y, x[, z]) that the test rejects."""
    p_values = [
        mean_independence_test(jax.random.fold_in(jax.random.key(key), i), *draw(), num_permutations=99, **options)
        for i in range(num_sets)
    ]
    return np.mean([each.p_value <= level for each in p_values])


@pytest.mark.slow
def test_mean_independence_is_not_independence():
    # Bouabid et al. (2023), equation (29): Y and X2 standard normal, X1 = Y 1{X2 > 0}; f = E[Y | X1, X2] = X1 1{X2 > 0}
    # has the mean 0 whatever X2 is, and depends on X2.
    rng = np.random.default_rng(0)
    regression, spouse = [], []
    for _ in range(60):
        y, x2 = rng.normal(size=(2, 60))
        regression.append(y * (x2 > 0))
        spouse.append(x2)
    draws = iter(zip(regression, np.array(spouse)[:, :, None], strict=True))
    # At level 0.05, 60 sets: standard deviation 0.028; three, as for one that is 0.05 + 0.02.
    assert rejections(lambda: next(draws), 60, kernel=KERNEL) <= 0.05 + 3 * 0.028
    independent = [hsic_p_value(rng, f, x2) <= 0.05 for f, x2 in zip(regression, spouse, strict=True)]
    assert np.mean(independent) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("scale", [lambda x: (x > 0).astype(float), np.exp, np.abs], ids=["(29)", "exp", "abs"])
def test_level_is_kept_whatever_the_spread(scale):
    # 400 sets at level 0.05: standard deviation 0.011; four, and 0.02 for what is lost to so few rows. Permutations of
    # e' K e itself reject 0.2 of the sets with the spread exp.
    rng = np.random.default_rng(1)

    def draw():
        x = rng.normal(size=60)
        return rng.normal(size=60) * scale(x), x[:, None]

    assert rejections(draw, 400, kernel=KERNEL) <= 0.05 + 4 * 0.011 + 0.02


@pytest.mark.slow
def test_level_is_exact_under_independence_and_an_effect_is_found():
    # 100 sets at level 0.2: standard deviation 0.04; four.
    rng = np.random.default_rng(2)
    null = rejections(lambda: (rng.exponential(size=60), rng.normal(size=(60, 1))), 100, level=0.2, kernel=KERNEL)
    assert abs(null - 0.2) <= 4 * 0.04

    def draw():
        x = rng.normal(size=(60, 1))
        return np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=60), x

    assert rejections(draw, 30, level=0.2, kernel=KERNEL) >= 0.8


def confounded(rng, n, effect):
    """Y and X that both follow a curve of Z, and an effect of X on the mean of Y."""
    z, noise, other = rng.normal(size=(3, n))
    x = np.sin(2 * z) + 0.5 * noise
    return np.sin(2 * z) + effect(x, z) + 0.5 * other, x[:, None], z[:, None]


@pytest.mark.nightly
def test_an_effect_that_changes_sign_is_found_given_its_confounder():
    """The page of measured intervals has the levels."""
    rng = np.random.default_rng(4)
    assert rejections(lambda: confounded(rng, 120, lambda x, z: 0.7 * x * z), 60) >= 0.8


def test_statement_names_columns_of_a_frame():
    frame = pd.DataFrame({"y": Y, "a": X[:, 0], "b": X[:, 1], "z": Z[:, 0], "text": list("abcdefgh")})
    found = independence_test(KEY, frame, Independence("y", ("a", "b")), **OPTIONS)
    assert found == mean_independence_test(KEY, Y, X, **OPTIONS)
    graph = CausalDAG([("z", "y"), ("y", "c"), ("a", "c"), ("b", "c")])
    found = independence_test(KEY, frame, graph.collider_partition("y").independence, **GIVEN)
    assert found == mean_independence_test(KEY, Y, X, Z, **GIVEN)
    for statement, message in (
        (Independence("y", ("c",)), r"`frame` lacks the columns \['c'\]"),
        (Independence("y", ("text",)), "`frame` must hold numbers in column 'text'"),
        (Independence("y", ()), "`independence` must say what the outcome is independent of"),
    ):
        with pytest.raises(ValueError, match=message):
            independence_test(KEY, frame, statement)
    with pytest.raises(TypeError, match="`frame` must be a data frame, got ndarray"):
        independence_test(KEY, X, Independence("y", ("a",)))


MISTAKES = [
    ({"y": Y[:5]}, "`y` and `x` must have the same number of rows, got 5 and 8"),
    ({"y": Y[:2], "x": X[:2]}, "`y` must hold at least three rows, got 2"),
    ({"y": Y[:, None, None]}, r"`y` must have shape \(n,\) or \(n, q\), got shape \(8, 1, 1\)"),
    ({"given": Z[:5]}, "`y` and `given` must have the same number of rows, got 8 and 5"),
    ({"given": Z, "regularization": 0.0}, "`regularization` must be positive, got 0"),
    ({"num_permutations": 0}, "`num_permutations` must be at least 1, got 0"),
    ({"y": 1e200 * Y} | OPTIONS, "`y` and the kernels of the rows must be finite, their products, too"),
    ({"max_rows": 2}, "`max_rows` must be at least 3, got 2"),
]


@pytest.mark.parametrize(("changed", "message"), MISTAKES)
def test_mistakes_are_named(changed, message):
    with pytest.raises(ValueError, match=message):
        mean_independence_test(**({"rng_key": KEY, "y": Y, "x": X} | changed))
