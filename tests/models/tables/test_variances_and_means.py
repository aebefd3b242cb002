"""GPRegression with a variance for each row, and models with a prior mean function: scikit-learn's numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist
from numpyro.infer.util import log_density
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import kpp
from kpp.features import Nystrom
from kpp.gp import LinearMean
from kpp.kernels import RBF, Linear
from kpp_models import GPClassification, GPRegression

RNG = np.random.default_rng(8)
X, NEW = RNG.normal(size=(25, 2)), RNG.normal(size=(4, 2))
VARIANCES = RNG.uniform(0.01, 0.5, size=25)
Y = 2.0 + X @ [1.0, -0.5] + np.sin(2 * X[:, 0]) + np.sqrt(VARIANCES) * RNG.normal(size=25)
NOISE = 0.05
KERNEL, THEIRS = RBF(jnp.array([0.8, 1.5]), 1.7), 1.7 * sk.RBF([0.8, 1.5])
FIXED = kpp.MAP(progress=False)
MEAN = LinearMean(jnp.array([1.0, -0.5]), 2.0)


def mean_of(x):
    return x @ [1.0, -0.5] + 2.0


def fit(model, y=Y, inference=FIXED, **options):
    return model.fit(jax.random.key(0), X, y, inference=inference, num_prior_samples=0, **options)


@pytest.fixture(scope="module")
def with_variances():
    return fit(GPRegression(KERNEL, NOISE, MEAN, VARIANCES))


@pytest.fixture(scope="module")
def peer():
    return GaussianProcessRegressor(THEIRS, alpha=NOISE + VARIANCES, optimizer=None).fit(X, Y - mean_of(X))


@pytest.mark.slow
def test_predictions_are_those_of_scikit_learn(with_variances, peer):
    mean, covariance = peer.predict(NEW, return_cov=True)
    found = with_variances.predict(NEW, covariance=True)
    np.testing.assert_allclose(found["mean"].squeeze(), mean + mean_of(NEW), atol=1e-8)
    np.testing.assert_allclose(found["latent_covariance"].squeeze(), covariance, atol=1e-8)
    np.testing.assert_array_equal(found["noise_variance"].squeeze(), np.full(4, NOISE))


def test_evidence_is_that_of_scikit_learn(peer):
    model, data, _ = GPRegression(KERNEL, dist.HalfNormal(1.0), MEAN, VARIANCES).prepare(X, Y)
    sites = {"noise_variance": jnp.asarray(NOISE)}
    found = jax.jit(lambda sites: log_density(model.numpyro_model, (), data, sites)[0])(sites)
    found = found - stats.halfnorm.logpdf(NOISE)
    np.testing.assert_allclose(found, peer.log_marginal_likelihood_value_, rtol=1e-10)


@pytest.mark.slow
def test_leave_one_out_is_refitting(with_variances):
    expected = []
    for i in range(25):
        rest = np.arange(25) != i
        refit = GaussianProcessRegressor(THEIRS, alpha=(NOISE + VARIANCES)[rest], optimizer=None)
        mean, deviation = refit.fit(X[rest], (Y - mean_of(X))[rest]).predict(X[i : i + 1], return_std=True)
        scale = np.sqrt(deviation[0] ** 2 + NOISE + VARIANCES[i])
        expected.append(stats.norm.logpdf(Y[i], mean[0] + mean_of(X)[i], scale))
    np.testing.assert_allclose(with_variances.idata["log_likelihood"]["y"].values.squeeze(), expected, rtol=1e-8)


@pytest.mark.slow
def test_rows_are_drawn_again_with_their_variances_and_new_points_with_the_noise(with_variances):
    model, data = with_variances.model, with_variances.data
    keys = jax.random.split(jax.random.key(1), 20000)

    @jax.jit
    def evaluate(data):
        again = jax.vmap(lambda key: model.replicate(key, {}, data)["y"])(keys)
        new = jax.vmap(lambda key: model.draw_predictive(key, {}, data, jnp.asarray(NEW)))(keys)
        return again, new, *(model.predictive({}, data, x)["latent_variance"] for x in (X, NEW))

    again, new, latent, latent_new = evaluate(data)
    # A variance of 20000 draws has a relative standard error of sqrt(2 / 20000) = .01; five of them.
    np.testing.assert_allclose(again.var(0), latent + NOISE + VARIANCES, rtol=0.05)
    np.testing.assert_allclose(new.var(0), latent_new + NOISE, rtol=0.05)


@pytest.mark.nightly
def test_variances_of_rows_reach_kernels_of_finite_rank(peer):
    kernel = Nystrom(KERNEL, X)  # all rows are landmarks: the kernel itself at the rows
    few = fit(GPRegression(Nystrom(KERNEL, X[:10]), NOISE, MEAN, VARIANCES)).predict(NEW)["mean"]
    features = np.asarray(Nystrom(KERNEL, X[:10]).feature_map(X))
    weights = np.linalg.solve(features @ features.T + np.diag(NOISE + VARIANCES), Y - mean_of(X))
    expected = np.asarray(Nystrom(KERNEL, X[:10]).feature_map(NEW)) @ features.T @ weights + mean_of(NEW)
    np.testing.assert_allclose(few.squeeze(), expected, atol=1e-8)
    all_rows = fit(GPRegression(kernel, NOISE, MEAN, VARIANCES)).predict(X)["mean"]
    np.testing.assert_allclose(all_rows.squeeze(), peer.predict(X) + mean_of(X), atol=1e-6)  # a jitter of 1e-10 / NOISE


@pytest.mark.slow
def test_an_uncertain_linear_mean_is_a_linear_kernel():
    weights = dist.Normal(0.0, 1.0)
    model = GPRegression(KERNEL, NOISE, LinearMean(weights.expand([2]), weights))
    found = fit(model, inference=kpp.Laplace(num_samples=4000, progress=False))
    assert found.idata["posterior"]["mean.weights"].dims == ("chain", "draw", "feature")
    exact = fit(GPRegression(KERNEL + Linear(1.0) + 1.0, NOISE)).predict(NEW)
    predicted = found.predict(NEW)
    # The posterior of the weights is Gaussian, so that Laplace's approximation is exact; 4000 draws, 5 standard errors.
    spread = predicted["mean"].values.squeeze().std(axis=0)
    np.testing.assert_array_less(abs(predicted["mean"].mean() - exact["mean"].mean()), 5 * spread.max() / np.sqrt(4000))
    variance = predicted["latent_variance"].mean(("chain", "draw")) + predicted["mean"].var(("chain", "draw"))
    np.testing.assert_allclose(variance, exact["latent_variance"].squeeze(), rtol=5 * np.sqrt(2 / 4000))


@pytest.mark.nightly
def test_classification_takes_a_mean_function():
    labels = (Y > np.median(Y)).astype(float)
    shifted = fit(GPClassification(KERNEL, LinearMean(jnp.zeros(2), 0.7)), labels)
    np.testing.assert_allclose(
        shifted.predict(NEW)["probability"], fit(GPClassification(KERNEL, 0.7), labels).predict(NEW)["probability"]
    )
    # Far from the data the chance of label 1 follows the mean, which outweighs the variance 1.7 of the function.
    steep = fit(GPClassification(KERNEL, LinearMean(jnp.array([1.0, 0.0]), 0.0)), labels)
    far = np.array([[1e4, 0.0], [-1e4, 0.0]])
    np.testing.assert_allclose(steep.predict(far)["probability"].squeeze(), [1.0, 0.0], atol=1e-12)


@pytest.mark.slow
def test_a_fit_with_variances_and_a_mean_is_saved(with_variances, tmp_path):
    with_variances.save(tmp_path / "fit.nc")
    loaded = kpp.Fit.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(loaded.predict(NEW)["mean"], with_variances.predict(NEW)["mean"])
    np.testing.assert_array_equal(loaded.model.row_variances, VARIANCES)


BAD = {
    "fewer variances than rows": (
        lambda: fit(GPRegression(KERNEL, NOISE, row_variances=VARIANCES[:7])),
        "row_variances",
    ),
    "one variance": (
        lambda: GPRegression(KERNEL, NOISE, row_variances=0.3),
        r"`row_variances`.*\(n,\), got shape \(\)",
    ),
    "a negative variance": (lambda: GPRegression(KERNEL, NOISE, row_variances=-VARIANCES), "row_variances.*at least 0"),
    "NaN": (lambda: GPRegression(KERNEL, NOISE, row_variances=VARIANCES * np.nan), "`row_variances` must be finite"),
    "weights for other columns": (
        lambda: fit(GPRegression(KERNEL, NOISE, LinearMean(jnp.ones(3), 0.0))),
        r"`mean` cannot .* `weights` of a LinearMean must have shape \(2,\) .* got shape \(3,\): one weight per",
    ),
    "two biases": (
        lambda: fit(GPRegression(KERNEL, NOISE, LinearMean(jnp.ones(2), jnp.ones(2)))),
        r"`bias` of a LinearMean must have shape \(\)",
    ),
    "a mean of the wrong shape": (
        lambda: fit(GPRegression(KERNEL, NOISE, lambda x: x)),
        r"`mean` must return one number",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_variances_and_means_are_refused(case):
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call()
