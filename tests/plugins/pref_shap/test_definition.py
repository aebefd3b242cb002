"""Games against their definitions, written out as sums over pairs of references, and against each other's methods."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import kpp
from kpp.games import all_coalitions, shapley_values_from_table
from kpp.kernels import RBF, Contextual, GeneralizedPreferential, Matern32, Preferential
from kpp.kernels.toolkit import has_product_terms
from kpp_pref_shap import (
    PreferentialContext,
    PreferentialItems,
    PrefShap,
    as_concatenated,
    as_utility,
    explainer,
    skew_forms,
)

EXACT = {"rtol": 1e-9, "atol": 1e-11}  # sums of some hundred terms of order 1, in another order
COALITIONS = all_coalitions(3)


@pytest.fixture(scope="module")
def mixed(problem, matches):
    """A sum of both kinds of preferences, with a constant in the kernel of an item, scaled."""
    kernel = RBF(problem["in_ls"], 1.3)
    return kpp.RKHSFunction(
        0.7 * GeneralizedPreferential(kernel + 0.4) + Preferential(kernel), matches, problem["in_alpha"], 0.2
    )


@pytest.mark.slow_variants("interventional", "observational")
@pytest.mark.parametrize("conditional", ["observational", "interventional"])
def test_values_are_weighted_sums_over_pairs_of_references(problem, mixed, duel, by_definition, conditional):
    regularization = {"observational": 0.05, "interventional": None}[conditional]
    game = PreferentialItems(problem["in_X"], 0.05, conditional)
    expected = by_definition(mixed - mixed.intercept, duel[0], problem["in_X"], problem["in_ls"], regularization)
    np.testing.assert_allclose(game(mixed, duel, COALITIONS)[:, 0] - 0.2, expected, **EXACT)
    np.testing.assert_allclose(game.base(mixed), 0.2)


@pytest.mark.slow
def test_kernels_that_are_no_products(problem, matches, duel, by_definition):
    function = kpp.RKHSFunction(GeneralizedPreferential(Matern32(1.2)), matches, problem["in_alpha"])
    game = PreferentialItems(problem["in_X"], conditional="interventional")
    expected = by_definition(function, duel[0], problem["in_X"], problem["in_ls"])
    np.testing.assert_allclose(game(function, duel, COALITIONS)[:, 0], expected, **EXACT)
    observational = PreferentialItems(problem["in_X"], 0.05, kernel=RBF(problem["in_ls"]))
    ends = observational(function, duel, COALITIONS[[0, -1]])[:, 0]
    np.testing.assert_allclose(ends, [0.0, expected[-1]], **EXACT)


@pytest.mark.slow_variants("_MAX_CHUNK")
@pytest.mark.parametrize("limit", [pytest.param("_MAX_TABLE", marks=pytest.mark.slow), "_MAX_CHUNK"])
def test_a_table_of_items_and_a_sum_over_matches_agree(problem, mixed, duel, monkeypatch, limit):
    game = PreferentialItems(problem["in_X"], 0.05)
    expected = game(mixed, duel, COALITIONS)
    monkeypatch.setattr(skew_forms, "_MAX_TABLE", 0)
    monkeypatch.setattr(skew_forms, limit, 5)
    size = {"_MAX_TABLE": 10, "_MAX_CHUNK": 11}[limit]  # a batch size of its own: the limits are read in tracing
    again = dataclasses.replace(game, batch_size=size)
    np.testing.assert_allclose(again(mixed, duel, COALITIONS), expected, **EXACT)


@pytest.mark.nightly_variants("mixed")
@pytest.mark.slow_variants("function")
@pytest.mark.parametrize("name", ["function", pytest.param("mixed", marks=pytest.mark.slow)])  # five times the terms
def test_quadrature_is_enumeration(problem, duel, request, name):
    preference = request.getfixturevalue(name)
    game = PreferentialItems(problem["in_X"], conditional="interventional")
    first, second = (
        PrefShap(game, method=method, groups={"pair": ["x0", 2]}).explain(preference, duel)
        for method in ("quadrature", "enumeration")
    )
    np.testing.assert_allclose(first.values, second.values, **EXACT)
    assert first.attrs["groups"] == {"pair": ["x0", "x2"]}
    assert first.attrs["nodes"] == 1 and second.attrs["coalitions"] == 4
    with pytest.raises(TypeError, match="'quadrature' needs PreferentialItems with `conditional` 'interventional'"):
        PrefShap(PreferentialItems(problem["in_X"]), method="quadrature").explain(preference, duel)


@pytest.mark.slow
def test_many_features_take_the_quadrature(problem, function, duel, monkeypatch):
    monkeypatch.setattr(explainer, "_MAX_PLAYERS", 1)
    game = PreferentialItems(problem["in_X"], conditional="interventional")
    explanation = PrefShap(game, groups={"pair": ["x0", 2]}).explain(function, duel)
    assert explanation.attrs["method"] == "quadrature"
    assert float(explanation.additivity_error().max()) < 1e-12


@pytest.mark.slow
def test_sixteen_features():
    rng = np.random.default_rng(0)
    items = rng.normal(size=(4, 16))
    function = kpp.RKHSFunction(GeneralizedPreferential(RBF(4.0)), items[[[0, 1], [2, 3]]], [1.0, -0.5])
    game = PreferentialItems(items[:3], conditional="interventional")
    explanation = PrefShap(game).explain(function, items[[[0, 2]]] + 0.1)
    assert explanation.attrs["method"] == "quadrature"
    np.testing.assert_allclose(explanation.predictions, function(items[[[0, 2]]] + 0.1), rtol=1e-10)
    assert float(explanation.additivity_error().max()) < 1e-12


@pytest.mark.slow
def test_a_utility_is_explained_as_by_rkhs_shap(problem, matches, duel):
    function = kpp.RKHSFunction(Preferential(RBF(problem["in_ls"])), matches, problem["in_alpha"])
    utility = as_utility(function)
    np.testing.assert_allclose(np.asarray(utility(duel[0])) @ [1, -1], np.asarray(function(duel))[0], **EXACT)
    game = PreferentialItems(problem["in_X"], conditional="interventional")
    values = kpp.explain(utility, duel[0], value_function="interventional", background=problem["in_X"]).values
    expected = values[0].values - values[1].values
    np.testing.assert_allclose(PrefShap(game).explain(function, duel).values[0], expected, **EXACT)
    with pytest.raises(TypeError, match="must have the kernel Preferential"):
        as_utility(kpp.RKHSFunction(GeneralizedPreferential(RBF()), matches, problem["in_alpha"]))


@pytest.mark.slow
def test_items_side_by_side_are_the_same_function(problem, mixed, contextual, duel):
    rows = duel.reshape(2, -1)
    np.testing.assert_allclose(as_concatenated(mixed)(rows), mixed(duel), **EXACT)
    context = np.stack([problem["in_u"]] * 2)
    expected = contextual((duel, context))
    np.testing.assert_allclose(as_concatenated(contextual)(np.concatenate([rows, context], axis=1)), expected, **EXACT)
    assert has_product_terms(as_concatenated(contextual).kernel)


@pytest.mark.slow
def test_items_side_by_side_are_explained(problem, function, duel):
    background = np.concatenate([problem["in_X"], problem["in_X"][::-1]], axis=1)
    rows = duel.reshape(2, -1)
    naive = kpp.explain(as_concatenated(function), rows, value_function="interventional", background=background)
    assert naive.values.shape == (2, 6)


@pytest.mark.parametrize("conditional", ["interventional", pytest.param("observational", marks=pytest.mark.slow)])
def test_contexts_by_the_definition(problem, contextual, duel, by_definition, conditional):
    game = PreferentialContext(problem["in_U"], 0.07, conditional)
    regularization = {"observational": 0.07, "interventional": None}[conditional]
    context = np.stack([problem["in_u"]] * 2)

    def preference(contexts):  # the oracle averages over pairs of references; the second of each plays no part
        own = contexts[:, 0]
        return contextual((np.repeat(duel[:1], len(own), axis=0), own))

    expected = by_definition(preference, context, problem["in_U"], problem["in_lsu"], regularization)
    if regularization is not None:  # nor do its weights
        ones = by_definition(lambda z: np.ones(len(z)), context, problem["in_U"], problem["in_lsu"], regularization)
        expected = expected / np.sqrt(ones)
    x = (duel, context)
    np.testing.assert_allclose(game(contextual, x, all_coalitions(2))[:, 0], expected, **EXACT)
    if regularization is not None:
        np.testing.assert_allclose(game.base_at(contextual, x), [expected[0], 0.0], **EXACT)
    with pytest.raises(TypeError, match="base_at"):
        game.base(contextual)


@pytest.mark.slow
def test_averages_are_means_of_games(problem, contextual, function, matches, duel):
    """Opponents, contexts averaged over, and matches averaged over give the means of the values one by one."""
    game, contexts = PreferentialItems(problem["in_X"], 0.05), problem["in_U"]
    against = dataclasses.replace(game, opponents=problem["in_XR"])(function, duel[0], COALITIONS)
    each = [np.stack([[duel[0, 0], other]] * 2) for other in problem["in_XR"]]
    expected = np.mean([game(function, pair, COALITIONS) for pair in each], axis=0)
    np.testing.assert_allclose(against[:, 0], expected[:, 0], **EXACT)
    averaged = dataclasses.replace(game, contexts=contexts)(contextual, duel, COALITIONS)
    same = [np.stack([u, u]) for u in contexts]
    expected = np.mean([game(contextual, (duel, pair), COALITIONS) for pair in same], axis=0)
    np.testing.assert_allclose(averaged, expected, **EXACT)
    context, at = PreferentialContext(contexts, 0.07), np.stack([problem["in_u"]] * 2)
    mean = dataclasses.replace(context, matches=matches)(contextual, at, all_coalitions(2))
    expected = np.mean([context(contextual, (np.stack([one] * 2), at), all_coalitions(2)) for one in matches], axis=0)
    np.testing.assert_allclose(mean[:, 0], expected[:, 0], **EXACT)


UTILITY = Preferential(RBF(1.1))
SUM = pytest.param(UTILITY + GeneralizedPreferential(RBF(0.8)), marks=pytest.mark.slow, id="sum")  # twice the terms


@pytest.mark.slow_variants("utility")
@pytest.mark.parametrize("kernel", [pytest.param(UTILITY, id="utility"), SUM])
def test_utilities_in_contexts(problem, matches, duel, kernel):
    """Each duel in a context of its own, with a utility in the kernel: the sums over matches and over contexts."""
    kernel = Contextual(kernel, RBF(problem["in_lsu"]))
    function = kpp.RKHSFunction(kernel, (matches, problem["in_U"]), problem["in_alpha"])
    x = (duel[[0, 0]], problem["in_U"][:2] + 0.2)
    rows = [x, *((matches, np.repeat(u[None], len(matches), axis=0)) for u in x[1])]
    values = np.asarray(function(tuple(map(np.concatenate, zip(*rows, strict=True)))))
    np.testing.assert_allclose(PreferentialItems(problem["in_X"]).predictions(function, x), values[:2], **EXACT)
    np.testing.assert_allclose(PreferentialContext(problem["in_U"]).predictions(function, x), values[:2], **EXACT)
    averaged = PreferentialContext(problem["in_U"], matches=matches).predictions(function, x[1])
    np.testing.assert_allclose(averaged, values[2:].reshape(2, -1).mean(axis=1), **EXACT)


@pytest.mark.slow
def test_shapley_values_of_the_table_are_those_of_the_explainer(problem, function, duel):
    game = PreferentialItems(problem["in_X"], problem["in_lam"])
    expected = shapley_values_from_table(game(function, duel, COALITIONS))[:, 0]
    np.testing.assert_allclose(PrefShap(game).explain(function, duel).values[0], expected, **EXACT)
