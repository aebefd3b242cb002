"""Pref-SHAP of teams, against the preference at teams whose members were imputed one by one."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import kpp
from kpp.games import all_coalitions, shapley_values_from_table
from kpp.kernels import RBF, BagMean, Contextual, GeneralizedPreferential, Preferential, pad_bags
from kpp.kernels.toolkit import PaddedBags
from kpp.preferences import Matches
from kpp_models import GPGP, PreferenceGP
from kpp_pref_shap import PreferentialContext, PreferentialItems, PrefShap

EXACT = {"rtol": 1e-9, "atol": 1e-11}  # sums of some hundred terms of order 1, in another order
RNG = np.random.default_rng(3)
MEMBERS, REFERENCES = RNG.normal(size=(9, 3)), RNG.normal(size=(4, 3))
TEAMS = [[0, 1, 2], [3], [4, 5], [6, 7, 8, 0], [1, 4]]
FIRST, SECOND, Y = [0, 1, 2, 3, 0, 2], [1, 2, 3, 4, 4, 0], [1, 0, 1, 1, 0, 1]
MATCHES = Matches.from_teams(MEMBERS, TEAMS, FIRST, SECOND, Y)
GAME = PreferentialItems(REFERENCES, conditional="interventional")
KERNEL = BagMean(RBF(np.array([0.8, 1.0, 1.4])))


def preference(kernel, contexts=None):
    points = tuple(MATCHES.points)
    return kpp.RKHSFunction(kernel, points if contexts is None else (points, contexts), np.cos(np.arange(6.0)), 0.3)


def imputed(team, mask):
    """All members with the absent features of all references: the team whose embedding is the weighted one."""
    return np.concatenate([np.where(mask, member, REFERENCES) for member in team])


def table(function, first, second, contexts=None):
    """The values of all coalitions of three features, by teams of imputed members."""
    rows = []
    for mask in all_coalitions(3):
        pairs = PaddedBags.pair(*(pad_bags([imputed(team, mask) for team in side]) for side in (first, second)))
        rows.append(function(tuple(pairs) if contexts is None else (tuple(pairs), contexts)))
    return np.stack(rows)


NEW = [RNG.normal(size=(size, 3)) for size in (1, 3, 2, 4)]
DUELS = PaddedBags.pair(pad_bags(NEW[:2]), pad_bags(NEW[2:]))


@pytest.mark.slow_variants("utilities", "both")
@pytest.mark.parametrize("kind", ["pairs", "utilities", "both"])
def test_values_are_those_of_teams_of_imputed_members(kind):
    kernels = {"pairs": GeneralizedPreferential(KERNEL + 0.4), "utilities": Preferential(KERNEL)}
    function = preference(kernels[kind] if kind in kernels else 0.7 * kernels["pairs"] + kernels["utilities"])
    found = PrefShap(GAME, progress=False).explain(function, DUELS)
    known = shapley_values_from_table(table(function, NEW[:2], NEW[2:]))
    np.testing.assert_allclose(found.values.to_numpy(), np.asarray(known).T, **EXACT)
    np.testing.assert_allclose(found.predictions.to_numpy(), function(tuple(DUELS)), **EXACT)
    np.testing.assert_allclose(found.data.to_numpy()[0], NEW[0].mean(axis=0) - NEW[2].mean(axis=0), **EXACT)


@pytest.mark.slow
def test_matches_of_teams_in_contexts_are_explained_with_the_winner_first():
    contexts = np.linspace(-1.0, 1.0, 6)[:, None]
    function = preference(Contextual(GeneralizedPreferential(KERNEL), RBF(1.2)), contexts)
    matches = Matches.from_teams(MEMBERS, TEAMS, FIRST, SECOND, Y, contexts)
    found = PrefShap(GAME, progress=False).explain(function, matches)
    sides = [[MEMBERS[TEAMS[number]] for number in side] for side in np.asarray(matches.pairs).T]
    sign = np.where(np.asarray(matches.wins) < np.asarray(matches.losses), -1.0, 1.0)
    known = shapley_values_from_table(table(function, *sides, np.asarray(matches.contexts)) - 0.3)
    np.testing.assert_allclose(found.values.to_numpy(), np.asarray(known).T * sign[:, None], **EXACT)


@pytest.mark.slow
def test_draws_of_a_fit_have_the_law_of_the_posterior_of_teams():
    """The variance of one value: Shapley's weights of the posterior covariance at teams of imputed members."""
    fit = GPGP(KERNEL + 0.4).fit(jax.random.key(0), MATCHES, inference=kpp.MAP(progress=False), num_prior_samples=0)
    found = kpp.explain(
        fit, DUELS, explainer="pref-shap", value_function=GAME, rng_key=jax.random.key(1), progress=False
    )
    posterior = fit.function_posterior(at="mean")
    masks, weights = all_coalitions(3), np.asarray(shapley_values_from_table(np.eye(8)))
    teams = [pad_bags([imputed(team, mask) for mask in masks]) for team in (NEW[0], NEW[2])]
    x = tuple(PaddedBags.pair(*teams))
    known = np.sqrt(np.diag(weights @ posterior.covariance(x, x) @ weights.T))
    errors = found.values.mean(("chain", "draw"))[0] - weights @ posterior.mean(x)
    assert (np.abs(errors) < 4 * known / 200**0.5).all()
    np.testing.assert_allclose(found.values.std(("chain", "draw"))[0], known, rtol=0.2)  # four errors of 200 draws


def test_what_has_no_game_of_teams_is_refused():
    items = kpp.RKHSFunction(GeneralizedPreferential(RBF(1.0)), RNG.normal(size=(6, 2, 3)), np.ones(6))
    with pytest.raises(ValueError, match="`x` must hold items described by rows, as the function does, got teams"):
        PrefShap(GAME).explain(items, DUELS)
    with pytest.raises(ValueError, match="`x` must hold pairs of teams"):
        PrefShap(GAME).explain(preference(GeneralizedPreferential(KERNEL)), pad_bags(NEW))
    with pytest.raises(ValueError, match="the game of contexts, got teams"):
        PrefShap(PreferentialContext(np.zeros((2, 1)))).explain(preference(GeneralizedPreferential(KERNEL)), MATCHES)
    with pytest.raises(TypeError, match="got one of teams"):
        GAME(preference(GeneralizedPreferential(KERNEL)), np.zeros((1, 2, 3)), np.ones((1, 3), bool))


@pytest.mark.slow
def test_a_fit_of_teams_or_contexts_asks_for_a_background():
    contextual = Contextual(GeneralizedPreferential(RBF(1.0)), RBF(1.0))
    items = Matches.create(MEMBERS, FIRST, SECOND, Y, np.linspace(-1.0, 1.0, 6)[:, None])
    options = {"inference": kpp.MAP(progress=False), "num_prior_samples": 0}
    for model, matches in ((GPGP(KERNEL), MATCHES), (PreferenceGP(contextual), items)):
        fit = model.fit(jax.random.key(0), matches, **options)
        with pytest.raises(TypeError, match="background"):
            kpp.explain(fit, matches, explainer="pref-shap", value_function="preferential-items")
