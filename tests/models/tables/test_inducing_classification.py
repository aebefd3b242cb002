"""GPClassification with inducing points: quadrature, the sampled model as its limit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density
from scipy import integrate, special, stats

import kpp
from kpp.gp import BernoulliLikelihood
from kpp.gp.toolkit import LatentObservations
from kpp.kernels import RBF
from kpp_models import GPClassification
from oracles.kernels import rbf

RNG = np.random.default_rng(6)
X, NEW = RNG.uniform(-2, 2, size=(40, 2)), RNG.uniform(-1.5, 1.5, size=(5, 2))
LABELS = (X[:, 0] + 0.5 * RNG.logistic(size=40) > 0).astype(float)
SCALES, VARIANCE, MEAN = np.array([0.9, 1.4]), 2.0, 0.3
POINTS = X[:7] + 0.1
KERNEL = RBF(SCALES, VARIANCE)
LINKS = {"logit": special.log_expit, "probit": stats.norm.logcdf}


def model(inducing=POINTS, link="logit", **options):
    return GPClassification(KERNEL, MEAN, link, "inducing", inducing_points=inducing, **options)


def gram(a, b):
    return rbf(a, b, SCALES, VARIANCE)


def density(model, data, values):
    """The log density of a prepared model, in one program."""
    return jax.jit(lambda data, values: log_density(model.numpyro_model, (), data, values)[0])(data, values)


def law_given(white, x):
    """Mean and variance of the function given the whitened values at the inducing points, with whole matrices."""
    factor = np.linalg.cholesky(gram(POINTS, POINTS) + 1e-10 * VARIANCE * np.eye(7))
    features = np.linalg.solve(factor, gram(POINTS, x))
    return MEAN + features.T @ white, VARIANCE - np.sum(features**2, axis=0)


@pytest.mark.slow_variants("probit", "logit")
@pytest.mark.parametrize("link", LINKS)
def test_bound_is_the_expected_log_probability(link):
    white = RNG.normal(size=7)
    means, variances = law_given(white, X)
    expected = stats.norm.logpdf(white).sum()
    for label, mean, variance in zip(LABELS, means, variances, strict=True):
        sign, sd = 2 * label - 1, np.sqrt(variance)
        expected += integrate.quad(
            lambda z, sign=sign, mean=mean, sd=sd: stats.norm.pdf(z) * LINKS[link](sign * (mean + sd * z)), -12, 12
        )[0]
    prepared, data, _ = model(link=link).prepare(X, LABELS)
    found = density(prepared, data, {"inducing_whitened": white})
    np.testing.assert_allclose(found, expected, rtol=1e-7)  # quad stops at 1.5e-8


@pytest.mark.slow
def test_posterior_and_scores_are_those_given_the_values():
    white = RNG.normal(size=7)
    prepared, data, _ = model().prepare(X, LABELS)
    keys = jax.random.split(jax.random.key(0), 20000)

    @jax.jit
    def evaluate(sample, data):
        again = jax.vmap(lambda key: prepared.replicate(key, sample, data)["y"])(keys)
        return prepared.predictive(sample, data, NEW), prepared.log_likelihood(sample, data)["y"], again

    found, scores, again = evaluate({"inducing_whitened": white}, data)
    mean, variance = law_given(white, NEW)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-7)
    np.testing.assert_allclose(found["latent_variance"], variance, rtol=1e-7)
    means, variances = law_given(white, X)
    chances = [
        integrate.quad(lambda z, m=m, v=v: stats.norm.pdf(z) * special.expit(m + np.sqrt(v) * z), -12, 12)[0]
        for m, v in zip(means, variances, strict=True)
    ]
    np.testing.assert_allclose(np.exp(scores), np.where(LABELS == 1, chances, 1 - np.array(chances)), atol=1e-8)
    np.testing.assert_allclose(again.mean(0), chances, atol=5 * 0.5 / np.sqrt(20000))  # five standard errors


@pytest.mark.slow
def test_with_all_rows_as_inducing_points_it_is_the_sampled_model():
    """Then nothing is integrated out, but for the nugget of 1e-10 that latent values are factorized with."""
    white = jnp.asarray(RNG.normal(size=40))
    sampled, data, _ = GPClassification(KERNEL, MEAN, latent="sample").prepare(X, LABELS)
    prepared, all_data, _ = model(X).prepare(X, LABELS)
    found = density(prepared, all_data, {"inducing_whitened": white})
    np.testing.assert_allclose(found, density(sampled, data, {"latent_whitened": white}), atol=1e-4)
    laws = [
        jax.jit(lambda data, one=one, sample=sample: one.predictive(sample, data, NEW)["probability"])(values)
        for one, values, sample in (
            (prepared, all_data, {"inducing_whitened": white}),
            (sampled, data, {"latent_whitened": white}),
        )
    ]
    np.testing.assert_allclose(*laws, atol=1e-4)  # a variance of 1e-10 moves a value by about its root


@pytest.mark.slow
def test_labels_of_the_bound_are_drawn_with_their_chances():
    law = LatentObservations(BernoulliLikelihood(), jnp.asarray([0.5, -1.0]), jnp.asarray([2.0, 0.5]))
    draws, of_ones = jax.jit(lambda law: (law.sample(jax.random.key(0), (40000,)), law.log_prob(jnp.ones(2))))(law)
    chances = [
        integrate.quad(lambda z, m=m, v=v: stats.norm.pdf(z) * special.expit(m + np.sqrt(v) * z), -12, 12)[0]
        for m, v in ((0.5, 2.0), (-1.0, 0.5))
    ]
    np.testing.assert_allclose(draws.mean(0), chances, atol=5 * 0.5 / 200)
    # Jensen: the expected log probability is at most the log of the expected one.
    assert np.all(of_ones < np.log(chances))


@pytest.mark.nightly
def test_names_of_the_sites_and_a_saved_fit(tmp_path):
    learned = GPClassification(KERNEL, latent="inducing", num_inducing=4, learn_inducing=True, minibatch=10)
    inference = kpp.SVI(num_steps=20, num_samples=10, progress=False)
    found = learned.fit(jax.random.key(0), X, LABELS, inference=inference)
    # Nothing else is drawn, so that they are the group posterior.
    assert found.idata["posterior"]["inducing_whitened"].dims == ("chain", "draw", "coordinate")
    assert found.idata["posterior"]["inducing_points"].dims == ("chain", "draw", "inducing_point", "feature")
    assert found.idata["log_likelihood"]["y"].shape == (1, 10, 40)  # all rows, not a minibatch
    found.save(tmp_path / "fit.nc")
    np.testing.assert_array_equal(
        kpp.Fit.load(tmp_path / "fit.nc").predict(NEW)["probability"], found.predict(NEW)["probability"]
    )


BAD = {
    "no points": (lambda: GPClassification(KERNEL, latent="inducing"), "needs one of them, got neither"),
    "points for another": (lambda: GPClassification(KERNEL, num_inducing=3), "got one with latent='laplace'"),
    "a minibatch for another": (lambda: GPClassification(KERNEL, minibatch=3), "`minibatch` needs latent='inducing'"),
    "no minibatch": (lambda: model(minibatch=0), "`minibatch` must be at least 1, got 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused(case):
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call()
