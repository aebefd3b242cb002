"""Kernels with finitely many features: the same numbers as with the kernel matrix, without making it."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density

import kpp
from kpp.features import Nystrom, RandomFourier
from kpp.gp import FeatureGP, GaussianLikelihood, condition, few_features
from kpp.gp.gaussian import gaussian_log_density
from kpp.kernels import RBF, AbstractKernel, Linear
from kpp_models import GPRegression, KernelRidge

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
    "fourier": fourier,
}


def both(kernel: AbstractKernel, mean=0.3):
    likelihood = GaussianLikelihood(jnp.asarray(Y), jnp.asarray(0.09))
    return condition(kernel, X, likelihood, mean), condition(Dense(kernel), X, likelihood, mean)


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param]()


def test_the_posterior_is_that_of_the_matrix(kernel):
    fast, dense = both(kernel)
    assert isinstance(fast, FeatureGP)
    for ours, expected in zip(
        fast.moments(NEW, covariance=True)[:3], dense.moments(NEW, covariance=True)[:3], strict=True
    ):
        np.testing.assert_allclose(ours, expected, **TOLERANCE)
    np.testing.assert_allclose(fast.held_out(), dense.held_out(), **TOLERANCE)
    np.testing.assert_allclose(fast.function()(NEW), dense.function()(NEW), **TOLERANCE)
    process, expected = fast.posterior(), dense.posterior()
    np.testing.assert_allclose(process.covariance(NEW, NEW), expected.covariance(NEW, NEW), **TOLERANCE)


def test_law_at_the_observations_has_a_root(kernel):
    fast, dense = both(kernel)
    law = fast.at_points()
    np.testing.assert_allclose(law.mean, dense.at_points().mean, **TOLERANCE)
    np.testing.assert_allclose(law.root.T @ law.root, dense.at_points().covariance, **TOLERANCE)


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


def test_features_are_used_only_where_they_save_work_and_there_is_noise():
    assert few_features(NYSTROM, X[:7], 0.1).shape == (7, 6)
    assert few_features(NYSTROM, X[:6], 0.1) is None
    assert few_features(NYSTROM, X, 0.0) is None
    assert few_features(NYSTROM, X, np.full(40, 0.1)) is None  # a variance for each row
    assert not isinstance(
        condition(NYSTROM, X[:6], GaussianLikelihood(jnp.asarray(Y[:6]), jnp.asarray(0.1))), FeatureGP
    )


def test_a_kernel_without_features_says_so():
    assert BASE.finite_features(X) is None
    assert (BASE + Linear(1.0)).finite_features(X) is None
    assert eqx.tree_equal((2.0 * NYSTROM).finite_features(X), jnp.sqrt(2.0) * NYSTROM.finite_features(X))
