"""Kernels with finitely many features: the same numbers as with the kernel matrix, without making it."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy import special, stats
from sklearn.linear_model import LogisticRegression

import kpp
from kpp.features import Nystrom, RandomFourier
from kpp.gp import BernoulliLikelihood, GaussianLikelihood, LaplaceMarginal, condition
from kpp.gp.toolkit import FeatureGP, few_features, prior_covariance
from kpp.kernels import (
    RBF,
    AbstractKernel,
    Contextual,
    GeneralizedPreferential,
    Linear,
    PairProduct,
    Preferential,
    SkewSymmetrized,
)
from kpp_models import GPClassification, GPRegression, KernelLogistic, KernelRidge

RNG = np.random.default_rng(5)
X, NEW = RNG.normal(size=(40, 6)), RNG.normal(size=(7, 6))
Y = X[:, 0] - np.sin(2 * X[:, 1]) + 0.2 * RNG.normal(size=40) + 1.5
BASE = RBF(jnp.array([0.8, 1.5, 2.0, 3.0, 4.0, 5.0]), 1.3)
NYSTROM = Nystrom(BASE, X[:6] + 0.1)
# Both ways subtract numbers of the size of the prior variance; a condition number of 1e4 leaves some twelve digits.
TOLERANCE = {"rtol": 1e-8, "atol": 1e-10}


class Dense(AbstractKernel):
    """Hides the features of a kernel, so that everything goes by its matrix."""

    kernel: AbstractKernel

    def evaluate(self, x1, x2):
        return self.kernel.evaluate(x1, x2)

    @classmethod
    def examples(cls, rng_key):
        yield cls(RBF(1.0)), jax.random.normal(rng_key, (3, 2))


# All have six features, so that they share compiled programs.
KERNELS = {
    "nystrom": lambda: NYSTROM,
    "sum": lambda: Nystrom(BASE, X[:3] + 0.1) + Linear(jnp.array([0.5, 1.0])).on([0, 1]) + 0.7,
    "scaled": lambda: 2.5 * NYSTROM,
    "selected": lambda: Linear(0.5).on([0, 2, 3, 4]) + Linear(0.2).on([1, 5]),
    "linear": lambda: Linear(1.2),
    "product": lambda: (Linear(1.2).on([0, 1]) + 1.0) * (Linear(0.3).on([2]) + 1.0),
    "fourier": lambda: RandomFourier.approximate(jax.random.key(0), BASE, 3, 6),
}


NOISE, VARIANCES = 0.09, RNG.uniform(0.05, 0.4, size=40)
LIKELIHOODS = {
    "gaussian": lambda: GaussianLikelihood(jnp.asarray(Y), jnp.asarray(NOISE)),
    "a variance for each row": lambda: GaussianLikelihood(jnp.asarray(Y), jnp.asarray(NOISE), jnp.asarray(VARIANCES)),
    "logit": lambda: BernoulliLikelihood(jnp.asarray(Y > 1.5, float)),
    "probit": lambda: BernoulliLikelihood(jnp.asarray(Y > 1.5, float), "probit"),
}


@eqx.filter_jit
def laws(kernel, likelihood):
    """Return all that a process by features says of its function, by one program."""
    process = condition(kernel, X, likelihood, 0.3)
    assert isinstance(process, FeatureGP)
    law, at_points = process.moments(NEW, covariance=True), process.at_points()
    return {
        "mean": law.mean,
        "variance": law.variance,
        "covariance": law.covariance,
        "function": process.function()(NEW),
        "posterior": process.posterior().covariance(NEW, NEW),
        **dict(zip(("mean held out", "variance held out"), process.held_out(), strict=True)),
        "mean at points": at_points.mean,
        "covariance at points": at_points.root.T @ at_points.root,
    }


def slopes_and_curvatures(likelihood, f):
    """Return the first and the negative second derivatives of the log density of the observations."""
    sign = np.where(Y > 1.5, 1.0, -1.0)
    if likelihood == "logit":
        return sign * special.expit(-sign * f), special.expit(f) * special.expit(-f)
    if likelihood == "probit":
        ratio = np.exp(stats.norm.logpdf(f) - stats.norm.logcdf(sign * f))
        return sign * ratio, ratio * (ratio + sign * f)
    variances = NOISE + (VARIANCES if likelihood == "a variance for each row" else np.zeros(40))
    return (Y - f) / variances, 1 / variances


def laws_by_matrix(kernel, likelihood):
    """Return the same by the kernel matrix: Rasmussen and Williams (2006), equations 3.17 to 3.24 and the cavity."""
    matrix = np.asarray(gram(kernel, np.concatenate([X, NEW])))
    prior, cross, new = matrix[:40, :40], matrix[:40, 40:], matrix[40:, 40:]
    f = np.full(40, 0.3)
    for _ in range(20):  # Newton's method; after ten steps nothing changes
        slope, curvature = slopes_and_curvatures(likelihood, f)
        inverse = np.linalg.inv(prior + np.diag(1 / curvature))
        f = 0.3 + prior @ inverse @ (f - 0.3 + slope / curvature)
    slope = slopes_and_curvatures(likelihood, f)[0]
    at_points, covariance = prior - prior @ inverse @ prior, new - cross.T @ inverse @ cross
    left_out = 1 / (1 / np.diagonal(at_points) - curvature)
    mean = 0.3 + cross.T @ slope
    return {
        "mean": mean,
        "variance": np.diagonal(covariance),
        "covariance": covariance,
        "function": mean,
        "posterior": covariance,
        "mean held out": f - slope * left_out,
        "variance held out": left_out,
        "mean at points": f,
        "covariance at points": at_points,
    }


@eqx.filter_jit
def gram(kernel, x):
    return Dense(kernel).gram(x)


# What comes after the features does not depend on their kernel.
CASES = [(name, "gaussian") for name in KERNELS] + [("nystrom", name) for name in LIKELIHOODS if name != "gaussian"]


@pytest.mark.nightly_variants("sum-gaussian", "nystrom-probit", "scaled-gaussian")
@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "likelihood"), CASES, ids=["-".join(case) for case in CASES])
def test_the_posterior_is_that_of_the_matrix(kernel, likelihood):
    kernel = KERNELS[kernel]()
    found, expected = laws(kernel, LIKELIHOODS[likelihood]()), laws_by_matrix(kernel, likelihood)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, **TOLERANCE, err_msg=name)


PAIRS, CONTEXTS = RNG.normal(size=(40, 2, 6)), RNG.normal(size=(40, 1))
PAIRED = {
    "preferential": (lambda: Preferential(NYSTROM), PAIRS),
    "generalized": (lambda: GeneralizedPreferential(Linear(0.7) + 0.5), PAIRS),
    "skew-symmetrized": (lambda: SkewSymmetrized(PairProduct(Linear(0.7), Linear(0.3) + 1.0)), PAIRS[..., :3]),
    "contextual": (lambda: Contextual(Preferential(Linear(0.7)), Linear(2.0) + 1.0), (PAIRS, CONTEXTS)),
}


@pytest.mark.nightly_variants("contextual", "skew-symmetrized", "generalized")
@pytest.mark.slow
@pytest.mark.parametrize("case", PAIRED)
def test_preferences_by_features_are_those_by_the_matrix(case):
    make, inputs = PAIRED[case]

    @eqx.filter_jit
    def laws(kernel, inputs):
        process = condition(kernel, inputs, LIKELIHOODS["logit"]())
        assert isinstance(process, FeatureGP) != isinstance(kernel, Dense)
        return process.moments(inputs)[:2], process.held_out()

    kernel, inputs = make(), jax.tree.map(jnp.asarray, inputs)
    both = laws(kernel, inputs), laws(Dense(kernel), inputs)
    for found, expected in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(found, expected, **TOLERANCE)


@pytest.mark.slow
def test_evidence_and_gradient_are_those_of_the_matrix():
    model, data, _ = GPRegression(NYSTROM, dist.HalfNormal(1.0), mean=dist.Normal(0.0, 1.0)).prepare(X, Y)
    density = jax.jit(jax.value_and_grad(lambda values: log_density(model.numpyro_model, (), data, values)[0]))
    found, slopes = density({"noise_variance": jnp.asarray(0.2), "mean": jnp.asarray(0.4)})
    covariance = np.asarray(gram(NYSTROM, X)) + 0.2 * np.eye(40)
    weights = np.linalg.solve(covariance, Y - 0.4)
    evidence = stats.multivariate_normal.logpdf(Y, np.full(40, 0.4), covariance)
    np.testing.assert_allclose(found, evidence + stats.halfnorm.logpdf(0.2) + stats.norm.logpdf(0.4), **TOLERANCE)
    np.testing.assert_allclose(slopes["mean"], weights.sum() - 0.4, **TOLERANCE)
    by_noise = 0.5 * (weights @ weights - np.trace(np.linalg.inv(covariance)))
    np.testing.assert_allclose(slopes["noise_variance"], by_noise - 0.2, **TOLERANCE)


@pytest.mark.nightly
@pytest.mark.parametrize("link", ["logit", "probit"])
def test_laplace_evidence_and_its_derivatives_are_those_of_the_matrix(link):
    labels = jnp.asarray(Y > 1.5, float)

    def evidence(make):
        def at(scale, mean):
            scaled = scale * NYSTROM
            return LaplaceMarginal(
                mean + 0.1 * jnp.asarray(X[:, 0]), make(scaled), BernoulliLikelihood(link=link)
            ).log_prob(labels)

        first = jax.value_and_grad(at, argnums=(0, 1))
        return jax.jit(lambda *values: jax.jvp(first, values, (1.0, 0.5)))(1.3, 0.2)

    ours = evidence(lambda kernel: prior_covariance(kernel, X))
    expected = evidence(lambda kernel: Dense(kernel).gram(X))
    for found, other in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        # Newton's method ends within the square of eps ** 0.375, 1e-11, of the mode; a second derivative loses digits.
        np.testing.assert_allclose(found, other, rtol=1e-7, atol=1e-8)


@pytest.mark.nightly
def test_laplace_marginal_by_features_draws_labels():
    @jax.jit
    def moments(seed, covariance):
        marginal = LaplaceMarginal(0.5, covariance, BernoulliLikelihood())
        draws = marginal.sample(jax.random.key(seed), (20000,))
        return draws.mean(0), draws.T @ draws / 20000

    mean, square = moments(0, prior_covariance(NYSTROM, X))
    mean_by_matrix, square_by_matrix = moments(1, NYSTROM.gram(X))
    # Means of 20000 draws of a label each, and of a product of two; 5 standard errors of a difference.
    np.testing.assert_allclose(mean, mean_by_matrix, atol=5 * 0.5 * np.sqrt(2 / 20000))
    np.testing.assert_allclose(square, square_by_matrix, atol=5 * np.sqrt(0.5 / 20000))


@pytest.mark.slow
def test_ridge_is_that_of_the_matrix():
    data = {"x": jnp.asarray(X), "y": jnp.asarray(Y)}
    machine = KernelRidge(NYSTROM, 0.01)
    found = jax.jit(lambda: (machine.loo_residuals(**data), machine.function_draw({}, data)(NEW)))()
    matrix = np.asarray(gram(NYSTROM, np.concatenate([X, NEW])))
    inverse = np.linalg.inv(matrix[:40, :40] + 40 * 0.01 * np.eye(40))
    np.testing.assert_allclose(found[0], inverse @ Y / np.diagonal(inverse), **TOLERANCE)
    np.testing.assert_allclose(found[1], matrix[40:, :40] @ inverse @ Y, **TOLERANCE)


@pytest.mark.slow
def test_logistic_regression_is_that_of_the_matrix():
    data = {"x": jnp.asarray(X), "y": jnp.asarray(Y > 1.5, float)}

    @eqx.filter_jit
    def values(kernel):
        machine = KernelLogistic(kernel, 0.01)
        return machine.loo_log_probabilities(**data), machine.function_draw({}, data)(NEW)

    for found, expected in zip(values(NYSTROM), values(Dense(NYSTROM)), strict=True):
        np.testing.assert_allclose(found, expected, **TOLERANCE)


@pytest.mark.nightly
def test_logistic_regression_is_that_of_scikit_learn():
    x, labels = RNG.normal(size=(300, 4)), RNG.integers(0, 2, 300)
    kernel = Nystrom(RBF(1.5), x[:10])
    ours = KernelLogistic(kernel, 0.01).function_draw({}, {"x": jnp.asarray(x), "y": jnp.asarray(labels, float)})
    features = np.asarray(kernel.feature_map(x))
    peer = LogisticRegression(C=1 / (300 * 0.01), fit_intercept=False, tol=1e-12, max_iter=10000).fit(features, labels)
    np.testing.assert_allclose(ours(x), features @ peer.coef_[0], atol=1e-5)  # the tolerance of its L-BFGS


@pytest.mark.slow
def test_draws_have_the_law_of_the_features():
    likelihood = LIKELIHOODS["gaussian"]()

    @jax.jit
    def predict(keys):
        law = condition(NYSTROM, X, likelihood, 0.3).joint(NEW)
        return jax.vmap(lambda key: likelihood.draw_predictive(key, law, jnp.asarray(1.0)))(keys)

    draws = np.asarray(predict(jax.random.split(jax.random.key(1), 20000)))
    mean, variance, covariance = map(laws_by_matrix(NYSTROM, "gaussian").get, ("mean", "variance", "covariance"))
    # Of 20000 draws a mean has a standard error of sd / 141 and a covariance of at most 1.5 sd^2 / 141; four of them.
    sd = np.sqrt(variance.max() + 0.09)
    np.testing.assert_allclose(draws.mean(0), mean, atol=4 * sd / 141)
    np.testing.assert_allclose(np.cov(draws.T), covariance + 0.09 * np.eye(7), atol=6 * sd**2 / 141)


@pytest.mark.nightly
def test_no_matrix_of_the_rows_is_made():
    n = 30000  # a matrix would have 7 GB
    x = RNG.normal(size=(n, 3))
    y = x[:, 0] + 0.1 * RNG.normal(size=n)
    model = GPRegression(Nystrom(RBF(dist.LogNormal(0.0, 0.5)), x[:20]), dist.HalfNormal(1.0))
    fit = model.fit(jax.random.key(0), x, y, inference=kpp.MAP(num_restarts=0, progress=False), num_prior_samples=2)
    assert abs(float(np.asarray(fit.draws["noise_variance"]).squeeze()) - 0.01) < 0.002  # sd 0.01 * sqrt(2 / n)
    predicted = fit.predict(x[:100])["mean"].values.squeeze()
    assert np.sqrt(np.mean((predicted - x[:100, 0]) ** 2)) < 0.05
    assert fit.idata["log_likelihood"]["y"].shape == (1, 1, n)


@pytest.mark.nightly
def test_classification_of_many_rows_makes_no_matrix_of_them():
    n = 30000
    x = RNG.normal(size=(n, 2))
    labels = (x[:, 0] + RNG.logistic(size=n) > 0).astype(float)
    model = GPClassification(Nystrom(RBF(dist.LogNormal(0.0, 0.5), 4.0), x[:20]))
    fit = model.fit(
        jax.random.key(0), x, labels, inference=kpp.MAP(num_restarts=0, progress=False), num_prior_samples=2
    )
    inside = np.abs(x) < 1.5
    rows = np.flatnonzero(inside.all(axis=1))[:100]
    chances = fit.predict(x[rows])["probability"].values.squeeze()
    # With 30000 labels and some 20 directions the standard error of the log-odds is below .1, that of a chance .025.
    np.testing.assert_allclose(chances, 1 / (1 + np.exp(-x[rows, 0])), atol=0.1)


@pytest.mark.slow
def test_features_are_used_only_where_they_save_work_and_there_is_noise():
    assert few_features(NYSTROM, X[:7], 0.1).shape == (7, 6)
    assert few_features(NYSTROM, X[:6], 0.1) is None
    assert few_features(NYSTROM, X, 0.0) is None
    assert few_features(NYSTROM, X, np.full(40, 0.1)).shape == (40, 6)  # a variance for each row
    assert few_features(NYSTROM, X, np.append(np.full(39, 0.1), 0.0)) is None
    assert not isinstance(
        condition(NYSTROM, X[:6], GaussianLikelihood(jnp.asarray(Y[:6]), jnp.asarray(0.1))), FeatureGP
    )


def test_a_kernel_without_features_says_so():
    assert BASE.finite_features(X) is None
    assert (BASE + Linear(1.0)).finite_features(X) is None
    assert eqx.tree_equal((2.0 * NYSTROM).finite_features(X), jnp.sqrt(2.0) * NYSTROM.finite_features(X))
