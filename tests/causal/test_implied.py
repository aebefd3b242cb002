"""The independences that a graph implies, against d-separation by every set."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from kpp.causal import CausalDAG, CausalError, CausalOrder, Independence, implied_independences


def test_there_is_one_for_each_pair_that_some_set_separates(brute):
    rng = np.random.default_rng(0)
    for graph in (brute.random_graph(rng, size, 0.4, 0.2, 0.15) for size in (4, 5, 5) for _ in range(15)):
        found = implied_independences(graph)
        pairs = {frozenset([statement.outcome, *statement.of]): statement.given for statement in found}
        assert len(pairs) == len(found)
        for pair in map(frozenset, combinations(graph.observed, 2)):
            first, second = sorted(pair)
            sets = [
                given
                for given in brute.subsets(sorted(graph.observed - pair))
                if graph.d_separated(first, second, given)
            ]
            assert (pair in pairs) == bool(sets), (graph, pair)
            if sets:
                assert frozenset(pairs[pair]) in set(map(frozenset, sets))
                assert not any(frozenset(given) < frozenset(pairs[pair]) for given in sets)


def test_of_a_textbook_graph():
    graph = CausalDAG([("a", "b"), ("b", "c"), ("a", "d"), ("d", "c")])
    assert implied_independences(graph) == (Independence("c", ("a",), ("b", "d")), Independence("d", ("b",), ("a",)))
    assert implied_independences("dag { x -> y }") == ()


def test_an_order_is_refused():
    with pytest.raises(CausalError, match="`graph` must be a causal graph, got a CausalOrder"):
        implied_independences(CausalOrder(["a", "b"]))
