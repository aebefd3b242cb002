"""NaturalGradient: the exact law under Gaussian noise, the conditions of an optimum, the mode of the other sites."""

from __future__ import annotations

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy import special, stats

import kpp
from kpp.gp import (
    BernoulliLikelihood,
    GaussianLikelihood,
    HeteroscedasticLikelihood,
    PoissonLikelihood,
)
from kpp.kernels import RBF
from kpp_models import GPGP, GeneralizedGP, GPClassification, GPRegression, MultiLatentGP, VBagg
from oracles.kernels import rbf

RNG = np.random.default_rng(12)
X, NEW = RNG.uniform(-2, 2, size=(60, 2)), RNG.uniform(-1.5, 1.5, size=(5, 2))
F = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
Y = F + 0.3 * RNG.normal(size=60)
LABELS = (F + 0.5 * RNG.logistic(size=60) > 0).astype(float)
SCALES, VARIANCE, NOISE = np.array([0.9, 1.4]), 2.0, 0.1
POINTS = X[:9] + 0.1
KERNEL = RBF(SCALES, VARIANCE)
INDUCING = {"latent": "inducing", "inducing_points": POINTS}
FACTOR = np.linalg.cholesky(rbf(POINTS, POINTS, SCALES, VARIANCE) + 1e-10 * VARIANCE * np.eye(9))
FEATURES = np.linalg.solve(FACTOR, rbf(POINTS, X, SCALES, VARIANCE)).T
REST = VARIANCE - np.sum(FEATURES**2, axis=1)


def run(model, y, *, data_options=None, **options):
    """Return the law of the whitened values, mean (l, w) and covariance (l, w, w), and all that the run returned."""
    prepared, data, _ = model.prepare(X, y, **(data_options or {}))
    inference = kpp.NaturalGradient(progress=False, **options)
    found = inference.run(jax.random.key(0), prepared.numpyro_model, data)
    roots = np.asarray(found.state["whitened_root"])
    return np.asarray(found.state["whitened_mean"]), np.einsum("lij,lik->ljk", roots, roots), found


@pytest.fixture(scope="module")
def exact():
    """The law after one whole step under Gaussian noise, with 20000 draws."""
    model = GeneralizedGP(KERNEL, GaussianLikelihood(noise_variance=NOISE), **INDUCING)
    return run(model, Y, num_steps=2, min_step=1.0, num_samples=20_000)


@pytest.mark.slow
def test_one_whole_step_gives_the_exact_law_under_gaussian_noise(exact):
    mean, covariance, found = exact
    precision = np.eye(9) + FEATURES.T @ FEATURES / NOISE
    np.testing.assert_allclose(np.linalg.inv(covariance[0]), precision, rtol=1e-6)
    np.testing.assert_allclose(mean[0], np.linalg.solve(precision, FEATURES.T @ Y / NOISE), rtol=1e-6)
    # The bound at this law is the collapsed bound, an implementation of its own.
    regression, data, _ = GPRegression(KERNEL, NOISE, **INDUCING).prepare(X, Y)
    collapsed = jax.jit(lambda data: log_density(regression.numpyro_model, (), data, {})[0])(data)
    np.testing.assert_allclose(found.sample_stats["elbo"][0, 1], collapsed, rtol=1e-8)


# The law is optimal if its mean is the sum of features times slopes, and its precision follows from the curvatures.
@pytest.mark.nightly_variants("probit")
@pytest.mark.slow_variants("probit", "logit")
@pytest.mark.parametrize("link", ["logit", "probit"])
def test_law_fulfils_the_conditions_of_an_optimum(link, compilations):
    model = GeneralizedGP(KERNEL, BernoulliLikelihood(link=link), **INDUCING)
    mean, covariance, _ = run(model, LABELS, num_steps=60, min_step=0.5, num_samples=10)
    # The first 50 steps and those after them are one program.
    assert sum(program.get("fun_name") == "jit(_run_steps)" for program in compilations) <= 1
    mu, sd = FEATURES @ mean[0], np.sqrt(REST + np.einsum("iw,wv,iv->i", FEATURES, covariance[0], FEATURES))
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    f, sign = mu + sd * nodes[:, None], 2 * LABELS - 1
    if link == "logit":
        slope, curvature = LABELS - special.expit(f), special.expit(f) * special.expit(-f)
    else:
        ratio = np.exp(stats.norm.logpdf(f) - stats.norm.logcdf(sign * f))
        slope, curvature = sign * ratio, ratio * (ratio + sign * f)
    slope, curvature = (weights @ part / weights.sum() for part in (slope, curvature))  # Bonnet and Price
    np.testing.assert_allclose(mean[0], FEATURES.T @ slope, rtol=1e-5, atol=1e-6)
    precision = np.eye(9) + FEATURES.T @ (curvature[:, None] * FEATURES)
    np.testing.assert_allclose(np.linalg.inv(covariance[0]), precision, rtol=1e-5)


