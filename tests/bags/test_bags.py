"""Bags against dense averaging matrices, and the mistakes that building them refuses."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from kpp.data.bags import Bags
from kpp.kernels import RBF
from oracles.kernels import rbf

RNG = np.random.default_rng(0)
BAG = RNG.permutation(np.repeat(np.arange(5), [1, 4, 2, 3, 690]))  # more points than one block of the kernel holds
POINTS = RNG.normal(size=(700, 2))
COVARIATES = RNG.normal(size=(5, 1))
KERNEL = RBF(np.array([0.9, 1.2]), 1.3)
AVERAGE = (BAG[None, :] == np.arange(5)[:, None]) / np.bincount(BAG)[:, None]  # (N, n)


@pytest.fixture(scope="module")
def bags():
    return Bags.create(POINTS, BAG, COVARIATES)


def test_points_are_sorted_and_keep_their_bag(bags):
    assert (bags.num_bags, bags.num_points) == (5, 700)
    np.testing.assert_array_equal(bags.sizes, np.bincount(BAG))
    order = np.argsort(BAG, kind="stable")
    np.testing.assert_array_equal(bags.points, POINTS[order])
    np.testing.assert_array_equal(bags.index, BAG[order])
    np.testing.assert_array_equal(bags.covariates, COVARIATES)


@pytest.mark.slow
def test_means_and_their_transpose(bags, tolerance):
    values, weights = RNG.normal(size=(700, 3)), RNG.normal(size=5)
    order = np.argsort(BAG, kind="stable")
    np.testing.assert_allclose(bags.means(values[order]), AVERAGE @ values, **tolerance())
    np.testing.assert_allclose(bags.means(values[order, 0]), AVERAGE @ values[:, 0], **tolerance())
    np.testing.assert_allclose(bags.spread(weights), (AVERAGE.T @ weights)[order], **tolerance())
    np.testing.assert_allclose(bags.centroids(), AVERAGE @ POINTS, **tolerance())


@eqx.filter_jit
def averages(bags, kernel, x):
    return bags.sections(kernel, x), bags.gram(kernel)


@pytest.mark.slow
def test_sections_and_gram_average_the_kernel_matrix(bags, tolerance):
    x = RNG.normal(size=(3, 2))
    sections, gram = averages(bags, KERNEL, x)
    np.testing.assert_allclose(sections, AVERAGE @ rbf(POINTS, x, [0.9, 1.2], 1.3), **tolerance())
    np.testing.assert_allclose(gram, AVERAGE @ rbf(POINTS, POINTS, [0.9, 1.2], 1.3) @ AVERAGE.T, **tolerance())


@pytest.mark.slow
def test_few_points_need_no_blocks(bags, tolerance):
    few, dense = bags.take([3, 1]), AVERAGE[[3, 1]]
    sections, gram = averages(few, KERNEL, POINTS[:3])
    np.testing.assert_allclose(gram, dense @ rbf(POINTS, POINTS, [0.9, 1.2], 1.3) @ dense.T, **tolerance())
    np.testing.assert_allclose(sections, dense @ rbf(POINTS, POINTS[:3], [0.9, 1.2], 1.3), **tolerance())


@pytest.mark.slow
def test_gradients_of_the_gram_matrix(bags, tolerance):
    weights = jnp.asarray(RNG.normal(size=(5, 5)))
    average = jnp.asarray(AVERAGE)
    dense = lambda scale: jnp.sum(weights * (average @ RBF(scale).gram(jnp.asarray(POINTS)) @ average.T))  # noqa: E731
    blocks = lambda scale: jnp.sum(weights * bags.gram(RBF(scale)))  # noqa: E731
    scale = jnp.array([0.9, 1.2])
    np.testing.assert_allclose(jax.jit(jax.grad(blocks))(scale), jax.jit(jax.grad(dense))(scale), **tolerance())


def test_coincidence_is_the_gram_matrix_of_white_noise(bags):
    np.testing.assert_allclose(bags.coincidence(), np.diag(1 / np.bincount(BAG)), atol=1e-15)
    twice = Bags.create(np.array([[0.0], [1.0], [0.0]]), [0, 0, 1])
    np.testing.assert_allclose(twice.coincidence(), [[0.5, 0.5], [0.5, 1.0]])


def test_labels_tie_points_to_covariates():
    points = pd.DataFrame({"height": [1.0, 2.0, 3.0], "width": [0.0, 1.0, 2.0]})
    table = pd.DataFrame({"rain": [5.0, 7.0]})
    bags = Bags.create(points, ["b", "a", "b"], table, covariate_bag=["b", "a"])
    np.testing.assert_array_equal(bags.points[:, 0], [1.0, 3.0, 2.0])
    np.testing.assert_array_equal(bags.sizes, [2, 1])
    assert (bags.feature_names, bags.covariate_names) == (("height", "width"), ("rain",))


@pytest.mark.slow
def test_some_bags_and_some_points(bags):
    chosen = bags.take([3, 0])
    np.testing.assert_array_equal(chosen.sizes, [3, 1])
    np.testing.assert_array_equal(chosen.covariates, COVARIATES[[3, 0]])
    np.testing.assert_allclose(chosen.centroids(), (AVERAGE @ POINTS)[[3, 0]], rtol=1e-12)
    thin = bags.subsample(jax.random.key(0), 3)
    np.testing.assert_array_equal(thin.sizes, [1, 3, 2, 3, 3])
    for number in range(5):
        mine = np.asarray(thin.points)[np.asarray(thin.index) == number]
        assert len(np.unique(mine, axis=0)) == len(mine)
        assert {*map(tuple, mine)} <= {*map(tuple, POINTS[BAG == number])}


NAN = np.where(np.arange(6).reshape(3, 2) == 3, np.nan, 1.0)


def two_bags():
    return Bags.create(POINTS[:3], [0, 0, 1])


MISTAKES = [
    (lambda: Bags.of_single_points(3.0), "`points` must"),
    (lambda: Bags.create(NAN, [0, 0, 0]), "`points` must be finite, got 1 NaN"),
    (lambda: Bags.create(POINTS[:3], [0, 1]), "`points` and `bag` must have the same number of rows, got 3 and 2"),
    (lambda: Bags.create(POINTS[:3], [0, 0, 2], np.zeros((3, 1))), "rows for 1 bags without points: 1"),
    (lambda: Bags.create(POINTS[:3], [0, 1, 2], np.zeros((2, 1))), "1 bags without a row in `covariates`: 2"),
    (lambda: Bags.create(POINTS[:3], ["a", "b", "a"], np.zeros((2, 1))), "as `covariate_bag`"),
    (
        lambda: Bags.create(POINTS[:3], ["a", "b", "c"], np.zeros((2, 1)), covariate_bag=["a", "b"]),
        "1 bags without a row in `covariates`: c",
    ),
    (
        lambda: Bags.create(POINTS[:2], ["a", "b"], np.zeros((2, 1)), covariate_bag=["a", "a"]),
        "`covariate_bag` must hold each label once, got a more often",
    ),
    (lambda: Bags.create(POINTS[:2], ["a", "b"], covariate_bag=["a", "b"]), "`covariates`, which is None"),
    (lambda: Bags.create(POINTS[:2], [0.0, np.nan]), "`bag` has missing labels, 1 of them, the first in row 1"),
    (lambda: Bags.create(POINTS[:2], np.array(["a", None], object)), "`bag` has missing labels, 1 of them"),
    (lambda: Bags.create(POINTS[:2], pd.Series(["a", pd.NA])), "`bag` has missing labels, 1 of them"),
    (lambda: Bags.create(POINTS[:2], np.ma.masked_equal([0, 1], 1)), "`bag` has 1 masked entries"),
    (
        lambda: Bags.create(POINTS[:2], ["a", "b"], np.zeros((2, 1)), covariate_bag=np.ma.masked_equal([0, 1], 1)),
        "`covariate_bag` has 1 masked entries",
    ),
    (lambda: Bags.create(POINTS[:2, 0], [0, 1]), "`points` must have shape"),
    (lambda: Bags.create(POINTS[:2], [0, 1], np.array([[1.0], [np.inf]])), "`covariates` must be finite"),
    (lambda: Bags.create(pd.DataFrame({"a": ["x", "y"]}), [0, 1]), "`points` must hold numbers, got text"),
    (lambda: two_bags().take(99), "`bags` must hold the numbers of at least one bag, got 99"),
    (lambda: two_bags().take([]), "`bags` must hold the numbers of at least one bag"),
    (lambda: two_bags().take([99]), "`bags` must hold numbers from 0 to 1, got [99]".replace("[", r"\[")),
    (lambda: two_bags().take([-1]), "`bags` must hold numbers from 0 to 1"),
    (lambda: two_bags().take([0, 1, 0]), "`bags` must hold each number at most once"),
    (
        lambda: two_bags().subsample(jax.random.key(0), 0),
        "`num` must be an integer of at least 1|`num` must be at least 1",
    ),
    (lambda: two_bags().means([1.0, np.nan, 2.0]), "`values` must be finite, got 1 NaN"),
    (lambda: two_bags().means([1.0, 2.0]), "`points` and `values` must have the same number of rows"),
    (lambda: two_bags().means(1.0), "`points` and `values` must have the same number of rows"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        call()
