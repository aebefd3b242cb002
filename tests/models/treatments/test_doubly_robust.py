"""The doubly robust correction of an effect, against fits without each row and scikit-learn's propensities."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import kpp
from kpp.causal import CausalDAG
from kpp.kernels import RBF
from kpp_models import GPRegression, causal_effect

KEY = jax.random.key(0)
GRAPH = CausalDAG([("z", "t"), ("z", "y"), ("t", "y")])
NAMES = {"treatment": "t", "outcome": "y"}
RNG = np.random.default_rng(0)
Z = RNG.normal(size=30)
TABLE = pd.DataFrame({"t": (RNG.uniform(size=30) < 1 / (1 + np.exp(-Z))).astype(float), "z": Z})
TABLE = TABLE.assign(y=2 * TABLE["t"] + Z + 0.5 * RNG.normal(size=30))


@pytest.fixture(scope="module")
def fit():
    """A Gaussian process with known hyperparameters."""
    model = GPRegression(RBF(jnp.array([1.0, 1.5]), 4.0), noise_variance=0.25)
    return model.fit(KEY, TABLE[["t", "z"]], TABLE["y"], inference=kpp.MAP(progress=False), num_prior_samples=0)


def test_the_correction_is_the_weighted_mean_of_leave_one_out_residuals(fit):
    """One key gives the same draws of f, so that the difference is the correction; residuals by NumPy, row by row."""
    options = {"bootstrap": False, "num_draws": 5}
    plain, robust = (causal_effect(KEY, fit, GRAPH, **NAMES, **options, doubly_robust=dr) for dr in (False, True))
    x, y = TABLE[["t", "z"]].to_numpy(), TABLE["y"].to_numpy()
    scaled = x / [1.0, 1.5]
    gram = 4.0 * np.exp(-0.5 * ((scaled[:, None] - scaled[None]) ** 2).sum(-1))
    residuals = np.zeros(30)
    for i in range(30):
        others = np.arange(30) != i
        known = gram[np.ix_(others, others)] + 0.25 * np.eye(29)
        residuals[i] = y[i] - gram[i, others] @ np.linalg.solve(known, y[others])
    z = (Z - Z.mean()) / Z.std()
    chances = LogisticRegression(max_iter=1000).fit(z[:, None], x[:, 0].astype(str)).predict_proba(z[:, None]).T
    expected = [np.mean((x[:, 0] == level) / chances[int(level)] * residuals) for level in (0.0, 1.0)]
    found = (robust.draws - plain.draws).to_numpy()[0]
    np.testing.assert_allclose(found, np.tile(expected, (5, 1)), rtol=1e-8)
    assert "doubly robust" in robust.dataset.attrs["method"]


@pytest.mark.slow
def test_what_it_is_not_for(fit):
    numbers = CausalDAG([("t", "z"), ("t", "y"), ("z", "y")])
    with pytest.raises(ValueError, match="`doubly_robust` needs a treatment of two values or a category"):
        causal_effect(KEY, fit, numbers, treatment="z", outcome="y", at=[0.0, 1.0], num_draws=5, doubly_robust=True)
