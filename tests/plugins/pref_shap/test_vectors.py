"""The reference vectors: values of all coalitions and their Shapley values, at rtol 1e-7 and atol 1e-10."""

from __future__ import annotations

import numpy as np
import pytest

from kpp.games import all_coalitions
from kpp_pref_shap import PreferentialContext, PreferentialItems, PrefShap

TOLERANCE = {"rtol": 1e-7, "atol": 1e-10}
ITEMS = {
    "obs": {},
    "obs_raw": {"end_points": "raw"},
    "int": {"conditional": "interventional"},
}


@pytest.mark.slow_variants("obs", "obs_raw")
@pytest.mark.parametrize("name", ITEMS)
def test_values_of_items(problem, function, duel, name):
    game = PreferentialItems(problem["in_X"], problem["in_lam"], **ITEMS[name])
    values = game(function, duel, all_coalitions(3))[:, 0]
    np.testing.assert_allclose(values, problem[f"out_v_{name}"], **TOLERANCE)
    assert values[0] == 0.0


@pytest.mark.slow_variants("obs")
@pytest.mark.parametrize("name", ITEMS)
def test_explanations_of_items(problem, function, duel, name):
    game = PreferentialItems(problem["in_X"], problem["in_lam"], **ITEMS[name])
    explanation = PrefShap(game).explain(function, duel)
    np.testing.assert_allclose(explanation.values[0], problem[f"out_phi_{name}"], **TOLERANCE)
    np.testing.assert_allclose(explanation.predictions[0], problem["out_g"], **TOLERANCE)
    assert float(explanation.base_values) == 0.0
    if name != "obs_raw":
        assert float(explanation.additivity_error().max()) < 1e-12


@pytest.mark.slow
def test_context(problem, contextual, duel):
    game = PreferentialContext(problem["in_U"], problem["in_lam_ctx"], end_points="raw")
    x = (duel, np.stack([problem["in_u"]] * 2))
    np.testing.assert_allclose(game(contextual, x, all_coalitions(2))[:, 0], problem["out_v_ctx_raw"], **TOLERANCE)
    explanation = PrefShap(game).explain(contextual, x)
    np.testing.assert_allclose(explanation.values[0], problem["out_phi_ctx_raw"], **TOLERANCE)
    np.testing.assert_allclose(explanation.predictions[0], problem["out_g_ctx"], **TOLERANCE)
