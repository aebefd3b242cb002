"""Averages of a Gaussian process over weighted rows, by whole covariance matrices."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.functionals import GPPosterior
from kpp.functionals.toolkit import PartialDependence
from kpp.functions import RKHSFunction
from kpp.kernels import RBF, Categorical, Linear, Matern32
from kpp_models.treatments.averaging.averages import weighted_laws
from oracles.programs import gram, moments

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(7, 3))
POINTS = RNG.normal(size=(5, 3))
VALUES = np.array([-1.0, 0.0, 2.0])
WEIGHTS = RNG.dirichlet(np.ones(7), size=2)
KERNELS = {
    "product": RBF(jnp.array([0.7, 1.0, 1.4]), 1.3),
    "sum of products": RBF(jnp.ones(3)) * 2.0 + 0.5 + Linear(jnp.array([0.5, 1.0, 2.0])),
    "parts": RBF(jnp.ones(2)).on([0, 2]) * RBF(1.5).on([1]),
    "no product": Matern32(jnp.array([0.7, 1.0, 1.4])) + Linear(),
}


def averages(process, rows, column, values, weights):
    return weighted_laws(process, eqx.Partial(PartialDependence, rows, column, values), weights)


def posterior(kernel):
    root = np.linalg.cholesky(np.linalg.inv(np.asarray(gram(kernel, POINTS)) + 0.3 * np.eye(5)))
    return GPPosterior(RKHSFunction(kernel, POINTS, np.sin(np.arange(5)), 0.4), root)


@pytest.mark.slow_variants("sum of products-1", "parts-0", "no product-1", "parts-1", "no product-0", "product-0")
@pytest.mark.parametrize(
    ("name", "column"),
    [("product", 0), ("parts", 1), ("no product", 0), ("sum of products", 1), ("parts", 0), ("no product", 1)],
)
def test_means_and_covariances_are_those_of_weighted_sums(name, column):
    process = posterior(KERNELS[name])
    law = averages(process, jnp.asarray(ROWS), column, jnp.asarray(VALUES), jnp.asarray(WEIGHTS))
    every = np.concatenate([np.where(np.arange(3) == column, value, ROWS) for value in VALUES])
    predictions, covariance = map(np.asarray, moments(process, every))
    for weights, mean, found in zip(WEIGHTS, law.mean, law.covariance, strict=True):
        loads = np.kron(np.eye(3), weights)
        np.testing.assert_allclose(mean, loads @ predictions, rtol=1e-10)
        np.testing.assert_allclose(found, loads @ covariance @ loads.T, rtol=1e-8, atol=1e-12)


@pytest.mark.slow
def test_a_category_as_the_treatment():
    kernel = RBF(jnp.ones(2)).on([0, 2]) * Categorical(0.3).on([1])
    codes = np.where(np.arange(3) == 1, RNG.integers(0, 3, (7, 1)), ROWS).astype(float)
    law = averages(posterior(kernel), jnp.asarray(codes), 1, jnp.arange(3.0), jnp.asarray(WEIGHTS))
    assert np.linalg.eigvalsh(np.asarray(law.covariance)).min() > 0
    assert law.mean.shape == (2, 3)


def test_draws_lead():
    kernel = RBF(jnp.ones(3))
    one = posterior(kernel)
    two = RKHSFunction.over_draws(
        RBF(jnp.ones((1, 2, 3))), POINTS, jnp.stack([one.mean.coefficients] * 2)[None], 0.4, batch_shape=(1, 2)
    )
    weights = jnp.asarray(WEIGHTS).reshape(1, 2, 1, 7)
    draws = GPPosterior(two, jnp.stack([one.root] * 2)[None])
    law = averages(draws, jnp.asarray(ROWS), 0, jnp.asarray(VALUES), weights)
    known = averages(one, jnp.asarray(ROWS), 0, jnp.asarray(VALUES), jnp.asarray(WEIGHTS))
    np.testing.assert_allclose(law.mean[0, :, 0], known.mean, rtol=1e-12)
    np.testing.assert_allclose(law.covariance[0, :, 0], known.covariance, rtol=1e-9, atol=1e-13)
