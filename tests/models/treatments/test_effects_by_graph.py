"""Effects under several graphs: which graphs are read, tables of known draws, least squares, and what is refused."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import kpp
from kpp.causal import CPDAG, CausalDAG, CausalError, NotCoveredError
from kpp.kernels import RBF
from kpp_models import CausalEffect, EffectsByGraph, GPRegression, causal_effect
from kpp_models.treatments import study
from kpp_models.treatments.study import EffectStudy, read_graphs

KEY = jax.random.key(0)
GRAPH = CausalDAG([("z", "t"), ("z", "y"), ("t", "y")])
REVERSED = CausalDAG([("t", "z"), ("z", "y"), ("t", "y")])
NO_EFFECT = CausalDAG([("y", "t"), ("z", "y")])
HIDDEN = CausalDAG([("t", "y")], bidirected=[("t", "y")])
NAMES = {"treatment": "t", "outcome": "y"}


def simulate(num_rows: int = 80) -> pd.DataFrame:
    z, *noise = np.random.default_rng(0).normal(size=(3, num_rows))
    t = 0.8 * z + 0.6 * noise[0]
    return pd.DataFrame({"z": z, "t": t, "y": t + z + 0.3 * noise[1]})


TABLE = simulate()


def drawn(contrast: np.ndarray) -> CausalEffect:
    """An effect with draws of E[Y | do(1)] - E[Y | do(0)]."""
    draws = np.stack([np.zeros_like(contrast), contrast], axis=-1)[None]
    data = {"effect": (("chain", "draw", "treatment"), draws)}
    return CausalEffect(xr.Dataset(data, {"treatment": [0.0, 1.0]}, {"estimand": "P(y | do(t)) = ..."}))


RNG = np.random.default_rng(1)
DRAWS = [RNG.normal(2.0, 0.5, 200), np.zeros(100), RNG.normal(0.1, 1.0, 300)]
FOUND = EffectsByGraph(
    (*map(drawn, DRAWS), NotCoveredError("not identified: a hedge")),
    (GRAPH, NO_EFFECT, REVERSED, HIDDEN),
    (3, 2, 1, 1),
    "t",
)


def test_the_table_has_a_row_for_each_graph_and_one_for_all():
    weights = [4.0, 1.0, 0.0, 5.0]
    table = FOUND.table(1.0, 0.0, weights=weights)
    assert list(table.index) == [0, 1, 2, 3, "all"]
    assert list(table.columns) == ["parents", "mean", "5 %", "95 %", "sign", "weight", "expression"]
    assert list(table["parents"]) == ["z", "y", "", "", ""] and list(table["sign"]) == ["+", "0", "?", "", "+"][:4] + [
        "?"
    ]
    np.testing.assert_allclose(table["weight"], [0.4, 0.1, 0.0, 0.5, 0.5])
    assert table.loc[0, "mean"] == pytest.approx(DRAWS[0].mean())
    assert table.loc[0, "5 %"] == np.quantile(DRAWS[0], 0.05, method="inverted_cdf")
    # Four draws of the first graph for each one of the second: the mixture has the weights 4 and 1.
    pooled = np.concatenate([np.repeat(DRAWS[0], 2), DRAWS[1]])
    assert table.loc["all", "mean"] == pytest.approx(pooled.mean())
    assert table.loc["all", "95 %"] == pytest.approx(np.quantile(pooled, 0.95, method="inverted_cdf"))
    assert table.loc[3, "expression"] == "not identified: a hedge" and np.isnan(table.loc[3, "mean"])


def test_agreement_counts_the_graphs_of_a_class():
    said = "positive in 3, without effect in 2, undecided in 1, not identified in 1 of 7 graphs"
    assert FOUND.agreement(1.0, 0.0) == said
    uncounted = EffectsByGraph(FOUND.effects[:2], FOUND.graphs[:2], None, "t")
    assert uncounted.agreement(1.0, 0.0) == "positive in 1, without effect in 1 of 2 sets of parents of the treatment"


def test_a_class_is_read_as_one_graph_for_each_set_of_parents(monkeypatch):
    found = CPDAG((), [("z", "t"), ("t", "y"), ("z", "y")])  # 6 graphs, one for each order
    graphs, counts = read_graphs(found, "t", "y")
    parents = [graph.parents("t") for graph in graphs]
    of_class = [graph.parents("t") for graph in found.graphs()]
    assert counts == tuple(map(of_class.count, parents)) and set(parents) == set(of_class) and sum(counts) == 6
    monkeypatch.setattr(study, "_MOST_GRAPHS", 5)
    graphs, counts = read_graphs(found, "t", "y")
    assert counts is None and {graph.parents("t") for graph in graphs} == set(of_class)
    monkeypatch.setattr(study, "_MOST_GRAPHS", 3)
    with pytest.raises(CausalError, match="at most 3 sets of parents of 't' open"):
        read_graphs(found, "t", "y")


def test_what_is_one_graph_and_what_are_several():
    text, digraph = "dag { z -> t -> y; z -> y }", nx.DiGraph(GRAPH.edges)
    for single in (GRAPH, text, digraph, [("t", "y")], {"t": ["y"]}, []):
        assert read_graphs(single, "t", "y") is None
    graphs, counts = read_graphs([GRAPH, text, digraph], "t", "y")
    assert graphs == [GRAPH] * 3 and counts == (1, 1, 1)


def test_graphs_without_an_estimate():
    """No fit is needed where there is no effect, or where it is not identified."""
    found = causal_effect(KEY, TABLE, [NO_EFFECT, HIDDEN], **NAMES, at=[0.0, 1.0])
    assert found.agreement(1.0, 0.0) == "without effect in 1, not identified in 1 of 2 graphs"
    assert "holds the hedge" in found.table(1.0, 0.0).loc[1, "expression"]
    assert found.effects[0].dataset.attrs["graph"] == str(NO_EFFECT)


def test_graphs_with_one_adjustment_set_share_a_fit(monkeypatch):
    """With least squares in place of the Gaussian process: all graphs of a class, with the slopes of their parents."""
    fitted = []

    def least_squares(study, rng_key, covariates):
        fitted.append(covariates)
        design = np.column_stack([np.ones(len(TABLE)), TABLE[["t", *covariates]]])
        return drawn(np.full(10, np.linalg.lstsq(design, TABLE["y"], rcond=None)[0][1]))

    monkeypatch.setattr(EffectStudy, "_adjusted", least_squares)
    found = causal_effect(KEY, TABLE, CPDAG((), [("z", "t"), ("t", "y"), ("z", "y")]), **NAMES, at=[0.0, 1.0])
    means = dict(zip([graph.parents("t") for graph in found.graphs], found.table(1.0, 0.0)["mean"], strict=False))
    covariance = np.cov(TABLE[["y", "t", "z"]].T)
    slope, adjusted = covariance[0, 1] / covariance[1, 1], np.linalg.solve(covariance[1:, 1:], covariance[0, 1:])[0]
    sets = {frozenset(): slope, frozenset("z"): adjusted, frozenset("y"): 0.0, frozenset("yz"): 0.0}
    assert means == pytest.approx(sets, abs=1e-9)
    assert sorted(fitted) == [(), ("z",)] and sum(found.counts) == 6


@pytest.mark.slow
def test_each_effect_is_that_of_its_graph_alone():
    graphs = [GRAPH, NO_EFFECT, CausalDAG([*GRAPH.edges], nodes=["other"])]
    options = {**NAMES, "at": [-0.5, 0.5], "inference": kpp.MAP(progress=False)}
    with warnings.catch_warnings(action="ignore"):
        found, alone = causal_effect(KEY, TABLE, graphs, **options), causal_effect(KEY, TABLE, GRAPH, **options)
    for place in (0, 2):
        np.testing.assert_array_equal(found.effects[place].draws, alone.draws)
    assert found.effects[2].study.question.graph == graphs[2]


def fit() -> kpp.Fit:
    model = GPRegression(RBF(jnp.ones(2)), noise_variance=0.25)
    return model.fit(KEY, TABLE[["t", "z"]], TABLE["y"], inference=kpp.MAP(progress=False), num_prior_samples=0)


BAD = {
    "weights": (lambda: FOUND.table(1.0, 0.0, weights=[1.0, 2.0]), ValueError, "`weights` must hold a number >= 0 for"),
    "no weight": (lambda: FOUND.table(1.0, 0.0, weights=[0.0] * 4), ValueError, "`weights` must hold a number >= 0"),
    "negative": (lambda: FOUND.table(1.0, 0.0, weights=[1, -1, 1, 1]), ValueError, "`weights` must hold a number >= 0"),
    "value": (lambda: FOUND.table(2.0, 0.0), ValueError, "`value` must be a treatment of the curve"),
    "probability": (lambda: FOUND.table(1.0, 0.0, probability=2.0), ValueError, "`probability`"),
    "treatment": (
        lambda: causal_effect(KEY, TABLE, CPDAG((), [("t", "y")]), treatment="x", outcome="y"),
        CausalError,
        "x",
    ),
    "one of them": (
        lambda: causal_effect(KEY, TABLE, [GRAPH, CausalDAG([("z", "y")])], **NAMES),
        CausalError,
        "`treatment` names no node of the graph: ['t']",
    ),
    "a column": (
        lambda: causal_effect(KEY, TABLE[["z", "y"]], [GRAPH, NO_EFFECT], **NAMES),
        CausalError,
        "lacks ['t']",
    ),
    "a fit": (lambda: causal_effect(KEY, fit(), [GRAPH], **NAMES), TypeError, "as do several graphs"),
    "text": (lambda: causal_effect(KEY, TABLE, ["no graph"], **NAMES), CausalError, "graph"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name):
    call, error, message = BAD[name]
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)
