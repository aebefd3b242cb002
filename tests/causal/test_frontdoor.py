"""Front-door sets against their definition, path by path, and against the effects that they estimate."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kpp.causal import (
    CausalDAG,
    CausalError,
    LatentNodeError,
    NoAdjustmentError,
    frontdoor_set,
    frontdoor_sets,
    is_adjustment_set,
    is_frontdoor_set,
    minimal_frontdoor_set,
)
from kpp.causal.criteria import frontdoor

MEDIATED = {"edges": [("x", "m"), ("m", "y")], "bidirected": [("x", "y")]}


def mediated(rng: np.random.Generator, brute):
    """Random effects of a on b that go through others, with something hidden behind both."""
    while True:
        graph = brute.random_graph(rng, density=0.3, latent=0.1, bidirected=0.05)
        if {"a", "b"} <= graph.observed and not {("a", "b"), ("b", "a")} & set(graph.edges):
            if "b" in graph.descendants("a"):
                hidden = {*graph.bidirected, frozenset("ab")}
                yield CausalDAG(graph.edges, nodes=graph.nodes, latent=graph.latent, bidirected=hidden), {"a"}, {"b"}


@pytest.fixture(scope="module", params=["small", pytest.param("random", marks=pytest.mark.slow)])
def cases(request, brute) -> list[tuple]:
    """All graphs of four nodes with all latent sets; random ones of six, with several treatments, or one confounded."""
    rng = np.random.default_rng(0)
    number = 300 if request.param == "random" else 12
    some = [*brute.random_effects(rng, number, density=0.25), *itertools.islice(mediated(rng, brute), number)]
    return some if request.param == "random" else [*brute.effects(brute.all_dags(4)), *some]


@pytest.fixture(scope="module")
def valid(brute, cases) -> list[set[frozenset]]:
    """The front-door sets of each case by the definition."""
    criteria = [brute.Criteria(*case) for case in cases]
    return [{given for given in brute.subsets(by.observed) if by.is_frontdoor_set(given)} for by in criteria]


@pytest.mark.usefixtures("unchecked")
def test_the_criterion_is_its_definition(brute, cases, valid):
    assert sum(map(bool, valid)) > 40
    for (graph, x, y), sets in zip(cases, valid, strict=True):
        if len(graph) > 4 or not graph.latent:  # checks take no notice of what is latent
            for given in brute.subsets(graph.observed - x - y):
                assert bool(is_frontdoor_set(graph, treatment=x, outcome=y, mediators=given)) == (given in sets), (
                    graph,
                    x,
                    y,
                    given,
                )


@pytest.mark.usefixtures("unchecked")
def test_all_sets_are_listed_once(cases, valid):
    for (graph, x, y), sets in zip(cases, valid, strict=True):
        listed = list(frontdoor_sets(graph, treatment=x, outcome=y))
        assert set(listed) == sets and len(listed) == len(sets)


@pytest.mark.usefixtures("unchecked")
def test_the_largest_set_holds_all_others_and_a_minimal_one_holds_none(cases, valid):
    for (graph, x, y), sets in zip(cases, valid, strict=True):
        if sets:
            least = minimal_frontdoor_set(graph, treatment=x, outcome=y)
            assert frontdoor_set(graph, treatment=x, outcome=y) == frozenset().union(*sets) in sets
            assert least in sets and not any(other < least for other in sets)
        else:
            for find in (frontdoor_set, minimal_frontdoor_set):
                with pytest.raises(NoAdjustmentError) as refused:
                    find(graph, treatment=x, outcome=y)
                assert refused.value.criterion and refused.value.path is not None


@pytest.mark.usefixtures("unchecked")
def test_sets_keep_to_what_they_must_and_may_hold(brute):
    rng = np.random.default_rng(1)
    found = 0
    for graph, x, y in itertools.islice(mediated(rng, brute), 40):
        others = sorted(graph.observed - x - y)
        within = frozenset(name for name in others if rng.random() < 0.8)
        include = frozenset(name for name in within if rng.random() < 0.2)
        sets = {
            given for given in brute.subsets(within) if is_frontdoor_set(graph, treatment=x, outcome=y, mediators=given)
        }
        held = {given for given in sets if include <= given}
        found += bool(held)
        assert set(frontdoor_sets(graph, treatment=x, outcome=y, include=include, within=within)) == held
        if held:
            assert frontdoor_set(graph, treatment=x, outcome=y, include=include, within=within) in held
        else:
            with pytest.raises(NoAdjustmentError, match="has no front-door set of allowed nodes"):
                frontdoor_set(graph, treatment=x, outcome=y, include=include, within=within)
        if sets:
            least = minimal_frontdoor_set(graph, treatment=x, outcome=y, within=within)
            assert least in sets and not any(other < least for other in sets)
    assert found > 5


def test_two_regressions_through_a_frontdoor_set_give_the_effect(brute, cases, valid):
    rng = np.random.default_rng(2)
    for (graph, x, y), sets in zip(cases, valid, strict=True):
        model = brute.LinearModel(graph, rng)
        for given in sets:
            treatments, mediators = ([model.at[name] for name in sorted(names)] for names in (x, given))
            to_mediators = model.law(given, (), x)[0][:, treatments]
            to_outcomes = model.law(y, (), x | given)[0][:, mediators]
            truth = model.law(y, x, ())[0][:, treatments]
            # Covariances of a handful of nodes round at about 1e-13.
            np.testing.assert_allclose(to_outcomes @ to_mediators, truth, rtol=0, atol=1e-9)


def test_a_witness_shows_which_part_fails():
    graph = CausalDAG(
        [("x", "m"), ("m", "y"), ("x", "n"), ("n", "y")], bidirected=[("x", "y"), ("x", "k"), ("n", "y")], nodes=["k"]
    )
    checks = [
        is_frontdoor_set(graph, treatment="x", outcome="y", mediators=nodes)
        for nodes in ("m", ["m", "n", "k"], ["m", "n"])
    ]
    assert [str(check.witness) for check in checks] == ["x -> n -> y", "x <-> k", "n <-> y"]
    assert [check.criterion for check in checks] == [
        frontdoor.MEETS_CAUSAL,
        frontdoor.UNCONFOUNDED,
        frontdoor.CLOSED_BY_TREATMENT,
    ]
    with pytest.raises(NoAdjustmentError, match="no front-door set .* see the path x -> n -> y") as refused:
        frontdoor_set(graph, treatment="x", outcome="y")
    assert refused.value.criterion == frontdoor.MEETS_CAUSAL
    with pytest.raises(NoAdjustmentError, match=r"that holds \['n'\]: .* see the path n <-> y"):
        frontdoor_set(graph, treatment="x", outcome="y", include="n")


def test_a_set_may_need_nodes_that_the_treatment_does_not_cause():
    # dowhy 0.14 looks among the descendants of x alone, and finds none.
    edges = [("x", "m"), ("m", "y"), ("r", "m"), ("r", "e"), ("e", "y")]
    graph = CausalDAG(edges, bidirected=[("x", "y")])
    assert set(frontdoor_sets(graph, treatment="x", outcome="y")) == {
        frozenset("mr"),
        frozenset("me"),
        frozenset("mre"),
    }
    assert not is_frontdoor_set(graph, treatment="x", outcome="y", mediators="m")
    assert frontdoor_set(graph, treatment="x", outcome="y") == set("mre")
    assert minimal_frontdoor_set(graph, treatment="x", outcome="y") in (set("mr"), set("me"))


@pytest.mark.parametrize("number", [2, 5])
def test_a_set_may_need_any_number_of_mediators(number):
    mediators = {f"m{place}" for place in range(number)}
    graph = CausalDAG(
        [edge for m in sorted(mediators) for edge in (("x", m), (m, "y"))], bidirected=[("x", "y"), ("m0", "m1")]
    )
    assert list(frontdoor_sets(graph, treatment="x", outcome="y")) == [mediators]
    assert minimal_frontdoor_set(graph, treatment="x", outcome="y") == mediators
    assert not is_adjustment_set(graph, treatment="x", outcome="y", adjusting=())


def chain(length: int) -> CausalDAG:
    """A chain of rungs of two nodes, each a cause of both on the next, from x to y, confounded."""
    rungs = [("x",), *((f"a{place}", f"b{place}") for place in range(length)), ("y",)]
    edges = [pair for low, high in itertools.pairwise(rungs) for pair in itertools.product(low, high)]
    return CausalDAG(edges, bidirected=[("x", "y")])


@pytest.mark.usefixtures("unchecked")
def test_sets_come_with_polynomial_delay(monkeypatch):
    tests, look = [], frontdoor._largest
    monkeypatch.setattr(frontdoor, "_largest", lambda *arguments: tests.append(1) or look(*arguments))
    listed, counts = frontdoor_sets(chain(10), treatment="x", outcome="y"), []
    for _ in range(30):
        next(listed)
        counts.append(len(tests))
    # One set takes at most two tests for each of the 20 nodes, though there are more than 2^10 sets.
    assert max(np.diff(counts)) <= 40


@pytest.mark.usefixtures("unchecked")
def test_a_graph_with_a_million_billion_paths_is_no_trouble():
    graph = chain(50)
    assert len(frontdoor_set(graph, treatment="x", outcome="y")) == 100
    assert minimal_frontdoor_set(graph, treatment="x", outcome="y") == {"a0", "b0"}
    assert is_frontdoor_set(graph, treatment="x", outcome="y", mediators=["a9", "b9"])


def test_questions_that_make_no_sense_are_refused_by_name():
    graph = CausalDAG(**MEDIATED)
    # Without a causal path nothing has to be intercepted, and the empty set is a front-door set by definition.
    backwards = CausalDAG([("x", "m"), ("m", "y")])
    assert minimal_frontdoor_set(backwards, treatment="y", outcome="x") == frozenset()
    assert is_frontdoor_set(backwards, treatment="y", outcome="x", mediators=())
    with pytest.raises(LatentNodeError, match=r"`mediators` must be observed, latent in the graph are \['m'\]"):
        is_frontdoor_set(CausalDAG(**MEDIATED, latent="m"), treatment="x", outcome="y", mediators="m")
    with pytest.raises(CausalError, match=r"`mediators` and `treatment` or `outcome` must share no node"):
        is_frontdoor_set(graph, treatment="x", outcome="y", mediators=["x", "m"])
    with pytest.raises(CausalError, match=r"`include` must be part of `within`, which lacks \['m'\]"):
        frontdoor_sets(graph, treatment="x", outcome="y", include="m", within=())
