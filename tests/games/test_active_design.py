"""Coalitions chosen by a Gaussian process: its law is the dense one, the choice the best one, the intervals hold."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import scipy.optimize

from kpp.functions import RKHSFunction
from kpp.games import AbstractValueFunction, Baseline, Interventional, all_coalitions, estimate_shapley
from kpp.games.estimators.active.coalition_kernel import CoalitionKernel, as_signs
from kpp.games.estimators.active.coalition_process import (
    CoalitionProcess,
    contrasts_of,
    fit_parameters,
    negative_log_posterior,
    prior_parameters,
)
from kpp.games.toolkit import quadrature_shapley
from kpp.kernels import RBF
from oracles.coalition_process import kernel_matrix, law, shapley_matrix

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
SIZES = [3, 5, 6]


class Table(AbstractValueFunction):
    """A game for each point from the values of all coalitions, (2^g, p), which records what it is asked."""

    table: object
    asked: list

    def __call__(self, function, x, coalitions):
        coalitions = np.asarray(coalitions)
        self.asked.extend(map(tuple, coalitions))
        return self.table[coalitions @ 2 ** np.arange(coalitions.shape[1])]

    def base(self, function):
        return 0.0


def kernel_of(num_players):
    return CoalitionKernel(np.linspace(0.05, 0.6, num_players), 0.01)


def known_of(num_players):
    """Positions of the empty and the full coalition, the single players, and two others."""
    last = 2**num_players - 1
    return [0, last, *(2 ** np.arange(num_players)), last - 1, last - 2]


def solve(table, budget, tolerance=None):
    """The estimate of games from the values of all coalitions, (2^g, p), and the coalitions that were valued."""
    game = Table(table, [])
    x = RNG.normal(size=(table.shape[1], len(table).bit_length() - 1))
    options = {"method": "active", "num_coalitions": budget, "tolerance": tolerance, "rng_key": KEY}
    return estimate_shapley(game, None, x, **options), game.asked


@pytest.mark.parametrize("num_players", SIZES)
def test_the_kernel_and_its_shapley_values_are_those_of_sums_over_interactions(num_players, tolerance):
    kernel, signs = kernel_of(num_players), as_signs(all_coalitions(num_players))
    dense, shapley = kernel_matrix(signs, kernel.weights, kernel.roughness), shapley_matrix(signs)
    np.testing.assert_allclose(kernel.evaluate(signs, signs), dense, **tolerance())
    np.testing.assert_allclose(kernel.sections(signs), shapley @ dense, **tolerance())
    np.testing.assert_allclose(kernel.shapley_covariance(), shapley @ dense @ shapley.T, **tolerance())


@pytest.mark.slow
def test_sections_are_those_of_an_rbf_kernel_on_the_cube_by_quadrature(tolerance):
    """With the additive part that the kernel leaves out: the product over 40 players is an RBF kernel."""
    lengthscale = np.linspace(0.8, 3.0, 40)
    correlation = np.exp(-0.5 / lengthscale**2)
    kernel = CoalitionKernel((1 - correlation) / (1 + correlation), 0.0)
    coalitions = RNG.random((6, 40)) < 0.5
    function = RKHSFunction(RBF(lengthscale), coalitions.astype(float), np.eye(6))
    expected = np.asarray(quadrature_shapley(Interventional(np.zeros((1, 40))), function, np.ones((1, 40))))[0]
    signs = as_signs(coalitions)
    found = kernel.scale * kernel.sections(signs) + 2 * (signs * kernel.weights).T
    np.testing.assert_allclose(found / np.prod(1 + kernel.weights), expected, **tolerance())


@pytest.mark.parametrize("num_players", SIZES)
def test_the_law_is_the_dense_one(num_players, tolerance):
    coalitions, known, kernel = all_coalitions(num_players), known_of(num_players), kernel_of(num_players)
    known = known[: 2**num_players - 1]
    process = CoalitionProcess(kernel, coalitions[known])
    weights, covariance = law(as_signs(coalitions), known, kernel.weights, kernel.roughness)
    np.testing.assert_allclose(process.shapley_weights, weights, **tolerance())
    np.testing.assert_allclose(process.shapley_covariance, covariance, **tolerance())
    np.testing.assert_allclose(covariance.sum(axis=1), 0.0, atol=1e-10)  # the sum of the values is known


@pytest.mark.slow
def test_each_choice_shrinks_the_total_variance_most():
    """Three choices in a row against the law with every candidate in turn."""
    coalitions, known, kernel = all_coalitions(5), known_of(5), kernel_of(5)
    candidates = np.setdiff1d(np.arange(len(coalitions)), known)
    chosen = CoalitionProcess(kernel, coalitions[known]).choose(coalitions[candidates], 3)
    for coalition in chosen @ 2 ** np.arange(5):
        signs, options = as_signs(coalitions), np.setdiff1d(candidates, known)
        totals = [np.trace(law(signs, [*known, more], kernel.weights, kernel.roughness)[1]) for more in options]
        known = [*known, coalition]
        found = np.trace(law(signs, known, kernel.weights, kernel.roughness)[1])
        assert found == pytest.approx(min(totals), rel=1e-9)


def test_the_gradient_of_the_evidence_is_that_of_differences():
    coalitions = all_coalitions(5)[known_of(5) + [11, 13, 21]]
    signs, games = as_signs(coalitions), RNG.normal(size=(len(coalitions), 3))
    start = prior_parameters(5) + RNG.normal(scale=0.3, size=7)
    arguments = signs, contrasts_of(signs), contrasts_of(signs).T @ games
    gradient = negative_log_posterior(start, *arguments)[1]
    differences = scipy.optimize.approx_fprime(start, lambda p: negative_log_posterior(p, *arguments)[0], 1e-7)
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-5)


def test_additive_games_are_exact_from_two_coalitions_more_than_players():
    slopes = RNG.normal(size=(7, 2))
    estimate, asked = solve(3.0 + all_coalitions(7) @ slopes, 9)
    np.testing.assert_allclose(estimate.values, slopes.T, atol=1e-10)
    assert estimate.num_coalitions == len(set(asked)) == len(asked) == 9
    assert not estimate.exact and float(estimate.standard_errors.max()) < 1e-8


@pytest.mark.slow
def test_values_add_up_and_constant_games_are_zero(tolerance):
    table = np.column_stack([RNG.normal(size=128), np.full(128, 3.0)])
    estimate, _ = solve(table, 40)
    np.testing.assert_allclose(np.sum(estimate.values, axis=1), table[-1] - table[0], **tolerance())
    assert not estimate.values[1].any() and not estimate.standard_errors[1].any()


def test_hyperparameters_do_not_depend_on_units_or_on_additive_games():
    coalitions = all_coalitions(7)[::3]
    coalitions = np.concatenate([np.zeros((1, 7), bool), coalitions[1:]])
    games = RNG.normal(size=(len(coalitions), 2)) + 5 * coalitions[:, :2].prod(axis=1, keepdims=True)
    others = np.column_stack([games * [1e-3, 1e5] + 2.0, coalitions @ np.arange(7.0), np.ones(len(coalitions))])
    first, second = (fit_parameters(coalitions, values, prior_parameters(7)) for values in (games, others))
    np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-3)  # the search stops near the mode
    assert not np.allclose(first, prior_parameters(7), atol=0.1)
    np.testing.assert_array_equal(fit_parameters(coalitions, others[:, 2:], first), first)


@pytest.mark.slow
def test_a_tolerance_stops_early_or_ends_with_all_coalitions():
    smooth = np.cumsum(RNG.normal(size=(8, 3)), axis=1)
    table = np.tanh(all_coalitions(8) @ smooth / 4)
    few, asked = solve(table, None, tolerance=0.02)
    assert few.tolerance_reached and 18 <= len(asked) < 200 and float(few.standard_errors.max()) <= 0.02
    every, asked = solve(RNG.normal(size=(32, 1)), None, tolerance=1e-9)
    assert every.exact and every.tolerance_reached and set(asked) == set(map(tuple, all_coalitions(5).tolist()))
    capped = solve(table, 20, tolerance=1e-9)[0]
    assert not capped.tolerance_reached and capped.num_coalitions == 20


@pytest.mark.parametrize("num_players", [1, 2])
@pytest.mark.parametrize("tolerance", [None, 0.1])
def test_one_or_two_players_are_exact(num_players, tolerance):
    table = RNG.normal(size=(2**num_players, 1))
    estimate, _ = solve(table, None, tolerance)
    np.testing.assert_allclose(estimate.values[0].sum(), table[-1, 0] - table[0, 0], rtol=1e-12)
    assert estimate.exact


@pytest.mark.slow
def test_thirty_players_take_polynomial_time():
    """Products of three features: 240 of a billion coalitions; the values of each product are enumerated."""
    background, x = RNG.normal(size=(5, 30)), RNG.normal(size=(2, 30))
    truth = np.zeros((2, 30))
    for start in range(0, 30, 3):
        own = slice(start, start + 3)
        product = lambda rows: np.sin(rows[:, :3].prod(axis=1))  # noqa: E731
        truth[:, own] = estimate_shapley(Interventional(background[:, own]), product, x[:, own]).values

    def waves(rows):
        return np.sin(rows.reshape(len(rows), 10, 3).prod(axis=2)).sum(axis=1)

    options = {"num_coalitions": 240, "rng_key": KEY}
    game = Interventional(background)
    active, fit = (estimate_shapley(game, waves, x, method=name, **options) for name in ("active", "least-squares"))
    errors = [np.sum((np.asarray(found.values) - truth) ** 2) for found in (active, fit)]
    assert errors[0] < 0.5 * errors[1]
    assert np.mean(np.abs(active.values - truth) <= 3 * active.standard_errors) > 0.9


@pytest.mark.slow
def test_draws_lead_and_outputs_are_last():
    points, coefficients = RNG.normal(size=(4, 7)), RNG.normal(size=(1, 2, 4))
    draws = RKHSFunction.over_draws(RBF(2.0), points, coefficients, batch_shape=(1, 2))
    x = RNG.normal(size=(3, 7))
    estimate = estimate_shapley(Baseline(), draws, x, method="active", num_coalitions=60, rng_key=KEY)
    exact = estimate_shapley(Baseline(), draws, x)
    assert estimate.values.shape == estimate.standard_errors.shape == (1, 2, 3, 7)
    np.testing.assert_allclose(estimate.values, exact.values, atol=0.02 * float(np.abs(exact.values).max()))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_coalitions": 8}, ValueError, "must be at least 9 to choose coalitions of 7 players"),
        ({"rng_key": None}, TypeError, "`rng_key` must be given to sample coalitions of 7 players by method 'active'"),
        ({"tolerance": 0.0}, ValueError, "`tolerance` must be"),
    ],
)
def test_bad_input_is_refused(options, error, message):
    game = Table(np.zeros((128, 1)), [])
    with pytest.raises(error, match=message):
        estimate_shapley(game, None, np.zeros((1, 7)), **{"method": "active", "rng_key": KEY, **options})
