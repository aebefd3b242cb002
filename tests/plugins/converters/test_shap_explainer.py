"""`kpp_converters.Explainer` beside the explainers of shap, whose interface it has."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest
import shap

import kpp
import kpp_models
from kpp.kernels import RBF
from kpp_converters import Explainer

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=20)


@pytest.fixture(scope="module")
def fit() -> kpp.Fit:
    return kpp_models.GPRegression(RBF(1.5), 0.01).fit(jax.random.key(0), pd.DataFrame(X, columns=["dose", "age"]), Y)


def test_contributions_and_base_values_are_those_of_shap(fit):
    """shap values all coalitions of the mean function, so only rounding and the mean over 200 draws differ."""
    found = Explainer(fit, X, covariance=None)(X[:3])
    function = fit.function()
    expected = shap.explainers.Exact(lambda rows: np.asarray(function(rows))[0, 0], X)(X[:3])
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.base_values, expected.base_values, rtol=1e-8)
    np.testing.assert_array_equal(found.data, X[:3])
    assert found.feature_names == ["dose", "age"]


def test_bounds_are_the_intervals_of_the_explanation(fit):
    found = Explainer(fit, X, probability=0.5, covariance="point")(X[:3])
    expected = kpp.explain(fit, X[:3], background=X, covariance="point").interval(0.5)
    np.testing.assert_allclose(found.lower_bounds, expected.sel(bound="lower"), rtol=1e-10)
    np.testing.assert_allclose(found.upper_bounds, expected.sel(bound="upper"), rtol=1e-10)
    assert (found.lower_bounds < found.upper_bounds).all()


def test_the_training_data_are_the_default_background(fit):
    names = {"covariance": None}
    np.testing.assert_array_equal(Explainer(fit, **names)(X[:2]).values, Explainer(fit, X, **names)(X[:2]).values)


def test_a_plain_function_is_explained_by_its_predictions():
    found = Explainer(lambda rows: rows[:, 0] * rows[:, 1], np.zeros((1, 2)), progress=False)(np.array([[2.0, 3.0]]))
    np.testing.assert_allclose(found.values, [[3.0, 3.0]], rtol=1e-10)  # half of the product for each, by symmetry


def test_unknown_options_are_refused_as_by_explain(fit):
    with pytest.raises(TypeError, match="unknown options `nsamples`"):
        Explainer(fit, X, nsamples=100)(X[:2])
    with pytest.raises(ValueError, match="explainer"):
        Explainer(fit, X, explainer="tree")(X[:2])
