"""GPClassification at fixed hyperparameters: scikit-learn, leave-one-out against refits, sampled latents."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process import kernels as sk

import kpp
from kpp.gp import BernoulliLikelihood
from kpp.gp.laplace.by_values import laplace_log_evidence
from kpp.kernels import RBF
from kpp_models import GPClassification

KERNEL = RBF(0.9, 2.0)
X_TEST = np.random.default_rng(4).normal(size=(6, 2))


def prepared(link, data, mean=0.0):
    model, data, _ = GPClassification(KERNEL, mean, link=link).prepare(*data)
    return model, data


def test_agrees_with_scikit_learn(classification_data):
    x, y = classification_data
    peer = GaussianProcessClassifier(2.0 * sk.RBF(0.9), optimizer=None, max_iter_predict=1000).fit(x, y)
    model, data = prepared("logit", classification_data)

    @jax.jit
    def run(data, x):
        likelihood = BernoulliLikelihood(data["y"])
        evidence = laplace_log_evidence(likelihood, KERNEL.gram(data["x"]), jnp.zeros(()))
        return model.predictive({}, data, x), evidence

    found, evidence = run(data, X_TEST)
    # scikit-learn approximates the logistic function by five error functions; it names 2e-4 itself.
    np.testing.assert_allclose(found["probability"], peer.predict_proba(X_TEST)[:, 1], atol=2e-4)
    # It stops Newton's method at 1e-10 of the objective, an error of the mode of some 1e-5 that enters the evidence.
    np.testing.assert_allclose(evidence, peer.log_marginal_likelihood_value_, rtol=1e-5)


@pytest.mark.nightly_variants("probit")
@pytest.mark.slow
@pytest.mark.parametrize("link", ["logit", pytest.param("probit", marks=pytest.mark.slow)])
def test_leave_one_out_is_close_to_refitting(link, classification_data):
    """The cavity keeps the curvature of the full data: an approximation, its error measured here."""
    x, y = classification_data
    model, data = prepared(link, classification_data, 0.2)
    found = np.asarray(jax.jit(lambda data: model.log_likelihood({}, data)["y"])(data))

    @jax.jit
    def refit(x, y, x_left):
        return model.predictive({}, {"x": x, "y": y}, x_left)["probability"][0]

    rest = [np.arange(20) != i for i in range(20)]
    chance = np.array([refit(x[keep], y[keep], x[i : i + 1]) for i, keep in enumerate(rest)])
    expected = np.log(np.where(y == 1, chance, 1 - chance))
    # Measured: at most 0.0044 (logit), 0.0139 (probit) a row, 0.0003, 0.0012 of the sum; twice that is allowed.
    np.testing.assert_allclose(found, expected, atol=0.028)
    np.testing.assert_allclose(found.sum(), expected.sum(), rtol=0.0024)


@pytest.mark.slow
@pytest.mark.parametrize("link", ["logit", "probit"])
def test_sampled_latents_predict_through_themselves(link, classification_data):
    model, data, _ = GPClassification(KERNEL, 0.2, link=link, latent="sample").prepare(*classification_data)
    white = jax.random.normal(jax.random.key(0), (20,))

    @jax.jit
    def ask(white, x):
        sample = {"latent_whitened": white}
        found = model.predictive(sample, data, x, covariance=True)
        return found, model.function_draw(sample, data)(x), model.log_likelihood(sample, data)["y"]

    found, function, pointwise = ask(white, data["x"])
    f = 0.2 + np.linalg.cholesky(np.asarray(KERNEL.gram(data["x"])) + 2e-10 * np.eye(20)) @ np.asarray(white)
    # A row comes twice, so that K is singular and takes its jitter of 1e-10.
    np.testing.assert_allclose(found["mean"], f, atol=1e-5)
    np.testing.assert_allclose(found["latent_variance"], np.zeros(20), atol=1e-8)
    np.testing.assert_allclose(function, found["mean"], atol=1e-10)
    chance = np.where(data["y"] == 1, found["probability"], 1 - found["probability"])
    np.testing.assert_allclose(np.exp(pointwise), chance, atol=1e-5)


@pytest.mark.slow
def test_draws_of_labels_have_the_predicted_frequency(classification_data):
    fit = GPClassification(KERNEL).fit(jax.random.key(0), *classification_data, inference=kpp.MAP(progress=False))
    draws = fit.sample_predictive(jax.random.key(1), X_TEST, 2000).values
    assert set(np.unique(draws)) == {0.0, 1.0}
    # Five standard errors of a proportion at 2000 draws.
    np.testing.assert_allclose(draws.mean(0), fit.predict(X_TEST)["probability"].values[0, 0], atol=0.056)
