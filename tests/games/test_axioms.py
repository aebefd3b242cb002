"""The axioms of Shapley hold on random games, for every estimator: exactly, or within the standard errors it states."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from kpp.functions import RKHSFunction
from kpp.games import AbstractValueFunction, Interventional, all_coalitions, estimate_shapley
from kpp.kernels import RBF, Linear, ProductKernel

PLAYERS, POINTS = 8, 3
SAMPLED = ("least-squares", "permutation")
SIGMAS = 5.0  # a normal estimate is further off once in two million
WEIGHTS = 2 ** np.arange(PLAYERS)


class TableGame(AbstractValueFunction):
    """A game given by the values of all coalitions, (2^d, p), in the order of their bit masks."""

    table: np.ndarray

    def __call__(self, function, x, coalitions):
        return self.table[np.asarray(coalitions) @ 2 ** np.arange(coalitions.shape[1])]

    def base(self, function):
        return self.table[0]


def random_table(seed=0):
    """Random values, with a trend so that values differ between players."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(2**PLAYERS, POINTS)) + all_coalitions(PLAYERS) @ rng.normal(size=(PLAYERS, POINTS))


def swapped(table, i, j):
    """The values with two players exchanged."""
    coalitions = np.array(all_coalitions(PLAYERS))
    coalitions[:, [i, j]] = coalitions[:, [j, i]]
    return table[coalitions @ WEIGHTS]


def without(table, player):
    """The values with one player's presence ignored."""
    return table[np.arange(2**PLAYERS) & ~(1 << player)]


def solve(table, method, groups=None, budget=150):
    x = np.zeros((POINTS, int(np.log2(len(table)))))
    estimate = estimate_shapley(
        TableGame(table), None, x, method=method, groups=groups, num_coalitions=budget, rng_key=jax.random.key(7)
    )
    assert estimate.exact == (method == "enumeration")
    slack = 1e-12 if estimate.exact else SIGMAS * np.asarray(estimate.standard_errors) + 1e-12
    return np.asarray(estimate.values), slack


@pytest.mark.parametrize("method", ["enumeration", *SAMPLED])
class TestRandomGames:
    @pytest.mark.slow_variants("enumeration")
    def test_efficiency(self, method):
        table = random_table()
        np.testing.assert_allclose(solve(table, method)[0].sum(axis=1), table[-1] - table[0], rtol=1e-12, atol=1e-12)

    @pytest.mark.slow_variants("enumeration")
    def test_symmetry(self, method):
        table = random_table()
        values, slack = solve((table + swapped(table, 1, 4)) / 2, method)
        gap = np.abs(values[:, 1] - values[:, 4])
        assert (gap <= (slack if np.isscalar(slack) else slack[:, 1] + slack[:, 4])).all()

    def test_null_player(self, method):
        values, slack = solve(without(random_table(), 2), method)
        assert (np.abs(values[:, 2]) <= (slack if np.isscalar(slack) else slack[:, 2])).all()
        if method == "permutation":  # a gain of 0 in every order
            np.testing.assert_array_equal(values[:, 2], 0.0)

    def test_linearity(self, method):
        """The same random key draws the same coalitions, so that sampled values are linear, too."""
        first, second = random_table(1), random_table(2)
        values = solve(2.0 * first - 3.0 * second, method)[0]
        expected = 2.0 * solve(first, method)[0] - 3.0 * solve(second, method)[0]
        np.testing.assert_allclose(values, expected, rtol=1e-11, atol=1e-11)

    def test_agreement(self, method):
        table = random_table()
        values, slack = solve(table, method)
        assert (np.abs(values - solve(table, "enumeration")[0]) <= slack).all()

    def test_groups_solve_the_quotient_game(self, method):
        """Ten features in eight groups, against the table of the eight: the same games, so the same coalitions."""
        groups = {"a": [0, 3], "b": [2, 7]}
        members = [(0, 3), (1,), (2, 7), (4,), (5,), (6,), (8,), (9,)]
        rng = np.random.default_rng(0)
        table = rng.normal(size=(2**10, POINTS))
        masks = np.array([sum(1 << j for j in group) for group in members])
        quotient = table[all_coalitions(PLAYERS) @ masks]
        values = solve(table, method, groups)[0]
        np.testing.assert_allclose(values, solve(quotient, method)[0], rtol=1e-12, atol=1e-12)

    def test_group_additivity(self, method):
        """Where a game adds up over groups, a group gets what it is worth alone."""
        rng = np.random.default_rng(3)
        inside, alone = rng.normal(size=(8, POINTS)), rng.normal(size=(5, POINTS))
        coalitions = all_coalitions(PLAYERS)
        table = inside[coalitions[:, [0, 2, 5]] @ [1, 2, 4]] + coalitions[:, [1, 3, 4, 6, 7]] @ alone
        values, slack = solve(table, method, {"a": [0, 2, 5]}, budget=30)
        expected = np.stack([inside[-1] - inside[0], *alone], axis=1)
        assert (np.abs(values - expected) <= slack).all()
        assert np.max(slack) < 1e-10  # an additive game is fit without error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "num_features"),
    [(RBF(lengthscale=3.0, variance=1.3), 21), (ProductKernel((Linear(), RBF(), Linear(), RBF(), Linear())), 5)],
    ids=["nonnegative", "both signs"],
)
def test_axioms_by_quadrature(kernel, num_features):
    """Two features with the same data are symmetric; values are linear in the coefficients, which share a kernel."""
    rng = np.random.default_rng(4)
    points, background, x = (rng.normal(size=(rows, num_features)) for rows in (6, 4, 2))
    for rows in (points, background, x):
        rows[:, 3] = rows[:, 1]  # both have an RBF factor
    coefficients = rng.normal(size=(6, 2))
    coefficients = np.concatenate([coefficients, coefficients @ [[2.0], [-3.0]]], axis=1)
    function, game = RKHSFunction(kernel, points, coefficients), Interventional(background)
    estimate = estimate_shapley(game, function, x, method="auto" if num_features > 20 else "quadrature")
    assert (estimate.method, estimate.num_nodes) == ("quadrature", (num_features + 1) // 2)
    assert estimate.exact and estimate.num_coalitions is None and estimate.standard_errors is None
    values = np.asarray(estimate.values)
    expected = function(x) - game.base(function)[None]
    np.testing.assert_allclose(values.sum(axis=1), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(values[:, 1], values[:, 3], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(values[..., 2], 2 * values[..., 0] - 3 * values[..., 1], rtol=1e-10, atol=1e-12)
