"""Laplace's approximation with importance weights, against posteriors in closed form."""

import logging

import jax
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist

import kpp
from kpp.storage.arviz_data import psis

LAPLACE = kpp.Laplace(num_samples=2000, progress=False, importance=True)


def counts(y=None):
    """Poisson counts under a Gamma(2, 1) rate: the posterior is Gamma(2 + sum, 1 + number)."""
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("n", 2):
        numpyro.sample("y", dist.Poisson(rate), obs=y)


@pytest.fixture(scope="module")
def posterior():
    return LAPLACE.run(jax.random.key(0), counts, {"y": np.array([0.0, 1.0])})


@pytest.mark.slow
def test_weighted_draws_have_the_posterior_moments(posterior):
    draws = np.asarray(posterior.samples["rate"]).ravel()
    exact = dist.Gamma(3.0, 3.0)
    error = np.sqrt(float(exact.variance) / posterior.attrs["importance_ess"])
    assert abs(draws.mean() - float(exact.mean)) < 4 * error
    # The fourth moment of a gamma law gives the error of its variance: kurtosis 3 + 6 / 3.
    assert abs(draws.var() - float(exact.variance)) < 4 * float(exact.variance) * np.sqrt(
        4 / posterior.attrs["importance_ess"]
    )


@pytest.mark.slow
def test_the_weights_of_a_good_approximation_are_trusted(posterior):
    assert posterior.attrs["pareto_k"] < 0.7
    assert 500 < posterior.attrs["importance_ess"] <= 2000
    assert posterior.sample_stats["lp"].shape == (1, 2000)


def test_new_draws_are_weighted_as_well(posterior):
    again = LAPLACE.draw(jax.random.key(1), 2000, counts, {"y": np.array([0.0, 1.0])}, posterior.state)
    assert again.samples["rate"].shape == (1, 2000)
    assert np.isfinite(again.attrs["pareto_k"])


def heavy(y=None):
    numpyro.sample("x", dist.StudentT(0.5, 0.0, 1.0).expand([3]).to_event(1))


def test_a_wrong_approximation_is_reported(caplog):
    """The tails of the posterior decrease much more slowly than those of the proposal."""
    with caplog.at_level(logging.WARNING, logger="kpp"):
        found = LAPLACE.run(jax.random.key(0), heavy, {})
    assert found.attrs["pareto_k"] > 0.7
    assert "use kpp.NUTS()" in caplog.text


def test_too_few_draws_have_plain_weights():
    log_weights, k = psis(np.log(np.array([1.0, 3.0])))
    np.testing.assert_allclose(np.exp(log_weights), [0.25, 0.75], rtol=1e-15)  # rounding
    assert np.isnan(k)