@pytest.mark.nightly
def test_laws_of_several_functions_fulfil_the_conditions_of_an_optimum():
    scale = np.array([1.0, 0.7])
    model = MultiLatentGP(KERNEL, HeteroscedasticLikelihood(), np.array([0.0, -1.0]), scale, **INDUCING)
    mean, covariance, _ = run(model, Y, num_steps=400, min_step=0.1, num_samples=10)
    center = np.array([0.0, -1.0]) + scale * (FEATURES @ mean.T)
    spread = scale**2 * (REST[:, None] + np.einsum("iw,lwv,iv->il", FEATURES, covariance, FEATURES))
    # E log p = -(log 2 pi + m2 + r e) / 2 with r = (y - m1)^2 + v1 and e = exp(v2 / 2 - m2).
    precision, squares = np.exp(spread[:, 1] / 2 - center[:, 1]), np.square(Y - center[:, 0]) + spread[:, 0]
    slopes = np.stack([(Y - center[:, 0]) * precision, 0.5 * (squares * precision - 1)], axis=1)
    curvatures = np.stack([precision, 0.5 * squares * precision], axis=1)
    for latent in range(2):
        np.testing.assert_allclose(mean[latent], scale[latent] * FEATURES.T @ slopes[:, latent], rtol=1e-4, atol=1e-5)
        expected = np.eye(9) + scale[latent] ** 2 * FEATURES.T @ (curvatures[:, latent, None] * FEATURES)
        np.testing.assert_allclose(np.linalg.inv(covariance[latent]), expected, rtol=1e-4)


@pytest.mark.nightly
def test_other_sites_are_at_the_mode_of_the_bound():
    prior, noise = RBF(dist.LogNormal(0.0, 0.5).expand([2]), VARIANCE), dist.HalfNormal(1.0)
    model = GeneralizedGP(prior, GaussianLikelihood(noise_variance=noise), **INDUCING)
    _, _, found = run(model, Y, num_steps=400, learning_rate=0.05, min_step=1.0, num_samples=10)
    regression, data, _ = GPRegression(prior, noise, **INDUCING).prepare(X, Y)
    mode = kpp.MAP(progress=False).run(jax.random.key(0), regression.numpyro_model, data)
    for ours, theirs in (("kernel.lengthscale",) * 2, ("likelihood.noise_variance", "noise_variance")):
        np.testing.assert_allclose(found.samples[ours][0, 0], mode.samples[theirs][0, 0], rtol=1e-3)  # what Adam leaves


def whiten(points_gram, sections, diagonal):
    """Return the features (n, w) by inducing points, and the variances that they do not explain."""
    size = len(points_gram)
    nugget = 1e-10 * np.trace(points_gram) / size  # that of kpp.gp.toolkit.inducing_features
    features = np.linalg.solve(np.linalg.cholesky(points_gram + nugget * np.eye(size)), sections).T
    return features, diagonal - np.sum(features**2, axis=1)


def pairs_observed():
    """Return a model of matches with what `run` needs, and its features, rest, and derivatives of E log p."""
    rng = np.random.default_rng(1)
    pairs, wins = rng.uniform(-2, 2, size=(25, 2, 2)), (rng.uniform(size=25) < 0.6).astype(float)
    model, data, _ = GPGP(RBF(SCALES), latent="inducing", num_inducing=6).prepare(pairs, wins)

    def gram(p, q):
        (a, b), (c, d) = (np.moveaxis(np.asarray(part), 1, 0) for part in (p, q))
        return rbf(a, c, SCALES) * rbf(b, d, SCALES) - rbf(a, d, SCALES) * rbf(b, c, SCALES)

    x, inducing, counts = data["x"], data["inducing"], np.asarray(data["y"])
    parts = whiten(gram(inducing, inducing), gram(inducing, x), np.diag(gram(x, x)))

    def derivatives(f):
        return counts[:, 0] - counts.sum(1) * special.expit(f), counts.sum(1) * special.expit(f) * special.expit(-f)

    return model, data, parts, derivatives


