"""The No-U-Turn sampler on subsamples, against a known posterior and against chains that see all rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size
from scipy import stats

import kpp
from kpp.gp import GaussianLikelihood
from kpp.inference.methods.mcmc import density_spread
from kpp.kernels import RBF
from kpp_models import GeneralizedGP
from oracles.kernels import rbf

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
NUM_ROWS = 2000
X = RNG.normal(size=(NUM_ROWS, 3))
Y = X @ np.array([1.0, -0.5, 0.3]) + 2.0 * RNG.normal(size=NUM_ROWS)
LABELS = (Y > 0).astype(float)


def assert_moments(draws, means, variances):
    """Means and variances of draws, (chain, draw, d), are within five Monte Carlo errors of those given."""
    for values, expected in ((draws, means), ((draws - means) ** 2, variances)):
        error = values.std((0, 1)) / np.sqrt(effective_sample_size(values))
        assert (np.abs(values.mean((0, 1)) - expected) < 5 * error).all()


@pytest.mark.nightly
def test_minibatches_of_a_gaussian_process_have_the_posterior_of_all_rows():
    """The second-order expansion of a Gaussian likelihood is the likelihood, so that no error is left.

    Given its hyperparameters the bound is the density of a linear regression of the rows on the whitened values.
    """
    points = np.array([[-1.0], [0.0], [1.0]])
    model, data, _ = GeneralizedGP(
        RBF(2.0, 2.0),
        GaussianLikelihood(noise_variance=4.0),
        latent="inducing",
        inducing_points=points,
        minibatch=50,
    ).prepare(X[:, :1], Y)
    posterior = kpp.MCMC("hmcecs", num_warmup=200, num_samples=500, progress=False).run(KEY, model.numpyro_model, data)
    factor = np.linalg.cholesky(rbf(points, points, [2.0], 2.0) + 2e-10 * np.eye(3))  # the nugget of kpp
    features = np.linalg.solve(factor, rbf(points, X[:, :1], [2.0], 2.0)).T
    covariance = np.linalg.inv(np.eye(3) + features.T @ features / 4.0)
    draws = np.asarray(posterior.samples["inducing_whitened"]).reshape(2, 500, 3)
    assert_moments(draws, covariance @ features.T @ Y / 4.0, np.diag(covariance))
    assert posterior.attrs["log_density_spread"] < 1e-6  # densities of -4000, and the roundings of sums over 2000 rows
    log_density = stats.norm.logpdf(Y, draws @ features.T, 2.0).sum(-1) + stats.norm.logpdf(draws).sum(-1)
    log_density -= np.sum(2.0 - np.sum(features**2, axis=1)) / (2 * 4.0)  # of what the points do not explain
    np.testing.assert_allclose(posterior.sample_stats["lp"], log_density, rtol=1e-8)


@pytest.mark.nightly
def test_a_posterior_that_is_far_from_gaussian_is_reported(caplog):
    """Only the product of scale and weight is known, so that the mode is far from most of the posterior."""

    def model(x, labels=None):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
        weight = numpyro.sample("weight", dist.Normal(0.0, 5.0))
        with numpyro.plate("instance", NUM_ROWS, subsample_size=50) as rows:
            logits = scale * weight * x[rows, 0]
            numpyro.sample("y", dist.Bernoulli(logits=logits), obs=None if labels is None else labels[rows])

    inference = kpp.MCMC("hmcecs", num_warmup=100, num_samples=100, progress=False)
    posterior = inference.run(KEY, model, {"x": jnp.asarray(X), "labels": jnp.asarray(LABELS)})
    assert posterior.attrs["log_density_spread"] > 0.5
    assert "the draws may be biased" in caplog.text


def test_the_spread_of_exact_energies_is_zero():
    def model(y):
        numpyro.sample("y", dist.Normal(0.0, numpyro.sample("scale", dist.LogNormal(0.0, 1.0))), obs=y)

    y, scales = Y[:4], np.array([[0.5, 1.0, 3.0]])
    logs = np.log(scales)  # the unconstrained coordinates
    energies = -stats.norm.logpdf(y, 0.0, scales[..., None]).sum(-1) - stats.norm.logpdf(logs)
    draws = {"scale": jnp.asarray(scales)}
    assert density_spread(model, {"y": jnp.asarray(y)}, draws, jnp.asarray(energies + 7.0)) < 1e-12
    shifted = jnp.asarray(energies + np.array([[0.0, 3.0, 0.0]]))
    np.testing.assert_allclose(density_spread(model, {"y": jnp.asarray(y)}, draws, shifted), np.sqrt(2.0))


def without_a_subsample(y=None):
    with numpyro.plate("instance", 4, subsample_size=4):
        numpyro.sample("y", dist.Normal(numpyro.sample("mean", dist.Normal(0.0, 1.0)), 1.0), obs=y)


def with_a_site_for_each_row(y=None):
    with numpyro.plate("instance", 4, subsample_size=2) as rows:
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=None if y is None else y[rows])


def all_rows(model):
    return numpyro.infer.HMCECS(numpyro.infer.NUTS(model))


@pytest.mark.slow_variants("without_a_subsample-all_rows-cannot be a function that returns HMCECS")
@pytest.mark.parametrize(
    ("model", "sampler", "message"),
    [
        (without_a_subsample, "hmcecs", "needs a plate whose `subsample_size` is below its size; .* has none"),
        (with_a_site_for_each_row, "hmcecs", "outside subsampled plates, but 'mean' is inside one"),
        (without_a_subsample, all_rows, "cannot be a function that returns HMCECS"),
    ],
)
def test_models_that_do_not_fit_are_refused(model, sampler, message):
    with pytest.raises(ValueError, match=message):
        kpp.MCMC(sampler).run(KEY, model, {"y": jnp.zeros(4)})
