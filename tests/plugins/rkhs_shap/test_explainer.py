"""The explainer: what it records, what it takes, and that it is registered."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import kpp
from kpp import registry
from kpp.games import Interventional, interventional_shapley
from kpp.kernels import Matern32
from kpp_rkhs_shap import RKHSShap


def test_it_is_registered():
    assert registry.get("explainers", "rkhs-shap") is RKHSShap


@pytest.mark.slow
def test_explain_builds_the_game_from_options(function):
    x = pd.DataFrame(np.asarray(function.points[:3]) + 0.1, columns=["a", "b", "c", "d"])
    explanation = kpp.explain(
        function, x, value_function="interventional", background=function.points[:5], method="quadrature"
    )
    expected = interventional_shapley(function, x.to_numpy(), function.points[:5], method="enumeration")
    np.testing.assert_allclose(explanation.values, expected, rtol=1e-10, atol=1e-12)
    assert list(explanation.values.coords["feature"].values) == ["a", "b", "c", "d"]
    recorded = {key: explanation.attrs[key] for key in ("explainer", "value_function", "method", "nodes", "exact")}
    assert recorded == {
        "explainer": "rkhs-shap",
        "value_function": "interventional",
        "method": "quadrature",
        "nodes": 2,
        "exact": True,
    }
    assert explanation.attrs["background_size"] == 5


@pytest.mark.slow
def test_enumeration_records_its_coalitions(function):
    explanation = kpp.explain(function, function.points[:2], value_function="baseline", method="enumeration")
    assert explanation.attrs["coalitions"] == 16
    np.testing.assert_allclose(float(explanation.base_values), jnp.sum(function.coefficients) + 0.2, rtol=1e-12)


@pytest.mark.slow
def test_a_posterior_is_explained_draw_by_draw(function, draws, x):
    explainer = RKHSShap(Interventional(function.points[:5]))
    explanation = explainer.explain(draws, x)
    assert dict(explanation.values.sizes) == {"chain": 2, "draw": 3, "instance": 3, "feature": 4}
    one = kpp.RKHSFunction(function.kernel, function.points, draws.coefficients[1, 0], 0.1)
    alone = explainer.explain(one, x)
    np.testing.assert_allclose(explanation.values.sel(chain=1, draw=0), alone.values, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_games_without_an_exact_method_above_14_features_are_sampled_with_a_key():
    points = np.random.default_rng(0).normal(size=(3, 20))
    function = kpp.RKHSFunction(Matern32(), points, np.ones(3))
    options = {"value_function": "interventional", "background": points}
    with pytest.raises(TypeError, match="RKHSFunction with kernel Matern32"):
        kpp.explain(function, points, method="quadrature", **options)
    with pytest.raises(TypeError, match="`rng_key` must be given"):
        kpp.explain(function, points, **options)
    explanation = kpp.explain(function, points, num_coalitions=60, rng_key=jax.random.key(1), **options)
    recorded = {name: explanation.attrs[name] for name in ("method", "exact", "coalitions", "rng_key")}
    assert recorded == {"method": "least-squares", "exact": False, "coalitions": 60, "rng_key": [0, 1]}
    assert float(explanation.additivity_error().max()) < 1e-10
    assert float(explanation.standard_errors.max()) > 0.0
