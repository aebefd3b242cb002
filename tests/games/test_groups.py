"""Groups of features play as one, in every estimator; features without variance do not play at all."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.functions import RKHSFunction
from kpp.games import (
    Baseline,
    Interventional,
    all_coalitions,
    as_players,
    estimate_shapley,
    interaction_values,
    interactions_from_table,
    shapley_values,
    shapley_values_from_table,
)
from kpp.kernels import RBF, Linear, ProductKernel

GROUPS = {"a": [0, 3], "c": (2,), "b": ["x4", 1]}
KERNEL = RBF(lengthscale=jnp.array([0.7, 1.0, 1.6, 2.0, 1.2]))


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=(rows, 5)) for name, rows in (("X", 6), ("Z", 4), ("x", 2))}


def make_function(kernel, points):
    coefficients = np.random.default_rng(1).normal(size=(1, 2, 6))
    return RKHSFunction.over_draws(kernel, points["X"], coefficients, 0.3, batch_shape=(1, 2))


def table_of(game, function, x):
    """Values of all coalitions of features: (coalitions, draws..., p)."""
    return jnp.moveaxis(game(function, x, all_coalitions(5)), 2, 0)


def quotient(table, groups):
    """Values of all coalitions of groups, one group after another switched on by hand."""
    masks = [sum(1 << j for j in group) for group in groups]
    rows = [sum(mask for k, mask in enumerate(masks) if row >> k & 1) for row in range(2 ** len(groups))]
    return table[np.array(rows)]


def test_players_are_read():
    players = as_players(GROUPS, 6)
    assert players.names == ("a", "b", "c", "x5")
    assert players.groups == ((0, 3), (1, 4), (2,), (5,))
    assert as_players(players, 6) is players
    assert as_players(None, 2, ["u", "v"]).names == ("u", "v")
    assert as_players({"x1": [1]}, 2) == as_players(None, 2)
    assert as_players({"one": "v"}, 2, ["u", "v"]).groups == ((0,), (1,))
    assert hash(players) == hash(as_players(GROUPS, 6))
    expanded = players.expand(np.array([[True, False, False, True], [True] * 4]))
    np.testing.assert_array_equal(expanded, [[1, 0, 0, 1, 0, 1], [1] * 6])
    factors = jnp.arange(1.0, 7.0)[:, None]
    np.testing.assert_array_equal(jax.jit(players.multiply)(factors)[:, 0], [1 * 4, 2 * 5, 3, 6])


def test_features_of_no_player_are_present_in_the_full_coalition_only():
    players = as_players(GROUPS, 6).keep(np.array([True, False, True, True]))
    assert (players.names, players.num_players) == (("a", "c", "x5"), 3)
    expanded = players.expand(np.array([[True, True, False], [True, True, True]]))
    np.testing.assert_array_equal(expanded, [[1, 0, 1, 1, 0, 0], [1] * 6])
    np.testing.assert_array_equal(jnp.asarray(expanded), players.expand(jnp.array([[1, 1, 0], [1, 1, 1]], dtype=bool)))


@pytest.mark.slow
def test_every_method_solves_the_quotient_game(points, tolerance):
    function, game = make_function(KERNEL, points), Interventional(points["Z"])
    table = quotient(table_of(game, function, points["x"]), as_players(GROUPS, 5).groups)
    expected = jnp.moveaxis(shapley_values_from_table(table), 0, -1)
    for method in ("quadrature", "enumeration"):
        values = shapley_values(game, function, points["x"], groups=GROUPS, method=method)
        np.testing.assert_allclose(values, expected, **tolerance())
    expected = jnp.moveaxis(interactions_from_table(table), (0, 1), (-2, -1))
    values = interaction_values(game, function, points["x"], groups=GROUPS, method="quadrature")
    np.testing.assert_allclose(values, expected, **tolerance())


@pytest.mark.slow
def test_plain_functions(points, tolerance):
    """f is additive across the groups, so each gets the sum of its features' values; x1 is constant."""
    background, x = np.array(points["Z"]), np.array(points["x"])
    background[:, 1] = x[:, 1] = 0.3

    def f(x):
        return np.sin(x[:, 0] * x[:, 3]) + x[:, 1] + x[:, 2] * x[:, 4]

    game, groups = Interventional(background), {"a": [0, 3], "b": [2, 4]}
    alone = shapley_values(game, f, x)
    values = shapley_values(game, f, x, groups=groups)
    expected = np.stack([alone[:, [0, 3]].sum(axis=1), np.zeros(2), alone[:, [2, 4]].sum(axis=1)], axis=1)
    np.testing.assert_allclose(values, expected, **tolerance())
    np.testing.assert_array_equal(alone[:, 1], 0.0)
    interactions = np.asarray(interaction_values(game, f, x))
    np.testing.assert_array_equal(interactions[:, 1], 0.0)
    np.testing.assert_array_equal(interactions[:, :, 1], 0.0)
    assert (np.abs(interactions[:, [0, 2], [3, 4]]) > 1e-3).all()


