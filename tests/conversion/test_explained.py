"""A converted Gaussian process has the Shapley values, and their posterior covariance, of the same process of kpp."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process import kernels as gp
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import kpp
from kpp.kernels import RBF, Matern32
from kpp_models import GPRegression
from kpp_models.estimators import GPRegressor

RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(12, 3)) * [1.0, 4.0, 0.5]
TARGET = np.sin(DATA[:, 0]) + 0.2 * DATA[:, 1] * DATA[:, 2]
X = RNG.normal(size=(2, 3))
ARD = np.array([0.9, 3.0, 0.6])
BACKGROUND = {"background": DATA[:6]}


@pytest.fixture(scope="module")
def process():
    return GaussianProcessRegressor(1.7 * gp.RBF(ARD), alpha=0.1, optimizer=None).fit(DATA, TARGET)


@pytest.mark.slow
def test_values_and_covariances_are_those_of_the_same_process_of_kpp(process):
    """1e-9: the coefficients of both come from Cholesky factors of a matrix of condition number some 100."""
    model = GPRegression(RBF(lengthscale=ARD, variance=1.7), noise_variance=0.1)
    model, data, schema = model.prepare(DATA, TARGET)
    fit = kpp.Fit(model, None, data, schema, {}, kpp.MAP(progress=False))
    options = {"covariance": "joint", "progress": False, **BACKGROUND}
    explanation, ours = kpp.explain(process, X, **options), kpp.explain(fit, X, **options)
    assert explanation.attrs["uncertainty"] == "function only"  # others may have estimated their hyperparameters
    assert ours.attrs["uncertainty"] == "full"  # ours are given
    for name in ("values", "base_values", "predictions", "covariance"):
        only_draw = np.asarray(getattr(ours, name))[0, 0]
        np.testing.assert_allclose(getattr(explanation, name), only_draw, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.slow
def test_units_of_inputs_and_targets_are_those_of_the_data():
    """By hand: the same process of scaled inputs and targets, explained in their units, and scaled back."""
    theirs, ours = gp.Matern(ARD, nu=1.5), Matern32(ARD)
    scaler = StandardScaler().fit(DATA)
    scaled, mean, std = scaler.transform(DATA), TARGET.mean(), TARGET.std()
    model = make_pipeline(
        StandardScaler(), GaussianProcessRegressor(theirs, alpha=0.1, optimizer=None, normalize_y=True)
    )
    options = {"covariance": "joint", "progress": False}
    explanation = kpp.explain(model.fit(DATA, TARGET), X, **options, **BACKGROUND)
    covariance = np.asarray(ours.gram(scaled)) + 0.1 * np.eye(12)
    function = kpp.RKHSFunction(ours, scaled, np.linalg.solve(covariance, (TARGET - mean) / std))
    posterior = kpp.GPPosterior(function, np.linalg.inv(np.linalg.cholesky(covariance)).T)
    other = kpp.explain(posterior, scaler.transform(X), background=scaler.transform(DATA[:6]), **options)
    np.testing.assert_allclose(explanation.values, std * other.values, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(explanation.base_values, std * other.base_values + mean, rtol=1e-9)
    np.testing.assert_allclose(explanation.covariance, std**2 * other.covariance, rtol=1e-8, atol=1e-12)


@pytest.mark.slow
def test_a_process_is_explained_by_draws_of_its_posterior_unless_told_otherwise(process):
    drawn = kpp.explain(process, X, progress=False, **BACKGROUND)
    assert drawn.attrs["uncertainty"] == "function only"
    assert drawn.values.dims[:2] == ("chain", "draw")
    mean = kpp.explain(process, X, progress=False, covariance=None, **BACKGROUND)
    assert mean.values.shape == (2, 3)
    np.testing.assert_allclose(mean.predictions, process.predict(X), rtol=1e-9)


@pytest.mark.slow
def test_a_pipeline_keeps_the_draws_of_a_fit_of_kpp():
    """Against the fit itself at scaled points: a scaled lengthscale is the only difference, up to rounding."""
    scaler = StandardScaler().fit(DATA)
    prepared = GPRegression(RBF(dist.LogNormal(0.0, 1.0)), noise_variance=0.1).prepare(scaler.transform(DATA), TARGET)
    model, data, schema = prepared
    estimator = GPRegressor()
    draws = {"kernel.lengthscale": jnp.array([[0.9, 1.5]])}
    estimator.fit_ = kpp.Fit(model, None, data, schema, draws, kpp.MAP(progress=False))
    found = kpp.explain(make_pipeline(scaler, estimator), X, progress=False, **BACKGROUND)
    background = scaler.transform(BACKGROUND["background"])
    ours = kpp.explain(estimator, scaler.transform(X), progress=False, background=background)
    assert found.attrs["uncertainty"] == ours.attrs["uncertainty"] == "full"
    assert found.attrs["covariance_at"] == "draws"
    np.testing.assert_allclose(found.values, ours.values, rtol=1e-6, atol=1e-8)


def test_the_columns_of_a_data_frame_are_those_that_the_process_was_fitted_on():
    frame = pd.DataFrame(DATA, columns=["a", "b", "c"])
    model = make_pipeline(StandardScaler(), GaussianProcessRegressor(gp.RBF(ARD), alpha=0.1, optimizer=None))
    model.fit(frame, TARGET)
    shuffled = pd.DataFrame(X, columns=["a", "b", "c"])[["c", "a", "b"]]
    explanation = kpp.explain(model, shuffled, covariance=None, progress=False, background=frame[:6])
    assert list(explanation.values["feature"].values) == ["a", "b", "c"]
    np.testing.assert_allclose(explanation.predictions, model.predict(shuffled[["a", "b", "c"]]), rtol=1e-9)


@pytest.mark.slow
def test_a_classifier_is_explained_by_its_latent_function():
    labels = TARGET > np.median(TARGET)
    model = GaussianProcessClassifier(4.0 * gp.RBF(ARD), optimizer=None).fit(DATA, labels)
    explanation = kpp.explain(model, X, covariance="point", progress=False, **BACKGROUND)
    posterior = kpp.as_gp_posterior(model)
    np.testing.assert_allclose(explanation.predictions, posterior.mean(X), rtol=1e-9)
    # with all features of one player, the only value is f(x) minus the mean of f over the background
    alone = kpp.explain(model, X, covariance="point", progress=False, groups={"all": [0, 1, 2]}, **BACKGROUND)
    points = np.concatenate([X[:1], DATA[:6]])
    weights = np.array([1.0, *np.full(6, -1 / 6)])
    variance = weights @ np.asarray(posterior.covariance(points, points)) @ weights
    np.testing.assert_allclose(alone.covariance.values[0, 0, 0], variance, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "targets"),
    [
        (KernelRidge(kernel="rbf", gamma=0.3), TARGET),
        (SVC(gamma=0.3, decision_function_shape="ovo"), np.arange(12) % 3),
    ],
    ids=["ridge", "pairs of classes"],
)
def test_other_kernel_methods_are_explained_by_their_function(model, targets):
    fitted = model.fit(DATA, targets)
    explanation = kpp.explain(fitted, X, progress=False, **BACKGROUND)
    predict = getattr(fitted, "decision_function", fitted.predict)
    np.testing.assert_allclose(explanation.predictions, predict(X), rtol=1e-9)
    assert "draw" not in explanation.values.dims
    assert float(explanation.additivity_error().max()) < 1e-9
