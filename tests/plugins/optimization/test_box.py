"""The maximum over a box, Thompson sampling over it, and duels of points of it, against known maxima."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.kernels import RBF
from kpp_models import GPRegression, sample_function
from kpp_optimization import maximize

LOW, HIGH = np.array([-5.0, 0.0]), np.array([10.0, 15.0])


def branin(x):
    """Minus Branin's function, whose three maxima have the value -0.397887."""
    a, b = x[:, 0], x[:, 1]
    return -(
        (b - 5.1 / (4 * jnp.pi**2) * a**2 + 5 / jnp.pi * a - 6) ** 2 + 10 * (1 - 1 / (8 * jnp.pi)) * jnp.cos(a) + 10
    )


def test_a_function_of_several_maxima():
    point, value = maximize(jax.random.key(0), branin, LOW, HIGH)
    assert value == pytest.approx(-0.397887, abs=1e-6)  # the published value
    known = np.array([[-np.pi, 12.275], [np.pi, 2.275], [9.42478, 2.475]])
    assert abs(known - point).sum(axis=1).min() < 1e-3


def test_a_maximum_at_the_edge():
    point, value = maximize(jax.random.key(0), lambda x: x @ jnp.array([1.0, -2.0]), LOW, HIGH, num_candidates=20)
    np.testing.assert_allclose(point, [10.0, 0.0])
    assert value == pytest.approx(10.0)


@pytest.mark.slow
def test_thompson_sampling_finds_the_maximum():
    rng, model = np.random.default_rng(0), GPRegression(RBF(1.0, 2.0), noise_variance=1e-4)
    x = rng.uniform(-3, 3, size=(3, 1))
    truth = lambda x: jnp.sin(2 * x[:, 0]) + 0.5 * x[:, 0]  # noqa: E731
    for step in range(12):
        posterior = model.posterior_draw({}, {"x": jnp.asarray(x), "y": truth(x)})
        drawn = sample_function(jax.random.key(step), posterior, num_frequencies=300)
        x = np.concatenate([x, maximize(jax.random.key(step), drawn, [-3.0], [3.0], num_candidates=128)[0][None]])
    best = maximize(jax.random.key(0), truth, [-3.0], [3.0])[1]
    assert float(truth(x).max()) > best - 0.01


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"low": HIGH, "high": LOW}, ValueError, "`low` must be a vector below `high`"),
        ({"num_starts": 2000}, ValueError, "`num_starts`"),
        ({"function": lambda x: jnp.log(x[:, 0])}, FloatingPointError, "`function` must be finite in the box"),
    ],
)
def test_mistakes_are_named(options, error, message):
    arguments = {"function": branin, "low": LOW, "high": HIGH} | options
    with pytest.raises(error, match=message):
        maximize(jax.random.key(0), **arguments)
