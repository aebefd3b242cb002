"""A converted Gaussian process has the mean, the covariance and the variances of scikit-learn, at 1e-8."""

from __future__ import annotations

import equinox as eqx
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process import kernels as gp
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

import kpp

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3)) * [1.0, 3.0, 0.5] + [0.0, 2.0, -1.0]
Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] ** 2 + X[:, 2] + 5.0 + 0.2 * RNG.normal(size=24)
NEW = RNG.normal(size=(9, 3)) * [1.0, 3.0, 0.5]
ARD = [0.7, 2.0, 5.0]
NOISE = np.linspace(0.05, 0.4, 24)


def process(kernel, **options):
    return GaussianProcessRegressor(kernel, optimizer=None, **{"alpha": 0.1, **options})


KERNELS = {
    "RBF": gp.ConstantKernel(2.5) * gp.RBF(ARD),
    "Matern": gp.Matern(ARD, nu=1.5) + gp.ConstantKernel(3.0),
    "RationalQuadratic": gp.RationalQuadratic(1.7, alpha=0.6) * gp.Matern(2.0, nu=2.5),
    "DotProduct": gp.DotProduct(1.5) + 0.3 * gp.Matern(2.0, nu=0.5),
    "noise in a sum": 2.0 * gp.RBF(ARD) + gp.WhiteKernel(0.3),
    "cube of a sum with noise": (gp.RBF(2.0) + gp.WhiteKernel(0.5)) ** 3,
}
PROCESSES = {
    **{name: process(kernel) for name, kernel in KERNELS.items()},
    "normalize_y": process(KERNELS["noise in a sum"], normalize_y=True),
    "noise of each row": process(KERNELS["RBF"], alpha=NOISE, normalize_y=True),
    "almost no noise": process(KERNELS["Matern"], alpha=1e-10),
    "optimized": GaussianProcessRegressor(1.0 * gp.RBF(np.ones(3)) + gp.WhiteKernel(0.1), normalize_y=True),
}


def latent_covariance(model, points):
    """The covariance of scikit-learn without the noise of a WhiteKernel, which it adds on the diagonal."""
    noise = model.kernel_(points) - model.kernel_(points, points.copy())
    return model.predict(points, return_cov=True)[1] - noise * np.squeeze(model._y_train_std) ** 2


@eqx.filter_jit
def moments(posterior, points):
    return posterior.mean(points), posterior.covariance(points, points), posterior.variance(points)


def assert_agrees(posterior, mean, covariance, points=NEW):
    """1e-8 of the largest mean and of the largest variance: covariances are small differences of larger numbers."""
    found_mean, found_covariance, variance = moments(posterior, points)
    np.testing.assert_allclose(found_mean, mean, rtol=1e-8, atol=1e-8 * np.abs(mean).max())
    atol = 1e-8 * np.abs(covariance).max()
    np.testing.assert_allclose(found_covariance, covariance, rtol=0, atol=atol)
    np.testing.assert_allclose(variance, np.diag(covariance), rtol=0, atol=atol)


@pytest.mark.slow_variants("DotProduct")
@pytest.mark.parametrize("name", PROCESSES)
def test_regressors_have_the_same_posterior(name):
    model = clone(PROCESSES[name]).fit(X, Y)
    assert_agrees(kpp.as_gp_posterior(model), model.predict(NEW), latent_covariance(model, NEW))


def test_one_target_in_a_column_is_one_output():
    model = process(KERNELS["RBF"], normalize_y=True).fit(X, Y[:, None])
    assert_agrees(kpp.as_gp_posterior(model), model.predict(NEW), latent_covariance(model, NEW))


@pytest.mark.parametrize("scaled", [False, True], ids=["alone", "behind a scaler"])
def test_several_outputs_have_one_posterior(scaled):
    regressor = process(KERNELS["RBF"], normalize_y=True)
    model = make_pipeline(StandardScaler(), regressor) if scaled else regressor
    mean, covariance = model.fit(X, np.column_stack([Y, Y**2, np.cos(Y)])).predict(NEW, return_cov=True)
    posterior = kpp.as_gp_posterior(model)
    found_mean, found, variance = moments(posterior, NEW)
    np.testing.assert_allclose(found_mean, mean, rtol=1e-8, atol=1e-8 * np.abs(mean).max())
    expected = covariance[..., None] * np.eye(3)  # scikit-learn's outputs are independent
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * np.abs(covariance).max())
    np.testing.assert_allclose(variance, np.einsum("ppo->po", covariance), rtol=0, atol=1e-8 * np.abs(covariance).max())
    assert_agrees(posterior.combine([0.0, 1.0, 0.0]), mean[:, 1], covariance[..., 1])
    explanation = kpp.explain(model, NEW[:2], background=X[:8], progress=False)
    assert explanation.values.dims == ("chain", "draw", "instance", "feature", "output")
    assert explanation.additivity_error().max() < 1e-9


