"""Markov equivalence classes of all graphs on four nodes: their graphs, their sets of parents, and their effects."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from kpp.causal import CPDAG, CausalDAG, CausalError, GraphSyntaxError, UnknownNodeError, find_adjustment
from kpp.causal.toolkit import UnreachableOutcomeError


@pytest.fixture(scope="module")
def classes(brute) -> list[list[CausalDAG]]:
    """The 543 graphs on four nodes, grouped by which sets separate which pairs, path by path."""
    found: dict = {}
    for graph in brute.all_dags(4):
        paths = brute.Paths(graph)
        key = frozenset(
            (x, y, given)
            for x, y in combinations(graph.nodes, 2)
            for given in brute.subsets(set(graph.nodes) - {x, y})
            if not paths.connected({x}, {y}, given)
        )
        found.setdefault(key, []).append(graph)
    return list(found.values())


def test_a_class_holds_the_graphs_with_the_same_separations(classes):
    assert len(classes) == 185  # Gillispie and Perlman, 2001
    for members in classes:
        found = CPDAG.of(members[0])
        assert set(found.directed) == set.intersection(*(set(graph.edges) for graph in members))
        graphs = list(found.graphs())
        assert len(graphs) == len(members) and set(graphs) == set(members)


def test_one_graph_for_each_set_of_parents(classes):
    for members in classes:
        graphs = list(CPDAG.of(members[-1]).graphs(parents_of="a"))
        parents = [graph.parents("a") for graph in graphs]
        assert len(set(parents)) == len(parents) and set(graphs) <= set(members)
        assert set(parents) == {graph.parents("a") for graph in members}


def test_effects_follow_from_the_parents_of_the_treatment(classes, brute):
    """In a linear law: the slope of an adjustment against the product of coefficients along the paths of each graph."""
    rng = np.random.default_rng(0)
    for members in classes:
        names, model = list(members[0].nodes), brute.LinearModel(members[0], rng)
        order = [model.at[name] for name in names]
        covariance = model.covariance()[np.ix_(order, order)]
        slopes = {}
        for graph in members:
            total = total_effects(graph, covariance)[names.index("d"), names.index("a")]
            try:
                used = ["a", *find_adjustment(graph, treatment="a", outcome="d").variables]
            except UnreachableOutcomeError:
                slope = 0.0
            else:
                slope = regress(covariance, names.index("d"), [names.index(name) for name in used])[0]
            assert slope == pytest.approx(total, abs=1e-9)
            assert slopes.setdefault(graph.parents("a"), slope) == pytest.approx(slope, abs=1e-9)


def regress(covariance: np.ndarray, target: int, given: list[int]) -> np.ndarray:
    return np.linalg.solve(covariance[np.ix_(given, given)], covariance[given, target])


def total_effects(graph: CausalDAG, covariance: np.ndarray) -> np.ndarray:
    """The effects of the linear model of a graph that has a covariance, row: effect, column: cause."""
    coefficients = np.zeros_like(covariance)
    for target, name in enumerate(graph.nodes):
        parents = [graph.nodes.index(parent) for parent in graph.sort(graph.parents(name))]
        coefficients[target, parents] = regress(covariance, target, parents)
    return np.linalg.inv(np.eye(len(covariance)) - coefficients)


def test_directed_edges_may_say_more_than_the_class(classes):
    for members in classes:
        whole = CPDAG.of(members[0])
        if not whole.undirected:
            continue
        known, *others = whole.undirected
        narrowed = CPDAG([*whole.directed, known], others, nodes=members[0].nodes)
        assert set(narrowed.graphs()) == {graph for graph in members if known in graph.edges}


def test_many_nodes_take_little_time():
    names = [f"node {place}" for place in range(12)]
    path = CPDAG((), list(zip(names, names[1:], strict=False)))
    assert sum(1 for _ in path.graphs()) == 12  # one for each root
    complete = CPDAG((), list(combinations(names, 2)))
    assert len({next(graphs) for graphs in [complete.graphs()] for _ in range(20)}) == 20  # of 12! graphs


BAD = {
    "an edge twice": (dict(directed=[("a", "b")], undirected=[("b", "a")]), "different nodes, and once"),
    "a loop": (dict(directed=[("a", "a")]), "different nodes, and once"),
    "a cycle": (dict(directed=[("a", "b"), ("b", "c"), ("c", "a")]), "no graph without a cycle"),
    "an unchorded cycle": (
        dict(undirected=[("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]),
        "unshielded colliders has the edges of CPDAG(a -- b; b -- c; c -- d; d -- a)",
    ),
    "text as an edge": (dict(undirected=["ab"]), "`undirected` must hold pairs of two nodes"),
}


@pytest.mark.parametrize("name", BAD)
def test_edges_that_no_class_has_are_refused(name):
    edges, message = BAD[name]
    with pytest.raises(CausalError) as caught:
        CPDAG(**edges)
    assert message in str(caught.value)


def test_hidden_causes_and_unknown_nodes_are_refused():
    for graph in (CausalDAG([("a", "b")], latent=["a"]), CausalDAG(bidirected=[("a", "b")])):
        with pytest.raises(CausalError, match="`graph` must have neither latent nodes nor bidirected edges"):
            CPDAG.of(graph)
    with pytest.raises(UnknownNodeError, match="parents_of"):
        next(CPDAG((), [("a", "b")]).graphs(parents_of="c"))


def test_a_class_is_read_from_dagitty():
    found = CPDAG.from_dagitty('pdag {x -> y <- "z 1"; y -- v; w [pos="0,1"]; {u v} -- w }')
    assert found.directed == [("x", "y"), ("z 1", "y")]
    assert found.undirected == [("y", "v"), ("u", "w"), ("v", "w")]
    assert set(CPDAG.from_dagitty("pdag {x -- y; lone}")._empty.nodes) == {"x", "y", "lone"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dag {x -> y}", "must be a directed graph in dagitty"),
        ("pdag {x <-> y}", "arrow must be"),
        ("pdag {x -- y; x [latent]}", "a pdag has no latent nodes, got"),
    ],
)
def test_other_texts_are_refused(text, message):
    with pytest.raises(GraphSyntaxError, match=message):
        CPDAG.from_dagitty(text)
