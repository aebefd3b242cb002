"""Likelihoods of aggregates by their names: densities against SciPy, and the targets that they accept."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist
from scipy import special, stats

from kpp_models.aggregates.aggregate_likelihoods import (
    LIKELIHOODS,
    aggregate_likelihood,
    as_aggregate_targets,
    check_likelihood,
)

LATENT = np.array([-3.0, 0.0, 0.5, 2.0, 1.0])
EXPOSURE = np.array([5.0, 3.0, 10.0, 2.0, 7.0])
NOISE, FREEDOM = 0.3, 3.5

# Targets near what is expected and far from it, and the log density by SciPy.
CASES = {
    "gaussian": ([0.1, -4.0, 3.0, 2.0, 1.0], lambda y: stats.norm.logpdf(y, LATENT, np.sqrt(NOISE))),
    "poisson": ([0.0, 3.0, 40.0, 1.0, 9.0], lambda y: stats.poisson.logpmf(y, EXPOSURE * np.exp(LATENT))),
    "bernoulli": ([0.0, 1.0, 1.0, 0.0, 1.0], lambda y: stats.bernoulli.logpmf(y, special.expit(LATENT))),
    "binomial": ([0.0, 3.0, 4.0, 1.0, 7.0], lambda y: stats.binom.logpmf(y, EXPOSURE, special.expit(LATENT))),
    "student_t": ([0.1, -4.0, 30.0, 2.0, 1.0], lambda y: stats.t.logpdf(y, FREEDOM, LATENT, np.sqrt(NOISE))),
    "function": ([0.0, 3.0, 40.0, 1.0, 9.0], lambda y: stats.poisson.logpmf(y, EXPOSURE * np.exp(LATENT))),
}


def by_function(g, exposure):
    return dist.Poisson(exposure * jnp.exp(g))


@pytest.mark.slow_variants("poisson", "bernoulli", "function")
@pytest.mark.parametrize("likelihood", CASES)
def test_log_density_is_that_of_scipy(likelihood):
    assert set(CASES) == {*LIKELIHOODS, "function"}
    y, density = CASES[likelihood]
    named = by_function if likelihood == "function" else likelihood
    exposure = EXPOSURE if likelihood in ("poisson", "binomial", "function") else None
    law = aggregate_likelihood(named, exposure, NOISE, FREEDOM).observe(jnp.asarray(y))
    np.testing.assert_allclose(law.log_density(LATENT), density(np.array(y)), rtol=1e-10)


def test_taking_some_targets_takes_their_exposure_and_noise():
    rows = jnp.array([3, 1])
    law = aggregate_likelihood("student_t", None, jnp.arange(1.0, 6.0), FREEDOM).take(rows)
    np.testing.assert_array_equal(law.scale, np.sqrt([4.0, 2.0]))
    np.testing.assert_array_equal(aggregate_likelihood("binomial", EXPOSURE).take(rows).exposure, [2.0, 3.0])


@pytest.mark.parametrize(
    ("likelihood", "y", "exposure", "message"),
    [
        ("poisson", [1.0, -1.0], None, "`y` must hold counts .* got -1 at index 1"),
        ("poisson", [1.5, 2.0], None, "`y` must hold counts .* got 1.5 at index 0"),
        ("poisson", [1, 2], [1.0, 0.0], "`exposure` must be positive"),
        ("poisson", [1, 2], [1.0], "`y` and `exposure` must have the same number of rows"),
        ("binomial", [1, 2], None, "`exposure` must give the number of trials"),
        ("binomial", [1, 4], [3, 3], "`y` must not exceed `exposure`"),
        ("binomial", [1, 2], [3, 2.5], "`exposure` must hold whole numbers"),
        ("bernoulli", [0, 2], None, "labels 0 and 1"),
        ("gaussian", [0.1, 2], [1, 1], "`exposure` must be None"),
        ("student_t", [0.1, np.nan], None, "`y` must be finite"),
        ("cauchy", [0.1, 1.0], None, "`likelihood` must be one of"),
    ],
)
def test_unfit_targets_are_refused(likelihood, y, exposure, message):
    with pytest.raises(ValueError, match=message):
        as_aggregate_targets(likelihood, y, exposure)


def test_fit_targets_become_floats():
    y, exposure = as_aggregate_targets("binomial", [1, 2], [3, 2])
    assert y.dtype == exposure.dtype == jnp.float64
    assert as_aggregate_targets("poisson", [0, 2])[1] is None
    check_likelihood(lambda g, exposure: dist.Normal(g, 1.0))
