"""Laplace's approximation: mode, evidence and derivatives against optimizers, dense formulas and differences."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special, stats

from kpp.gp import BernoulliLikelihood
from kpp.gp.laplace.by_values import laplace_log_evidence, laplace_posterior, leave_one_out_latent, posterior_mode
from kpp_models import LaplaceMarginal
from oracles.kernels import rbf

LINKS = ["logit", "probit"]
MEAN = 0.3


@partial(jax.jit, static_argnums=0)
def fit(link, matrix, mean, y):
    return laplace_posterior(BernoulliLikelihood(y, link), matrix, mean)


@partial(jax.jit, static_argnums=0)
def log_evidence(link, matrix, mean, y):
    return laplace_log_evidence(BernoulliLikelihood(y, link), matrix, mean)


@pytest.fixture(scope="module")
def problem(classification_data):
    x, y = classification_data
    return jnp.asarray(x), jnp.asarray(y)


@jax.jit
def covariance(x, lengthscale, variance=4.0):
    difference = (x[:, None, :] - x[None, :, :]) / lengthscale
    return variance * jnp.exp(-0.5 * jnp.sum(difference**2, axis=-1))


def oracle(link, matrix, y):
    """Mode and evidence by SciPy in whitened coordinates and the dense formula; nothing is shared with ours."""
    values, vectors = np.linalg.eigh(np.asarray(matrix))
    root = vectors * np.sqrt(np.clip(values, 0.0, None))
    sign = 2 * np.asarray(y) - 1
    log_cdf = (lambda z: -np.logaddexp(0, -z)) if link == "logit" else stats.norm.logcdf

    def slope(z):
        return special.expit(-z) if link == "logit" else np.exp(stats.norm.logpdf(z) - stats.norm.logcdf(z))

    def curvature(z):
        return special.expit(z) * special.expit(-z) if link == "logit" else slope(z) * (slope(z) + z)

    def objective(white):
        return 0.5 * white @ white - log_cdf(sign * (MEAN + root @ white)).sum()

    def gradient(white):
        return white - root.T @ (sign * slope(sign * (MEAN + root @ white)))

    def hessian(white):
        return np.eye(len(sign)) + root.T @ (curvature(sign * (MEAN + root @ white))[:, None] * root)

    start = np.zeros(len(sign))
    best = optimize.minimize(
        objective, start, jac=gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-12}
    )
    white = best.x
    for _ in range(3):  # the optimizer of SciPy 1.18 stops at an error of 1e-7 of the mode; Newton's steps go on
        white = white - np.linalg.solve(hessian(white), gradient(white))
    assert np.abs(gradient(white)).max() < 1e-11
    evidence = -objective(white) - 0.5 * np.linalg.slogdet(hessian(white))[1]
    return MEAN + root @ white, evidence


@pytest.mark.slow_variants("logit-0.5", "logit-4.0", "logit-100.0")
@pytest.mark.parametrize("variance", [0.5, 4.0, 100.0])
@pytest.mark.parametrize("link", ["logit", pytest.param("probit", marks=pytest.mark.slow)])
def test_mode_and_evidence_are_those_of_an_optimizer(problem, link, variance):
    x, y = problem
    matrix = covariance(x, 0.9, variance)
    mode, evidence = oracle(link, matrix, y)
    found = fit(link, matrix, jnp.asarray(MEAN), y)
    np.testing.assert_allclose(found.mode, mode, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(log_evidence(link, matrix, jnp.asarray(MEAN), y), evidence, rtol=1e-8)
    # At the mode the coefficients are the slope of the likelihood, however singular K is (a row comes twice).
    np.testing.assert_allclose(found.coefficients, found.derivatives.gradient, atol=1e-10)


@pytest.mark.parametrize(("variance", "little"), [(1e-6, True), (1e-3, False), (4.0, False), (1e3, False)])
def test_variances_are_right_however_little_an_observation_says(problem, variance, little):
    """What an observation says is its curvature times the prior variance, here from 1e-7 to 1e2."""
    x, y = problem
    matrix = covariance(x, 0.9, variance)
    posterior = fit("logit", matrix, jnp.asarray(MEAN), y)
    values, vectors = np.linalg.eigh(np.asarray(matrix))
    root = vectors * np.sqrt(np.clip(values, 0.0, None))
    curvature = np.asarray(posterior.derivatives.curvature)
    assert ((curvature * np.diagonal(matrix)).min() < 1e-5) == little  # both ways of computing are tested
    inner = np.eye(len(curvature)) + root.T @ (curvature[:, None] * root)
    expected = np.diagonal(root @ np.linalg.solve(inner, root.T)) / (
        1 - curvature * np.diagonal(root @ np.linalg.solve(inner, root.T))
    )
    _, found = leave_one_out_latent(matrix, posterior)
    # Where the posterior variance is a small part of the prior variance, rounding errors are relative to the latter.
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-12 * variance)


@pytest.mark.nightly_variants("probit")
@pytest.mark.slow
@pytest.mark.parametrize("link", LINKS)
def test_gradient_of_the_evidence_follows_the_mode(problem, link, derivative):
    x, y = problem

    def evidence(lengthscale, mean):
        return laplace_log_evidence(BernoulliLikelihood(y, link), covariance(x, lengthscale), jnp.asarray(mean))

    found = jax.jit(jax.grad(evidence, (0, 1)))(0.9, MEAN)
    fast = jax.jit(evidence)
    expected = [derivative(lambda s: fast(s, MEAN), 0.9), derivative(lambda m: fast(0.9, m), MEAN)]
    np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.nightly_variants("probit")
@pytest.mark.slow
@pytest.mark.parametrize("link", ["logit", pytest.param("probit", marks=pytest.mark.slow)])
def test_second_derivatives_of_the_evidence(problem, link, derivative):
    x, y = problem

    def evidence(parameters):
        return laplace_log_evidence(BernoulliLikelihood(y, link), covariance(x, parameters[0]), parameters[1])

    slope = jax.jit(jax.grad(evidence))
    found = jax.jit(jax.hessian(evidence))(jnp.array([0.9, MEAN]))
    columns = [
        [derivative(lambda s, i=i: slope(jnp.array([s, MEAN]))[i], 0.9) for i in (0, 1)],
        [derivative(lambda m, i=i: slope(jnp.array([0.9, m]))[i], MEAN) for i in (0, 1)],
    ]
    np.testing.assert_allclose(found, columns, rtol=1e-6)


@pytest.mark.slow
def test_derivative_of_the_mode(problem, derivative):
    x, y = problem

    def third_coefficient(lengthscale):
        return posterior_mode(BernoulliLikelihood(y), covariance(x, lengthscale), jnp.asarray(MEAN))[2]

    fast = jax.jit(third_coefficient)
    for derive in (jax.grad, jax.jacfwd):
        np.testing.assert_allclose(jax.jit(derive(third_coefficient))(0.9), derivative(fast, 0.9), rtol=1e-7)


@pytest.mark.slow
def test_gpgp_reference_vectors(root):
    """Mode and evidence of an independent program for pairs (u, u'); prior mean 0 and labels -1 and 1."""
    vectors = np.load(root / "tests" / "data" / "gpgp.npz")
    u, other = vectors["in_U"], vectors["in_Up"]

    def base(a, b):
        return rbf(a, b, vectors["in_ls"])

    matrix = base(u, u) * base(other, other) - base(u, other) * base(other, u)
    y = jnp.asarray((vectors["in_y"] + 1) / 2)
    found = fit("logit", matrix, jnp.zeros(()), y)
    np.testing.assert_allclose(found.mode, vectors["out_laplace_f"], rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(found.coefficients, vectors["out_laplace_alpha"], rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(found.derivatives.curvature, vectors["out_laplace_W"], rtol=1e-7, atol=1e-10)
    evidence = log_evidence("logit", matrix, jnp.zeros(()), y)
    np.testing.assert_allclose(evidence, vectors["out_laplace_logev"], rtol=1e-7)


@pytest.mark.slow_variants("probit-1e-08", "probit-100000000.0")
@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("link", LINKS)
def test_newton_converges_from_flat_to_extreme_kernels(problem, link, scale):
    x, y = problem
    posterior = fit(link, covariance(x, 0.9, scale), jnp.asarray(MEAN), y)
    assert np.isfinite(posterior.mode).all()
    np.testing.assert_allclose(posterior.coefficients, posterior.derivatives.gradient, atol=1e-6)


@pytest.mark.slow
def test_failure_is_an_error_outside_and_nan_inside_traced_code(problem):
    y = problem[1]
    bad = jnp.full((20, 20), jnp.nan)
    with pytest.raises(ValueError, match="Newton's method did not reach the mode"):
        posterior_mode(BernoulliLikelihood(y), bad, jnp.asarray(MEAN))
    assert np.isnan(log_evidence("logit", bad, MEAN, y))


@pytest.mark.slow
def test_distribution_takes_leading_axes_and_refuses_unknown_links(problem):
    x, y = problem
    distribution = LaplaceMarginal(MEAN, covariance(x, 0.9), BernoulliLikelihood())
    values = jnp.stack([y, 1 - y])
    expected = [log_evidence("logit", covariance(x, 0.9), jnp.asarray(MEAN), value) for value in values]
    np.testing.assert_allclose(jax.jit(lambda d, v: d.log_prob(v))(distribution, values), expected, rtol=1e-11)
    with pytest.raises(ValueError, match="`link` must be one of .*'logitt'"):
        BernoulliLikelihood(link="logitt")


@pytest.mark.slow
def test_distribution_draws_labels_of_the_prior(problem):
    x, _ = problem
    draws = np.asarray(
        LaplaceMarginal(1.0, covariance(x, 0.9, 2.0), BernoulliLikelihood(link="probit")).sample(
            jax.random.key(0), (4000,)
        )
    )
    assert set(np.unique(draws)) == {0.0, 1.0}
    # P(y = 1) = Phi(m / sqrt(1 + v)); five standard errors of a proportion are 0.04.
    np.testing.assert_allclose(draws.mean(0), np.full(20, stats.norm.cdf(1.0 / np.sqrt(3.0))), atol=0.04)
    # Rows 3 and 7 are the same point, so they share f: P(both 1) exceeds the square.
    assert (draws[:, 3] * draws[:, 7]).mean() > draws.mean() ** 2 + 0.05
