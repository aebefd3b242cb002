"""d-separation, its witnesses and minimal separators, against the paths of every small graph."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest

from kpp.causal import (
    CausalDAG,
    CausalError,
    UnknownNodeError,
    d_connecting_path,
    d_separated,
    is_minimal_separator,
    minimal_separator,
)
from kpp.causal.toolkit import NotDisjointError, reachable


def questions(brute, graph: CausalDAG):
    """The same pair of nodes with every set of others: all ways to name the nodes are among the graphs."""
    return [("a", "b", given) for given in brute.subsets(set(graph.nodes) - {"a", "b"})]


@pytest.fixture(scope="module")
def graphs(brute) -> list[CausalDAG]:
    rng = np.random.default_rng(0)
    small = [graph for size in (2, 3, 4) for graph in brute.all_dags(size)]
    return small + [brute.random_graph(rng) for _ in range(15)]


def test_all_dags_of_up_to_four_nodes_are_there(brute):
    assert [len(brute.all_dags(size)) for size in (1, 2, 3, 4)] == [1, 3, 25, 543]


def test_separation_is_that_of_all_paths(brute, graphs):
    for graph in graphs:
        paths = brute.Paths(graph)
        for x, y, given in questions(brute, graph):
            assert d_separated(graph, x, y, given) != paths.connected({x}, {y}, given), (graph, x, y, given)


def test_separation_of_sets_is_that_of_networkx(brute):
    rng = np.random.default_rng(1)
    for _ in range(100):
        graph = brute.random_graph(rng)
        role = dict(zip(graph.nodes, rng.integers(0, 4, 6), strict=True))
        x, y, given = ({node for node in role if role[node] == part} for part in range(3))
        expected = nx.is_d_separator(graph.canonical(), x, y, given)
        assert graph.d_separated(x, y, given) == expected
        assert not y & reachable(graph, x, given) if expected else y & reachable(graph, x, given)


def test_a_witness_is_an_open_path_of_the_graph(brute, graphs):
    for graph in graphs[::3]:
        found = nx.DiGraph(graph.edges)
        for x, y, given in questions(brute, graph):
            path = d_connecting_path(graph, x, y, given)
            if path is None:
                continue
            assert (path[0], path[-1], len(set(path))) == (x, y, len(path))
            for a, arrow, b in zip(path, path.arrows, path[1:], strict=False):
                there = {"->": found.has_edge(a, b), "<-": found.has_edge(b, a), "<->": {a, b} in graph.bidirected}
                assert there[arrow]
            for left, node, right in zip(path.arrows, path[1:], path.arrows[1:], strict=False):
                collider = left != "<-" and right != "->"
                assert graph.descendants(node) & given if collider else node not in given


def test_a_path_prints_with_its_arrows():
    graph = CausalDAG([("x", "m"), ("u", "m"), ("m", "d")], bidirected=[("u", "y")])
    assert str(graph.d_connecting_path("x", "y", "d")) == "x -> m <- u <-> y"


@pytest.mark.slow
def test_minimal_separators_are_those_among_all_sets(brute, graphs):
    for graph in graphs:
        paths = brute.Paths(graph)
        separate = {given for x, y, given in questions(brute, graph) if not paths.connected({x}, {y}, given)}
        for x, y, given in questions(brute, graph):
            expected = given in separate and not any(smaller < given for smaller in separate)
            assert is_minimal_separator(graph, x, y, given) == expected
        observed = [given for given in separate if not given & graph.latent]
        found = minimal_separator(graph, "a", "b")
        assert (found is None) == (not observed)
        assert found is None or (found in observed and not any(given < found for given in observed))


def test_a_minimal_separator_holds_what_it_must_and_only_what_it_may(brute):
    rng = np.random.default_rng(2)
    for _ in range(40):
        graph = brute.random_graph(rng, latent=0.0)
        paths = brute.Paths(graph)
        role = dict(zip(graph.nodes, ["x", "y", *rng.choice(["in", "may", "may", "not"], 4)], strict=True))
        include = frozenset(node for node in role if role[node] == "in")
        may = frozenset(node for node in role if role[node] == "may")
        separate = [include | some for some in brute.subsets(may) if not paths.connected("a", "b", include | some)]
        found = minimal_separator(graph, "a", "b", include=include, within=include | may)
        assert (found is None) == (not separate)
        if found is not None:
            assert found in separate and not any(given < found for given in separate)
            assert is_minimal_separator(graph, "a", "b", found, include=include)


def test_a_long_chain_takes_no_time_and_no_recursion():
    names = [f"x{place}" for place in range(1000)]
    graph = CausalDAG(itertools.pairwise(names), bidirected=itertools.pairwise(names))
    assert len(graph.d_connecting_path("x0", "x999")) == 1000
    assert minimal_separator(graph, "x0", "x999") is None
    assert minimal_separator(CausalDAG(itertools.pairwise(names)), "x0", "x999") == {"x1"}


def test_what_makes_no_sense_is_refused_by_name():
    graph = CausalDAG([("a", "b"), ("b", "c")])
    with pytest.raises(UnknownNodeError, match=r"`given` names no node of the graph: \['q'\]; its nodes are \['a'"):
        graph.d_separated("a", "c", ["b", "q"])
    with pytest.raises(NotDisjointError, match=r"`x` and `given` must share no node, both hold \['a'\]"):
        graph.d_separated("a", "c", "a")
    with pytest.raises(NotDisjointError, match="`x` and `y`"):
        graph.d_separated(["a", "b"], ["b", "c"])
    with pytest.raises(CausalError, match=r"`include` must hold nodes that are allowed, got \['b'\]"):
        minimal_separator(graph, "a", "c", include="b", within=())
