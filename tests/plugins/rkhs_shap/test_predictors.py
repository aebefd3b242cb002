"""Every kernel model is explained by every value function: fits of ours, and estimators of scikit-learn."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.kernel_ridge import KernelRidge as SklearnKernelRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import kpp
from kpp.games import shapley_values_from_table
from kpp.kernels import RBF, Matern32
from kpp_models import GPClassification, GPRegression, KernelLogistic, KernelRidge

RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(12, 3))
TARGET = np.sin(DATA[:, 0]) + DATA[:, 1] * DATA[:, 2]
LABEL = (TARGET > np.median(TARGET)).astype(int)
X = RNG.normal(size=(2, 3))

FITS = {
    "GPRegression": lambda kernel: GPRegression(kernel, noise_variance=0.1),
    "GPClassification": lambda kernel: GPClassification(kernel),
    "KernelRidge": lambda kernel: KernelRidge(kernel, regularization=0.01),
    "KernelLogistic": lambda kernel: KernelLogistic(kernel, regularization=0.01),
}
ESTIMATORS = {
    "sklearn KernelRidge": SklearnKernelRidge(kernel="rbf", gamma=0.3, alpha=0.1),
    # All points are support vectors, so that the functions have the same shapes and share their programs.
    "SVR in a pipeline": make_pipeline(StandardScaler(), SVR(gamma=0.4, epsilon=0.0)),
    "SVC": SVC(gamma=0.3, C=0.3),
    "GaussianProcessRegressor": GaussianProcessRegressor(alpha=0.1, normalize_y=True),
}
PREDICT = {"SVC": "decision_function"}
GAMES = {
    "interventional": {"background": DATA[:6]},
    "observational": {"background": DATA[:6], "regularization": 0.01},
    "baseline": {},
}


@pytest.fixture(scope="module")
def predictor():
    """Fit a model by name, once, and return it with its prediction as a plain function."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = _fit(name) if name in FITS else _estimate(name)
        return made[name]

    return get


def _fit(name):
    target = LABEL if name in ("GPClassification", "KernelLogistic") else TARGET
    fit = FITS[name](RBF(lengthscale=1.5)).fit(jax.random.key(0), DATA, target, inference=kpp.MAP(progress=False))
    return fit, lambda points: np.asarray(fit.function()(points)).reshape(-1)


def _estimate(name):
    target = LABEL if name == "SVC" else TARGET
    estimator = ESTIMATORS[name].fit(DATA, target)
    return estimator, getattr(estimator, PREDICT.get(name, "predict"))


QUICK = (*ESTIMATORS, "GPRegression")
NAMES = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow, id=name) for name in (*ESTIMATORS, *FITS)
]


@pytest.mark.slow
@pytest.mark.parametrize("game", ["observational", "baseline"])
@pytest.mark.parametrize("name", ["sklearn KernelRidge", "GPRegression"])  # others differ in their coefficients only
def test_contributions_add_up_to_the_prediction_of_the_model(predictor, name, game):
    model, predict = predictor(name)
    options = {"method": "enumeration", "covariance": None, **GAMES[game]}  # the values of the posterior mean
    explanation = kpp.explain(model, X, value_function=game, **options)
    assert explanation.attrs["value_function"] == game
    assert float(explanation.additivity_error().max()) < 1e-10
    np.testing.assert_allclose(explanation.mean().predictions, predict(X), rtol=1e-8, atol=1e-10)
    if game != "baseline":
        base = predict(GAMES[game]["background"]).mean()
        np.testing.assert_allclose(explanation.mean().base_values, base, rtol=1e-8, atol=1e-10)


@pytest.mark.slow_variants("SVR in a pipeline", "GPRegression", "GaussianProcessRegressor", "sklearn KernelRidge")
@pytest.mark.parametrize("name", NAMES)
def test_interventional_values_are_those_of_replaced_features(predictor, name):
    model, predict = predictor(name)
    background = GAMES["interventional"]["background"]
    options = {"background": background, "method": "enumeration", "covariance": None}
    explanation = kpp.explain(model, X, value_function="interventional", **options)
    table = np.empty((8, 2))
    for row in range(8):
        present = np.array([row >> j & 1 for j in range(3)], dtype=bool)
        imputed = np.where(present, X[:, None], background[None]).reshape(-1, 3)
        table[row] = predict(imputed).reshape(2, 6).mean(axis=1)
    expected = np.asarray(shapley_values_from_table(table)).T
    np.testing.assert_allclose(explanation.mean().values, expected, rtol=1e-7, atol=1e-9)
    assert float(explanation.additivity_error().max()) < 1e-10
    np.testing.assert_allclose(explanation.mean().predictions, predict(X), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(explanation.mean().base_values, predict(background).mean(), rtol=1e-8, atol=1e-10)


@pytest.mark.nightly
def test_a_classifier_is_explained_on_the_scale_of_its_probabilities(predictor):
    fit, _ = predictor("GPClassification")
    options = {"scale": "probability", "background": DATA[:6], "interactions": "SII"}
    for game in ("interventional", "observational"):
        explanation = kpp.explain(fit, X, value_function=game, **options)
        np.testing.assert_allclose(explanation.predictions, fit.predict(X)["probability"], rtol=1e-10)
        assert float(explanation.additivity_error().max()) < 1e-10
        assert explanation.interactions.shape == (1, 1, 2, 3, 3)


@pytest.fixture(scope="module")
def matern():
    """The posterior of a regression with a kernel that is not a product, by an explicit inverse."""
    kernel = Matern32(lengthscale=1.5)
    covariance = np.asarray(jax.jit(lambda x: kernel.gram(x))(DATA)) + 0.1 * np.eye(12)
    root = np.linalg.inv(np.linalg.cholesky(covariance)).T
    return kpp.GPPosterior(kpp.RKHSFunction(kernel, DATA, np.linalg.solve(covariance, TARGET)), root)


@pytest.fixture(scope="module")
def matern_fit():
    model = GPRegression(Matern32(lengthscale=1.5), noise_variance=0.1)
    return model.fit(jax.random.key(0), DATA, TARGET, inference=kpp.MAP(progress=False))


@pytest.mark.nightly_variants("matern_fit-observational")
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "game"), [("matern", "interventional"), ("matern_fit", "observational")])
def test_kernels_that_are_no_products_are_enumerated(request, kind, game):
    model = request.getfixturevalue(kind)
    explanation = kpp.explain(model, X, explainer="rkhs-shap", value_function=game, covariance="point", **GAMES[game])
    assert explanation.attrs["method"] == "enumeration"
    assert float(explanation.additivity_error().max()) < 1e-10
    assert float(explanation.covariance.sum(("feature", "feature_other")).min()) > 0.0
