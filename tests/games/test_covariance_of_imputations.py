"""Covariances of Shapley values by enumeration: reference numbers, functions with random coefficients, sampling."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import kpp
from kpp.features import Nystrom
from kpp.games import AbstractImputation, Interventional, Observational, shapley_covariance, shapley_values
from kpp.kernels import RBF, AbstractKernel

TOLERANCE = {"rtol": 1e-7, "atol": 1e-10}
KERNEL = RBF(jnp.array([0.7, 1.0, 1.6]), 1.7)


class OfRandomCoefficients(AbstractKernel):
    """The covariance of functions spanned by sections at some points, with independent coefficients."""

    points: Float[Array, "n d"]

    def evaluate(self, x1, x2):
        return KERNEL(x1[None], self.points)[0] @ KERNEL(self.points, x2[None])[:, 0]


class Opaque(AbstractKernel):
    """Another kernel, of which nothing is known but its values."""

    kernel: AbstractKernel

    def evaluate(self, x1, x2):
        return self.kernel.evaluate(x1, x2)


class Enumerated(AbstractImputation):
    """The interventional game, as any imputation."""

    background: Float[Array, "m d"]

    def imputation_weights(self, function, x, coalitions):
        return jnp.full((coalitions.shape[0], x.shape[0], len(self.background)), 1 / len(self.background))


def some_points(num, num_features=3, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(num, num_features)))


def posterior_of(kernel, points, targets, noise_variance):
    covariance = np.asarray(kernel.gram(points)) + noise_variance * np.eye(len(points))
    root = np.linalg.cholesky(np.linalg.inv(covariance))
    return kpp.GPPosterior(kpp.RKHSFunction(kernel, points, np.linalg.solve(covariance, targets)), root)


def test_reference_numbers(vectors):
    """Of an independent program that conditions on all imputed rows; the embedding's kernel has unit variance."""
    v = vectors("gp_shapley")
    game = Observational(v["in_Z"], float(v["in_eta"]))
    kernel = RBF(jnp.asarray(v["in_ls"]), v["in_signal_var"])
    law, x = posterior_of(kernel, v["in_X"], v["in_y"], float(v["in_noise_var"])), v["in_x"][None]
    np.testing.assert_allclose(shapley_values(game, law.mean, x)[0], v["out_obs_mean"], **TOLERANCE)
    np.testing.assert_allclose(shapley_covariance(game, law, x)[0], v["out_obs_cov"], **TOLERANCE)


@pytest.mark.nightly_variants("embedded-groups1")
@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "groups"), [("imputed", None), ("embedded", {"pair": [0, 2]})])
def test_functions_with_random_coefficients(estimator, groups):
    """With independent coefficients the covariance is that of the values of the sections, whatever the imputation."""
    game = Observational(some_points(4), 0.1, kernel=RBF(1.2), estimator=estimator)
    points, x, other = some_points(5, seed=1), some_points(2, seed=2), some_points(3, seed=3)
    sections = kpp.RKHSFunction(KERNEL, points, np.eye(5))
    first, second = (shapley_values(game, sections, rows, groups=groups) for rows in (x, other))
    found = shapley_covariance(game, OfRandomCoefficients(points), x, other, groups=groups)
    np.testing.assert_allclose(found, np.einsum("pgn,qhn->pqgh", first, second), atol=1e-12)


@pytest.mark.nightly_variants("within")
@pytest.mark.slow
@pytest.mark.parametrize("across", [pytest.param(False, marks=pytest.mark.slow), True], ids=["within", "across"])
def test_features_of_nystrom_are_explained(across):
    """A posterior under Nystrom's kernel, by its features, and by enumeration where the kernel is not recognized."""
    game, points = Observational(some_points(4), 0.1, kernel=RBF(1.2), estimator="imputed"), some_points(7, seed=1)
    x, other = some_points(2, seed=2), some_points(3, seed=3) if across else None
    kernel, groups = Nystrom(KERNEL, points[:3]), {"pair": [0, 2]}
    laws = [posterior_of(k, points, np.arange(7.0), 0.3) for k in (kernel, Opaque(kernel))]
    found, expected = (shapley_covariance(game, law, x, other, groups=groups) for law in laws)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_weights_are_those_of_the_function_that_is_explained():
    """A function with Nystrom's kernel is explained unfolded, and so the embedding takes its kernel from the base."""
    game, points, x = Observational(some_points(4), 0.1), some_points(5, seed=1), some_points(2, seed=2)
    law = posterior_of(1.0 * Nystrom(KERNEL, points[:3]), points, np.arange(5.0), 0.3)
    features = Nystrom(KERNEL, points[:3])
    values = shapley_values(game, features.function(np.eye(3)), x)
    told = np.asarray(features.feature_map(points).T @ law.root)
    expected = np.einsum("pgr,rs,phs->pgh", values, np.eye(3) - told @ told.T, values)
    np.testing.assert_allclose(shapley_covariance(game, law, x), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.nightly_variants("2", "5", "6")
@pytest.mark.slow
@pytest.mark.parametrize("num_features", [1, 2, 4, 5, 6])
def test_enumeration_agrees_with_quadrature(num_features):
    background, x = some_points(4, num_features), some_points(2, num_features, seed=1)
    kernel = RBF(jnp.linspace(0.7, 2.0, num_features)) + 0.5 * RBF(1.5) + 0.3
    law = posterior_of(kernel, some_points(6, num_features, seed=2), np.arange(6.0), 0.3)
    found = shapley_covariance(Interventional(background), law, x, x)
    np.testing.assert_allclose(found, shapley_covariance(Enumerated(background), law, x, x), rtol=1e-9, atol=1e-12)


@pytest.mark.nightly_variants("interventional")
@pytest.mark.slow
@pytest.mark.parametrize(
    "game", [Interventional, lambda z: Observational(z, 0.1)], ids=["interventional", "observational"]
)
def test_agrees_with_samples_of_the_posterior(game):
    """200 000 functions drawn on all rows that the values average, explained one by one: 5 standard errors."""
    game = game(some_points(4))
    law = posterior_of(KERNEL, some_points(6, seed=1), np.arange(6.0), 0.3)
    x = some_points(1, seed=2)
    coalitions = kpp.games.all_coalitions(3)
    rows = np.asarray(game.impute(law.mean, x, coalitions)).reshape(-1, 3)
    weights = np.asarray(game.imputation_weights(law.mean, x, coalitions))[:, 0]
    rng, num_samples = np.random.default_rng(3), 200_000
    covariance = np.asarray(law.covariance(rows, rows)) + 1e-10 * np.eye(len(rows))
    samples = np.asarray(law.mean(rows)) + rng.normal(size=(num_samples, len(rows))) @ np.linalg.cholesky(covariance).T
    worths = np.einsum("scb,cb->cs", samples.reshape(num_samples, *weights.shape), weights)
    values = np.asarray(kpp.games.shapley_values_from_table(worths))
    found = np.asarray(shapley_covariance(game, law, x)[0])
    error = np.sqrt((found**2 + np.outer(np.diag(found), np.diag(found))) / num_samples)
    assert (np.abs(np.cov(values) - found) < 5 * error).all()
    mean = np.asarray(shapley_values(game, law.mean, x)[0])
    assert (np.abs(values.mean(axis=1) - mean) < 5 * np.sqrt(np.diag(found) / num_samples)).all()
