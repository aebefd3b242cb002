"""Annealed importance sampling and elliptical slices against integrals in closed form and by quadrature."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from kpp.gp import BernoulliLikelihood
from kpp.gp.laplace.annealing import anneal
from kpp.gp.laplace.by_values import draw_whitened, laplace_log_evidence

SHIFT, PRECISION = np.array([1.0, -2.0]), np.array([[2.0, 0.5], [0.5, 1.0]])


def gaussian_log_ratio(u):
    return -0.5 * (u - SHIFT) @ PRECISION @ (u - SHIFT)


@functools.partial(jax.jit, static_argnums=1)
def draws(key, num_steps):
    keys = jax.random.split(key, 4000)
    return jax.lax.map(lambda key: anneal(key, gaussian_log_ratio, 2, jnp.float64, num_steps=num_steps), keys)


def weighted(values, log_weight):
    """Weighted mean and its standard error."""
    weights = np.exp(log_weight - special.logsumexp(log_weight))
    mean = weights @ values
    return mean, np.sqrt(weights**2 @ (values - mean) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("num_steps", [1, 32])
def test_weighted_draws_have_the_moments_and_the_integral_of_a_gaussian(num_steps):
    u, log_weight = map(np.asarray, draws(jax.random.key(0), num_steps))
    covariance = np.linalg.inv(PRECISION + np.eye(2))
    exact = covariance @ PRECISION @ SHIFT
    mean, error = weighted(u, log_weight)
    assert (np.abs(mean - exact) < 4 * error).all()
    square, error = weighted((u - exact) ** 2, log_weight)
    assert (np.abs(square - np.diag(covariance)) < 4 * error).all()
    # E exp(-q/2) over N(0, I): |I + P|^(-1/2) exp(-s' (I + P^-1)^-1 s / 2).
    exponent = -0.5 * SHIFT @ np.linalg.solve(np.eye(2) + np.linalg.inv(PRECISION), SHIFT)
    integral = np.exp(exponent) / np.sqrt(np.linalg.det(np.eye(2) + PRECISION))
    weight = np.exp(log_weight)
    assert abs(weight.mean() - integral) < 4 * weight.std() / np.sqrt(len(weight))


def test_more_steps_make_weights_more_equal():
    spread = [np.std(draws(jax.random.key(1), num_steps)[1]) for num_steps in (1, 32)]
    assert spread[1] < 0.5 * spread[0]


@pytest.mark.slow
def test_weighted_draws_correct_laplaces_approximation():
    """Two observations with strongly correlated latent values, by quadrature on a grid of both."""
    covariance, y = jnp.array([[9.0, 8.0], [8.0, 10.0]]), jnp.array([1.0, 1.0])
    likelihood = BernoulliLikelihood(y)

    @jax.jit
    def many(keys):
        return jax.lax.map(lambda key: draw_whitened(key, likelihood, covariance, jnp.array(0.5)), keys)

    white, log_weight = map(np.asarray, many(jax.random.split(jax.random.key(2), 3000)))
    grid = np.linspace(-9, 9, 601)
    z = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    root = np.linalg.cholesky(np.asarray(covariance))
    log_joint = special.log_expit(0.5 + z @ root.T).sum(1) - 0.5 * (z**2).sum(1) - np.log(2 * np.pi)
    log_evidence = special.logsumexp(log_joint) + 2 * np.log(grid[1] - grid[0])
    exact = np.exp(log_joint - special.logsumexp(log_joint)) @ z
    mean, error = weighted(white, log_weight)
    assert (np.abs(mean - exact) < 4 * error).all()
    weight = np.exp(log_weight)
    approximate = jax.jit(lambda: laplace_log_evidence(likelihood, covariance, jnp.array(0.5)))()
    ratio = np.exp(log_evidence - float(approximate))
    assert ratio > 1.02  # Laplace's evidence is not exact here
    assert abs(weight.mean() - ratio) < 4 * weight.std() / np.sqrt(len(weight))
