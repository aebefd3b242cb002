"""Sampled coalitions follow the Shapley kernel, the fit to them is the constrained one, and its errors are honest."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from kpp.functions import RKHSFunction
from kpp.games import (
    AbstractValueFunction,
    Interventional,
    all_coalitions,
    estimate_shapley,
    sample_coalition_pairs,
    sample_permutations,
    shapley_values_from_pairs,
    shapley_values_from_permutations,
    shapley_values_from_table,
)
from kpp.games.players.players import from_integers, to_integers
from kpp.games.toolkit import coalitions_of_permutations
from kpp.kernels import RBF, Matern32

KEY = jax.random.key(0)


class Rowwise(AbstractValueFunction):
    """Any function of coalitions, the same at all points; counts what it is asked."""

    worth: object
    asked: list

    def __call__(self, function, x, coalitions):
        coalitions = np.asarray(coalitions)
        self.asked.append(len(coalitions))
        assert len(np.unique(coalitions, axis=0)) == len(coalitions)
        return np.repeat(self.worth(coalitions)[:, None], x.shape[0], axis=1)

    def base(self, function):
        return 0.0


def cubic(num_players):
    """A game with interactions of two and three players, and its Shapley values: each interaction shared equally."""
    rng = np.random.default_rng(1)
    linear = rng.normal(size=num_players)
    triples = [rng.choice(num_players, size=3, replace=False) for _ in range(2 * num_players)]
    pairs = [triple[:2] for triple in triples[:num_players]]
    weights = rng.normal(size=3 * num_players)
    values = linear.copy()
    for weight, members in zip(weights, [*pairs, *triples], strict=True):
        values[members] += weight / len(members)

    def worth(coalitions):
        parts = zip(weights, [*pairs, *triples], strict=True)
        return coalitions @ linear + sum(weight * coalitions[:, members].all(axis=1) for weight, members in parts)

    return worth, values


def test_integers_are_exact_for_any_number_of_players():
    coalitions = np.random.default_rng(0).random((20, 101)) < 0.5
    integers = to_integers(coalitions)
    assert integers[0] == sum(1 << int(j) for j in np.flatnonzero(coalitions[0]))
    np.testing.assert_array_equal(from_integers(integers, 101), coalitions)
    assert to_integers(all_coalitions(5)) == list(range(32))


@pytest.mark.parametrize("num_players", [5, 101])
def test_pairs_follow_the_shapley_kernel(num_players):
    """Sizes s with probability proportional to 1/(s(d-s)), players equally often; 5 standard errors."""
    coalitions, counts = sample_coalition_pairs(KEY, num_players, 15 if num_players == 5 else 3000)
    assert 0 < coalitions.sum(axis=1).min() and coalitions.sum(axis=1).max() < num_players
    both = np.concatenate([coalitions, ~coalitions])
    assert len(set(to_integers(both))) == len(both)
    sizes, total = np.arange(1, num_players), counts.sum()
    expected = 1 / (sizes * (num_players - sizes))
    expected = expected / expected.sum() * 2 * total
    drawn = np.bincount(both.sum(axis=1), weights=np.tile(counts, 2), minlength=num_players)[1:]
    assert (np.abs(drawn - expected) <= 5 * np.sqrt(2 * expected) + 1).all()  # pairs double the variance
    present = both.T @ np.tile(counts, 2) / (2 * total)
    np.testing.assert_allclose(present, 0.5, atol=1e-12)  # complements balance each player


def test_the_same_key_draws_the_same():
    first, second = (sample_coalition_pairs(KEY, 12, 30) for _ in range(2))
    np.testing.assert_array_equal(first[0], second[0])
    other = sample_coalition_pairs(jax.random.key(1), 12, 30)
    assert to_integers(first[0]) != to_integers(other[0])


@pytest.mark.slow
def test_the_fit_solves_the_constrained_least_squares_problem(tolerance):
    """Against the Lagrangian solution with rows for the complements, too; pairs of a size share its draws evenly.

    The first four pairs are all those of size 1, and have the kernel's share instead.
    """
    bits = 2 ** np.arange(4)
    coalitions = np.array(all_coalitions(4))[[1, 2, 4, 8, 3, 5]]
    counts = np.array([1, 3, 1, 1, 2, 1])
    shares = np.repeat([2 / 3, 1 / 4], [4, 2]) / (2 / 3 + 1 / 4)  # sizes 1 and 3, size 2
    weights = np.tile(shares / [4, 4, 4, 4, 2, 2], 2)
    table = np.random.default_rng(0).normal(size=(16, 2))
    rows = np.concatenate([coalitions, ~coalitions]).astype(float)
    gains, total = table[rows.astype(int) @ bits] - table[0], table[15] - table[0]
    inverse = np.linalg.inv(rows.T @ (weights[:, None] * rows))
    free = inverse @ rows.T @ (weights[:, None] * gains)
    expected = free - inverse.sum(axis=1)[:, None] * (free.sum(axis=0) - total) / inverse.sum()
    present, absent = (table[chosen @ bits] for chosen in (coalitions, ~coalitions))
    values, errors = shapley_values_from_pairs(coalitions, counts, present - absent, total)
    np.testing.assert_allclose(values, expected, **tolerance())
    assert (errors > 0).all()
    everything = np.array(all_coalitions(4))[1:8]
    present, absent = (table[chosen @ bits] for chosen in (everything, ~everything))
    values, errors = shapley_values_from_pairs(everything, np.arange(1, 8), present - absent, total)
    np.testing.assert_allclose(values, shapley_values_from_table(table), **tolerance())
    np.testing.assert_array_equal(errors, 0.0)


def test_a_pair_that_no_other_checks_has_an_error_all_the_same():
    """Only {3} tells the players 3 and 4 apart: it is fitted exactly, which is no reason to trust it."""
    members = [[0], [1], [2], [3], [0, 1], [0, 2]]
    coalitions = np.array([[j in group for j in range(5)] for group in members])
    differences = np.random.default_rng(0).normal(size=6)
    errors = np.asarray(shapley_values_from_pairs(coalitions, np.ones(6, int), differences, np.ones(()))[1])
    assert (errors[3:] > 0.5 * errors[:3].min()).all()


def test_permutations_average_gains(tolerance):
    permutations = sample_permutations(KEY, 5, 4)
    table = np.random.default_rng(0).normal(size=32)
    coalitions, index = coalitions_of_permutations(permutations)
    values, errors = shapley_values_from_permutations(permutations, index, table[coalitions @ 2 ** np.arange(5)])
    gains = np.zeros((4, 5))
    for row, permutation in zip(gains, permutations, strict=True):
        for order in (permutation, permutation[::-1]):
            for step, player in enumerate(order):
                before = sum(1 << int(j) for j in order[:step])
                row[player] += (table[before + (1 << int(player))] - table[before]) / 2
    np.testing.assert_allclose(values, gains.mean(axis=0), **tolerance())
    np.testing.assert_allclose(errors, gains.std(axis=0, ddof=1) / 2, **tolerance())


@pytest.mark.slow_variants("least-squares")
@pytest.mark.parametrize("method", ["least-squares", "permutation"])
def test_the_budget_counts_different_coalitions(method):
    worth, expected = cubic(10)
    game = Rowwise(worth, [])
    estimate = estimate_shapley(game, None, np.zeros((1, 10)), method=method, num_coalitions=100, rng_key=KEY)
    assert not estimate.exact and estimate.method == method and estimate.num_nodes is None
    assert game.asked == [estimate.num_coalitions]
    assert 80 <= estimate.num_coalitions <= 100
    assert (np.abs(estimate.values[0] - expected) < 5 * estimate.standard_errors[0]).all()
    assert estimate_shapley(game, None, np.zeros((1, 10)), method=method, num_coalitions=1024).exact
    assert game.asked[1:] == [1024]


@pytest.mark.slow
def test_errors_fall_as_one_over_the_root_of_the_budget():
    """16 times the budget, a quarter of the error: root mean squares of 40 players' errors, within 30 percent."""
    worth, expected = cubic(40)
    errors = []
    for budget in (500, 8000):
        game = Rowwise(worth, [])
        estimate = estimate_shapley(game, None, np.zeros((1, 40)), num_coalitions=budget, rng_key=KEY)
        assert estimate.method == "least-squares"
        errors.append(np.sqrt(np.mean((np.asarray(estimate.values[0]) - expected) ** 2)))
    assert 0.7 < errors[0] / errors[1] / 4 < 1.3


