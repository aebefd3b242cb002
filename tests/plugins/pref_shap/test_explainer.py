"""The explainer: skew-symmetry, additivity, names, data, groups, draws, the tasks, and what it refuses."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest

import kpp
from kpp import registry
from kpp.kernels import RBF, GeneralizedPreferential
from kpp.preferences import Matches
from kpp_pref_shap import PreferentialContext, PreferentialItems, PrefShap

SKEW = 1e-12


def test_everything_is_registered():
    assert registry.get("explainers", "pref-shap") is PrefShap
    assert registry.get("value_functions", "preferential-items") is PreferentialItems
    assert registry.get("value_functions", "preferential-context") is PreferentialContext


@pytest.mark.slow_variants("duel-{'conditional': 'interventional'}", "duel-{}", "duel-{'end_points': 'raw'}")
@pytest.mark.parametrize("options", [{}, {"end_points": "raw"}, {"conditional": "interventional"}], ids=str)
@pytest.mark.parametrize("which", ["duel", pytest.param("matches", marks=pytest.mark.slow)])
def test_explanations_change_their_sign_with_the_items(problem, function, request, options, which):
    pairs = request.getfixturevalue(which)
    pairs = pairs if which == "duel" else np.concatenate([pairs, pairs[:1, [0, 0]]])
    explainer = PrefShap(PreferentialItems(problem["in_X"], 0.05, **options))
    first, second = explainer.explain(function, pairs), explainer.explain(function, pairs[:, ::-1])
    np.testing.assert_allclose(first.values, -second.values, rtol=0, atol=SKEW)
    np.testing.assert_array_equal(first.values[-1], 0.0)  # an item against itself
    np.testing.assert_array_equal(first.data, pairs[:, 0] - pairs[:, 1])
    np.testing.assert_allclose(first.predictions, function(pairs), rtol=1e-10, atol=1e-12)
    if options != {"end_points": "raw"}:
        assert float(first.additivity_error().max()) < 1e-8


@pytest.mark.slow
def test_draws_are_explained_one_by_one(problem, matches, duel):
    lengthscales = problem["in_ls"] * np.array([[[0.8], [1.2]]])
    coefficients = np.stack([problem["in_alpha"], np.cos(problem["in_alpha"])])[None]
    draws = kpp.RKHSFunction.over_draws(
        GeneralizedPreferential(RBF(lengthscales, np.ones((1, 2)))), matches, coefficients, batch_shape=(1, 2)
    )
    explainer = PrefShap(PreferentialItems(problem["in_X"], 0.05))
    explanation = explainer.explain(draws, duel)
    assert dict(explanation.values.sizes) == {"chain": 1, "draw": 2, "instance": 2, "feature": 3}
    assert float(explanation.additivity_error().max()) < 1e-8
    one = kpp.RKHSFunction(GeneralizedPreferential(RBF(lengthscales[0, 1])), matches, coefficients[0, 1])
    np.testing.assert_allclose(explanation.values[0, 1], explainer.explain(one, duel).values, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_matches_are_explained_with_the_winner_first(problem, function):
    items = pd.DataFrame(problem["in_X"], columns=["size", "age", "speed"])
    matches = Matches.create(items, [0, 3, 2], [1, 2, 4], [0, 1, 1])
    explanation = kpp.explain(
        function,
        matches,
        explainer="pref-shap",
        value_function="preferential-items",
        background=problem["in_X"],
        regularization=0.05,
        groups={"body": ["size", "age"]},
    )
    assert explanation.feature_names == ("body", "speed")
    winners = np.array([[1, 0], [3, 2], [2, 4]])
    expected = dict(zip(["1 - 0", "3 - 2", "2 - 4"], items["speed"].to_numpy()[winners], strict=True))
    for name, (winner, loser) in expected.items():
        np.testing.assert_allclose(explanation.data.sel(instance=name, feature="speed"), winner - loser)
    assert explanation.attrs["explains"] == "duels" and explanation.attrs["background_size"] == 5
    explanation.plot.beeswarm()


@pytest.mark.slow
def test_a_tolerance_is_recorded(problem, function, duel):
    """So few players have all their coalitions valued in the first round, which no tolerance is too small for."""
    options = {"method": "permutation", "covariance": None}
    game = PreferentialItems(problem["in_X"], 0.01)
    found = PrefShap(game, tolerance=1e-9, **options).explain(function, duel, rng_key=jax.random.key(0))
    assert (found.attrs["tolerance"], found.attrs["tolerance_reached"], found.attrs["exact"]) == (1e-9, True, True)
    with pytest.raises(ValueError, match="`tolerance` must be"):
        PrefShap(game, tolerance=0.0, **options)


@pytest.mark.slow
def test_an_item_against_opponents(problem, function, duel):
    game = PreferentialItems(problem["in_X"], 0.05, opponents=problem["in_XR"])
    items = pd.DataFrame(duel[0], columns=["size", "age", "speed"])
    explanation = PrefShap(game).explain(function, items)
    assert explanation.feature_names == ("size", "age", "speed")
    each = np.stack([np.stack([duel[0, 0], other]) for other in problem["in_XR"]])
    np.testing.assert_allclose(explanation.predictions[0], np.mean(function(each)), rtol=1e-10)
    np.testing.assert_allclose(explanation.data, duel[0] - problem["in_XR"].mean(axis=0), rtol=1e-12)
    assert float(explanation.additivity_error().max()) < 1e-8


@pytest.mark.slow
def test_contexts_of_duels_and_on_average(problem, contextual, matches, duel):
    x = (duel, np.stack([problem["in_u"]] * 2))
    duels = PrefShap(PreferentialContext(problem["in_U"], 0.07)).explain(contextual, x)
    np.testing.assert_allclose(duels.predictions, contextual(x), rtol=1e-10)
    assert duels.base_values.dims == ("instance",)
    assert float(duels.additivity_error().max()) < 1e-8
    table = pd.DataFrame(x[1], columns=["indoor", "clay"])
    average = PrefShap(PreferentialContext(problem["in_U"], 0.07, matches=matches)).explain(contextual, table)
    assert average.feature_names == ("indoor", "clay") and average.attrs["explains"] == "contexts"
    assert float(average.additivity_error().max()) < 1e-8
    contexts = problem["in_U"][:2] + 0.1
    x = (duel, contexts)
    items = PrefShap(PreferentialItems(problem["in_X"], 0.05)).explain(contextual, x)
    np.testing.assert_allclose(items.predictions, contextual(x), rtol=1e-10)
    exchanged = PrefShap(PreferentialItems(problem["in_X"], 0.05)).explain(contextual, (x[0][:, ::-1], contexts))
    np.testing.assert_allclose(items.values, -exchanged.values, rtol=0, atol=SKEW)


@pytest.mark.nightly_variants("None-4")
@pytest.mark.slow
@pytest.mark.parametrize(("twice", "size"), [(2, 2), (None, 4)])
def test_blocks_of_instances_change_nothing(problem, function, matches, duel, twice, size):
    game = PreferentialItems(problem["in_X"], 0.05)
    pairs = matches if twice is None else np.concatenate([duel] * twice)
    whole, blocks = (PrefShap(game, instances_at_once=most).explain(function, pairs) for most in (None, size))
    np.testing.assert_allclose(blocks.values, whole.values, rtol=1e-10, atol=1e-12)


def test_what_is_refused(problem, function, contextual, matches, duel):
    background = problem["in_X"]
    items = PrefShap(PreferentialItems(background))
    with pytest.raises(ValueError, match="`conditional` must be one of .*'interventional'.*, got 'causal'"):
        PreferentialItems(background, conditional="causal")
    with pytest.raises(ValueError, match="`x` must be a tuple of pairs and contexts for this preference function"):
        items.explain(contextual, duel)
    with pytest.raises(ValueError, match="`x` must hold no contexts"):
        items.explain(function, (duel, problem["in_U"][:2]))
    with pytest.raises(TypeError, match="must be Preferential or GeneralizedPreferential, Contextual of these"):
        items.explain(kpp.RKHSFunction(RBF(), matches, problem["in_alpha"]), duel)
    with pytest.raises(TypeError, match="`function` must depend on contexts"):
        PrefShap(PreferentialContext(problem["in_U"])).explain(function, (duel, problem["in_U"][:2]))
    with pytest.raises(ValueError, match="`background` must have 3 columns"):
        PrefShap(PreferentialItems(background[:, :2])).explain(function, duel)
