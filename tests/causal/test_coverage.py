"""The adjustment chosen for an embedding: valid, within the columns, of the first kind there is, or refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from kpp.causal import (
    Adjustment,
    CausalDAG,
    CausalError,
    LatentNodeError,
    NotCoveredError,
    adjustment_sets,
    find_adjustment,
    frontdoor_sets,
    minimal_adjustment_sets,
)
from kpp.causal.toolkit import UnreachableOutcomeError

CONFOUNDED = [("z", "x"), ("z", "y"), ("x", "y"), ("w", "y")]


@pytest.mark.parametrize(
    "graph, columns, expected",
    [
        (CausalDAG([("x", "y"), ("w", "y")]), None, Adjustment("none")),
        (CausalDAG(CONFOUNDED), None, Adjustment("backdoor", ("z", "w"))),
        (CausalDAG(CONFOUNDED), ["y", "x", "z", "not in the graph"], Adjustment("backdoor", ("z",))),
        (CausalDAG([("x", "m"), ("m", "y")], bidirected=[("x", "y")]), None, Adjustment("frontdoor", ("m",))),
        (
            CausalDAG([*CONFOUNDED[:2], ("x", "m"), ("m", "y"), ("x", "n"), ("n", "y")], latent="z"),
            ["x", "m", "n", "y"],
            Adjustment("frontdoor", ("m", "n")),
        ),
    ],
    ids=["none", "optimal", "within the columns", "frontdoor", "several mediators"],
)
def test_the_simplest_adjustment_is_chosen(graph, columns, expected):
    assert find_adjustment(graph, treatment="x", outcome="y", columns=columns) == expected


def test_without_an_optimal_set_the_minimal_one_nearest_to_the_outcome_is_chosen():
    edges = [("z", "x"), ("z", "y"), ("x", "y"), ("x", "d"), ("d", "a")]
    graph = CausalDAG(edges, bidirected=[("a", "y")])
    assert find_adjustment(graph, treatment="x", outcome="y") == Adjustment("backdoor", ("z",))
    assert next(minimal_adjustment_sets(graph, treatment="x", outcome="y")) == {"z"}


@pytest.mark.usefixtures("unchecked")
def test_what_is_chosen_estimates_the_effect_and_what_is_refused_has_no_set(brute):
    rng = np.random.default_rng(0)
    kinds = []
    for graph, x, y in brute.random_effects(rng, 80, density=0.3):
        columns = {*x, *y, *(name for name in sorted(graph.observed) if rng.random() < 0.8)}
        backdoor = set(adjustment_sets(graph, treatment=x, outcome=y, within=columns - x - y))
        frontdoor = set(frontdoor_sets(graph, treatment=x, outcome=y, within=columns - x - y))
        try:
            found = find_adjustment(graph, treatment=x, outcome=y, columns=sorted(columns))
        except NotCoveredError:
            kinds.append("refused")
            assert not backdoor and not frontdoor
            continue
        kinds.append(found.kind)
        assert frozenset(found.variables) in (frontdoor if found.kind == "frontdoor" else backdoor)
        assert (found.kind == "none") == (frozenset() in backdoor)
        assert found.kind != "frontdoor" or not backdoor
    assert {"none", "backdoor", "refused"} <= set(kinds)


def test_an_effect_that_no_embedding_covers_is_refused_with_its_estimand():
    # Identified, but by neither kind of adjustment: the napkin graph of Pearl and Mackenzie (2018), figure 7.5.
    graph = CausalDAG([("w", "z"), ("z", "x"), ("x", "y")], bidirected=[("w", "x"), ("w", "y")])
    with pytest.raises(
        NotCoveredError, match="which kpp.embeddings.EstimandEmbedding estimates; .*, unlike x <-> w <-> y; .*"
    ) as refused:
        find_adjustment(graph, treatment="x", outcome="y")
    assert refused.value.estimand is not None and refused.value.estimand.startswith("P(y | do(x)) = ")
    assert refused.value.estimand in str(refused.value)


def test_an_effect_that_is_not_identified_from_the_columns_is_refused():
    graph = CausalDAG(CONFOUNDED)
    with pytest.raises(NotCoveredError, match=r"\['x'\] on \['y'\] from \['x', 'y', 'w'\].* hedge ") as refused:
        find_adjustment(graph, treatment="x", outcome="y", columns=["x", "y", "w"])
    assert refused.value.estimand is None


def test_questions_that_make_no_sense_are_refused_by_name():
    graph = CausalDAG(CONFOUNDED, latent="w")
    with pytest.raises(CausalError, match=r"`columns` must hold the treatment and the outcome, lacks \['y'\]"):
        find_adjustment(graph, treatment="x", outcome="y", columns=["x", "z"])
    with pytest.raises(UnreachableOutcomeError):
        find_adjustment(graph, treatment="y", outcome="x")
    with pytest.raises(LatentNodeError):
        find_adjustment(graph, treatment="w", outcome="y")
