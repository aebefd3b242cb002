"""Interactions agree with their definition, pair by pair and coalition by coalition, and with reference numbers."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.functions import RKHSFunction
from kpp.games import Interventional, all_coalitions, interaction_values, interactions_from_table
from kpp.kernels import RBF, Matern32

INDICES = {"SII": "sii", "STII": "stii2"}
TOLERANCE = {"rtol": 1e-7, "atol": 1e-10}


def by_definition(worth, num_players, index):
    """Second differences, weighted as the definition says; `worth` takes a frozenset of players."""
    g, result = num_players, np.zeros((num_players, num_players))
    for i, j in itertools.permutations(range(g), 2):
        rest = [k for k in range(g) if k not in (i, j)]
        for s in range(g - 1):
            weight = (
                math.factorial(s) * math.factorial(g - 2 - s) / math.factorial(g - 1)
                if index == "SII"
                else 2 / (g * math.comb(g - 1, s))
            )
            for members in map(frozenset, itertools.combinations(rest, s)):
                both, none = worth(members | {i, j}), worth(members)
                result[i, j] += weight * (both - worth(members | {i}) - worth(members | {j}) + none)
    if index == "STII":
        np.fill_diagonal(result, [worth(frozenset({i})) - worth(frozenset()) for i in range(g)])
    return result


@pytest.mark.slow_variants("5-STII")
@pytest.mark.parametrize("index", list(INDICES))
@pytest.mark.parametrize("num_players", [1, 2, 5])
def test_tables_of_random_games(tolerance, num_players, index):
    table = np.random.default_rng(num_players).normal(size=2**num_players)
    expected = by_definition(lambda members: table[sum(2**k for k in members)], num_players, index)
    np.testing.assert_allclose(interactions_from_table(table, index=index), expected, **tolerance())
    if index == "STII":  # efficiency
        total = np.triu(interactions_from_table(table, index=index)).sum()
        np.testing.assert_allclose(total, table[-1] - table[0], **tolerance())


@pytest.mark.parametrize("index", list(INDICES))
def test_reference_table(vectors, index):
    core = vectors("shapley_core")
    values = interactions_from_table(core["in_v"], index=index)
    np.testing.assert_allclose(values, core[f"out_{INDICES[index]}"], **TOLERANCE)


@pytest.mark.slow_variants("small-enumeration-SII", "small-quadrature-SII", "small-quadrature-STII")
@pytest.mark.parametrize(
    ("name", "method", "index"),
    [
        ("small", "quadrature", "SII"),
        ("small", "quadrature", "STII"),
        ("small", "enumeration", "SII"),
        pytest.param("small", "enumeration", "STII", marks=pytest.mark.slow),
        pytest.param("d10", "quadrature", "SII", marks=pytest.mark.slow),
        pytest.param("d10", "quadrature", "STII", marks=pytest.mark.slow),
    ],
)
def test_reference_functions(vectors, name, method, index):
    product = vectors("exact_product")
    function = RKHSFunction(
        RBF(lengthscale=product[f"in_{name}_ls"]), product[f"in_{name}_X"], product[f"in_{name}_alpha"]
    )
    game, x = Interventional(product[f"in_{name}_Z"]), product[f"in_{name}_Xq"]
    values = interaction_values(game, function, x, index=index, method=method)
    np.testing.assert_allclose(values, product[f"out_{name}_{INDICES[index]}"], **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel",
    [pytest.param("sum of products", marks=pytest.mark.slow), "factors of both signs"],
    indirect=True,
)
def test_product_kernels(function, data, tolerance):
    game = Interventional(data["Z"])
    expected = interactions_from_table(game(function, data["x"], all_coalitions(4)))
    values = interaction_values(game, function, data["x"], method="quadrature")
    np.testing.assert_allclose(values, jnp.moveaxis(expected, 2, 0), **tolerance())


@pytest.mark.slow
def test_other_games_are_enumerated(data, tolerance):
    game = Interventional(data["Z"])
    function = RKHSFunction(Matern32(), data["X"], data["alpha"])
    values = interaction_values(game, function, data["x"])
    expected = interactions_from_table(game(function, data["x"], all_coalitions(4)))
    np.testing.assert_allclose(values, jnp.moveaxis(expected, 2, 0), **tolerance())


@pytest.mark.slow
def test_taylor_interactions_add_up_for_outliers():
    """Factors underflow to 0; the diagonal and the upper triangle still sum to v(D) - v(0)."""
    rng = np.random.default_rng(3)
    points, x = rng.normal(size=(5, 10)), rng.normal(size=(2, 10))
    x[1, 4] = 60.0
    function = RKHSFunction(RBF(lengthscale=jnp.full(10, 1.5)), points, rng.normal(size=5))
    game = Interventional(points[:3])
    values = interaction_values(game, function, x, index="STII", method="quadrature")
    expected = function(x) - game.base(function)
    np.testing.assert_allclose(np.triu(values).sum(axis=(1, 2)), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(values, np.swapaxes(values, 1, 2), rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_single_precision_and_batches(vectors):
    product = vectors("exact_product")
    points, background, x, alpha, scales = (
        jnp.asarray(product[f"in_small_{name}"], dtype=jnp.float32) for name in ("X", "Z", "Xq", "alpha", "ls")
    )
    with jax.enable_x64(False):
        function = RKHSFunction(RBF(lengthscale=scales), points, alpha)
        values = interaction_values(Interventional(background), function, x, method="quadrature", batch_size=3)
    assert values.dtype == jnp.float32
    np.testing.assert_allclose(values, product["out_small_sii"], rtol=1e-3, atol=1e-6)  # differences lose some digits


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: interaction_values(Interventional(x), np.sum, x, index="k-SII"),
            "`index` must be one of .'SII', 'STII'",
        ),
        (lambda x: interactions_from_table(np.ones(6)), r"`values` must have 2\^g rows"),
        (lambda x: interaction_values(Interventional(x), np.sum, x, batch_size=0), "`batch_size` must be at least 1"),
    ],
)
def test_bad_input_is_refused(data, call, message):
    with pytest.raises(ValueError, match=message):
        call(data["x"])
