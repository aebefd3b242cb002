"""The estimators agree with those of scikit-learn of the same parameters, and with the models that they hold."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from numpyro import distributions as dist
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process import kernels as peers
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import kpp
from kpp.kernels import RBF, Matern32
from kpp_models import GPClassification, GPRegression, KernelLogistic
from kpp_models.estimators import (
    GPClassifier,
    GPRegressor,
    KernelLogisticClassifier,
    KernelRidgeRegressor,
    NystroemFeatures,
    RandomFourierFeatures,
)

SCALES = np.array([9.0, 0.8])


@pytest.mark.slow
def test_gp_regressor_is_that_of_scikit_learn(table):
    frame, y = table
    found = GPRegressor(RBF(SCALES, 2.0), noise_variance=0.3, mean=0.0).fit(frame, y)
    kernel = peers.ConstantKernel(2.0, "fixed") * peers.RBF(SCALES, "fixed") + peers.WhiteKernel(0.3, "fixed")
    peer = GaussianProcessRegressor(kernel, alpha=0.0).fit(frame.to_numpy(), y)
    x = frame[3:9] + 0.3
    for ours, theirs in zip(
        found.predict(x, return_std=True), peer.predict(x.to_numpy(), return_std=True), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    np.testing.assert_allclose(found.predict(x), peer.predict(x.to_numpy()), rtol=1e-9)
    assert found.score(frame, y) == pytest.approx(peer.score(frame.to_numpy(), y), abs=1e-9)


@pytest.mark.slow
def test_gp_regressor_draws_from_the_posterior_of_scikit_learn(table):
    """Means and covariances of 4000 draws: the standard error of an entry of variance below 0.7 is below 0.016."""
    frame, y = table
    x = frame[3:6] + 0.3
    found = GPRegressor(RBF(SCALES, 2.0), noise_variance=0.3, mean=0.0).fit(frame, y)
    kernel = peers.ConstantKernel(2.0, "fixed") * peers.RBF(SCALES, "fixed") + peers.WhiteKernel(0.3, "fixed")
    mean, covariance = (
        GaussianProcessRegressor(kernel, alpha=0.0).fit(frame.to_numpy(), y).predict(x.to_numpy(), return_cov=True)
    )
    draws = found.sample_y(x, 4000, random_state=1)
    assert draws.shape == (3, 4000)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.06)
    np.testing.assert_allclose(np.cov(draws), covariance, atol=0.07)


@pytest.mark.nightly
def test_gp_regressor_is_the_fit_of_its_model(table):
    """With priors: the same key, model and inference give the same numbers."""
    frame, y = table
    priors = {"noise_variance": dist.LogNormal(-2.0, 1.0), "mean": dist.Normal(20.0, 1.0)}
    kernel, inference = (
        RBF(dist.LogNormal(1.0, 1.0).expand([2]), dist.HalfNormal(1.0)),
        kpp.Laplace(num_samples=20, progress=False),
    )
    found = GPRegressor(kernel, inference=inference, random_state=7, **priors).fit(frame, y)
    fit = GPRegression(kernel, **priors).fit(jax.random.key(7), frame, y, inference=inference, num_prior_samples=0)
    expected = fit.predict(frame[:5]).mean(("chain", "draw"))
    spread = fit.predict(frame[:5])["mean"].var(("chain", "draw"))
    mean, std = found.predict(frame[:5], return_std=True)
    np.testing.assert_allclose(mean, expected["mean"], rtol=1e-10)
    np.testing.assert_allclose(std**2, expected["latent_variance"] + expected["noise_variance"] + spread, rtol=1e-10)
    again = GPRegressor(kernel, inference=inference, random_state=jax.random.key(7), **priors).fit(frame, y)
    np.testing.assert_array_equal(again.predict(frame), found.predict(frame))


@pytest.mark.slow
def test_gp_classifier_is_the_fit_of_its_model_and_near_scikit_learn(table, labels):
    frame, _ = table
    found = GPClassifier(RBF(SCALES, 4.0), mean=0.0).fit(frame, labels)
    fit = GPClassification(RBF(SCALES, 4.0)).fit(jax.random.key(0), frame, labels, inference=kpp.MAP(progress=False))
    probability = fit.predict(frame)["probability"].values[0, 0]
    np.testing.assert_allclose(found.predict_proba(frame)[:, 1], probability, rtol=1e-10)
    np.testing.assert_array_equal(found.classes_, ["no", "yes"])
    np.testing.assert_array_equal(found.predict(frame), np.where(probability > 0.5, "yes", "no"))
    kernel = peers.ConstantKernel(4.0, "fixed") * peers.RBF(SCALES, "fixed")
    peer = GaussianProcessClassifier(kernel, optimizer=None).fit(frame.to_numpy(), labels)
    # scikit-learn approximates the integral over the logistic function by five error functions, ours is quadrature.
    np.testing.assert_allclose(found.predict_proba(frame), peer.predict_proba(frame.to_numpy()), atol=2e-3)


def test_kernel_ridge_is_that_of_scikit_learn(table):
    frame, y = table
    found = KernelRidgeRegressor(RBF(3.0), regularization=0.02).fit(frame, y)
    peer = KernelRidge(alpha=16 * 0.02, kernel="rbf", gamma=0.5 / 9).fit(frame.to_numpy(), y)
    np.testing.assert_allclose(found.predict(frame), peer.predict(frame.to_numpy()), rtol=1e-9)
    assert found.function_.batch_shape == (1, 1)


@pytest.mark.slow
def test_kernel_ridge_chooses_the_regularization_that_leaves_out_best(table):
    """Refits without each row, by scikit-learn, have the least error at the chosen regularization."""
    frame, y = table
    x, kernel = frame.to_numpy(), RBF(SCALES)
    chosen = KernelRidgeRegressor(kernel).fit(frame, y).fit_.model.regularization
    errors = {}
    for regularization in np.logspace(-8, 0, 9):
        peer = KernelRidge(alpha=16 * regularization, kernel="rbf", gamma=0.5)
        folds = [np.delete(np.arange(16), i) for i in range(16)]
        left = [peer.fit(x[rows] / SCALES, y[rows]).predict(x / SCALES) - y for rows in folds]
        errors[regularization] = sum(residuals[i] ** 2 for i, residuals in enumerate(left))
    assert min(errors, key=errors.get) == pytest.approx(float(chosen))


@pytest.mark.slow
def test_kernel_logistic_is_the_fit_of_its_model_and_stationary(table, labels):
    frame, _ = table
    found = KernelLogisticClassifier(RBF(SCALES) + 1.0, regularization=0.01).fit(frame, labels)
    fit = KernelLogistic(RBF(SCALES) + 1.0, 0.01).fit(jax.random.key(0), frame, labels)
    np.testing.assert_allclose(found.decision_function(frame), fit.predict(frame)["mean"].values[0, 0], rtol=1e-9)
    # The minimum: n lambda alpha_i = y_i - sigma(f(x_i)).
    residuals = (labels == "yes") - found.predict_proba(frame)[:, 1]
    np.testing.assert_allclose(16 * 0.01 * found.function_.coefficients[0, 0], residuals, atol=1e-8)


@pytest.mark.slow
def test_nystroem_features_are_those_of_scikit_learn_up_to_a_rotation(table):
    frame, y = table
    features = NystroemFeatures(RBF(3.0), num_landmarks=6, random_state=0).fit(frame)
    landmarks = np.asarray(features.features_.landmarks)
    peer = Nystroem(kernel="rbf", gamma=0.5 / 9, n_components=6).fit(landmarks)
    ours, theirs = features.transform(frame), peer.transform(frame.to_numpy())
    np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=1e-8)
    ridge = make_pipeline(features, Ridge(alpha=0.1)).fit(frame, y)
    expected = Ridge(alpha=0.1).fit(theirs, y)
    np.testing.assert_allclose(ridge.predict(frame), expected.predict(theirs), rtol=1e-8)
    function = ridge[0].features_.function(ridge[1].coef_, ridge[1].intercept_)
    np.testing.assert_allclose(function(frame.to_numpy()), ridge.predict(frame), rtol=1e-8)


@pytest.mark.slow_variants("Matern32", "RBF")
@pytest.mark.parametrize("kernel", [RBF(SCALES, 2.0), Matern32(3.0)], ids=["RBF", "Matern32"])
def test_random_fourier_features_approximate_their_kernel(table, kernel):
    """A mean of 4000 cosines has a standard error of at most the variance times 0.011."""
    x = table[0].to_numpy()
    found = RandomFourierFeatures(kernel, num_frequencies=4000, random_state=0).fit_transform(x)
    np.testing.assert_allclose(found @ found.T, kernel.gram(x), atol=0.05 * float(kernel.variance))