@pytest.mark.slow
def test_all_points_and_draws_share_the_coalitions(tolerance):
    """Draws, outputs and points together give what each gives alone with the same key."""
    rng = np.random.default_rng(0)
    points, background, x = (rng.normal(size=(rows, 8)) for rows in (5, 3, 2))
    coefficients = rng.normal(size=(1, 2, 5))
    options = {"method": "least-squares", "num_coalitions": 60, "rng_key": KEY}
    kernel, game = RBF(lengthscale=2.0), Interventional(background)
    draws = RKHSFunction.over_draws(kernel, points, coefficients, 0.5, batch_shape=(1, 2))
    together = estimate_shapley(game, draws, x, **options)
    assert together.values.shape == together.standard_errors.shape == (1, 2, 2, 8)
    outputs = RKHSFunction(kernel, points, coefficients[0].T, 0.5)
    values = estimate_shapley(game, outputs, x, **options)
    for k in range(2):
        np.testing.assert_allclose(together.values[0, k], values.values[..., k], **tolerance())
        np.testing.assert_allclose(together.standard_errors[0, k], values.standard_errors[..., k], **tolerance())


@pytest.mark.parametrize(
    ("num_players", "budget", "expected"),
    [(4, None, "enumeration"), (4, 15, "least-squares"), (4, 16, "enumeration"), (15, None, "least-squares")],
)
def test_what_auto_takes_for_games_that_are_no_products(num_players, budget, expected):
    game = Rowwise(cubic(num_players)[0], [])
    estimate = estimate_shapley(game, None, np.zeros((1, num_players)), num_coalitions=budget, rng_key=KEY)
    assert (estimate.method, estimate.exact) == (expected, expected == "enumeration")
    assert (estimate.standard_errors is None) == estimate.exact
    assert estimate.num_coalitions == (budget - budget % 2 if budget else min(2**num_players, 2048 + 30))


