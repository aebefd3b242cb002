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
from kpp.inference.subsampling import density_spread
from kpp.kernels import RBF
from kpp_models import GeneralizedGP

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


@pytest.mark.slow
def test_a_gaussian_posterior_is_exact():
    """The second-order expansion of a Gaussian likelihood is the likelihood, so that no error is left."""

    def model(x, y=None):
        weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with numpyro.plate("instance", NUM_ROWS, subsample_size=50) as rows:
            numpyro.sample("y", dist.Normal(x[rows] @ weights, 2.0), obs=None if y is None else y[rows])

    inference = kpp.MCMC("hmcecs", num_warmup=200, num_samples=500, progress=False)
    posterior = inference.run(KEY, model, {"x": jnp.asarray(X), "y": jnp.asarray(Y)})
    covariance = np.linalg.inv(np.eye(3) + X.T @ X / 4.0)
    draws = np.asarray(posterior.samples["weights"])
    assert draws.shape == (2, 500, 3)
    assert_moments(draws, covariance @ X.T @ Y / 4.0, np.diag(covariance))
    assert posterior.attrs["log_density_spread"] < 1e-6  # densities of -4000, and the roundings of sums over 2000 rows
    log_density = dist.Normal(draws @ X.T, 2.0).log_prob(Y).sum(-1) + dist.Normal(0.0, 1.0).log_prob(draws).sum(-1)
    np.testing.assert_allclose(posterior.sample_stats["lp"], log_density, rtol=1e-12)


@pytest.mark.slow
def test_minibatches_of_a_gaussian_process_have_the_posterior_of_all_rows():
    """Given its hyperparameters the posterior is Gaussian, and Laplace's approximation of all rows is exact."""
    model = GeneralizedGP(
        RBF(2.0, 2.0),
        GaussianLikelihood(noise_variance=4.0),
        latent="inducing",
        inducing_points=np.array([[-1.0], [0.0], [1.0]]),
        minibatch=50,
    )

    def draws(inference):
        fit = model.fit(KEY, X[:, :1], Y, inference=inference, num_prior_samples=0)
        return fit.idata["posterior"]["inducing_whitened"].values

    exact = draws(kpp.Laplace(num_samples=4000, progress=False))
    found = draws(kpp.MCMC("hmcecs", num_warmup=200, num_samples=500, progress=False))
    spread = exact.std((0, 1))
    error = spread * np.sqrt(1 / effective_sample_size(found) + 1 / 4000)
    np.testing.assert_array_less(np.abs(found.mean((0, 1)) - exact.mean((0, 1))), 5 * error)
    # A standard deviation from 300 effective draws has an error of 4 %.
    np.testing.assert_allclose(found.std((0, 1)), spread, rtol=0.2)


@pytest.mark.slow
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
