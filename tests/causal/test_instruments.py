"""Instruments against linear Gaussian models with random coefficients, and against every set of conditions."""

from __future__ import annotations

import numpy as np
import pytest

from kpp.causal import CausalDAG, CausalError, Instrument, LatentNodeError, instruments, is_instrument
from kpp.causal.toolkit import forbidden_nodes


@pytest.fixture(scope="module")
def graphs(brute) -> list[CausalDAG]:
    """Graphs in which a causes b, in most of them with something hidden behind both."""
    rng = np.random.default_rng(4)
    plain, four = ([graph for graph in brute.all_dags(size) if "b" in graph.descendants("a")] for size in (3, 4))
    more = [brute.random_graph(rng, size, 0.35, 0.1, 0.05) for size in (5, 6) for _ in range(60)]
    return plain + [confounded(graph) for graph in four[::4] + [graph for graph in more if asks(graph)]]


def asks(graph: CausalDAG) -> bool:
    return {"a", "b"} <= graph.observed and "b" in graph.descendants("a")


def confounded(graph: CausalDAG) -> CausalDAG:
    hidden = {*graph.bidirected, frozenset("ab")}
    return CausalDAG(graph.edges, nodes=graph.nodes, latent=graph.latent, bidirected=hidden)


def below_mediators(graph: CausalDAG) -> frozenset[str]:
    """The nodes on directed paths from a to b, a aside, and what is below them."""
    return graph.descendants(graph.without_outgoing("a").ancestors("b") & graph.descendants("a") - {"a"})


@pytest.fixture(scope="module")
def answers(brute, graphs) -> list[dict]:
    """For each graph, whether a node is an instrument given others: every node, given every set."""
    return [
        {
            (node, given): is_instrument(graph, node, treatment="a", outcome="b", given=given).holds
            for node in sorted(graph.observed - {"a", "b"})
            for given in brute.subsets(sorted(graph.observed - {"a", "b", node}))
        }
        for graph in graphs
    ]


@pytest.mark.slow
def test_an_instrument_is_what_gives_the_effect_in_linear_models(brute, graphs, answers):
    rng = np.random.default_rng(5)
    for graph, holds in zip(graphs, answers, strict=True):
        model, forbidden = brute.LinearModel(graph, rng), below_mediators(graph)
        effect = model.total({"a"})[model.at["b"], model.at["a"]]
        for node, given in holds:
            on_treatment, on_outcome = model.law({"a", "b", node}, (), given)[1][:2, 2]
            # Coefficients from a density cancel with probability zero; rounding is below 1e-12 here.
            works = abs(on_treatment) > 1e-9 and abs(on_outcome - effect * on_treatment) < 1e-9
            assert holds[node, given] == (works and not given & forbidden), (graph, node, given)
    found = [answer for holds in answers for answer in holds.values()]
    assert 20 < sum(found) < len(found) - 20


@pytest.mark.slow
def test_one_is_found_wherever_there_is_any(graphs, answers):
    found = [instruments(graph, treatment="a", outcome="b") for graph in graphs]
    for one, holds, graph in zip(found, answers, graphs, strict=True):
        assert all(holds[instrument.node, instrument.given] for instrument in one)
        assert bool(one) == any(holds.values()), graph
    assert 10 < sum(map(bool, found)) < len(graphs) - 10


def test_a_textbook_instrument_and_a_conditional_one():
    plain = CausalDAG([("i", "x"), ("x", "y")], bidirected=[("x", "y")])
    assert instruments(plain, treatment="x", outcome="y") == (Instrument("i", frozenset()),)
    conditional = CausalDAG([("w", "i"), ("w", "y"), ("i", "x"), ("x", "y")], bidirected=[("x", "y")])
    assert instruments(conditional, treatment="x", outcome="y") == (Instrument("i", frozenset({"w"})),)


def test_a_failure_says_which_part_and_shows_a_path():
    graph = CausalDAG([("w", "i"), ("w", "y"), ("i", "x"), ("x", "m"), ("m", "y"), ("j", "y")], bidirected=[("x", "y")])
    assert str(is_instrument(graph, "i", treatment="x", outcome="y", given="w")) == "holds"
    assert str(is_instrument(graph, "i", treatment="x", outcome="y")).endswith("see the path i <- w -> y")
    assert str(is_instrument(graph, "i", treatment="x", outcome="y", given=["w", "m"])).endswith("see the path x -> m")
    assert is_instrument(graph, "j", treatment="x", outcome="y").criterion.startswith("the nodes given leave a path")


@pytest.mark.slow
def test_several_instruments_are_what_gives_the_joint_effect_in_linear_models(brute):
    rng, answers = np.random.default_rng(6), []
    graphs = [brute.random_graph(rng, size, 0.4, 0.15, 0.05) for size in (5, 6) for _ in range(150)]
    for graph in (graph for graph in graphs if {"a", "b", "c"} <= graph.observed):
        model, others = brute.LinearModel(graph, rng), sorted(graph.observed - {"a", "b", "c"})
        effect = model.total({"a", "c"})[model.at["b"], [model.at["a"], model.at["c"]]]
        banned = forbidden_nodes(graph, treatment=["a", "c"], outcome="b")
        for nodes in (set(nodes) for nodes in brute.subsets(others) if nodes):
            for given in brute.subsets(sorted(set(others) - nodes)):
                names = sorted({"a", "b", "c"} | nodes)
                law = model.law(set(names), (), given)[1]
                at = {name: place for place, name in enumerate(names)}
                rows = [at[node] for node in sorted(nodes)]
                moved, answer = law[np.ix_(rows, [at["a"], at["c"]])], law[rows, at["b"]]
                # Coefficients from a density: singular values are 0 up to rounding, or far from it.
                works = np.linalg.matrix_rank(moved, tol=1e-8) == 2 and np.allclose(answer, moved @ effect, atol=1e-9)
                found = is_instrument(graph, nodes, treatment=["a", "c"], outcome="b", given=given)
                assert found.holds == (works and not set(given) & banned), (graph, nodes, given)
                answers.append(found.holds)
    assert 20 < sum(answers) < len(answers) - 20


def test_two_instruments_behind_one_node_do_not_move_two_treatments():
    edges = [("i", "m"), ("j", "m"), ("m", "x"), ("m", "w"), ("x", "y"), ("w", "y")]
    graph = CausalDAG(edges, bidirected=[("x", "y"), ("w", "y")])
    question = {"treatment": ["x", "w"], "outcome": "y"}
    check = is_instrument(graph, ["i", "j"], **question)
    assert str(check) == "the instruments move all treatments independently of each other; this does not hold"
    assert is_instrument(CausalDAG([*edges, ("i", "x")], bidirected=graph.bidirected), ["i", "j"], **question)


def test_what_makes_no_sense_is_refused():
    graph = CausalDAG([("i", "x"), ("x", "y"), ("u", "y")], latent="u")
    assert instruments(graph, treatment="y", outcome="x") == ()
    with pytest.raises(LatentNodeError, match="`instrument` must be observed"):
        is_instrument(graph, "u", treatment="x", outcome="y")
    with pytest.raises(CausalError, match="`treatment` must be one node"):
        instruments(graph, treatment=["i", "x"], outcome="y")
    with pytest.raises(CausalError, match="`instrument` and `given`"):
        is_instrument(graph, "i", treatment="x", outcome="y", given="i")
    with pytest.raises(CausalError, match="`instrument` must name at least one node"):
        is_instrument(graph, [], treatment="x", outcome="y")
