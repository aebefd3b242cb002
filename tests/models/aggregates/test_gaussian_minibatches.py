"""Minibatches under a Gaussian likelihood: the bound of any law of the inducing values, beside the collapsed bound."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

import kpp
from kpp.data.bags import Bags
from kpp.inference.base import CalledWith
from kpp.kernels import RBF
from kpp_models import CMP, BaggGP, CentroidGP, VBagg
from oracles.inducing_bounds import optimal_q

SIZES = np.array([1, 4, 2, 3])
RNG = np.random.default_rng(5)
POINTS, INDUCING = RNG.normal(size=(10, 2)), RNG.normal(size=(3, 2))
BAGS = Bags.create(POINTS, np.repeat(np.arange(4), SIZES), np.linspace(-1.0, 1.0, 4)[:, None])
TARGETS, PLACES = np.array([0.5, -0.4, 1.1, 0.2]), np.array([[-0.8], [0.1], [0.9], [0.4]])
COMMON = {"mean": 0.4, "inducing_points": INDUCING}

# (model without a minibatch, options of `prepare`); points of different bags differ, so their noise is independent.
CASES = {
    "cmp": (CMP(RBF(0.8, 1.5), RBF(1.0), 0.3, 0.02, **COMMON), {"covariates": PLACES}),
    "matched bags": (BaggGP(RBF(0.8, 1.5), 0.3, high_resolution_variance=0.2, **COMMON), {}),
    "sampled Gram matrix": (
        VBagg(RBF(0.8, 1.5), 0.3, noise="per_bag", bag_gram="sampled", gram_size=2, **COMMON),
        {},
    ),
    "centroids": (CentroidGP(RBF(0.8, 1.5), 0.3, **COMMON), {}),
}


def prepared(name, minibatch=None):
    model, options = CASES[name]
    model, data, _ = dataclasses.replace(model, minibatch=minibatch).prepare(BAGS, TARGETS, **options)
    return model, data


def bound(model, data, law, rows):
    """Return the bound of the law N(m, S) of the whitened inducing values that the rows of a minibatch estimate."""
    mean, covariance = law
    values = {"inducing_whitened": mean, "instance": rows}
    run = handlers.seed(handlers.substitute(CalledWith(model.numpyro_model, subsample=True), values), 0)
    site = handlers.trace(run).get_trace(data)["y"]
    seen = site["fn"]
    variance = seen.latent_variance + jnp.sum((seen.features @ covariance) * seen.features, axis=1)
    scale = 1.0 if site["scale"] is None else site["scale"]
    expected = scale * jnp.sum(seen.likelihood.observe(site["value"]).expected_log_density(seen.loc, variance))
    size = mean.shape[0]
    divergence = 0.5 * (jnp.trace(covariance) + mean @ mean - size - jnp.linalg.slogdet(covariance)[1])
    return expected - divergence


def best_law(model, data):
    """Return the optimal law of the whitened values by the dense formula, from the parts that the model reports."""
    run = handlers.seed(CalledWith(model.numpyro_model), 0)
    seen = handlers.trace(run).get_trace(data)["y"]["fn"]
    low_rank = seen.features.T
    center = seen.loc - seen.features @ seen.white
    size = low_rank.shape[0]
    noise = jnp.diag(jnp.broadcast_to(seen.likelihood.variances, TARGETS.shape))
    return optimal_q(TARGETS, center, jnp.eye(4), jnp.eye(size), low_rank, noise)


SLOW = ("sampled Gram matrix", "centroids")


@pytest.mark.nightly_variants("centroids", "sampled Gram matrix", "matched bags")
@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES])
def test_bound_of_the_best_law_is_the_collapsed_bound_and_minibatches_estimate_it_without_bias(name):
    model, data = prepared(name, minibatch=2)
    collapsed, whole = prepared(name)
    law = jax.jit(lambda data: best_law(model, data))(data)
    subsets = jnp.array(list(itertools.combinations(range(4), 2)))
    bounds = jax.jit(lambda law: jax.lax.map(lambda rows: bound(model, data, law, rows), subsets))
    of_some = bounds(law)
    exact = jax.jit(lambda data: log_density(collapsed.numpyro_model, (), data, {})[0])(whole)
    # Every subset of two targets is as likely as any other; the inducing points carry a nugget of 1e-10.
    np.testing.assert_allclose(np.mean(of_some), exact, rtol=1e-8)
    assert np.ptp(of_some) > 0.1
    other = (law[0] + 0.1, 1.1 * law[1])
    assert np.mean(bounds(other)) < exact


@pytest.mark.nightly
def test_natural_gradients_over_minibatches_find_the_collapsed_posterior():
    name = "cmp"
    x = RNG.normal(size=(5, 2))
    inference = kpp.NaturalGradient(num_steps=300, step_size=0.1, min_step=0.01, num_samples=2, progress=False)
    model, options = CASES[name]
    few = dataclasses.replace(model, minibatch=2)
    fit = few.fit(jax.random.key(0), BAGS, TARGETS, inference=inference, num_prior_samples=0, **options)
    assert fit.idata.log_likelihood["y"].shape == fit.idata.posterior_predictive["y"].shape == (1, 2, 4)
    collapsed, data = prepared(name)
    expected = jax.jit(lambda data: collapsed.predictive({}, data, jnp.asarray(x)))(data)
    # Each draw of the inducing values is a field; the law of the values gives mean and variance over all draws.
    mean, root = fit.state["whitened_mean"][0], fit.state["whitened_root"][0]
    prepared_few, few_data = prepared(name, minibatch=2)

    @jax.jit
    def field(white):
        def given(white):
            return prepared_few.predictive({"inducing_whitened": white}, few_data, jnp.asarray(x))

        return given(white), jax.jacobian(lambda white: given(white)["mean"])(white)

    given, slope = field(mean)
    variance = given["latent_variance"] + jnp.sum(jnp.square(slope @ root.T), axis=1)
    # The last steps average about a hundred minibatches of half the targets: a tenth of the prior's deviation, 1.2.
    np.testing.assert_allclose(given["mean"], expected["mean"], atol=0.12)
    np.testing.assert_allclose(variance, expected["latent_variance"], atol=0.12)


def test_a_step_reads_the_bags_of_its_targets_only():
    """The largest kernel matrix of a step has the points of two bags, not of all bags, on one side."""
    model, data = prepared("matched bags", minibatch=2)
    run = handlers.seed(CalledWith(model.numpyro_model, subsample=True), 0)
    text = str(jax.make_jaxpr(lambda data: handlers.trace(run).get_trace(data)["y"]["fn"].loc)(data))
    # 2 bags of at most 4 points, and one more point; 10 points in all.
    assert "f64[9,3]" in text
    assert "f64[10,3]" not in text
