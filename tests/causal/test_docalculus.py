"""Each rule of do-calculus holds exactly where the two laws agree in a linear Gaussian model with random coefficients.

Coefficients drawn from a density cancel with probability zero, so two laws that are not equal for every law of the
graph differ; of ten thousand comparisons none that should agree differs by 1e-13, and none that should not by less than
1e-4.
"""

from __future__ import annotations

import numpy as np
import pytest

from kpp.causal import CausalDAG, UnknownNodeError, exchange_action, insert_action, insert_observation
from kpp.causal.toolkit import NotDisjointError

#: Rule -> what is done and what is observed in the two laws that it equates, given x, z and w.
RULES = {
    insert_observation: lambda x, z, w: ((x, z | w), (x, w)),
    exchange_action: lambda x, z, w: ((x | z, w), (x, z | w)),
    insert_action: lambda x, z, w: ((x | z, w), (x, w)),
}


def roles(rng: np.random.Generator, graph: CausalDAG) -> list[frozenset[str]]:
    """Random disjoint sets y, x, z and w, the first and the third not empty."""
    y, z, *others = rng.permutation(graph.nodes)
    part = dict(zip(others, rng.integers(0, 6, len(others)), strict=True))
    x, w = (frozenset(str(node) for node in others if part[node] in some) for some in ((0, 1), (2, 3)))
    return [frozenset({str(y)}), x, frozenset({str(z)} | {str(node) for node in others if part[node] == 4}), w]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_holds_exactly_where_the_laws_agree(brute, rule):
    rng = np.random.default_rng(3)
    graphs = brute.all_dags(3) + [brute.random_graph(rng, size) for size in (4, 5, 6) for _ in range(40)]
    count = {True: 0, False: 0}
    for graph in graphs:
        y, x, z, w = roles(rng, graph)
        model = brute.LinearModel(graph, rng)
        (mean, spread), (other_mean, other_spread) = (model.law(y, *sides) for sides in RULES[rule](x, z, w))
        difference = max(np.abs(mean - other_mean).max(), np.abs(spread - other_spread).max())
        check = rule(graph, y, x, z, w)
        assert check.holds == bool(check) == (difference < 1e-9) == (check.witness is None), (graph, y, x, z, w)
        count[check.holds] += 1
    assert min(count.values()) > 30


def test_a_check_says_what_it_equates_and_where_a_path_is_open():
    front_door = CausalDAG([("x", "m"), ("m", "y")], bidirected=[("x", "y")])
    assert str(exchange_action(front_door, "m", (), "x")) == "P(m | do(x)) = P(m | x): holds"
    fails = exchange_action(front_door, "y", (), "x")
    assert str(fails) == "P(y | do(x)) = P(y | x): fails, see the path y <-> x"
    assert fails.graph == front_door.without_outgoing("x")
    assert exchange_action(front_door, "y", (), "m", "x")
    assert str(insert_action(front_door, "y", "m", "x")) == "P(y | do(x, m)) = P(y | do(m)): holds"
    assert str(insert_observation(front_door, "y", "x", "m")).startswith("P(y | do(x), m) = P(y | do(x)): fails")


def test_an_action_that_moves_what_is_given_cannot_be_dropped():
    """Z's edges are cut only where it is no ancestor of W: here z -> w <- u -> y stays open given w."""
    graph = CausalDAG([("z", "w"), ("u", "w"), ("u", "y")])
    assert insert_action(graph, "y", (), "z")
    assert not insert_action(graph, "y", (), "z", "w")


def test_sets_that_overlap_and_unknown_names_are_refused():
    graph = CausalDAG([("a", "b")])
    with pytest.raises(NotDisjointError, match="`y` and `z`"):
        insert_action(graph, "b", (), "b")
    with pytest.raises(UnknownNodeError, match="`w`"):
        insert_observation(graph, "b", (), "a", "q")
