"""Exact values at few rows, amortized values at many: equal where both are known, unsure far away, and cheap."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor

import kpp
from kpp.explanations import Explanation
from kpp.games import Interventional
from kpp.kernels import RBF
from kpp_gpec import NaiveGP
from kpp_rkhs_shap import RKHSShap

ROWS, REFERENCE, NEW = np.split(np.random.default_rng(0).normal(size=(80, 2)), [30, 60])
FUNCTION = kpp.RKHSFunction(RBF([1.0, 2.0]), ROWS[:10], np.sin(np.arange(10.0)), intercept=1.0)
EXACT = RKHSShap(Interventional(REFERENCE), progress=False)
OWN = {"lengthscale": [1.0, 2.0], "variance": [0.5, 0.3], "standardize": False}


def waves(x):
    return np.sin(np.asarray(x)).sum(axis=1)


@pytest.fixture(scope="module")
def explanation():
    """The Shapley values of an additive function, by hand."""
    values = np.sin(ROWS) - np.sin(REFERENCE).mean(axis=0)
    return Explanation.create(values, waves(REFERENCE).mean(), waves(ROWS), ROWS)


def test_values_are_exact_at_their_rows_and_intervals_grow_far_away(explanation):
    fitted = NaiveGP(EXACT, ROWS, **OWN).fit(waves, explanation=explanation)
    law = fitted.law(ROWS)
    # all the noise is the jitter of the Cholesky factor
    np.testing.assert_allclose(law.mean[..., 0], explanation.values, atol=1e-5)
    assert np.sqrt(law.variance).max() < 1e-3
    away = np.array([1.0, 1.0]) * np.array([[0.0], [2.0], [4.0], [8.0], [1e4]])
    spread = fitted.law(away).variance[..., 0]
    assert (np.diff(spread, axis=0) >= 0).all()
    np.testing.assert_allclose(spread[-1], OWN["variance"])


@pytest.mark.slow
def test_with_noise_values_differ_from_the_exact_ones_by_no_more_than_it_says(explanation):
    fitted = NaiveGP(EXACT, ROWS, noise=0.01, **OWN).fit(waves, explanation=explanation)
    law = fitted.law(ROWS)
    # the noise has standard deviation .1, and no exact value is wrong by it
    assert np.abs(law.mean[..., 0] - explanation.values.values).max() < 0.1
    assert (law.variance < 0.01).all() and (law.variance > 1e-4).all()


@pytest.mark.slow
def test_the_values_of_a_row_do_not_depend_on_where_they_are_asked():
    """The reference of the base explainer is its own, and the base value is the mean prediction there."""
    fitted = NaiveGP(EXACT, ROWS, **OWN).fit(FUNCTION)
    found = kpp.explain(FUNCTION, NEW, explainer=NaiveGP(EXACT, ROWS, **OWN))
    np.testing.assert_allclose(found.values, fitted.explain(NEW).values)
    np.testing.assert_allclose(found.base_values, np.mean(FUNCTION(REFERENCE)))
    np.testing.assert_allclose(found.predictions, FUNCTION(NEW))


@pytest.mark.slow
def test_the_base_explainer_sees_the_background_only():
    """An explainer that imputes combines a row with others; the model meets new rows only as they are."""
    seen = []

    def model(x):
        seen.append(np.asarray(x))
        return waves(x)

    kpp.explain(model, NEW + 1e3, explainer="naive-gp", base_explainer="kernel-shap", background=ROWS, **OWN)
    marked = np.concatenate([rows.reshape(-1, 2) > 500 for rows in seen])
    assert marked.any() and (marked.all(axis=1) == marked.any(axis=1)).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
def test_the_reference_of_a_named_base_explainer_is_an_option():
    model = GaussianProcessRegressor(alpha=0.01, optimizer=None).fit(ROWS, waves(ROWS))
    options = {"background": REFERENCE, "covariance": None}
    with jax.enable_x64(True):
        by_name = NaiveGP("rkhs-shap", ROWS, explainer_options=options, **OWN).fit(model)
        ready = RKHSShap(Interventional(REFERENCE), covariance=None, progress=False)
        by_instance = NaiveGP(ready, ROWS, **OWN).fit(model)
        np.testing.assert_allclose(by_name.law(NEW).mean, by_instance.law(NEW).mean, atol=1e-10)
        np.testing.assert_allclose(by_name.base_values, model.predict(REFERENCE).mean(), rtol=1e-6)
        own = NaiveGP("rkhs-shap", ROWS, explainer_options={"covariance": None}, **OWN).fit(model)
    np.testing.assert_allclose(own.base_values, model.predict(ROWS).mean(), rtol=1e-6)
