"""Covariances of asymmetric Shapley values under a Gaussian process: the definition, draws of functions, and laws."""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import kpp
from kpp.causal import CausalDAG, CausalOrder
from kpp.features import Nystrom
from kpp.games import (
    Causal,
    GaussianConditional,
    Interventional,
    all_coalitions,
    asymmetric_shapley_values,
    shapley_covariance,
)
from kpp.games.toolkit import shapley_root
from kpp.kernels import RBF
from kpp_models import GPRegression

RNG = np.random.default_rng(2)
POINTS, X = RNG.normal(size=(8, 3)), RNG.normal(size=(2, 3))
BACKGROUND = RNG.normal(size=(4, 3)) + 0.2
KERNEL = RBF(jnp.array([0.8, 1.1, 1.5]), 1.3)
ORDER = [("x0", "x2")]
GAMES = {
    "interventional": Interventional(BACKGROUND),
    "conditional": GaussianConditional(BACKGROUND),
    "causal": Causal(BACKGROUND, CausalDAG([("x0", "x1"), ("x1", "x2")])),
}


def posterior_of(kernel):
    covariance = np.asarray(matrix(kernel, POINTS, POINTS)) + 0.2 * np.eye(len(POINTS))
    root = np.linalg.cholesky(np.linalg.inv(covariance))
    mean = kpp.RKHSFunction(kernel, POINTS, np.linalg.solve(covariance, np.sin(POINTS.sum(axis=1))))
    return kpp.GPPosterior(mean, root)


def by_orders(pairs):
    """The weights of the values of all coalitions, (3, 8), averaged over the orders that respect pairs."""
    masks = [tuple(mask) for mask in all_coalitions(3)]
    orders = [p for p in itertools.permutations(range(3)) if all(p.index(i) < p.index(j) for i, j in pairs)]
    weights = np.zeros((3, 8))
    for order in orders:
        mask = [False] * 3
        for player in order:
            weights[player, masks.index(tuple(mask))] -= 1 / len(orders)
            mask[player] = True
            weights[player, masks.index(tuple(mask))] += 1 / len(orders)
    return weights


matrix = eqx.filter_jit(lambda kernel, a, b: kernel(a, b))


def dense_covariance(game, posterior, x, pairs=((0, 2),)):
    """Impute all rows of all points, and take the posterior covariance of the function's values at them."""
    rows = np.asarray(game.impute(posterior.mean, x, all_coalitions(3)))
    num_rows = rows.shape[2]
    flat = np.swapaxes(rows, 0, 1).reshape(-1, 3)
    kernel, data = posterior.mean.kernel, posterior.mean.points
    sections = np.asarray(matrix(kernel, flat, data)) @ np.asarray(posterior.root)
    covariance = np.asarray(matrix(kernel, flat, flat)) - sections @ sections.T
    one = np.repeat(by_orders(pairs) / num_rows, num_rows, axis=1)
    loads = np.kron(np.eye(len(x)), one)
    return (loads @ covariance @ loads.T).reshape(len(x), 3, len(x), 3).swapaxes(1, 2)


@pytest.mark.nightly_variants("conditional", "causal")
@pytest.mark.slow_variants("conditional", "causal", "interventional")
@pytest.mark.parametrize("name", GAMES)
def test_the_definition(name):
    posterior = posterior_of(KERNEL)
    found = shapley_covariance(GAMES[name], posterior, X, X, order=ORDER)
    np.testing.assert_allclose(found, dense_covariance(GAMES[name], posterior, X), rtol=1e-9, atol=1e-12)
    within = shapley_covariance(GAMES[name], posterior, X, order=ORDER)
    np.testing.assert_allclose(within, np.asarray(found)[[0, 1], [0, 1]], rtol=1e-9, atol=1e-13)


