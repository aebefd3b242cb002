"""Value functions as games of shapiq: its exact computer and an approximator find kpp's exact values."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import kpp
from kpp.games import (
    Baseline,
    GaussianConditional,
    Interventional,
    Observational,
    as_shapiq_game,
    interaction_values,
    shapley_values,
)
from kpp.games.estimators import shapiq_game
from kpp.kernels import RBF

RNG = np.random.default_rng(3)
X = RNG.normal(size=(20, 4))
FUNCTION = kpp.RKHSFunction(RBF(1.5), X, RNG.normal(size=20), 0.3)
GAMES = {
    "interventional": Interventional(X[:8]),
    "baseline": Baseline(),
    "observational": Observational(X[:8], regularization=1e-2),
    "gaussian": GaussianConditional(X[:8]),
}


def needs_shapiq():
    return pytest.importorskip("shapiq")


@pytest.mark.parametrize("name", GAMES)
def test_exact_values_agree(name):
    game, computer = GAMES[name], needs_shapiq().ExactComputer(as_shapiq_game(GAMES[name], FUNCTION, X[0]))
    exact = np.asarray(shapley_values(game, FUNCTION, X[:1]))
    for index, order in (("SV", 1), ("k-SII", 2), ("SII", 2), ("STII", 2)):
        read = kpp.Explanation.from_shapiq(computer(index, order), X[0])
        np.testing.assert_allclose(read.values, exact, atol=1e-12, err_msg=index)
        np.testing.assert_allclose(read.base_values, game.base(FUNCTION), atol=1e-12)
        np.testing.assert_allclose(read.predictions, FUNCTION(X[:1]), atol=1e-12)
        if index in ("SII", "STII"):
            ours = interaction_values(game, FUNCTION, X[:1], index=index)
            np.testing.assert_allclose(read.interactions, ours, atol=1e-12, err_msg=index)


def test_an_approximator_finds_the_exact_values():
    shapiq = needs_shapiq()
    game = as_shapiq_game(GAMES["interventional"], FUNCTION, X[0])
    sampled = shapiq.PermutationSamplingSV(4, random_state=0).approximate(20000, game)
    read, exact = kpp.Explanation.from_shapiq(sampled, X[0]), shapley_values(GAMES["interventional"], FUNCTION, X[:1])
    # Some 6000 orders, each with marginal contributions of a standard deviation of about 0.3: 4 standard errors.
    np.testing.assert_allclose(read.values, exact, atol=4 * 0.3 / np.sqrt(6000))
    assert not read.attrs["exact"]
    # With a budget for all coalitions the regression is exact.
    solved = shapiq.KernelSHAP(4, random_state=0).approximate(16, game)
    np.testing.assert_allclose(kpp.Explanation.from_shapiq(solved, X[0]).values, exact, atol=1e-6)


def test_groups_and_outputs_are_players_and_games():
    computer = needs_shapiq().ExactComputer

    def two(x):
        return np.stack([np.asarray(x).prod(axis=1), np.asarray(x)[:, 0] ** 3], axis=1)

    groups, game = {"pair": [0, 2]}, Interventional(X[:8])
    exact = np.asarray(shapley_values(game, two, X[:1], groups=groups))
    for output in (0, 1):
        found = as_shapiq_game(game, two, X[0], groups=groups, output=output)
        assert list(found.player_name_lookup) == ["pair", "x1", "x3"]
        values = computer(found)("SV", 1).get_n_order_values(1)
        np.testing.assert_allclose(values, exact[0, :, output], atol=1e-12)


# What is wrong is found before shapiq is needed.
@pytest.mark.slow
def test_what_does_not_fit_is_refused(monkeypatch):
    game = Interventional(X[:8])
    draws = kpp.RKHSFunction.over_draws(RBF(1.5), X, RNG.normal(size=(1, 2, 20)), batch_shape=(1, 2))
    for arguments, options, message in (
        ((FUNCTION, X[:2]), {}, r"`x` must be one point, \(d,\) or \(1, d\), got shape \(2, 4\)"),
        ((draws, X[0]), {}, r"`function` must have no draws, got the draws \(1, 2\)"),
        ((FUNCTION, X[0]), {"output": 0}, "`output` must be None for a function with a single output"),
        ((lambda x: np.asarray(x)[:, :2], X[0]), {}, "`output` must be a position from 0 to 1, got None"),
        ((lambda x: np.asarray(x)[:, :2], X[0]), {"output": 2}, "`output` must be a position from 0 to 1, got 2"),
    ):
        with pytest.raises(ValueError, match=message):
            as_shapiq_game(game, *arguments, **options)
    monkeypatch.setitem(sys.modules, "shapiq", None)
    shapiq_game._game_class.cache_clear()
    with pytest.raises(ImportError, match=r"pip install 'kpp\[peers\]'"):
        as_shapiq_game(game, FUNCTION, X[0])
