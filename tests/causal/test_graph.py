"""Causal graphs as objects: how they are made, what surgery and projection leave, and what is read off them."""

from __future__ import annotations

import itertools
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from kpp.causal import (
    CausalDAG,
    CausalError,
    CausalOrder,
    CycleError,
    LatentNodeError,
    UnknownNodeError,
    find_adjustment,
    identify,
)
from kpp.causal.toolkit import TreatmentIsOutcomeError, UnreachableOutcomeError, check_effect

FRONT_DOOR = CausalDAG([("x", "m"), ("m", "y")], bidirected=[("x", "y")])


@pytest.fixture(scope="module")
def graphs(brute) -> list[CausalDAG]:
    rng = np.random.default_rng(6)
    return [brute.random_graph(rng, latent=0.3) for _ in range(20)]


@pytest.mark.parametrize(
    "edges",
    [
        [("x", "m"), ("m", "y")],
        iter([["x", "m"], ["m", "y"]]),
        {"x": ["m"], "m": {"y"}},
        {"x": ["m"], "m": ["y"], "y": []},
        nx.DiGraph([("x", "m"), ("m", "y")]),
    ],
    ids=["pairs", "iterator", "dict", "dict with all nodes", "networkx"],
)
def test_all_ways_to_give_edges_make_the_same_graph(edges):
    graph = CausalDAG(edges, bidirected=[{"y", "x"}])
    assert graph == FRONT_DOOR and hash(graph) == hash(FRONT_DOOR)
    assert graph.nodes == ("x", "m", "y") and graph.edges == (("x", "m"), ("m", "y"))
    assert "m" in graph and "u" not in graph and len(graph) == 3


def test_a_graph_stays_what_it_was():
    given = nx.DiGraph([("x", "y")])
    graph = CausalDAG(given)
    given.add_edge("y", "z")
    graph.digraph.add_edge("y", "w")
    graph.canonical().add_edge("y", "v")
    graph.do("y")
    assert graph == CausalDAG([("x", "y")])


def test_graphs_differ_by_what_is_latent_and_by_bidirected_edges():
    plain = CausalDAG([("x", "y")])
    others = [
        CausalDAG([("x", "y")], latent="x"),
        CausalDAG([("x", "y")], bidirected=[("x", "y")]),
        CausalDAG([("x", "y")], nodes=["z"]),
        CausalDAG([("y", "x")]),
    ]
    assert len({plain, *others}) == 5
    assert repr(CausalDAG([("x", "y")], nodes=["z"], latent=["x"], bidirected=[("y", "x")])) == (
        "CausalDAG(x -> y; x <-> y; z, latent=['x'])"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"edges": ["xy"]}, r"`edges` must hold pairs of two nodes, got 'xy'"),
        ({"edges": [("x", "y", "z")]}, r"`edges` must hold pairs of two nodes"),
        ({"edges": {"x": "y"}}, r"`edges` must map each cause to a collection of effects, got a string for \['x'\]"),
        ({"edges": [(1, 2)]}, r"must hold non-empty strings as names, got \[1, 2\]"),
        ({"edges": nx.Graph([("x", "y")])}, r"`edges` must be a networkx.DiGraph, got Graph"),
        ({"edges": nx.MultiDiGraph([("x", "y")])}, r"`edges` must be a networkx.DiGraph, got MultiDiGraph"),
        ({"bidirected": [("x", "x")]}, r"`bidirected` must hold pairs of two nodes, got \('x', 'x'\)"),
        ({"edges": [("x", "y")], "latent": ["u"]}, r"`latent` names no node of the graph: \['u'\]"),
    ],
)
def test_what_is_no_graph_is_refused(arguments, message):
    with pytest.raises(CausalError, match=message):
        CausalDAG(**arguments)


def test_a_cycle_is_shown():
    with pytest.raises(CycleError, match="no directed cycle, got b -> c -> d -> b") as caught:
        CausalDAG([("a", "b"), ("b", "c"), ("c", "d"), ("d", "b")])
    assert caught.value.cycle == ("b", "c", "d", "b")
    with pytest.raises(CycleError, match="a -> a"):
        CausalDAG([("a", "a")])


def test_a_question_for_an_effect_is_checked_by_name():
    graph = CausalDAG([("x", "y"), ("u", "y")], latent="u")
    assert check_effect(graph, "x", ["y"]) == (frozenset("x"), frozenset("y"))
    with pytest.raises(UnknownNodeError, match=r"`outcome` names no node of the graph: \['z'\]"):
        check_effect(graph, "x", "z")
    with pytest.raises(TreatmentIsOutcomeError, match=r"both hold \['x'\]"):
        check_effect(graph, "x", ["x", "y"])
    with pytest.raises(UnreachableOutcomeError, match=r"from `treatment` \['y'\] to `outcome` \['x'\]"):
        check_effect(graph, "y", "x")
    with pytest.raises(LatentNodeError, match="`treatment` must be observed"):
        check_effect(graph, "u", "y")
    with pytest.raises(CausalError, match="`treatment` must name at least one node"):
        check_effect(graph, (), "y")


