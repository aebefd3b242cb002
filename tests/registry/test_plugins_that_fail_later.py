"""A plugin that is slow, or whose explainer fails when it is used: a message names the plugin, and kpp works on."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

import kpp
from kpp import registry

EXPLAINER = """
import numpy as np
import equinox as eqx
import kpp
from kpp.explanations import AbstractPointsExplainer

class Strange(AbstractPointsExplainer):
    requires = "callable"
    additive = False
    groups: tuple = eqx.field(static=True, default=None)
    def explain_inputs(self, inputs, *, rng_key=None):
        {body}

@kpp.hookimpl
def register_explainers():
    return {{"strange": Strange}}
"""

FAULTS = {
    "raises": ("raise RuntimeError('no idea')", RuntimeError, "no idea"),
    "NaN": (
        "return inputs.explanation({}, values=np.full(inputs.x.shape, np.nan), base_values=0.0)",
        ValueError,
        "`values` must be finite, got 6 NaN or infinite values",
    ),
    "NaN past the builder": (
        "return kpp.Explanation(inputs.explanation({}, values=inputs.x, base_values=0.0).dataset * np.nan)",
        ValueError,
        "`values` must be finite, got 6 NaN or infinite values",
    ),
    "an infinite prediction": (
        "whole = inputs.explanation({}, values=inputs.x, base_values=0.0).dataset\n"
        "        return kpp.Explanation(whole.assign(predictions=whole.predictions / 0.0 + np.inf))",
        ValueError,
        "`predictions` must be finite, got 2 NaN or infinite values",
    ),
    "NaN written into the arrays": (
        "found = inputs.explanation({}, values=inputs.x, base_values=0.0)\n"
        "        found.dataset['values'] = found.dataset['values'] * np.nan\n"
        "        return found",
        ValueError,
        "`values` must be finite, got 6 NaN or infinite values",
    ),
    "a part that is missing": (
        "return kpp.Explanation(inputs.explanation({}, values=inputs.x, base_values=0.0).dataset[['values']])",
        ValueError,
        "`dataset` must have the array 'base_values', got",
    ),
    "another type": ("return inputs.x", TypeError, "`Strange` must return a kpp.Explanation, got"),
}


def total(x):
    return np.asarray(x).sum(axis=1)


@pytest.mark.parametrize(("body", "error", "message"), FAULTS.values(), ids=FAULTS)
def test_an_error_inside_an_explainer_names_its_plugin(install, body, error, message):
    install("somebodys-kpp", "somebodys", EXPLAINER.format(body=body))
    with pytest.raises(error, match=message) as caught:
        kpp.explain(total, np.eye(2, 3), explainer="strange")
    shown = "".join(traceback.format_exception(caught.value))
    assert "The explainer Strange belongs to plugin 'somebodys' of distribution 'somebodys-kpp'." in shown
    background = np.zeros((1, 3))
    values = kpp.explain(total, np.eye(2, 3), explainer="shapley-sampling", background=background).values
    np.testing.assert_allclose(values, np.eye(2, 3), atol=1e-12)  # a sum is the sum of its contributions


def test_errors_of_kpp_s_own_explainers_have_no_such_note():
    with pytest.raises(ValueError, match="`background`") as caught:
        kpp.explain(total, np.eye(2, 3), explainer="kernel-shap", background=np.zeros((0, 3)))
    assert not getattr(caught.value, "__notes__", [])


def test_a_plugin_that_is_slow_to_load_is_named(install, monkeypatch):
    monkeypatch.setattr(registry, "_SLOW", 0.01)
    install("somebodys-kpp", "somebodys", "import time; time.sleep(0.02)")
    with pytest.warns(registry.PluginWarning, match="plugin 'somebodys' .* took 0.0 s to load; KPP_DISABLE_PLUGINS"):
        assert "RBF" in registry.kernels()