@pytest.mark.slow_variants("enumeration", "quadrature", "least-squares")
@pytest.mark.parametrize("method", ["quadrature", "enumeration", "least-squares", "permutation"])
def test_features_without_variance_get_zero(points, tolerance, method):
    """Columns 1 and 4 are constant over the explained points and the background, whatever the function's points are."""
    fixed = {name: np.array(rows) for name, rows in points.items()}
    fixed["Z"][:, [1, 4]] = fixed["x"][:, [1, 4]] = [0.7, -1.2]
    function, game = make_function(KERNEL, fixed), Interventional(fixed["Z"])
    estimate = estimate_shapley(game, function, fixed["x"], method=method, num_coalitions=8, rng_key=jax.random.key(0))
    assert estimate.exact  # 2^3 coalitions are within the budget
    assert estimate.num_nodes == (2 if method == "quadrature" else None)
    np.testing.assert_array_equal(estimate.values[..., [1, 4]], 0.0)
    expected = jnp.moveaxis(shapley_values_from_table(table_of(game, function, fixed["x"])), 0, -1)
    np.testing.assert_allclose(estimate.values, expected, **tolerance())


@pytest.mark.slow
def test_where_nothing_varies_nothing_is_explained(points):
    row = points["x"][:1]
    function = make_function(KERNEL, points)
    np.testing.assert_array_equal(shapley_values(Interventional(row), function, row), np.zeros((1, 2, 1, 5)))


@pytest.mark.slow
def test_baseline_games_keep_constant_features_whose_factors_differ_from_one(points):
    """A linear kernel's factor at a constant column is not the 1 of an absent one; an RBF's is."""
    fixed = {name: np.array(rows) for name, rows in points.items()}
    fixed["X"][:, :2] = fixed["x"][:, :2] = 0.7
    function = make_function(ProductKernel((Linear(), *[RBF()] * 4)), fixed)
    values = shapley_values(Baseline(), function, fixed["x"], method="quadrature")
    assert (np.abs(values[..., 0]) > 1e-3).all()
    np.testing.assert_array_equal(values[..., 1], 0.0)


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ([[0, 1]], TypeError, "`groups` must be a mapping"),
        ({"a": []}, ValueError, "`groups` must hold at least one feature each, got none for 'a'"),
        ({"a": [0, 5]}, ValueError, "`groups` 'a' must hold positions from 0 to 4, got 5"),
        ({"a": [0.5]}, ValueError, "`groups` 'a' must hold positions or names of features, got 0.5"),
        ({"a": ["age"]}, ValueError, "`groups` 'a' holds the unknown feature 'age'"),
        ({"a": [0, 1], "b": [1]}, ValueError, r"at most once, got \['x1'\] more often"),
        ({"x1": [0, 2]}, ValueError, r"must not be called like a feature outside of them, got \['x1'\]"),
        (as_players(None, 4), ValueError, "`groups` are of 4 features, but `x` has 5"),
    ],
)
def test_groups_that_cannot_be_are_refused(points, groups, error, message):
    with pytest.raises(error, match=message):
        shapley_values(Interventional(points["Z"]), np.sum, points["x"], groups=groups)