@pytest.mark.slow
def test_draws_of_the_function():
    """The covariance of the values of 4000 functions, drawn in the span of many features; errors of some 2 %."""
    kernel = Nystrom(KERNEL, np.concatenate([POINTS, X, BACKGROUND]))
    game, num_draws = GAMES["interventional"], 4000
    features = kernel.function(jnp.eye(kernel.landmarks.shape[0]))
    weights = RNG.normal(size=(kernel.landmarks.shape[0], num_draws))
    values = np.asarray(asymmetric_shapley_values(game, features, X[:1], ORDER).values)[0] @ weights
    found = shapley_covariance(game, kernel, X[:1], order=ORDER)[0]
    scale = np.sqrt(np.diag(found))
    np.testing.assert_allclose(np.cov(values) / np.outer(scale, scale), found / np.outer(scale, scale), atol=0.1)


@pytest.mark.slow
def test_a_process_of_finite_rank():
    posterior = posterior_of(Nystrom(KERNEL, np.concatenate([POINTS, BACKGROUND])))
    game = GAMES["causal"]
    expected = dense_covariance(game, posterior, X)
    np.testing.assert_allclose(shapley_covariance(game, posterior, X, X, order=ORDER), expected, rtol=1e-7, atol=1e-10)
    root = shapley_root(game, posterior, X, order=ORDER)
    np.testing.assert_allclose(np.einsum("pgr,qhr->pqgh", root, root), expected, rtol=1e-7, atol=1e-10)


@pytest.mark.slow
def test_without_an_order_the_covariance_is_the_symmetric_one():
    posterior = posterior_of(KERNEL)
    found = shapley_covariance(GAMES["interventional"], posterior, X, order=CausalDAG([], nodes=["x0", "x1", "x2"]))
    expected = shapley_covariance(GAMES["interventional"], posterior, X)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-13)


def test_a_constant_feature_keeps_its_place_in_the_order():
    """Of the orders with x1 before x2, two thirds have x0 before x2, although x1 is a null player."""
    rows, x = BACKGROUND.copy(), np.array([[0.4, 1.0, -0.3]])
    rows[:, 1] = 1.0
    game = Interventional(rows)

    def product(z):
        return z[:, 0] * z[:, 2]

    table = {tuple(mask): float(game(product, x, mask[None])[0, 0]) for mask in all_coalitions(3)}
    first, alone, last = (table[mask] for mask in [(False,) * 3, (True, False, False), (False, True, True)])
    known = 2 / 3 * (alone - first) + 1 / 3 * (table[(True,) * 3] - last)
    found = asymmetric_shapley_values(game, product, x, [("x1", "x2")]).values
    np.testing.assert_allclose(found[0, 0], known, rtol=1e-12)
    two = np.concatenate([x, x + 0.5])  # nor does it depend on the other points in the call
    np.testing.assert_allclose(asymmetric_shapley_values(game, product, two, [("x1", "x2")]).values[0, 0], known)


@pytest.mark.slow
def test_an_explanation_holds_the_uncertainty_of_the_function():
    frame = pd.DataFrame(POINTS, columns=["a", "b", "c"])
    model = GPRegression(KERNEL, noise_variance=0.2)
    fit = model.fit(
        jax.random.key(0), frame, np.sin(POINTS.sum(axis=1)), inference=kpp.MAP(progress=False), num_prior_samples=0
    )
    order = CausalOrder(["a", ("b", "c")])
    options = {"value_function": "interventional", "background": BACKGROUND, "order": order}
    drawn = kpp.explain(fit, X, rng_key=jax.random.key(1), **options)
    assert drawn.attrs["uncertainty"] == "full"
    covariance = dense_covariance(Interventional(BACKGROUND), posterior_of(KERNEL), X, ((0, 1), (0, 2)))[[0, 1], [0, 1]]
    spread = drawn.values.std(("chain", "draw"), ddof=1)
    # 200 draws: standard deviations have a standard error of 5 %.
    np.testing.assert_allclose(spread, np.sqrt(np.einsum("pgg->pg", covariance)), rtol=0.25)
    total = drawn.base_values + drawn.values.sum("feature")
    np.testing.assert_allclose(total, drawn.predictions, rtol=1e-9)
    point = kpp.explain(fit, X, covariance="point", **options)
    np.testing.assert_allclose(point.covariance[0, 0], covariance, rtol=1e-7, atol=1e-12)
