"""Effects that no adjustment set identifies: known truths, what the result says, and what is refused."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr

import kpp
from kpp.causal import CausalDAG, NotCoveredError, identify
from kpp.embeddings import EstimandEmbedding
from kpp_models import causal_effect

KEY = jax.random.key(0)
FRONT_DOOR = CausalDAG([("x", "m"), ("m", "y")], bidirected=[("x", "y")])
NAPKIN = CausalDAG([("w", "r"), ("r", "x"), ("x", "y")], bidirected=[("w", "x"), ("w", "y")])
NAMES = {"treatment": "x", "outcome": "y"}
TREATMENTS = [-1.0, 1.0]
SLOPE = 0.9


def simulate(num_rows: int, seed: int = 0) -> pd.DataFrame:
    """A linear front door with the effect 20 * 0.9 per unit of x; the regression of y on x has the slope 20 * 1.54."""
    hidden, *noise = np.random.default_rng(seed).normal(size=(4, num_rows))
    x = 0.8 * hidden + 0.6 * noise[0]
    m = SLOPE * x + 0.5 * noise[1]
    y = 5 + 20 * (m + 0.8 * hidden + 0.4 * noise[2])
    return pd.DataFrame({"x": x, "m": m, "y": y, "comment": "not a node"})


TABLE = simulate(80)


@pytest.fixture(scope="module")
def effect():
    return causal_effect(KEY, TABLE, FRONT_DOOR, **NAMES, at=TREATMENTS, num_draws=60)


@pytest.mark.slow
def test_front_door_is_in_the_units_of_the_table_and_near_the_truth(effect):
    contrast = effect.contrast(1.0, -1.0)
    assert contrast.sizes == {"chain": 1, "draw": 60}
    assert abs(float(contrast.mean()) - 2 * 20 * SLOPE) < 3 * float(contrast.std())
    assert float(contrast.std()) < 10  # the confounded contrast is 26 above the truth
    assert list(effect.summary().columns) == ["mean", "sd", "5 %", "95 %", "effective_rows"]


@pytest.mark.slow
def test_the_draws_are_those_of_the_embedding(effect):
    embedding = EstimandEmbedding.from_graph(FRONT_DOOR, TABLE, "x", "y")
    scaled = (TABLE["y"] - TABLE["y"].mean()) / TABLE["y"].std(ddof=0)
    draws = embedding.bootstrap(KEY, scaled.to_numpy(), np.array(TREATMENTS)[:, None], num_draws=60)
    known = draws.to_numpy() * TABLE["y"].std(ddof=0) + TABLE["y"].mean()
    np.testing.assert_allclose(effect.draws, known, rtol=1e-9)


def test_the_result_says_what_was_estimated_and_how(effect):
    attributes = effect.dataset.attrs
    assert attributes["estimand"] == "P(y | do(x)) = sum_m P(m | x) sum_x' P(y | m, x') P(x')"
    assert "half-sample bootstrap" in attributes["method"] and "fraction" not in attributes["method"]
    assert attributes["rows"] == 80


def test_parts_that_need_an_adjustment_set_are_refused(effect):
    with pytest.raises(ValueError, match="adjustment set must identify"):
        effect.with_hidden_confounder(KEY, share_of_treatment=dist.Beta(1, 9), share_of_outcome=dist.Beta(1, 9))
    with pytest.raises(ValueError, match="`how='random common cause'` must be left out"):
        effect.refute(KEY, "random common cause")


CASES = {
    "subgroup": ({"rows": TABLE["x"].to_numpy() > 0}, ValueError, "`rows` must be left out"),
    "several": (
        {"likelihood": kpp.gp.PoissonLikelihood(), "derivative": True},
        ValueError,
        "`likelihood`, `derivative`",
    ),
    "inference": ({"inference": kpp.MAP()}, ValueError, "`inference` must be left out"),
    "no bootstrap": ({"bootstrap": False}, ValueError, "`bootstrap` must be left out"),
    "three levels": (
        {"data": TABLE.assign(x=np.resize(["a", "b", "c"], 80))},
        ValueError,
        r"categories of two levels .* got \{'x': \['a', 'b', 'c'\]\}",
    ),
    "text as the outcome": (
        {"data": TABLE.assign(y=np.resize(["a", "b"], 80))},
        ValueError,
        "`outcome` must be a column",
    ),
    "missing values": ({"data": TABLE.assign(m=np.nan)}, ValueError, "`data` has missing values"),
    "mediator not measured": ({"data": TABLE.drop(columns="m")}, NotCoveredError, "no embedding covers"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_combined_is_refused_by_name(name):
    changes, error, message = CASES[name]
    arguments = {"data": TABLE, "graph": FRONT_DOOR, **NAMES} | changes
    with pytest.raises(error, match=message):
        causal_effect(KEY, arguments.pop("data"), arguments.pop("graph"), **arguments)


def test_names_of_another_effect_are_refused():
    with pytest.raises(ValueError, match=r"`conditions` must be those of P\(y \| do\(x\)\), \['x'\], got \['m'\]"):
        EstimandEmbedding.from_estimand(identify(FRONT_DOOR, outcome="y", treatment="x"), TABLE, ["y"], ["m"])


@pytest.mark.slow
def test_a_placebo_has_no_effect(effect):
    placebo = effect.refute(KEY, "placebo").contrast(1.0, -1.0)
    assert abs(float(placebo.mean())) < 3 * float(placebo.std())
    assert effect.refute(KEY, "subset").dataset.attrs["rows"] == 64


def discrete_law() -> xr.DataArray:
    """A law of the napkin with two values of each node and hidden common causes of w with x, and of w with y."""
    first, second = [0.4, 0.6], [0.5, 0.5]
    law = np.zeros((2, 2, 2, 2))
    for u, v, w, r, x, y in itertools.product(range(2), repeat=6):
        chances = [0.2 + 0.3 * u + 0.3 * v, 0.25 + 0.5 * w, 0.15 + 0.4 * r + 0.3 * u, 0.1 + 0.5 * x + 0.3 * v]
        parts = [c if value else 1 - c for c, value in zip(chances, (w, r, x, y), strict=True)]
        law[w, r, x, y] += first[u] * second[v] * np.prod(parts)
    return xr.DataArray(law, dims=("w", "r", "x", "y"), coords={name: [0, 1] for name in "wrxy"})


@pytest.mark.slow
def test_a_treatment_of_two_levels_in_an_exact_law():
    """600 rows with the frequencies of the law, so that the effect in the table is that of the law: 0.5."""
    law = discrete_law()
    counts = np.round(600 * law.values).astype(int)
    rows = np.repeat(np.argwhere(np.ones_like(counts)), counts.ravel(), axis=0)
    table = pd.DataFrame(rows, columns=list("wrxy"))
    table = table.assign(x=np.where(table["x"] == 1, "treated", "not"), y=table["y"] == 1, r=table["r"] == 1)
    found = causal_effect(KEY, table, NAPKIN, **NAMES, num_draws=50)
    assert list(found.dataset["treatment"].values) == ["not", "treated"]
    assert "generalized jackknife" in found.dataset.attrs["method"]
    known = identify(NAPKIN, outcome="y", treatment="x").evaluate(law).sel(y=1)
    np.testing.assert_allclose(known.sel(x=1) - known.sel(x=0), 0.5, rtol=1e-9)
    # The bias of the regularization is far below the standard errors, 0.05; rounding to rows costs 0.01.
    np.testing.assert_allclose(found.draws.mean(("chain", "draw")), known.sel(x=[0, 1]), atol=0.03)
