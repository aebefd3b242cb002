"""Projection of fits of kpp's own models."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.stats import norm

from kpp.causal import Independence
from kpp.kernels import RBF
from kpp_models import KernelLogistic, KernelRidge
from kpp_models.estimators import ProjectedClassifier, ProjectedQuantileRegressor, ProjectedRegressor

pytestmark = pytest.mark.slow  # each fit compiles for some seconds
OPTIONS = {"prefit": True, "collider": Independence("y", (1,)), "check": False}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
Y = X[:, 0] + 0.3 * RNG.normal(size=40)
NEW = RNG.normal(size=(30, 2))


@pytest.fixture(scope="module")
def ridge():
    return KernelRidge(RBF(1.0), regularization=1e-2).fit(jax.random.key(0), X, Y)


def test_the_mean_of_a_fit_is_projected(ridge):
    def mean(x):
        return np.asarray(ridge.function()(x)).ravel()

    found = [ProjectedRegressor(each, **OPTIONS).fit(X, Y).predict(NEW) for each in (ridge, mean)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-9)  # one solve, evaluated by two programs


def test_the_distribution_function_of_a_fit_is_projected(ridge):
    moments = ridge.predict(NEW)
    mean, scale = moments["mean"].to_numpy().ravel(), np.sqrt(moments["noise_variance"].to_numpy().ravel())
    model = ProjectedQuantileRegressor(ridge, prefit=True, num_thresholds=40).fit(X, Y)
    expected = norm.cdf((model.thresholds_ - mean[:, None]) / scale[:, None])
    np.testing.assert_allclose(model.projected_values(NEW), expected, rtol=1e-9, atol=1e-9)


def test_the_probabilities_of_a_fit_are_projected():
    labels = (Y > 0).astype(int)
    fit = KernelLogistic(RBF(1.0), regularization=1e-2).fit(jax.random.key(0), X, labels)

    def probability(x):
        return fit.predict(x)["probability"].to_numpy().ravel()

    found = [ProjectedClassifier(each, **OPTIONS).fit(X, labels).predict_proba(NEW) for each in (fit, probability)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12, atol=1e-12)


def test_a_fit_without_probabilities_is_no_classifier(ridge):
    with pytest.raises(TypeError, match="`estimator` must be a fit that predicts probabilities"):
        ProjectedClassifier(ridge, prefit=True).fit(X, Y > 0).predict_proba(NEW)
