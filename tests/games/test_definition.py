"""Values agree with the definition, computed coalition by coalition, at 1e-10."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.functions import RKHSFunction
from kpp.games import Baseline, Interventional, all_coalitions, interventional_shapley, shapley_values
from kpp.kernels import RBF, Matern32

METHODS = ("quadrature", "enumeration")


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_interventional_values_of_every_kernel(function, data, brute_force, tolerance, method):
    values = interventional_shapley(function, data["x"], data["Z"], method=method)
    expected = [brute_force(function, row, data["Z"]) for row in data["x"]]
    np.testing.assert_allclose(values, expected, **tolerance())


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["sum of products", "factors of both signs"], indirect=True)
@pytest.mark.parametrize("method", METHODS)
def test_baseline_values(function, data, brute_force, tolerance, method):
    def worth(row):  # as a function of a mask, so that the oracle's imputation turns a feature on
        def evaluate(masks):
            total = function.intercept
            for term in function.kernel.product_terms():
                factors = term.factors(row[None], function.points)[:, 0]
                kept = jnp.prod(jnp.where(masks[:, :, None] > 0, factors[None], 1.0), axis=1)
                total = total + term.scale * kept @ function.coefficients
            return total

        return evaluate

    values = shapley_values(Baseline(), function, data["x"], method=method)
    expected = [brute_force(worth(jnp.asarray(row)), np.ones(4), np.zeros((1, 4))) for row in data["x"]]
    np.testing.assert_allclose(values, expected, **tolerance())


@pytest.mark.slow_variants("enumeration-1", "enumeration-9", "quadrature-1", "quadrature-9")
@pytest.mark.parametrize("num_features", [1, pytest.param(2, marks=pytest.mark.slow), 9])
@pytest.mark.parametrize("method", METHODS)
def test_any_number_of_features(brute_force, tolerance, num_features, method):
    rng = np.random.default_rng(num_features)
    points, background, x = (rng.normal(size=(k, num_features)) for k in (4, 3, 1))
    function = RKHSFunction(RBF(lengthscale=1.3), points, rng.normal(size=4))
    values = interventional_shapley(function, x, background, method=method)
    np.testing.assert_allclose(values[0], brute_force(function, x[0], background), **tolerance())


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_several_outputs(data, tolerance, method):
    coefficients = np.stack([data["alpha"], np.cos(data["alpha"])], axis=1)
    values = interventional_shapley(
        RKHSFunction(RBF(), data["X"], coefficients, [0.1, 0.2]), data["x"], data["Z"], method=method
    )
    for k in range(2):
        alone = interventional_shapley(RKHSFunction(RBF(), data["X"], coefficients[:, k]), data["x"], data["Z"])
        np.testing.assert_allclose(values[..., k], alone, **tolerance())


@pytest.mark.slow_variants("outputs0")
@pytest.mark.parametrize("outputs", [(), (2,)])
def test_plain_functions(data, brute_force, tolerance, outputs):
    seen = []

    def predict(x):
        assert isinstance(x, np.ndarray)  # what scikit-learn's and other estimators expect
        seen.append(len(x))
        return np.sin(x).sum(axis=1) * x[:, 0] if not outputs else np.stack([x[:, 0] * x[:, 1], x[:, 2]], axis=1)

    values = interventional_shapley(predict, data["x"], data["Z"])
    assert values.shape == (3, 4, *outputs)
    expected = [brute_force(predict, row, data["Z"]) for row in data["x"]]
    np.testing.assert_allclose(values, expected, **tolerance())


@pytest.mark.slow
def test_kernels_that_are_no_products_are_enumerated(data, brute_force, tolerance):
    function = RKHSFunction(Matern32(), data["X"], data["alpha"])
    values = interventional_shapley(function, data["x"][:1], data["Z"])
    np.testing.assert_allclose(values[0], brute_force(function, data["x"][0], data["Z"]), **tolerance())


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["sum of products", "a categorical feature"], indirect=True)
@pytest.mark.parametrize("game", ["interventional", "baseline"])
def test_values_of_coalitions_and_base(function, data, tolerance, game):
    value_function = Interventional(data["Z"]) if game == "interventional" else Baseline()
    values = value_function(function, data["x"], all_coalitions(4))
    np.testing.assert_allclose(values[-1], function(data["x"]), **tolerance())
    np.testing.assert_allclose(values[0], np.full(3, value_function.base(function)), **tolerance())
    if game == "interventional":
        plain = value_function(lambda x: function(jnp.asarray(x)), data["x"], all_coalitions(4))
        np.testing.assert_allclose(values, plain, **tolerance())


@pytest.mark.slow
def test_gradients_exist(data):
    def total(lengthscale):
        function = RKHSFunction(RBF(lengthscale=lengthscale), data["X"], data["alpha"])
        return interventional_shapley(function, data["x"], data["Z"], method="quadrature")[0, 1]

    step = 1e-5
    numeric = (total(1.2 + step) - total(1.2 - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(total)(1.2), numeric, rtol=1e-7)  # central differences: 1e-10 and rounding
