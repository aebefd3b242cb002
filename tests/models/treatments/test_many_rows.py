"""Effects of many rows by inducing points, against whole covariance matrices and the exact model."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import kpp
from kpp.causal import CausalDAG
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.kernels import RBF
from kpp_models import causal_effect
from kpp_models.treatments import regression, study
from kpp_models.treatments.averaging.averages import average_by_inducing

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
GRAPH = CausalDAG([("z", "t"), ("z", "y"), ("t", "y")])
NAMES = {"treatment": "t", "outcome": "y"}


def simulate(num_rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    z = rng.normal(size=num_rows)
    t = (rng.uniform(size=num_rows) < 1 / (1 + np.exp(-z))).astype(float)
    return pd.DataFrame({"z": z, "t": t, "y": 2 * t + np.sin(z) + 0.5 * rng.normal(size=num_rows)})


@pytest.mark.slow
def test_the_law_is_that_of_the_covariance_matrix_of_all_rows():
    """By NumPy from one RBF. Of equal weights the law is exact; of others all but what the inducing points leave out.

    The nugget of the inducing points' matrix is about 1e-10 of its diagonal.
    """
    rows, inducing, weights = RNG.normal(size=(9, 2)), RNG.normal(size=(4, 2)), np.full((2, 9), 1 / 9)
    weights[1] = RNG.dirichlet(np.ones(9))
    values, scale, coefficients = np.array([-0.5, 1.0]), 1.3, np.sin(np.arange(4.0))

    def gram(a, b):
        return scale * np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1))

    inner = gram(inducing, inducing)
    root = np.linalg.cholesky(np.linalg.inv(inner + 0.2 * np.eye(4)))
    process = GPPosterior(RKHSFunction(RBF(jnp.ones(2), scale), inducing, coefficients, 0.4), root)
    law, left_out = average_by_inducing(
        process, jnp.asarray(rows), 0, jnp.asarray(values), jnp.asarray(weights), jnp.asarray(rows)
    )
    every = np.concatenate([np.where(np.arange(2) == 0, value, rows) for value in values])
    cross = gram(every, inducing)
    explained = cross @ np.linalg.solve(inner, cross.T)
    rest, reduction = gram(every, every) - explained, cross @ root @ root.T @ cross.T
    equal, drawn = (np.kron(np.eye(2), weight) for weight in weights)
    np.testing.assert_allclose(law.mean, [loads @ (cross @ coefficients + 0.4) for loads in (equal, drawn)], rtol=1e-10)
    np.testing.assert_allclose(law.covariance[0], equal @ (explained + rest - reduction) @ equal.T, atol=1e-7)
    expected = drawn @ (explained - reduction) @ drawn.T + equal @ rest @ equal.T
    np.testing.assert_allclose(law.covariance[1], expected, atol=1e-7)
    np.testing.assert_allclose(left_out, np.diag(equal @ rest @ equal.T), atol=1e-7)


def test_what_many_rows_do_not_have():
    table = simulate(30)
    labels = table.assign(y=table["y"] > 1)
    with pytest.raises(ValueError, match="`num_inducing` needs an outcome of numbers"):
        causal_effect(KEY, labels, GRAPH, **NAMES, num_inducing=5)
    with pytest.raises(ValueError, match="num_inducing"):
        causal_effect(KEY, table, GRAPH, **NAMES, num_inducing=0)
    front_door = CausalDAG([("t", "z"), ("z", "y")], bidirected=[("t", "y")])
    with pytest.raises(ValueError, match="`num_inducing` must be left out here"):
        causal_effect(KEY, table, front_door, **NAMES, num_inducing=5)


@pytest.mark.nightly
def test_the_effect_is_that_of_the_exact_model(monkeypatch):
    """With enough inducing points for a smooth function of two columns; 1,000 draws of a mean err by 3 % of sd."""
    table, mode = simulate(150), kpp.MAP(num_restarts=0, progress=False)
    exact = causal_effect(KEY, table, GRAPH, **NAMES, inference=mode)
    for module in (regression, study):
        monkeypatch.setattr(module, "MANY_ROWS", 100)
    found = causal_effect(KEY, table, GRAPH, **NAMES, inference=mode, num_inducing=40)
    assert "inducing" in found.dataset.attrs["method"]
    ours, known = (effect.contrast(1.0, 0.0).to_numpy() for effect in (found, exact))
    assert abs(ours.mean() - known.mean()) < 0.25 * known.std()
    assert 0.85 < ours.std() / known.std() < 1.2
    parts = found.dataset["variance_parts"]
    assert (parts.isel(part=2) < parts.isel(part=0)).all()
    with pytest.raises(
        ValueError, match="`derivative`, `by_row`, `doubly_robust`, `policies` and several treatments need"
    ):
        numbers = table.assign(t=table["t"] + 0.1 * table["z"])
        causal_effect(KEY, numbers, GRAPH, **NAMES, inference=mode, derivative=True)
