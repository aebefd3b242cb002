"""The marginal likelihood of a regression is the multivariate normal, with the right gradient in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist
from scipy import stats

from kpp import linalg
from kpp.gp.laws.gaussian_laws import draw_gaussian, gaussian_log_density
from kpp_models import GaussianProcessMarginal


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(8, 1))
    return jnp.asarray(x), jnp.asarray(rng.normal(size=8))


log_density = jax.jit(gaussian_log_density)


@jax.jit
def covariance(x, lengthscale):
    return jnp.exp(-0.5 * (x - x.T) ** 2 / lengthscale**2) + 0.3 * jnp.eye(x.shape[0])


def by_autodiff(residual, matrix):
    return dist.MultivariateNormal(jnp.zeros_like(residual), covariance_matrix=matrix).log_prob(residual)


@pytest.mark.parametrize("n", [1, 8])
def test_log_density_is_scipys(problem, n):
    matrix, residual = np.asarray(covariance(problem[0], 0.7))[:n, :n], np.asarray(problem[1])[:n]
    expected = stats.multivariate_normal(np.zeros(n), matrix).logpdf(residual)
    np.testing.assert_allclose(log_density(residual, matrix), expected, rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("derive", [jax.grad, jax.jacfwd, jax.hessian], ids=["reverse", "forward", "second"])
def test_derivatives_are_those_of_the_factorization(problem, derive):
    x, residual = problem

    def both(r, s):
        ours = derive(lambda r, s: gaussian_log_density(r, covariance(x, s)), (0, 1))(r, s)
        return ours, derive(lambda r, s: by_autodiff(r, covariance(x, s)), (0, 1))(r, s)

    ours, theirs = jax.jit(both)(residual, 0.7)
    for found, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        # The two ways round differently; the matrix has a condition number of about 20.
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


def test_gradient_with_respect_to_every_entry_is_symmetric(problem):
    x, residual = problem
    gradient = jax.jit(jax.grad(gaussian_log_density, 1))(residual, covariance(x, 0.7))
    np.testing.assert_array_equal(gradient, gradient.T)


@pytest.mark.slow
def test_jit_and_vmap_change_nothing(problem):
    x, residual = problem
    lengthscales = jnp.array([0.5, 0.7])
    value_and_gradient = jax.value_and_grad(lambda s: gaussian_log_density(residual, covariance(x, s)))
    alone = [value_and_gradient(s) for s in lengthscales]  # not compiled as a whole
    together = jax.jit(jax.vmap(value_and_gradient))(lengthscales)
    np.testing.assert_allclose(np.asarray(together).T, np.asarray(alone), rtol=1e-11)


def count_primitive(jaxpr, name):
    """Count a primitive in a program and in all programs that it calls, once for each call.

    The text of a program does not do: since JAX 0.12 it prints an inner program once, however often it is called.
    """
    total = 0
    for equation in jaxpr.eqns:
        total += equation.primitive.name == name
        for leaf in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda part: hasattr(part, "eqns")):
            if hasattr(leaf, "eqns"):
                total += count_primitive(leaf, name)
    return total


def test_no_cholesky_is_differentiated(problem):
    """One factorization serves value and gradient: that is what makes NUTS fast."""
    x, residual = problem
    traced = jax.make_jaxpr(jax.value_and_grad(gaussian_log_density, 1))(residual, covariance(x, 0.7))
    # One as it is, one with jitter on the branch that is not taken.
    assert count_primitive(traced.jaxpr, "cholesky") == 2


def test_failure_is_an_error_outside_and_nan_inside_traced_code(problem):
    residual, bad = problem[1], -np.eye(8)
    with pytest.raises(linalg.FactorizationError, match="the covariance matrix of `y`.*not positive definite"):
        gaussian_log_density(residual, bad)
    assert np.isnan(log_density(residual, bad))


@pytest.mark.slow
def test_distribution_is_numpyros_multivariate_normal(problem):
    x, residual = problem
    matrix = covariance(x, 0.7)
    ours = GaussianProcessMarginal(1.5, matrix, 0.4)
    theirs = dist.MultivariateNormal(1.5 * jnp.ones(8), covariance_matrix=matrix + 0.4 * jnp.eye(8))
    values = jnp.stack([residual, residual + 1.0, -residual])[:, None, :]
    np.testing.assert_allclose(ours.log_prob(values), [[theirs.log_prob(value[0])] for value in values], rtol=1e-11)
    np.testing.assert_allclose(ours.mean, theirs.mean)
    np.testing.assert_allclose(ours.variance, theirs.variance, rtol=1e-12)
    assert (ours.batch_shape, ours.event_shape) == ((), (8,))


@pytest.mark.slow
def test_distribution_draws_what_it_says(problem):
    distribution = GaussianProcessMarginal(1.5, covariance(problem[0], 0.7), 0.4)
    draws = np.asarray(jax.jit(lambda law, key: law.sample(key, (4000,)))(distribution, jax.random.key(0)))
    assert draws.shape == (4000, 8)
    # Standard errors: 1.3 / sqrt(4000) = 0.02 for means, 1.7 * sqrt(2 / 4000) = 0.04 for covariances; five of them.
    np.testing.assert_allclose(draws.mean(0), np.full(8, 1.5), atol=0.1)
    np.testing.assert_allclose(np.cov(draws.T), distribution.covariance_matrix, atol=0.2)


def test_distribution_is_a_pytree(problem):
    distribution = GaussianProcessMarginal(1.5, covariance(problem[0], 0.7), 0.4)
    leaves, structure = jax.tree.flatten(distribution)
    copy = jax.tree.unflatten(structure, leaves)
    log_prob = jax.jit(lambda law, y: law.log_prob(y))
    np.testing.assert_array_equal(log_prob(copy, problem[1]), log_prob(distribution, problem[1]))


@pytest.mark.slow
def test_singular_covariances_can_be_drawn_from():
    matrix = np.full((4, 4), 2.0)
    draw = np.asarray(jax.jit(draw_gaussian)(jax.random.key(0), jnp.zeros(4), matrix, jnp.asarray(2.0)))
    # The jitter is 2e-10, its root 1.4e-5.
    np.testing.assert_allclose(draw, draw[0], atol=1e-4)