MANY = (Rowwise(cubic(15)[0], []), None, np.zeros((1, 15)))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: estimate_shapley(*MANY), TypeError, r"`rng_key` must be given to sample coalitions of 15 players"),
        (lambda: estimate_shapley(*MANY, rng_key=0), TypeError, r"write jax.random.key\(0\)"),
        (
            lambda: estimate_shapley(*MANY, method="fast"),
            ValueError,
            "`method` must be one of .'auto', 'quadrature'",
        ),
        (lambda: estimate_shapley(*MANY, tolerance=0.0, rng_key=KEY), ValueError, "`tolerance` must be"),
        (lambda: estimate_shapley(*MANY, num_coalitions=0), ValueError, "`num_coalitions` must be at least 1"),
        (lambda: estimate_shapley(*MANY, num_coalitions=31, rng_key=KEY), ValueError, "must be at least 32 to fit 15"),
        (
            lambda: estimate_shapley(*MANY, method="permutation", num_coalitions=57, rng_key=KEY),
            ValueError,
            "must be at least 58 for two orders of 15 players",
        ),
        (lambda: estimate_shapley(*MANY, method="quadrature"), TypeError, "products over the features, got Rowwise"),
        (lambda: sample_coalition_pairs(KEY, 1, 4), ValueError, "`num_players` must be at least 2"),
        (
            lambda: shapley_values_from_pairs(np.eye(6, dtype=bool)[:4], np.ones(4, int), np.ones(4), np.ones(())),
            ValueError,
            "`num_coalitions` must be larger: 8 coalitions do not determine 6 values",
        ),
        (
            lambda: shapley_values_from_permutations(np.arange(3)[None], np.zeros((1, 2, 4), int), np.ones(3)),
            ValueError,
            "`permutations` must be at least two",
        ),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.nightly_variants("600-permutation")
