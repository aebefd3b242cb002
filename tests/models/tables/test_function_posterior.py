"""The Gaussian posterior of the function: that of `predict`, of a dense solve, and of the mean hyperparameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist
from scipy.special import expit

import kpp
from kpp.kernels import RBF
from kpp_models import GPClassification, GPRegression, KernelRidge
from oracles.kernels import rbf

PRIOR = dist.LogNormal(0.0, 0.3)
X_TEST = np.random.default_rng(3).normal(size=(5, 2))
LENGTHSCALE = {"kernel.lengthscale": jnp.array([[0.7, 1.0, 1.4]])}
CASES = {
    "regression": (
        GPRegression(RBF(PRIOR), noise_variance=PRIOR, mean=0.5),
        {"noise_variance": jnp.array([[0.1, 0.4, 0.2]])},
    ),
    "laplace": (GPClassification(RBF(PRIOR, 2.0), mean=0.5, link="probit"), {}),
    "sample": (
        GPClassification(RBF(PRIOR, 2.0), latent="sample"),
        {"latent_whitened": jax.random.normal(jax.random.key(0), (1, 3, 20))},
    ),
}


# The conformance suite holds every model to its predictions, at one draw.
ALL_CASES = ["regression", *(pytest.param(name, marks=pytest.mark.slow) for name in ("laplace", "sample"))]


@pytest.fixture(scope="module", params=ALL_CASES)
def fit(request, classification_data):
    """A fit with draws that are given, so that no inference has to run."""
    model, draws = CASES[request.param]
    model, data, schema = model.prepare(*classification_data)
    return kpp.Fit(model, None, data, schema, LENGTHSCALE | draws, kpp.MAP(progress=False))


@pytest.mark.nightly_variants("sample")
@pytest.mark.slow
def test_agrees_with_predict(fit):
    posterior = fit.function_posterior()
    predicted = fit.predict(X_TEST, covariance=True)
    assert posterior.batch_shape == (1, 3)
    np.testing.assert_allclose(posterior.mean(X_TEST), predicted["mean"], atol=1e-9)
    np.testing.assert_allclose(posterior.covariance(X_TEST, X_TEST), predicted["latent_covariance"], atol=1e-9)
    np.testing.assert_allclose(posterior.variance(X_TEST), predicted["latent_variance"], atol=1e-9)


@pytest.mark.nightly_variants("laplace")
@pytest.mark.slow
def test_at_the_mean_of_the_hyperparameters(fit):
    posterior = fit.function_posterior(at="mean")
    assert posterior.batch_shape == ()
    sample = {name: jnp.asarray(np.asarray(draws).mean(axis=(0, 1))) for name, draws in fit.draws.items()}
    model = fit.model
    expected = jax.jit(lambda sample, data: model.predictive(sample, data, X_TEST, covariance=True))(sample, fit.data)
    np.testing.assert_allclose(posterior.mean(X_TEST), expected["mean"], atol=1e-9)
    np.testing.assert_allclose(posterior.covariance(X_TEST, X_TEST), expected["latent_covariance"], atol=1e-9)


@pytest.mark.slow
def test_laplace_posterior_is_that_of_noisy_pseudo_targets(classification_data):
    """Dense, with W from the mode: k - k_x (K + W^-1)^-1 k_x (Rasmussen and Williams 2006, equation 3.24)."""
    x, y = classification_data
    model, data, _ = GPClassification(RBF(0.9, 2.0)).prepare(x, y)

    @jax.jit
    def evaluate(data):
        posterior = model.posterior_draw({}, data)
        return posterior.mean(data["x"]), posterior.covariance(X_TEST, X_TEST)

    mean, found = evaluate(data)
    chance = expit(np.asarray(mean))
    covariance, cross = rbf(x, x, 0.9, 2.0), rbf(x, X_TEST, 0.9, 2.0)
    middle = np.linalg.solve(covariance + np.diag(1 / (chance * (1 - chance))), cross)
    expected = rbf(X_TEST, X_TEST, 0.9, 2.0) - cross.T @ middle
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_refuses_what_has_none(classification_data):
    model, data, schema = KernelRidge(RBF(1.0), 0.1).prepare(*classification_data)
    ridge = kpp.Fit(model, None, data, schema, {}, kpp.MAP(progress=False))
    for at in ("draws", "mean"):
        with pytest.raises(TypeError, match="KernelRidge has no Gaussian posterior of the function"):
            ridge.function_posterior(at=at)
    with pytest.raises(ValueError, match=r"`at` must be one of \('draws', 'mean', 'few'\), got 'mode'"):
        ridge.function_posterior(at="mode")
