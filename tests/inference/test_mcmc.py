"""The samplers of NumPyro by name, against the posterior of a conjugate regression."""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size

import kpp

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
DATA = {"x": X, "y": X @ np.array([1.0, -0.5, 0.3]) + 0.5 * RNG.normal(size=60)}


def regression(x, y=None):
    weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.deterministic("mean", x @ weights)
    with numpyro.plate("instance", 60):
        numpyro.sample("y", dist.Normal(x @ weights, 0.5), obs=y)


def assert_mean(series, expected):
    """The mean of a series of dependent values is within four Monte Carlo errors of its expectation."""
    error = series.std(0) / np.sqrt(effective_sample_size(series[None]))
    assert (np.abs(series.mean(0) - expected) < 4 * error).all()


@pytest.mark.nightly_variants("aies")
@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["aies", "ess", "barker", numpyro.infer.ESS])
def test_moments_are_those_of_the_posterior(sampler):
    covariance = np.linalg.inv(np.eye(3) + X.T @ X / 0.25)
    mean = covariance @ X.T @ DATA["y"] / 0.25
    posterior = kpp.MCMC(sampler, progress=False).run(jax.random.key(0), regression, DATA)
    draws = np.asarray(posterior.samples["weights"])
    # Walkers depend on each other, so the error is that of the series of means over all chains.
    assert_mean(draws.mean(0), mean)
    assert_mean(((draws - mean) ** 2).mean(0), np.diag(covariance))
    np.testing.assert_allclose(posterior.samples["mean"], draws @ X.T, atol=1e-12)
    log_density = dist.Normal(posterior.samples["mean"], 0.5).log_prob(DATA["y"][None, None]).sum(-1) + dist.Normal(
        0.0, 1.0
    ).log_prob(draws).sum(-1)
    np.testing.assert_allclose(posterior.sample_stats["lp"], log_density, rtol=1e-12)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="`sampler`"):
        kpp.MCMC("unknown")


@pytest.mark.slow_variants("2")
@pytest.mark.parametrize("walkers", [2, 7])
def test_walkers_must_fit_the_ensemble(walkers):
    with pytest.raises(ValueError, match=f"`num_chains` must be an even number .* got {walkers}; 8 suit"):
        kpp.MCMC("aies", num_chains=walkers).run(jax.random.key(0), regression, DATA)


def test_a_function_must_return_a_sampler():
    with pytest.raises(TypeError, match="`sampler` must be a name or a function"):
        kpp.MCMC(lambda model: "no sampler").run(jax.random.key(0), regression, DATA)