@pytest.mark.slow
@pytest.mark.parametrize("method", ["least-squares", "permutation"])
@pytest.mark.parametrize("budget", [150, 600])
def test_intervals_cover_the_truth(method, budget):
    """95 percent intervals over 200 seeds and 20 players; few orders make normal intervals of a t-law too short."""
    worth, expected = cubic(20)
    scores = []
    for seed in range(200):
        estimate = estimate_shapley(
            Rowwise(worth, []),
            None,
            np.zeros((1, 20)),
            method=method,
            num_coalitions=budget,
            rng_key=jax.random.key(seed),
        )
        scores.append((np.asarray(estimate.values[0]) - expected) / np.asarray(estimate.standard_errors[0]))
    coverage = np.mean(np.abs(scores) < 1.96)
    assert (0.92 if (method, budget) != ("permutation", 150) else 0.75) < coverage < 0.98


@pytest.mark.nightly
def test_kernels_that_are_no_products(tolerance):
    """Matern on 8 features: sampled values within their errors of the enumerated ones."""
    rng = np.random.default_rng(0)
    points, background, x = (rng.normal(size=(rows, 8)) for rows in (12, 6, 2))
    function, game = RKHSFunction(Matern32(lengthscale=2.0), points, rng.normal(size=12)), Interventional(background)
    exact = estimate_shapley(game, function, x)
    assert exact.method == "enumeration"
    for method in ("least-squares", "permutation"):
        estimate = estimate_shapley(game, function, x, method=method, num_coalitions=120, rng_key=KEY)
        assert (np.abs(estimate.values - exact.values) < 5 * estimate.standard_errors + 1e-12).all()


@pytest.mark.slow_variants("permutation-0.3", "least-squares-0.08")
@pytest.mark.parametrize(("method", "tolerance"), [("least-squares", 0.08), ("permutation", 0.3)])
def test_a_tolerance_keeps_its_promise(method, tolerance):
    """Over 25 seeds and 20 players the root mean square of the errors is at most the tolerance.

    The tolerance bounds the largest of 20 standard errors, so the root mean square of the errors is below it, although
    sampling stops when an estimate of the standard error is small.
    """
    worth, expected = cubic(20)
    errors, used = [], []
    for seed in range(25):
        game = Rowwise(worth, [])
        options = {"method": method, "tolerance": tolerance, "rng_key": jax.random.key(seed)}
        estimate = estimate_shapley(game, None, np.zeros((1, 20)), **options)
        assert estimate.tolerance_reached and float(estimate.standard_errors.max()) <= tolerance
        assert sum(game.asked) == estimate.num_coalitions <= 2**15  # no coalition is valued twice
        errors.append(np.asarray(estimate.values[0]) - expected)
        used.append(estimate.num_coalitions)
    assert np.sqrt(np.mean(np.square(errors))) < tolerance
    assert np.sqrt(np.mean(np.square(errors), axis=0)).max() < 1.25 * tolerance  # each player
    assert np.mean(used) > 450  # the first round, of 400 coalitions, was not enough


@pytest.mark.slow_variants("least-squares", "permutation")
@pytest.mark.parametrize("method", ["least-squares", "permutation"])
def test_a_cap_below_the_tolerance_is_reported(method):
    worth, _ = cubic(20)
    options = {"method": method, "num_coalitions": 1000, "rng_key": KEY}
    estimate = estimate_shapley(Rowwise(worth, []), None, np.zeros((1, 20)), tolerance=1e-4, **options)
    assert estimate.tolerance_reached is False and estimate.num_coalitions <= 1000
    assert estimate.num_coalitions > 900 and float(estimate.standard_errors.max()) > 1e-4
    without = estimate_shapley(Rowwise(worth, []), None, np.zeros((1, 20)), **options)
    assert without.tolerance_reached is None


@pytest.mark.slow
def test_a_tolerance_that_needs_all_coalitions_gives_exact_values():
    worth, expected = cubic(9)
    options = {"method": "permutation", "rng_key": KEY}
    estimate = estimate_shapley(Rowwise(worth, []), None, np.zeros((1, 9)), tolerance=1e-9, **options)
    assert estimate.exact and estimate.tolerance_reached and estimate.num_coalitions == 512
    np.testing.assert_allclose(estimate.values[0], expected, atol=1e-12)
    # Whether sampling was enough depends on the key; whether there are errors does not.
    np.testing.assert_array_equal(estimate.standard_errors, np.zeros((1, 9)))
    easy = estimate_shapley(Rowwise(worth, []), None, np.zeros((1, 9)), tolerance=10.0, **options)
    assert not easy.exact and easy.tolerance_reached and easy.num_coalitions <= 180
