"""The prior that is inferred again after every query: against dense evidences, a fit to all data, and in searches."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import lognorm, multivariate_normal

import kpp
from kpp.kernels import RBF
from kpp_models import GPRegression
from kpp_optimization import FitPrior, JointPrior, optimize

KEY = jax.random.key(0)
CANDIDATES = np.linspace(-2.0, 2.0, 25)[:, None]
INDEX, VALUES, NOISE = np.array([3, 11, 12, 20]), np.array([-0.6, 0.2, 0.5, 0.9]), 0.01
SEARCH = kpp.MAP(num_restarts=1, tolerance=1e-7, progress=False)


def other_data():
    rng = np.random.default_rng(1)
    x = rng.uniform(-2.0, 2.0, (12, 1))
    return x, np.sin(1.5 * x[:, 0]) + 0.1 * rng.normal(size=12)


@pytest.fixture(scope="module")
def fit():
    """A Gaussian process with one hyperparameter."""
    model = GPRegression(RBF(dist.LogNormal(0.0, 0.5)), noise_variance=NOISE)
    return model.fit(KEY, *other_data(), inference=SEARCH, num_prior_samples=0)


def hyperparameters(prior):
    found = prior._infer(jnp.asarray(CANDIDATES), jnp.asarray([[4.0]]))
    return {name: float(value[0, 0]) for name, value in found.samples.items()}


def dense(lengthscale, x):
    return np.exp(-0.5 * cdist(x, x, "sqeuclidean") / lengthscale**2)


@pytest.mark.nightly
def test_without_discrepancy_it_is_the_mode_given_all_data(fit):
    """Evidence of the data times evidence of the queries given them is the evidence of both; the nugget is 1e-6."""
    x, y = other_data()
    whole = fit.model.fit(
        KEY, np.concatenate([x, CANDIDATES[INDEX]]), np.concatenate([y, VALUES]), inference=SEARCH, num_prior_samples=0
    )
    prior = JointPrior(fit, 1e-6, 0.2, inference=SEARCH, max_queries=6).given(CANDIDATES, INDEX, VALUES, NOISE)
    found = hyperparameters(prior)["kernel.lengthscale"]
    np.testing.assert_allclose(found, float(whole.draws["kernel.lengthscale"][0, 0]), rtol=1e-4)
    belief = prior.believe(CANDIDATES)
    for i, value in zip(INDEX, VALUES, strict=True):
        belief = belief.observe(int(i), float(value), NOISE)
    predicted = whole.predict(CANDIDATES)
    np.testing.assert_allclose(belief.mean, predicted["mean"].values[0, 0], atol=1e-4)
    np.testing.assert_allclose(belief.standard_deviation**2, predicted["latent_variance"].values[0, 0], atol=1e-4)


@pytest.mark.nightly
def test_the_mode_is_that_of_the_dense_joint_density(fit):
    """By SciPy's simplex, which uses no gradient and stops at 1e-6 in the logarithms."""
    x, y = other_data()
    points = np.concatenate([x, CANDIDATES[INDEX]])

    def negative(logs):
        lengthscale, scale, width = np.exp(logs)
        covariance = dense(lengthscale, points)
        covariance[:12, :12] += NOISE * np.eye(12)
        own = scale**2 * (dense(width, CANDIDATES[INDEX] / 4.0) + 1.0)
        given = covariance[12:, :12] @ np.linalg.inv(covariance[:12, :12])
        posterior = covariance[12:, 12:] - given @ covariance[:12, 12:] + own
        posterior += (NOISE + 1e-6 * np.mean(np.diagonal(posterior))) * np.eye(4)
        total = lognorm.logpdf(lengthscale, 0.5) + lognorm.logpdf(scale, 1.0, scale=0.3)
        total += lognorm.logpdf(width, 0.7, scale=0.2) + multivariate_normal.logpdf(y, cov=covariance[:12, :12])
        return -total - multivariate_normal.logpdf(VALUES, given @ y, posterior)

    prior = JointPrior(fit, dist.LogNormal(np.log(0.3), 1.0), inference=SEARCH, max_queries=6)
    found = hyperparameters(prior.given(CANDIDATES, INDEX, VALUES, NOISE))
    ours = np.log([found[f"{name}"] for name in ("kernel.lengthscale", "discrepancy.scale", "discrepancy.lengthscale")])
    best = minimize(negative, ours, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-12, "maxiter": 2000})
    np.testing.assert_allclose(ours, best.x, atol=1e-4)


@pytest.mark.nightly
def test_draws_by_laplace_have_their_joint_weights_after_the_queries(fit):
    """The search observes the queries once more, so the weights before it must not hold their evidence."""
    laplace = kpp.Laplace(num_samples=6, num_restarts=1, progress=False)
    prior = JointPrior(fit, dist.LogNormal(np.log(0.3), 1.0), inference=laplace, max_queries=6)
    prior = prior.given(CANDIDATES, INDEX, VALUES, NOISE)
    stats = prior._infer(jnp.asarray(CANDIDATES), jnp.asarray([[4.0]])).sample_stats
    logs = np.ravel(stats["lp"]) - np.ravel(stats["log_q"])
    belief = prior.believe(CANDIDATES)
    for i, value in zip(INDEX, VALUES, strict=True):
        belief = belief.observe(int(i), float(value), NOISE)
    # the nugget changes the noise by 1e-6 of the variance, 1e-4 of the noise
    np.testing.assert_allclose(belief.weights.ravel(), np.exp(logs - logsumexp(logs)), atol=1e-3)


@pytest.mark.nightly
def test_a_fit_to_the_wrong_data_is_overcome(fit):
    """The objective is the mirror image of the effect; the fit alone is certain of the wrong end."""

    def mirrored(point):
        return -np.sin(1.5 * point[0])

    joint = JointPrior(fit, dist.LogNormal(np.log(0.1), 2.0), max_queries=8)
    stubborn, found = (optimize(KEY, mirrored, CANDIDATES, prior, num_queries=8) for prior in (FitPrior(fit), joint))
    assert found.best_value == pytest.approx(-1.0, abs=0.01)
    assert found.best_value <= stubborn.queries["value"].min()


def test_more_queries_than_there_is_room_for_are_refused(fit):
    prior = JointPrior(fit, 0.1, max_queries=2)
    with pytest.raises(ValueError, match="`max_queries`"):
        prior.given(CANDIDATES, INDEX, VALUES, NOISE)


@pytest.mark.slow
def test_a_fit_without_anything_to_infer_is_a_prior():
    """Its moments are those of the fit plus the discrepancy, before the queries."""
    x, y = other_data()
    known = GPRegression(RBF(1.0), noise_variance=0.1).fit(KEY, x, y, inference=SEARCH, num_prior_samples=0)
    mean, covariance = JointPrior(known, 0.5, 0.3).moments(CANDIDATES)
    predicted = known.predict(CANDIDATES)
    np.testing.assert_allclose(mean, predicted["mean"].values[0, 0], rtol=1e-10)
    extra = np.diagonal(covariance) - predicted["latent_variance"].values[0, 0]
    np.testing.assert_allclose(extra, 0.25 * 2.0, rtol=1e-6)
