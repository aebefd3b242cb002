"""Bayesian quadrature against dense NumPy, the closed form for Gaussian measures, and Monte Carlo."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp import GPPosterior, RKHSFunction
from kpp.embeddings import (
    AbstractEmbedding,
    AbstractEmpiricalEmbedding,
    ConditionalMeanEmbedding,
    MeanEmbedding,
    bayesian_quadrature,
)
from kpp.kernels import RBF, Matern52
from oracles.kernels import rbf

quadrature = eqx.filter_jit(bayesian_quadrature)
RNG = np.random.default_rng(0)
LENGTHSCALE, NOISE, INTERCEPT = 0.8, 0.1, 0.4
X = RNG.uniform(-2.0, 2.0, size=(7, 1))
Y = np.sin(2 * X[:, 0])
Z = RNG.normal(0.3, 0.5, size=(9, 1))
CONDITION = Z + 0.2 * RNG.normal(size=(9, 1))
QUERY = np.array([[-0.5], [0.1], [0.8]])


def gp_posterior(lengthscale=LENGTHSCALE):
    """A regression with noise, in NumPy: R R' is the inverse of K + noise."""
    inverse = np.linalg.inv(rbf(X, X, lengthscale) + NOISE * np.eye(7))
    mean = RKHSFunction(RBF(lengthscale), X, inverse @ (Y - INTERCEPT), INTERCEPT)
    return GPPosterior(mean, np.linalg.cholesky(inverse))


def by_hand(z, weights, lengthscale=LENGTHSCALE):
    """Mean and covariance of weighted sums of f(z), from its joint posterior."""
    inverse = np.linalg.inv(rbf(X, X, lengthscale) + NOISE * np.eye(7))
    cross = rbf(z, X, lengthscale)
    mean = INTERCEPT + cross @ inverse @ (Y - INTERCEPT)
    covariance = rbf(z, z, lengthscale) - cross @ inverse @ cross.T
    return weights.T @ mean, weights.T @ covariance @ weights


def conditional_embedding():
    return ConditionalMeanEmbedding(
        kernel=RBF(LENGTHSCALE), input_kernel=RBF(0.6), inputs=CONDITION, points=Z, regularization=0.01
    )


class Rule(AbstractEmpiricalEmbedding):
    """A quadrature rule."""

    kernel: RBF
    points: jax.Array
    shares: jax.Array

    def weights(self, query=None):
        return self.shares[:, None]


@pytest.mark.slow
def test_the_law_of_conditional_expectations_is_the_dense_one(tolerance):
    weights = np.linalg.solve(rbf(CONDITION, CONDITION, 0.6) + 9 * 0.01 * np.eye(9), rbf(CONDITION, QUERY, 0.6))
    mean, covariance = by_hand(Z, weights)
    found = quadrature(gp_posterior(), conditional_embedding(), QUERY)
    np.testing.assert_allclose(found.mean, mean, **tolerance())
    np.testing.assert_allclose(found.covariance, covariance, **tolerance())
    np.testing.assert_allclose(found.variance, np.diag(covariance), **tolerance())


def test_a_gaussian_measure_has_a_closed_form():
    """By a Gauss-Hermite rule of 60 nodes, exact to rounding for an integrand as smooth as this."""
    center, variance = 0.3, 0.25
    nodes, shares = np.polynomial.hermite_e.hermegauss(60)
    rule = Rule(RBF(), jnp.asarray(center + variance**0.5 * nodes)[:, None], jnp.asarray(shares / shares.sum()))
    found = quadrature(gp_posterior(), rule)

    square = LENGTHSCALE**2
    section = np.sqrt(square / (square + variance)) * np.exp(-((X[:, 0] - center) ** 2) / (2 * (square + variance)))
    solution = np.linalg.solve(rbf(X, X, LENGTHSCALE) + NOISE * np.eye(7), np.column_stack([section, Y - INTERCEPT]))
    np.testing.assert_allclose(found.mean, [INTERCEPT + section @ solution[:, 1]], rtol=1e-10)
    expected = np.sqrt(square / (square + 2 * variance)) - section @ solution[:, 0]
    np.testing.assert_allclose(found.covariance, [[expected]], rtol=1e-9)


@pytest.mark.slow
def test_a_large_sample_comes_near_the_closed_form():
    """4000 stratified points err by less than 1e-3 where the integrand moves by less than 4 between quantiles."""
    from scipy.stats import norm

    sample = norm.ppf((np.arange(4000) + 0.5) / 4000, 0.3, 0.5)[:, None]
    found = quadrature(gp_posterior(), MeanEmbedding(Matern52(), sample))  # the kernel plays no part
    square = LENGTHSCALE**2
    section = np.sqrt(square / (square + 0.25)) * np.exp(-((X[:, 0] - 0.3) ** 2) / (2 * (square + 0.25)))
    solution = np.linalg.solve(rbf(X, X, LENGTHSCALE) + NOISE * np.eye(7), section)
    expected = np.sqrt(square / (square + 0.5)) - section @ solution
    np.testing.assert_allclose(found.covariance, [[expected]], atol=1e-3)


@pytest.mark.slow
def test_draws_are_worked_on_one_by_one(tolerance):
    lengthscales = np.array([[0.6, 0.8, 1.1]])
    single = [gp_posterior(value) for value in lengthscales[0]]
    kernel = RBF(jnp.asarray(lengthscales), jnp.ones((1, 3)))
    coefficients = np.stack([part.mean.coefficients for part in single])[None]
    mean = RKHSFunction(kernel, X, coefficients, np.full((1, 3), INTERCEPT), (1, 3))
    posterior = GPPosterior(mean, np.stack([part.root for part in single])[None])
    found = quadrature(posterior, conditional_embedding(), QUERY)
    expected = [quadrature(part, conditional_embedding(), QUERY) for part in single]
    np.testing.assert_allclose(found.mean, [[part.mean for part in expected]], **tolerance())
    np.testing.assert_allclose(found.covariance, [[part.covariance for part in expected]], **tolerance())


@pytest.mark.slow
def test_data_at_the_support_points_leave_nothing_unknown():
    """With n = 7 noiseless values at the sample itself the mean is theirs, the variance rounding."""
    gram = rbf(X, X, 0.3)
    mean = RKHSFunction(RBF(0.3), X, np.linalg.solve(gram, Y))
    posterior = GPPosterior(mean, np.linalg.cholesky(np.linalg.inv(gram)))
    found = quadrature(posterior, MeanEmbedding(RBF(0.3), X))
    np.testing.assert_allclose(found.mean, [Y.mean()], rtol=1e-9)
    np.testing.assert_allclose(found.variance, [0.0], atol=1e-9)


def test_an_embedding_of_landmarks_needs_the_kernel():
    class Landmarks(AbstractEmbedding):
        kernel: RBF
        points: jax.Array

        def weights(self, query=None):
            return jnp.full((9, 1), 1 / 9)

    found = quadrature(gp_posterior(), Landmarks(RBF(LENGTHSCALE), jnp.asarray(Z)))
    np.testing.assert_allclose(found.covariance, by_hand(Z, np.full((9, 1), 1 / 9))[1], rtol=1e-10)
    for other in (RBF(0.7), Matern52(LENGTHSCALE)):
        with pytest.raises(ValueError, match="`embedding` must have the kernel of the function for Landmarks"):
            bayesian_quadrature(gp_posterior(), Landmarks(other, jnp.asarray(Z)))