@pytest.mark.slow
def test_a_periodic_process_of_one_feature_has_the_same_posterior():
    model = process(gp.ExpSineSquared(1.2, 2.5) + gp.RBF(3.0)).fit(X[:, :1], Y)
    new = NEW[:, :1]
    assert_agrees(kpp.as_gp_posterior(model), model.predict(new), latent_covariance(model, new), new)


SCALERS = {
    "StandardScaler": [StandardScaler()],
    "MinMaxScaler": [MinMaxScaler(feature_range=(-1.0, 2.0))],
    "MaxAbsScaler": [MaxAbsScaler()],
    "RobustScaler": [RobustScaler()],
    "two in a row": [StandardScaler(), "passthrough", MinMaxScaler()],
}


@pytest.mark.slow_variants("StandardScaler")
@pytest.mark.parametrize("name", SCALERS)
def test_scalers_in_front_of_a_process_are_absorbed(name):
    kernel = 2.0 * gp.Matern(ARD, nu=2.5) * gp.RationalQuadratic(2.0) + gp.ConstantKernel(0.3)
    model = make_pipeline(*SCALERS[name], process(kernel, normalize_y=True)).fit(X, Y)
    assert_agrees(kpp.as_gp_posterior(model), *model.predict(NEW, return_cov=True))


@pytest.mark.parametrize("name", SCALERS)
def test_linear_transformations_of_the_targets_scale_the_covariance(name):
    transformer = make_pipeline(*SCALERS[name])
    inner = make_pipeline(StandardScaler(), process(gp.RBF(ARD)))
    model = TransformedTargetRegressor(inner, transformer=transformer).fit(X, Y)
    covariance = model.regressor_.predict(NEW, return_cov=True)[1]
    zero, one = transformer.fit(Y[:, None]).inverse_transform([[0.0], [1.0]])[:, 0]
    assert_agrees(kpp.as_gp_posterior(model), model.predict(NEW), covariance * (one - zero) ** 2)


@pytest.mark.parametrize("scaler", ["passthrough", StandardScaler()], ids=["alone", "scaled"])
def test_classifiers_with_two_classes_have_the_latent_posterior_of_their_laplace_approximation(scaler):
    labels = np.where(Y > np.median(Y), "high", "low")
    model = make_pipeline(scaler, GaussianProcessClassifier(4.0 * gp.RBF(ARD), optimizer=None)).fit(X, labels)
    latent, new = model[-1].base_estimator_, model[:-1].transform(NEW)
    cross = latent.kernel_(latent.X_train_, new)
    # Rasmussen and Williams (2006), equations 3.21 and 3.24
    precision = np.linalg.inv(latent.kernel_(latent.X_train_) + np.diag(1.0 / latent.W_sr_**2))
    covariance = latent.kernel_(new) - cross.T @ precision @ cross
    posterior = kpp.as_gp_posterior(model)
    assert_agrees(posterior, cross.T @ (latent.y_train_ - latent.pi_), covariance)
    assert_agrees(posterior, kpp.as_rkhs_function(model)(NEW), covariance)
    np.testing.assert_array_equal(np.asarray(posterior.mean(NEW)) > 0, model.predict(NEW) == model.classes_[1])


@pytest.mark.skipif(not hasattr(GaussianProcessClassifier, "latent_mean_and_variance"), reason="new in 1.7")
def test_the_latent_variance_is_that_of_scikit_learn():
    model = GaussianProcessClassifier(4.0 * gp.RBF(ARD), optimizer=None).fit(X, Y > np.median(Y))
    mean, variance = model.latent_mean_and_variance(NEW)
    found_mean, _, found_variance = moments(kpp.as_gp_posterior(model), NEW)
    np.testing.assert_allclose(found_mean, mean, rtol=1e-8)
    np.testing.assert_allclose(found_variance, variance, rtol=1e-8)


def test_a_posterior_is_its_own_conversion():
    posterior = kpp.as_gp_posterior(process(KERNELS["RBF"]).fit(X, Y))
    assert kpp.as_gp_posterior(posterior) is posterior
    assert kpp.as_rkhs_function(posterior) is posterior.mean
