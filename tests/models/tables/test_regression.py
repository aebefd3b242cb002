"""GPRegression at fixed hyperparameters: scikit-learn's numbers, brute-force leave-one-out, draws given the data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import kpp
from kpp.kernels import RBF, Matern32
from kpp_models import GaussianProcessMarginal, GPRegression
from oracles.kernels import rbf

NOISE = 0.05
CASES = {
    "rbf": (RBF(jnp.array([0.8, 1.5, 2.0]), 1.7), 1.7 * sk.RBF([0.8, 1.5, 2.0])),
    "matern": (Matern32(1.3, 0.6), 0.6 * sk.Matern(1.3, nu=1.5)),
    "sum": (RBF(0.9) + 0.4 * Matern32(2.0), sk.RBF(0.9) + 0.4 * sk.Matern(2.0, nu=1.5)),
}


@pytest.fixture(scope="module")
def x_test(regression_data):
    return np.concatenate([regression_data[0][:2], np.random.default_rng(3).normal(size=(5, 3))])


def fixed_fit(kernel, x, y, mean=0.0):
    inference = kpp.MAP(progress=False)
    return GPRegression(kernel, NOISE, mean).fit(jax.random.key(0), x, y, inference=inference, num_prior_samples=0)


@pytest.fixture(scope="module")
def fit(regression_data):
    return fixed_fit(CASES["rbf"][0], *regression_data, mean=1.0)


@pytest.mark.parametrize("case", ["sum", *[pytest.param(case, marks=pytest.mark.slow) for case in ("rbf", "matern")]])
def test_agrees_with_scikit_learn(case, regression_data, x_test):
    (kernel, theirs), (x, y) = CASES[case], regression_data
    peer = GaussianProcessRegressor(theirs, alpha=NOISE, optimizer=None).fit(x, y)
    mean, covariance = peer.predict(x_test, return_cov=True)
    model, data, _ = GPRegression(kernel, NOISE).prepare(x, y)

    @jax.jit
    def run(data, x):
        evidence = GaussianProcessMarginal(0.0, kernel.gram(data["x"]), NOISE).log_prob(data["y"])
        return model.predictive({}, data, x, covariance=True), evidence

    found, evidence = run(data, x_test)
    np.testing.assert_allclose(evidence, peer.log_marginal_likelihood_value_, rtol=1e-8)
    np.testing.assert_allclose(found["mean"], mean, atol=1e-8)
    np.testing.assert_allclose(found["latent_variance"], np.diag(covariance), atol=1e-8)
    np.testing.assert_allclose(found["latent_covariance"], covariance, atol=1e-8)
    np.testing.assert_array_equal(found["noise_variance"], np.full(7, NOISE))


@pytest.mark.slow
def test_leave_one_out_is_refitting(fit, regression_data):
    x, y = regression_data
    kernel = CASES["rbf"][0]
    expected = []
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        matrix = rbf(x[rest], x[rest], np.asarray(kernel.lengthscale), 1.7) + NOISE * np.eye(len(y) - 1)
        cross = rbf(x[i : i + 1], x[rest], np.asarray(kernel.lengthscale), 1.7)[0]
        weights = np.linalg.solve(matrix, cross)
        expected.append(
            stats.norm.logpdf(y[i], 1.0 + weights @ (y[rest] - 1.0), np.sqrt(1.7 + NOISE - weights @ cross))
        )
    found = fit.idata["log_likelihood"]["y"].values
    assert found.shape == (1, 1, 20)
    np.testing.assert_allclose(found[0, 0], expected, rtol=1e-9)


@pytest.mark.slow
def test_prediction_is_named_and_equals_the_function(fit, x_test):
    predicted = fit.predict(x_test, covariance=True)
    assert predicted["mean"].dims == ("chain", "draw", "instance")
    assert predicted["latent_covariance"].dims == ("chain", "draw", "instance", "instance_other")
    np.testing.assert_allclose(fit.function()(jnp.asarray(x_test)), predicted["mean"], rtol=1e-12)
    diagonal = np.diagonal(predicted["latent_covariance"].values, axis1=2, axis2=3)
    np.testing.assert_allclose(diagonal, predicted["latent_variance"], atol=1e-12)


@pytest.mark.slow
def test_predictive_draws_condition_on_the_targets(fit, regression_data):
    x, y = regression_data
    predicted = fit.predict(x)
    draws = fit.sample_predictive(jax.random.key(1), x, 2000).values
    variance = (predicted["latent_variance"] + predicted["noise_variance"]).values[0, 0]
    # Five standard errors, of a mean and of a variance, at 2000 draws.
    assert (np.abs(draws.mean(0) - predicted["mean"].values[0, 0]) < 5 * np.sqrt(variance / 2000)).all()
    np.testing.assert_allclose(draws.var(0) / variance, np.ones(20), atol=5 * np.sqrt(2 / 2000))
    assert np.corrcoef(draws.mean(0), y)[0, 1] > 0.9
    # The replicates that ArviZ gets are such draws too, not prior ones.
    assert np.corrcoef(fit.idata["posterior_predictive"]["y"].values.ravel(), y)[0, 1] > 0.9


@pytest.mark.slow
def test_draws_share_the_latent_function(fit, regression_data):
    """Rows 3 and 7 are one point: there draws differ by the noise only."""
    draws = fit.sample_predictive(jax.random.key(2), regression_data[0], 2000).values
    difference = draws[:, 3] - draws[:, 7]
    # Five standard errors of a variance at 2000 draws.
    np.testing.assert_allclose(difference.var(), 2 * NOISE, rtol=5 * np.sqrt(2 / 2000))


@pytest.mark.slow
def test_constant_targets_and_no_noise_are_legal(regression_data):
    x = regression_data[0][8:14]
    model, data, _ = GPRegression(RBF(1.0), noise_variance=0.0).prepare(x, np.full(6, 2.0))
    found = jax.jit(lambda data: model.predictive({}, data, data["x"]))(data)
    np.testing.assert_allclose(found["mean"], np.full(6, 2.0), rtol=1e-8)
    assert (np.asarray(found["latent_variance"]) >= 0).all()
