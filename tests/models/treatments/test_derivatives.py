"""Average derivatives of a Gaussian process, against differences of dense covariances."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.functionals import GPPosterior, Gradient
from kpp.functions import RKHSFunction
from kpp.gp import BernoulliLikelihood, GaussianLikelihood
from kpp.kernels import RBF, Linear, Matern12, Matern52
from kpp_models.treatments.averaging.averages import average_derivative, weighted_laws
from kpp_models.treatments.averaging.responses import average_response_derivatives
from oracles.programs import gram, moments

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(7, 3))
POINTS = RNG.normal(size=(5, 3))
WEIGHTS = RNG.dirichlet(np.ones(7), size=2)
KERNELS = {
    "product": RBF(jnp.array([0.7, 1.0, 1.4]), 1.3),
    "no product": Matern52(jnp.array([0.7, 1.0, 1.4])) + Linear(),
}


def posterior(kernel, batch_shape=()):
    root = np.linalg.cholesky(np.linalg.inv(np.asarray(gram(kernel, POINTS)) + 0.3 * np.eye(5)))
    coefficients = jnp.asarray(np.sin(np.arange(5)))
    if not batch_shape:
        return GPPosterior(RKHSFunction(kernel, POINTS, coefficients, 0.4), root)
    many = jnp.broadcast_to(coefficients, (*batch_shape, 5))
    mean = RKHSFunction.over_draws(kernel, POINTS, many, 0.4, batch_shape=batch_shape)
    return GPPosterior(mean, jnp.broadcast_to(root, (*batch_shape, *root.shape)))


def slope_laws(process, rows, column, weights):
    return weighted_laws(process, eqx.Partial(average_derivative, rows, column), weights)


def moved(rows, column, step):
    return np.where(np.arange(rows.shape[1]) == column, rows + step, rows)


@pytest.mark.slow_variants("no product", "product")
@pytest.mark.parametrize("name", KERNELS)
def test_moments_are_those_of_central_differences(name):
    """A step of 1e-4 has a relative error of 1e-8 times the derivatives of order three, and rounding adds 1e-8."""
    process, column, step = posterior(KERNELS[name]), 1, 1e-4
    law = slope_laws(process, jnp.asarray(ROWS), column, jnp.asarray(WEIGHTS))
    both = np.concatenate([moved(ROWS, column, step), moved(ROWS, column, -step)])
    loads = np.concatenate([WEIGHTS, -WEIGHTS], axis=1) / (2 * step)
    mean, covariance = map(np.asarray, moments(process, both))
    np.testing.assert_allclose(law.mean[:, 0], loads @ mean, rtol=1e-6)
    np.testing.assert_allclose(law.variance[:, 0], np.diag(loads @ covariance @ loads.T), rtol=1e-5)


@pytest.mark.slow
def test_draws_of_a_latent_mean_have_the_exact_law():
    """40,000 draws: the mean has a standard error of 0.005 sd, and the sd one of 0.35 %."""
    weights = jnp.broadcast_to(jnp.asarray(WEIGHTS[0]), (1, 40, 1000, 7))
    process = posterior(KERNELS["product"], (1, 40))
    law = GaussianLikelihood(noise_variance=jnp.ones((1, 40)))
    draws = average_response_derivatives(jax.random.key(0), process, law, jnp.asarray(ROWS), 1, weights)
    one = posterior(KERNELS["product"])
    known = slope_laws(one, jnp.asarray(ROWS), 1, jnp.asarray(WEIGHTS))
    sd = float(jnp.sqrt(known.variance[0, 0]))
    assert float(draws.mean()) == pytest.approx(float(known.mean[0, 0]), abs=4 * 0.005 * sd)
    assert float(draws.std()) == pytest.approx(sd, rel=4 * 0.0035)


@pytest.mark.slow
def test_draws_of_a_probability_are_those_of_joint_differences():
    """Differences of 5000 joint draws of f at two near rows each, through the sigmoid; standard errors of 1.4 %."""
    step, num = 1e-3, 5000
    process, law = posterior(KERNELS["product"], (1, 1)), BernoulliLikelihood()
    weights = jnp.broadcast_to(jnp.asarray(WEIGHTS[0]), (1, 1, num, 7))
    draws = average_response_derivatives(jax.random.key(0), process, law, jnp.asarray(ROWS), 1, weights)
    one, both = posterior(KERNELS["product"]), np.concatenate([moved(ROWS, 1, step), moved(ROWS, 1, -step)])
    mean, covariance = map(np.asarray, moments(one, both))
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))
    latent = mean + RNG.normal(size=(num, 14)) @ root.T
    chances = 1 / (1 + np.exp(-latent))
    known = (chances[:, :7] - chances[:, 7:]) @ WEIGHTS[0] / (2 * step)
    assert float(draws.mean()) == pytest.approx(known.mean(), abs=4 * 1.5 * known.std() / np.sqrt(num))
    assert float(draws.std()) == pytest.approx(known.std(), rel=0.06)


@pytest.mark.slow_variants("kernel1")
@pytest.mark.parametrize("kernel", [Matern12(1.0), RBF(1.0) + 0.1 * Matern12(1.0)])
def test_a_kernel_with_a_kink_is_refused(kernel):
    with pytest.raises(ValueError, match="a derivative needs a kernel whose functions have derivatives"):
        posterior(kernel).of(Gradient(ROWS, [1]))
