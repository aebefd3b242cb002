"""Compiled once, memory bounded, and the cheaper method chosen."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.functions import RKHSFunction
from kpp.games import Interventional, shapley_values
from kpp.games.estimators.quadrature import quadrature_shapley
from kpp.games.toolkit import choose_method
from kpp.kernels import RBF, AbstractProductKernel


class Counting(AbstractProductKernel):
    """An RBF that counts how often it is traced."""

    lengthscale: jax.Array
    traces = 0

    @property
    def scale(self):
        return jnp.ones(())

    def evaluate_factors(self, x1, x2):
        type(self).traces += 1
        return jnp.exp(-0.5 * ((x1 - x2) / self.lengthscale) ** 2)


def counting(lengthscale, data):
    return RKHSFunction(Counting(jnp.asarray(lengthscale, dtype=float)), data["X"], data["alpha"])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["quadrature", "enumeration"])
def test_neither_points_nor_draws_compile_anew(data, method):
    value_function = Interventional(data["Z"])
    shapley_values(value_function, counting(1.0, data), data["x"][:1], method=method)
    for row in data["x"]:
        before = Counting.traces
        shapley_values(value_function, counting(1.0 + row[0] ** 2, data), row[None], method=method)
        assert Counting.traces == before
    traces = []
    for num_draws in (2, 20):
        before = Counting.traces
        function = RKHSFunction.over_draws(
            Counting(jnp.linspace(0.5, 2.0, num_draws)[None]),
            data["X"],
            np.ones((1, num_draws, 7)),
            batch_shape=(1, num_draws),
        )
        shapley_values(value_function, function, data["x"], method=method)
        traces.append(Counting.traces - before)
    assert traces[0] == traces[1]


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [2, 100])
def test_batch_size_changes_nothing(data, tolerance, batch_size):
    function = RKHSFunction(RBF(), data["X"], data["alpha"])
    for method in ("quadrature", "enumeration"):
        expected = shapley_values(Interventional(data["Z"]), function, data["x"], method=method)
        values = shapley_values(Interventional(data["Z"]), function, data["x"], method=method, batch_size=batch_size)
        np.testing.assert_allclose(values, expected, **tolerance())


@pytest.mark.slow
def test_a_large_background_needs_little_memory():
    """5000 x 50 points as background and as points of the function; all factors at once would take 10 GB."""
    points = jnp.zeros((5000, 50))
    function = RKHSFunction(RBF(lengthscale=jnp.ones(50)), points, jnp.ones(5000))
    compiled = quadrature_shapley.lower(Interventional(points), function, points[:10], batch_size=None).compile()
    assert compiled.compiled.memory_analysis().temp_size_in_bytes < 5e8


@pytest.mark.parametrize(
    ("size", "num_features", "expected"),
    [(442, 10, "enumeration"), (569, 30, "quadrature"), (10, 16, "quadrature"), (300, 2, "enumeration")],
)
def test_the_cheaper_method_is_chosen(size, num_features, expected):
    points = np.zeros((size, num_features))
    function = RKHSFunction(RBF(), points, np.zeros(size))
    assert choose_method(Interventional(points), function, size, num_features) == expected
