"""Kernels with finitely many features: the same numbers as with the kernel matrix, without making it."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from sklearn.linear_model import LogisticRegression

import kpp
from kpp.features import Nystrom, RandomFourier
from kpp.gp import (
    BernoulliLikelihood,
    FeatureGP,
    GaussianLikelihood,
    LaplaceMarginal,
    condition,
    few_features,
    prior_covariance,
)
from kpp.gp.gaussian import gaussian_log_density
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
X, NEW = RNG.normal(size=(40, 3)), RNG.normal(size=(7, 3))
Y = X[:, 0] - np.sin(2 * X[:, 1]) + 0.2 * RNG.normal(size=40) + 1.5
BASE = RBF(jnp.array([0.8, 1.5, 2.0]), 1.3)
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


def fourier() -> AbstractKernel:
    return RandomFourier.approximate(jax.random.key(0), BASE, 8, 3)


KERNELS = {
    "nystrom": lambda: NYSTROM,
    "sum": lambda: NYSTROM + Linear(jnp.array([0.5, 1.0, 0.2])) + 0.7,
    "scaled": lambda: 2.5 * NYSTROM,
    "selected": lambda: Linear(0.5).on([0, 2]) + Linear(0.2).on([1]),
    "linear": lambda: Linear(1.2),
    "product": lambda: (Linear(1.2).on([0, 1]) + 1.0) * (Linear(0.3).on([2]) + 1.0),
    "fourier": fourier,
}


VARIANCES = RNG.uniform(0.05, 0.4, size=40)
LIKELIHOODS = {
    "gaussian": lambda: GaussianLikelihood(jnp.asarray(Y), jnp.asarray(0.09)),
    "a variance for each row": lambda: GaussianLikelihood(jnp.asarray(Y), jnp.asarray(0.09), jnp.asarray(VARIANCES)),
    "logit": lambda: BernoulliLikelihood(jnp.asarray(Y > 1.5, float)),
    "probit": lambda: BernoulliLikelihood(jnp.asarray(Y > 1.5, float), "probit"),
}


def both(kernel: AbstractKernel, likelihood="gaussian", mean=0.3):
    likelihood = LIKELIHOODS[likelihood]()
    return condition(kernel, X, likelihood, mean), condition(Dense(kernel), X, likelihood, mean)


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param]()


@pytest.mark.slow_variants(
    "sum-gaussian",
    "sum-a variance for each row",
    "sum-logit",
    "sum-probit",
    "scaled-gaussian",
    "scaled-a variance for each row",
    "scaled-logit",
    "scaled-probit",
    "selected-gaussian",
    "selected-a variance for each row",
    "selected-logit",
    "selected-probit",
    "product-gaussian",
    "product-a variance for each row",
    "product-logit",
    "product-probit",
    "linear-a variance for each row",
    "linear-probit",
    "fourier-a variance for each row",
    "fourier-probit",
)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_posterior_is_that_of_the_matrix(kernel, likelihood):
    fast, dense = both(kernel, likelihood)
    assert isinstance(fast, FeatureGP)
    for ours, expected in zip(
        fast.moments(NEW, covariance=True)[:3], dense.moments(NEW, covariance=True)[:3], strict=True
    ):
        np.testing.assert_allclose(ours, expected, **TOLERANCE)
    np.testing.assert_allclose(fast.held_out(), dense.held_out(), **TOLERANCE)
    np.testing.assert_allclose(fast.function()(NEW), dense.function()(NEW), **TOLERANCE)
    process, expected = fast.posterior(), dense.posterior()
    np.testing.assert_allclose(process.covariance(NEW, NEW), expected.covariance(NEW, NEW), **TOLERANCE)


PAIRS, CONTEXTS = RNG.normal(size=(40, 2, 3)), RNG.normal(size=(40, 1))
PAIRED = {
    "preferential": (lambda: Preferential(NYSTROM), PAIRS),
    "generalized": (lambda: GeneralizedPreferential(Linear(0.7) + 0.5), PAIRS),
    "skew-symmetrized": (lambda: SkewSymmetrized(PairProduct(Linear(0.7), Linear(0.3) + 1.0)), PAIRS),
    "contextual": (lambda: Contextual(Preferential(Linear(0.7)), Linear(2.0) + 1.0), (PAIRS, CONTEXTS)),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", PAIRED)
def test_preferences_by_features_are_those_by_the_matrix(case):
    make, inputs = PAIRED[case]
    kernel, inputs = make(), jax.tree.map(jnp.asarray, inputs)
    likelihood = LIKELIHOODS["logit"]()
    fast, dense = condition(kernel, inputs, likelihood), condition(Dense(kernel), inputs, likelihood)
    assert isinstance(fast, FeatureGP)
    for ours, expected in zip(fast.moments(inputs)[:2], dense.moments(inputs)[:2], strict=True):
        np.testing.assert_allclose(ours, expected, **TOLERANCE)
    np.testing.assert_allclose(fast.held_out(), dense.held_out(), **TOLERANCE)


def test_law_at_the_observations_has_a_root(kernel):
    fast, dense = both(kernel)
    law = fast.at_points()
    np.testing.assert_allclose(law.mean, dense.at_points().mean, **TOLERANCE)
    np.testing.assert_allclose(law.root.T @ law.root, dense.at_points().covariance, **TOLERANCE)


@pytest.mark.slow_variants("sum", "scaled", "selected", "product", "fourier")
def test_evidence_and_gradient_are_those_of_the_matrix(kernel):
    model, data, _ = GPRegression(kernel, dist.HalfNormal(1.0), mean=dist.Normal(0.0, 1.0)).prepare(X, Y)

    def ours(values):
        return log_density(model.numpyro_model, (), data, values)[0]

    def expected(values):
        residual = jnp.asarray(Y) - values["mean"]
        evidence = gaussian_log_density(residual, kernel.gram(X) + values["noise_variance"] * jnp.eye(len(Y)))
        noise, mean = dist.HalfNormal(1.0), dist.Normal(0.0, 1.0)
        return evidence + noise.log_prob(values["noise_variance"]) + mean.log_prob(values["mean"])

    at = {"noise_variance": jnp.asarray(0.2), "mean": jnp.asarray(0.4)}
    for found, other in zip(
        jax.tree.leaves(jax.value_and_grad(ours)(at)), jax.tree.leaves(jax.value_and_grad(expected)(at)), strict=True
    ):
        np.testing.assert_allclose(found, other, **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("link", ["logit", "probit"])
def test_laplace_evidence_and_its_derivatives_are_those_of_the_matrix(kernel, link):
    labels = jnp.asarray(Y > 1.5, float)

    def evidence(make):
        def at(scale, mean):
            scaled = scale * kernel
            return LaplaceMarginal(
                mean + 0.1 * jnp.asarray(X[:, 0]), make(scaled), BernoulliLikelihood(link=link)
            ).log_prob(labels)

        first = jax.value_and_grad(at, argnums=(0, 1))
        return first(1.3, 0.2), jax.hessian(at, argnums=(0, 1))(1.3, 0.2)

    ours = evidence(lambda kernel: prior_covariance(kernel, X))
    expected = evidence(lambda kernel: Dense(kernel).gram(X))
    for found, other in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        # Newton's method ends within the square of eps ** 0.375, 1e-11, of the mode; a Hessian loses some digits more.
        np.testing.assert_allclose(found, other, rtol=1e-7, atol=1e-8)


def test_laplace_marginal_by_features_draws_labels():
    marginal = LaplaceMarginal(0.5, prior_covariance(NYSTROM, X), BernoulliLikelihood())
    draws = marginal.sample(jax.random.key(0), (20000,))
    at_points = LaplaceMarginal(0.5, NYSTROM.gram(X), BernoulliLikelihood()).sample(jax.random.key(1), (20000,))
    # Means of 20000 draws of a label each, and of a product of two; 5 standard errors of a difference.
    np.testing.assert_allclose(draws.mean(0), at_points.mean(0), atol=5 * 0.5 * np.sqrt(2 / 20000))
    np.testing.assert_allclose(draws.T @ draws / 20000, at_points.T @ at_points / 20000, atol=5 * np.sqrt(0.5 / 20000))


@pytest.mark.slow_variants("sum", "scaled", "selected", "product", "linear")
def test_logistic_regression_is_that_of_the_matrix(kernel):
    fast, dense = KernelLogistic(kernel, 0.01), KernelLogistic(Dense(kernel), 0.01)
    data = {"x": jnp.asarray(X), "y": jnp.asarray(Y > 1.5, float)}
    np.testing.assert_allclose(fast.loo_log_probabilities(**data), dense.loo_log_probabilities(**data), **TOLERANCE)
    np.testing.assert_allclose(fast.function_draw({}, data)(NEW), dense.function_draw({}, data)(NEW), **TOLERANCE)


@pytest.mark.slow
def test_logistic_regression_is_that_of_scikit_learn():
    x, labels = RNG.normal(size=(300, 4)), RNG.integers(0, 2, 300)
    kernel = Nystrom(RBF(1.5), x[:10])
    ours = KernelLogistic(kernel, 0.01).function_draw({}, {"x": jnp.asarray(x), "y": jnp.asarray(labels, float)})
    features = np.asarray(kernel.feature_map(x))
    peer = LogisticRegression(C=1 / (300 * 0.01), fit_intercept=False, tol=1e-12, max_iter=10000).fit(features, labels)
    np.testing.assert_allclose(ours(x), features @ peer.coef_[0], atol=1e-5)  # the tolerance of its L-BFGS


def test_ridge_is_that_of_the_matrix(kernel):
    fast, dense = KernelRidge(kernel, 0.01), KernelRidge(Dense(kernel), 0.01)
    data = {"x": jnp.asarray(X), "y": jnp.asarray(Y)}
    np.testing.assert_allclose(fast.loo_residuals(**data), dense.loo_residuals(**data), **TOLERANCE)
    np.testing.assert_allclose(fast.function_draw({}, data)(NEW), dense.function_draw({}, data)(NEW), **TOLERANCE)


def test_draws_have_the_law_of_the_features():
    fast, dense = both(NYSTROM)
    keys = jax.random.split(jax.random.key(1), 20000)
    law = fast.joint(NEW)
    draws = jax.vmap(lambda key: fast.likelihood.draw_predictive(key, law, jnp.asarray(1.0)))(keys)
    exact = dense.moments(NEW, covariance=True)
    # Of 20000 draws a mean has a standard error of sd / 141 and a covariance of at most 1.5 sd^2 / 141; four of them.
    sd = float(jnp.sqrt(jnp.max(exact.variance) + 0.09))
    np.testing.assert_allclose(draws.mean(0), exact.mean, atol=4 * sd / 141)
    np.testing.assert_allclose(np.cov(draws.T), exact.covariance + 0.09 * np.eye(7), atol=6 * sd**2 / 141)


@pytest.mark.slow
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


@pytest.mark.slow
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