def bags_observed():
    """Return the same for counts over bags of points."""
    rng = np.random.default_rng(2)
    bags = kpp.Bags.create(rng.uniform(-2, 2, size=(36, 2)), np.repeat(np.arange(8), [3, 5, 4, 6, 2, 7, 4, 5]))
    counts = rng.poisson(2.0, size=8).astype(float)
    model, data, _ = VBagg(KERNEL, 1.0, likelihood="poisson", inducing_points=POINTS).prepare(bags, counts)
    members = np.asarray(data["bag_of"])[:, None] == np.arange(8)
    means = members / members.sum(axis=0)
    points = np.asarray(data["x"])
    sections = rbf(POINTS, points, SCALES, VARIANCE) @ means
    diagonal = np.diag(means.T @ rbf(points, points, SCALES, VARIANCE) @ means)
    parts = whiten(rbf(POINTS, POINTS, SCALES, VARIANCE), sections, diagonal)
    return model, data, parts, lambda f: (counts - np.exp(f), np.exp(f))


@pytest.mark.slow
@pytest.mark.parametrize("observed", [pairs_observed, bags_observed])
def test_laws_of_pairs_and_bags_fulfil_the_conditions_of_an_optimum(observed):
    model, data, (features, rest), derivatives = observed()
    inference = kpp.NaturalGradient(num_steps=80, min_step=0.5, num_samples=1, progress=False)
    state = inference.run(jax.random.key(0), model.numpyro_model, data).state
    mean, root = np.asarray(state["whitened_mean"])[0], np.asarray(state["whitened_root"])[0]
    covariance = root.T @ root
    sd = np.sqrt(rest + np.einsum("iw,wv,iv->i", features, covariance, features))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    parts = derivatives(features @ mean + sd * nodes[:, None])
    slope, curvature = (weights @ part / weights.sum() for part in parts)
    np.testing.assert_allclose(mean, features.T @ slope, rtol=1e-5, atol=1e-6)  # what 80 steps leave
    expected = np.eye(len(mean)) + features.T @ (curvature[:, None] * features)
    np.testing.assert_allclose(np.linalg.inv(covariance), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.nightly
def test_minibatches_find_the_law_of_all_rows():
    rng, n = np.random.default_rng(0), 600
    x = rng.uniform(-2, 2, size=(n, 2))
    y = rng.poisson(np.exp(np.sin(2 * x[:, 0]))).astype(float)
    fits = []
    for minibatch in (None, n // 4):
        model = GeneralizedGP(KERNEL, PoissonLikelihood(), latent="inducing", num_inducing=10, minibatch=minibatch)
        inference = kpp.NaturalGradient(num_steps=150, num_samples=200, progress=False)
        fits.append(model.fit(jax.random.key(0), x, y, inference=inference, num_prior_samples=0).predict(NEW)["mean"])
    means, spread = [fit.mean(("chain", "draw")) for fit in fits], fits[0].std(("chain", "draw"))
    # The noise of minibatches is averaged over 1 / rho steps: sqrt(rho / 2 * n / b) of the posterior's spread, .3 with
    # the last rho of .05; four of them, and what 200 draws add.
    np.testing.assert_array_less(abs(means[1] - means[0]), 1.5 * spread)


@pytest.mark.nightly
def test_fit_draws_and_survives_a_file(tmp_path):
    model = GPClassification(RBF(dist.LogNormal(0.0, 0.5)), latent="inducing", num_inducing=8, minibatch=20)
    inference = kpp.NaturalGradient(num_steps=30, num_samples=20, progress=False)
    fit = model.fit(jax.random.key(0), X, LABELS, inference=inference)
    assert fit.idata["latent"]["inducing_whitened"].dims == ("chain", "draw", "coordinate")
    assert fit.idata["sample_stats"]["elbo"].dims == ("chain", "step")
    assert fit.sample(jax.random.key(1), 7).draws["inducing_whitened"].shape == (1, 7, 8)
    fit.save(tmp_path / "fit.nc")
    again = kpp.Fit.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(again.predict(NEW)["probability"], fit.predict(NEW)["probability"])
    assert again.inference == inference


def test_draws_have_the_law(exact):
    mean, covariance, found = exact
    draws = np.asarray(found.samples["inducing_whitened"][0])
    np.testing.assert_array_less(abs(draws.mean(0) - mean[0]), 5 * np.sqrt(np.diag(covariance[0]) / 20_000))
    spread = np.sqrt(np.outer(np.diag(covariance[0]), np.diag(covariance[0])))
    np.testing.assert_allclose(np.cov(draws.T) / spread, covariance[0] / spread, atol=5 * np.sqrt(2 / 20_000))


@pytest.mark.slow
def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="`num_steps`"):
        kpp.NaturalGradient(num_steps=0)
    with pytest.raises(ValueError, match="`min_step`"):
        kpp.NaturalGradient(min_step=2.0)
    inference = kpp.NaturalGradient(progress=False)
    with pytest.raises(TypeError, match="no inducing points whose values are sites"):
        GPRegression(RBF(dist.LogNormal(0.0, 0.5)), NOISE).fit(jax.random.key(0), X, Y, inference=inference)