def test_relatives_are_those_of_networkx(graphs):
    for graph in graphs:
        directed = nx.DiGraph(graph.edges)
        directed.add_nodes_from(graph.nodes)
        for some in itertools.combinations(graph.nodes, 2):
            assert graph.ancestors(some) == set(some).union(*(nx.ancestors(directed, node) for node in some))
            assert graph.descendants(some) == set(some).union(*(nx.descendants(directed, node) for node in some))
            assert graph.parents(some) == {a for a, b in graph.edges if b in some}
            assert graph.children(some) == {b for a, b in graph.edges if a in some}
            assert graph.spouses(some) == {b for b in graph.nodes for a in some if {a, b} in graph.bidirected}
        order = graph.topological_order()
        assert all(order.index(a) < order.index(b) for a, b in graph.edges)
        assert graph.colliders() == {node for node, degree in graph.canonical().in_degree() if degree > 1}


def test_surgery_cuts_the_edges_that_it_names():
    assert FRONT_DOOR.do("x") == CausalDAG([("x", "m"), ("m", "y")])
    assert FRONT_DOOR.do(["m", "y"]) == CausalDAG(nodes=["x", "m", "y"])
    assert FRONT_DOOR.without_outgoing("x") == CausalDAG([("m", "y")], bidirected=[("x", "y")])
    assert FRONT_DOOR.subgraph(["x", "y"]) == CausalDAG(bidirected=[("x", "y")])


def test_the_projection_keeps_separations_and_causes(brute, graphs):
    for graph in graphs:
        projection = graph.project()
        assert set(projection.nodes) == graph.observed and not projection.latent
        assert projection.project() == projection
        for x, y in itertools.combinations(sorted(graph.observed), 2):
            assert (y in graph.descendants(x)) == (y in projection.descendants(x))
            for given in brute.subsets(graph.observed - {x, y}):
                assert graph.d_separated(x, y, given) == projection.d_separated(x, y, given)


def test_the_projection_of_textbook_graphs():
    latent = CausalDAG([("u", "x"), ("u", "y"), ("x", "m"), ("m", "y")], latent="u")
    assert latent.project() == FRONT_DOOR
    chain = CausalDAG([("x", "l"), ("l", "k"), ("k", "y"), ("l", "z")], latent=["l", "k"], bidirected=[("w", "k")])
    expected = CausalDAG([("x", "y"), ("x", "z")], bidirected=[("y", "z"), ("w", "y")])
    assert chain.project() == expected


def test_districts_are_the_parts_that_hidden_causes_connect():
    graph = CausalDAG([("a", "b"), ("b", "c"), ("u", "c"), ("u", "d")], bidirected=[("a", "c")], latent="u")
    assert graph.districts() == (frozenset("acd"), frozenset("b"))
    assert graph.districts(["a", "b", "d"]) == (frozenset("a"), frozenset("b"), frozenset("d"))
    with pytest.raises(UnknownNodeError, match=r"`within` names no node of the graph: \['u'\]"):
        graph.districts(["a", "u"])


def test_the_markov_boundary_is_the_smallest_set_that_separates_from_the_rest(brute, graphs):
    for graph in graphs:
        for node in sorted(graph.observed):
            others = graph.observed - {node}
            separating = [
                some for some in brute.subsets(others) if some == others or graph.d_separated(node, others - some, some)
            ]
            assert graph.markov_boundary(node) == separating[0]
            assert all(graph.markov_boundary(node) <= some for some in separating)


def test_a_canonical_graph_names_hidden_causes_after_their_edges():
    assert set(FRONT_DOOR.canonical().edges) == {("x", "m"), ("m", "y"), ("x <-> y", "x"), ("x <-> y", "y")}
    taken = CausalDAG(nodes=["x <-> y"], bidirected=[("x", "y")])
    assert set(taken.canonical().edges) == {("x <-> y'", "x"), ("x <-> y'", "y")}


NAMES = [f"x{place}" for place in range(1600)]
CHAIN = CausalDAG(list(pairwise(NAMES)))
# The chain, a hidden cause of its ends and of all steps between: no set adjusts, and the path and the hedge are long.
TIED = CausalDAG(CHAIN.edges, bidirected=[*CHAIN.edges, (NAMES[0], NAMES[-1])])


@pytest.mark.slow_variants("<lambda>9")
@pytest.mark.parametrize(
    "ask",
    [
        lambda: CHAIN.parents("z"),
        lambda: CHAIN.parents([f"z{name}" for name in NAMES]),
        lambda: CHAIN.d_separated(NAMES, NAMES),
        lambda: CausalDAG([*CHAIN.edges, (NAMES[-1], NAMES[0])]),
        lambda: CausalDAG(nodes=[*NAMES, *range(1600)]),
        lambda: CausalOrder([*NAMES, *NAMES]),
        lambda: identify(CHAIN, treatment=NAMES[1:], outcome=NAMES[0], given=NAMES[2:]),
        lambda: find_adjustment(CHAIN, treatment=NAMES[1:], outcome=NAMES[0]),
        lambda: identify(TIED, treatment=NAMES[0], outcome=NAMES[-1]),
        lambda: find_adjustment(TIED, treatment=NAMES[0], outcome=NAMES[-1]),
        lambda: find_adjustment(CHAIN, treatment="x0", outcome="x1", columns=["y"]),
        lambda: CHAIN.hide(NAMES[1:]).collider_partition(NAMES[-1]),
    ],
)
def test_messages_about_many_nodes_are_short(ask):
    with pytest.raises((CausalError, TypeError)) as caught:
        ask()
    assert len(str(caught.value)) < 2500


def test_a_cut_message_says_how_many_names_it_leaves_out():
    with pytest.raises(
        UnknownNodeError, match=r"no node of the graph: \['z'\]; its nodes are \['x0', .* 'x19' and 1580"
    ) as caught:
        CHAIN.parents("z")
    assert caught.value.known == tuple(NAMES)
