"""Searches by duels: acquisitions against their definitions, the log of a search, regret against random duels."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import ttest_rel

from kpp_optimization import expected_best_utility, search_by_duels, thompson_duel

POINTS = np.linspace(-2.0, 2.0, 31)[:, None]


def utility(x):
    return 6 * np.exp(-2 * (x - 0.9) ** 2) + 3 * np.exp(-2 * (x + 1.0) ** 2)


TRUTH = utility(POINTS[:, 0])


def believe(key, matches):
    """Draw from Laplace's approximation of a utility with an RBF kernel, by Newton's method on the utilities."""
    p = len(matches.items)
    prior = 9 * np.exp(-((POINTS - POINTS.T) ** 2) / (2 * 0.6**2)) + 1e-6 * np.eye(p)
    precision = np.linalg.inv(prior)
    low, high = np.asarray(matches.pairs).T
    design = np.eye(p)[low] - np.eye(p)[high]
    wins, counts = np.asarray(matches.wins), np.asarray(matches.counts)
    f = np.zeros(p)
    for _ in range(12):
        chance = expit(design @ f)
        hessian = precision + design.T @ ((counts * chance * (1 - chance))[:, None] * design)
        f = f + np.linalg.solve(hessian, design.T @ (wins - counts * chance) - precision @ f)
    normal = np.asarray(jax.random.normal(key, (40, p)))
    draws = f + normal @ np.linalg.inv(np.linalg.cholesky(hessian))
    return draws[:, :, None] - draws[:, None, :]


def search(seed, acquisition, num_duels=16):
    chance = np.random.default_rng(seed)

    def duel(a, b):
        return chance.uniform() < expit(*(utility(a) - utility(b)))

    key = jax.random.key(seed)
    return search_by_duels(key, duel, POINTS, believe, acquisition=acquisition, num_duels=num_duels)


def regrets(acquisition, num_searches):
    """Return the regret of the incumbents, averaged over duels 5 to 16, of each search."""
    found = [search(seed, acquisition).duels["incumbent"].to_numpy()[4:] for seed in range(num_searches)]
    return np.array([np.mean(TRUTH.max() - TRUTH[incumbents]) for incumbents in found])


@pytest.fixture(scope="module")
def random_regrets():
    return regrets("random", 20)


def test_expected_best_utility_is_the_largest_of_all_pairs():
    draws = np.random.default_rng(0).normal(size=(50, 6))
    values = {pair: np.maximum(*draws[:, pair].T).mean() for pair in itertools.combinations(range(6), 2)}
    assert expected_best_utility(jax.random.key(0), draws) == max(values, key=values.get)


@pytest.mark.slow
def test_thompson_duels_candidates_as_often_as_they_are_best():
    draws = np.array([[3.0, 2.0, 0.0], [3.0, 2.0, 0.0], [0.0, 2.0, 3.0], [3.0, 0.0, 2.0]])
    firsts = [thompson_duel(key, draws) for key in jax.random.split(jax.random.key(1), 200)]
    counts = np.bincount([first for first, _ in firsts], minlength=3) / 200
    np.testing.assert_allclose(counts, [0.75, 0.0, 0.25], atol=5 * np.sqrt(0.75 * 0.25 / 200))  # five standard errors
    assert all(first != second for first, second in firsts)


@pytest.mark.slow
def test_a_search_is_logged_and_can_be_repeated():
    found, again = search(3, "thompson", 6), search(3, "thompson", 6)
    assert found.duels.equals(again.duels) and list(found.duels["duel"]) == list(range(1, 7))
    adjacency = np.zeros((31, 31))
    for first, second, won in found.duels[["first", "second", "won"]].to_numpy():
        adjacency[(first, second) if won else (second, first)] += 1
    np.testing.assert_array_equal(found.matches.adjacency(), adjacency)
    assert found.matches.num_pairs == 465 and found.best == POINTS[found.duels["incumbent"].iloc[-1]]


@pytest.mark.nightly
@pytest.mark.parametrize("acquisition", ["thompson", "expected-best"])
def test_regret_falls_below_that_of_random_duels(acquisition, random_regrets):
    found = regrets(acquisition, len(random_regrets))
    assert found.mean() < 0.7 * random_regrets.mean()
    assert ttest_rel(found, random_regrets, alternative="less").pvalue < 0.05


@pytest.mark.slow_variants(
    "arguments2-`duel` must give 1 where the first point wins and 0 where it loses, got 0.5",
    "arguments3-`duel` must give 1 where the first point wins and 0 where it loses, got a",
)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"acquisition": "best"}, "`acquisition` must be one of .'thompson', 'expected-best', 'random'., got 'best'"),
        ({"num_initial": 0}, "`num_initial` must be between 1 and 20 .`num_duels`., got 0"),
        ({"duel": lambda a, b: 0.5}, "`duel` must give 1 where the first point wins and 0 where it loses, got 0.5"),
        ({"duel": lambda a, b: "a"}, "`duel` must give 1 where the first point wins and 0 where it loses, got a"),
        ({"believe": lambda key, matches: np.zeros((3, 4, 4))}, r"shape \(s, 31, 31\), got shape \(3, 4, 4\)"),
    ],
)
def test_what_is_refused(arguments, message):
    options = {"duel": lambda a, b: 1, "candidates": POINTS, "believe": believe} | arguments
    with pytest.raises(ValueError, match=message):
        search_by_duels(jax.random.key(0), **options)
