"""Perturbed rows: numbers, categories, one-hot columns and other groups, and coalitions by their law."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
import scipy.stats

from kpp.data.tables import Schema
from kpp.explanations.toolkit import group_points
from kpp.games import as_players
from kpp_surrogates.perturbation import Coalitions, Neighborhood, kinds_of_players

KEY, SIZE = jax.random.key(0), 20_000
RNG = np.random.default_rng(0)
ONE_HOT = np.eye(3)[RNG.choice(3, size=50, p=[0.5, 0.3, 0.2])]
BACKGROUND = np.column_stack(
    [RNG.normal(2.0, 3.0, 50), RNG.integers(0, 2, 50), ONE_HOT, RNG.normal(size=(50, 2)), np.ones(50)]
)
NAMES = ("age", "sex", "red", "green", "blue", "u", "v", "constant")
SCHEMA = Schema(NAMES, {"sex": ("f", "m")})
PLAYERS = as_players({"color": ["red", "green", "blue"], "place": ["u", "v"]}, 8, NAMES)
X = np.array([[5.0, 1.0, 0.0, 1.0, 0.0, 0.3, 0.4, 1.0], [-1.0, 0.0, 1.0, 0.0, 0.0, 0.1, 0.2, 4.0]])
# The largest distance of the Kolmogorov-Smirnov test at this size, with probability 1e-4 of an error.
FAR = 2.23 / SIZE**0.5


@pytest.fixture(scope="module")
def kinds():
    return kinds_of_players(PLAYERS, group_points(X, PLAYERS, SCHEMA, [BACKGROUND]), SCHEMA, ())


def sample(kinds, around="background"):
    return Neighborhood(KEY, BACKGROUND, PLAYERS, kinds, around).sample(X, SIZE)


def test_players_are_numbers_categories_or_blocks(kinds):
    assert PLAYERS.names == ("age", "sex", "color", "place", "constant")
    assert kinds == ("number", "category", "category", "block", "number")
    numbers = as_players(None, 8, NAMES)
    shown = group_points(X, numbers, SCHEMA, [BACKGROUND])
    assert kinds_of_players(numbers, shown, SCHEMA, ["red", 3])[:5] == ("number", *["category"] * 3, "number")


def test_the_first_neighbor_is_the_point(kinds):
    for around in ("background", "instance"):
        rows, features = sample(kinds, around)
        np.testing.assert_array_equal(rows[:, 0], X)
        np.testing.assert_array_equal(features[:, 0, 1:4], 1.0)


def test_intervals_have_their_frequency_and_a_truncated_gaussian():
    column = BACKGROUND[:, 0]
    kinds = ("interval", *["category"] * 2, "block", "interval")
    rows, features = Neighborhood(KEY, BACKGROUND, PLAYERS, kinds, "background", 4).sample(X, SIZE)
    edges = [column.min(), *np.percentile(column, [25, 50, 75]), column.max()]
    bins, drawn = np.searchsorted(edges[1:4], column), np.searchsorted(edges[1:4], rows[0, 1:, 0])
    for number, (low, high) in enumerate(itertools.pairwise(edges)):
        inside = column[bins == number]
        # A share of 20 000 draws has a standard error of at most 0.0031.
        assert abs(np.mean(drawn == number) - np.mean(bins == number)) < 5 * 0.0031
        mean, spread = inside.mean(), inside.std()
        law = scipy.stats.truncnorm((low - mean) / spread, (high - mean) / spread, mean, spread)
        # A quarter of the draws: the limit doubles.
        assert scipy.stats.kstest(rows[0, 1:, 0][drawn == number], law.cdf).statistic < 2.1 * FAR
    own = np.searchsorted(edges[1:4], rows[..., 0]) == np.searchsorted(edges[1:4], X[:, :1])
    np.testing.assert_array_equal(features[..., 0], own)
    np.testing.assert_array_equal(rows[:, 1:, 7], 1.0)  # a constant column keeps its value
    np.testing.assert_array_equal(rows[:, 0], X)


def test_numbers_have_the_moments_of_the_background(kinds):
    rows, features = sample(kinds)
    mean, spread = BACKGROUND[:, 0].mean(), BACKGROUND[:, 0].std()
    for point in range(2):
        assert scipy.stats.kstest(rows[point, 1:, 0], scipy.stats.norm(mean, spread).cdf).statistic < FAR
        centered = sample(kinds, "instance").rows[point, 1:, 0]
        assert scipy.stats.kstest(centered, scipy.stats.norm(X[point, 0], spread).cdf).statistic < FAR
    np.testing.assert_allclose(features[..., 0], (rows[..., 0] - mean) / spread, atol=1e-12)
    assert abs(np.corrcoef(rows[0, 1:, 0], rows[1, 1:, 0])[0, 1]) < 0.03  # points have neighbors of their own


def test_a_constant_number_stays_as_in_the_background(kinds):
    rows, features = sample(kinds)
    np.testing.assert_array_equal(rows[:, 1:, 7], 1.0)
    np.testing.assert_array_equal(features[:, 1:, 4], 0.0)
    np.testing.assert_array_equal(features[:, 0, 4], [0.0, 3.0])


def test_categories_come_by_their_frequency(kinds):
    rows, features = sample(kinds)
    error = 4 * 0.5 / SIZE**0.5  # four standard errors
    for point in range(2):
        assert abs(rows[point, 1:, 1].mean() - BACKGROUND[:, 1].mean()) < error
        np.testing.assert_allclose(rows[point, 1:, 2:5].mean(axis=0), ONE_HOT.mean(axis=0), atol=error)
    np.testing.assert_array_equal(rows[..., 2:5].sum(axis=-1), 1.0)
    np.testing.assert_array_equal(features[..., 1], rows[..., 1] == X[:, None, 1])
    np.testing.assert_array_equal(features[..., 2], (rows[..., 2:5] == X[:, None, 2:5]).all(axis=-1))


def test_other_groups_stay_or_come_from_one_row_of_the_background(kinds):
    rows, features = sample(kinds)
    kept = features[..., 3] == 1
    assert abs(kept.mean() - 0.5) < 4 * 0.5 / (2 * SIZE) ** 0.5
    np.testing.assert_array_equal(rows[..., 5:7][kept], np.repeat(X[:, None, 5:7], SIZE, axis=1)[kept])
    replaced = {tuple(row) for row in rows[..., 5:7][~kept]}
    assert replaced == {tuple(row) for row in BACKGROUND[:, 5:7]}


def test_coalitions_follow_the_shapley_kernel():
    draws = Coalitions(KEY, BACKGROUND, PLAYERS, "shapley").sample(X, SIZE)
    sizes = draws.features.sum(axis=2).astype(int)
    expected = 1 / (np.arange(1, 5) * np.arange(4, 0, -1))
    expected *= sizes.size / expected.sum()
    assert scipy.stats.chisquare(np.bincount(sizes.ravel(), minlength=6)[1:5], expected).pvalue > 1e-4
    assert sizes.min() == 1 and sizes.max() == 4
    pairs = draws.features[sizes == 2] @ 2 ** np.arange(5)
    assert scipy.stats.chisquare(np.unique(pairs, return_counts=True)[1]).pvalue > 1e-4  # all ten alike


def test_uniform_coalitions_are_all_alike():
    draws = Coalitions(KEY, BACKGROUND, PLAYERS, "uniform").sample(X, SIZE).features.reshape(-1, 5)
    counts = np.unique(draws @ 2 ** np.arange(5), return_counts=True)[1]
    assert len(counts) == 32 and scipy.stats.chisquare(counts).pvalue > 1e-4


def test_absent_features_come_from_one_row_of_the_background():
    rows, features = Coalitions(KEY, BACKGROUND, PLAYERS, "shapley").sample(X, 100)
    for point in range(2):
        for row, present in zip(rows[point], features[point], strict=True):
            kept = PLAYERS.expand(present[None] > 0)[0]
            np.testing.assert_array_equal(row[kept], X[point, kept])
            assert (BACKGROUND[:, ~kept] == row[~kept]).all(axis=1).any()
