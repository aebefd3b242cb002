"""Shapley values and values of coalitions as functionals: against `shapley_covariance` and the covariance of rows."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import kpp
from kpp.functionals import Combination, Gradient, Values
from kpp.games import (
    CoalitionValues,
    Interventional,
    Observational,
    ShapleyValues,
    all_coalitions,
    shapley_covariance,
    shapley_values,
)
from kpp.kernels import RBF
from kpp.testing import check_functional

RNG = np.random.default_rng(1)
POINTS, BACKGROUND, X = RNG.normal(size=(5, 3)), RNG.normal(size=(4, 3)), RNG.normal(size=(2, 3))
KERNEL = RBF(jnp.array([0.9, 1.2, 1.5]), 1.3)
COALITIONS = all_coalitions(3)[[1, 3, 6]]
GAMES = {"interventional": Interventional(BACKGROUND), "observational": Observational(BACKGROUND, 0.1)}


@pytest.fixture(scope="module")
def posterior():
    root = jnp.linalg.cholesky(jnp.linalg.inv(KERNEL.gram(POINTS) + 0.1 * jnp.eye(5)))
    return kpp.GPPosterior(kpp.RKHSFunction(KERNEL, POINTS, jnp.arange(5.0), 0.3), root)


@pytest.mark.slow_variants("interventional")
@pytest.mark.nightly_variants("observational")
@pytest.mark.parametrize("name", GAMES)
def test_the_law_of_shapley_values(name, posterior):
    game = GAMES[name]
    law = posterior.of(ShapleyValues(game, X))
    expected = np.moveaxis(np.asarray(shapley_covariance(game, posterior, X, X)), 1, 2).reshape(6, 6)
    np.testing.assert_allclose(law.covariance, expected, atol=1e-12)
    np.testing.assert_allclose(law.mean, np.ravel(shapley_values(game, posterior.mean, X)), atol=1e-12)


@pytest.mark.slow
def test_values_of_coalitions_are_averages_of_rows(posterior):
    """By hand: absent features from each background row, and the covariance of the values there."""
    rows = np.where(COALITIONS[:, None, None], X[None, :, None], BACKGROUND[None, None]).reshape(-1, 3)
    loads = np.kron(np.eye(6), np.full((1, 4), 0.25))
    law = posterior.of(CoalitionValues(GAMES["interventional"], X, COALITIONS))
    np.testing.assert_allclose(law.mean, loads @ posterior.mean(rows), atol=1e-12)
    np.testing.assert_allclose(law.covariance, loads @ posterior.covariance(rows, rows) @ loads.T, atol=1e-12)


@pytest.mark.slow_variants("observational")
@pytest.mark.parametrize("name", GAMES)
def test_shapley_values_are_sums_of_values_of_coalitions(name, posterior):
    """With the covariances between them, and those with predictions and derivatives: all by one difference of 0."""
    values = CoalitionValues(GAMES[name], X[:1], all_coalitions(3))
    shares = kpp.games.shapley_values_from_table(jnp.eye(8))
    law = posterior.of((shares @ values) - ShapleyValues(GAMES[name], X[:1]))
    np.testing.assert_allclose(law.mean, 0.0, atol=1e-10)
    np.testing.assert_allclose(law.covariance, 0.0, atol=1e-10)


@pytest.mark.slow
def test_values_add_up_to_the_prediction_less_the_base(posterior):
    game = GAMES["interventional"]
    total = np.ones((1, 3)) @ ShapleyValues(game, X[:1]) + CoalitionValues(game, X[:1], np.zeros((1, 3), bool))
    others = Combination((total - Values(X[:1]), Gradient(X[:1], [0])))
    law = posterior.of(others)
    assert abs(float(law.mean[0])) < 1e-12
    np.testing.assert_allclose(law.covariance[0], 0.0, atol=1e-12)


@pytest.mark.nightly_variants("observational")
@pytest.mark.slow_variants("observational", "interventional")
@pytest.mark.parametrize("name", GAMES)
def test_the_laws_of_functionals(name, posterior):
    check_functional(ShapleyValues(GAMES[name], X[:1]), posterior.mean)
    check_functional(CoalitionValues(GAMES[name], X[:1], COALITIONS), posterior.mean)


@pytest.mark.slow
def test_groups_and_refusals(posterior):
    grouped = posterior.of(ShapleyValues(GAMES["interventional"], X, groups={"both": [0, 2]}))
    np.testing.assert_allclose(
        grouped.mean, np.ravel(shapley_values(GAMES["interventional"], posterior.mean, X, groups={"both": [0, 2]}))
    )
    with pytest.raises(ValueError, match="`x` must have 3 columns"):
        ShapleyValues(GAMES["interventional"], X[:, :2])
    with pytest.raises(TypeError, match="`function` must be an RKHSFunction, got function"):
        ShapleyValues(GAMES["interventional"], X).of(lambda x: x[:, 0])
