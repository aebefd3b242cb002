"""Collider partitions and the independences within a Markov boundary, against their definitions, path by path."""

from __future__ import annotations

import dataclasses
import itertools
import re
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest

from kpp.causal import (
    CausalDAG,
    CausalError,
    ColliderError,
    ColliderPartition,
    Independence,
    LatentNodeError,
    UnknownNodeError,
    collider_independences,
    collider_partition,
    strongest_independences,
)
from oracles import discrete_laws as oracle

#: Without checks of types at each call: calls are many and small.
unchecked = pytest.mark.usefixtures("unchecked")

SIMPLE = CausalDAG([("y", "c"), ("s", "c")])
CAVEAT = CausalDAG([("y", "c"), ("c", "s"), ("y", "d"), ("s", "d"), ("p", "y"), ("t", "d")])


class Question(SimpleNamespace):
    """A graph, an outcome, its boundary by the definition, and `separates(given, others)` by a look at all paths."""

    def splits(self, some) -> list[tuple[frozenset, frozenset]]:
        """All (A, B) with A and B together `some`, A not empty and B separating it from the outcome."""
        pairs = [(of, some - of) for of in self.subsets(some) if of]
        return [(of, given) for of, given in pairs if self.separates(given, of)]


def ask(brute, graph: CausalDAG, outcome: str) -> Question:
    paths = brute.Paths(graph)

    def separates(given, others) -> bool:
        return not paths.connected([outcome], others, given)

    others = graph.observed - {outcome}
    boundary = next(some for some in brute.subsets(others) if separates(some, others - some))
    return Question(
        graph=graph, outcome=outcome, separates=separates, boundary=boundary, subsets=brute.subsets, full=paths.full
    )


@pytest.fixture(scope="module")
def questions(brute) -> list[Question]:
    """An outcome in each of many random graphs: without and with hidden variables, few and many of them."""
    rng = np.random.default_rng(23)
    kinds = [(0.45, 0.0, 0.0), (0.45, 0.25, 0.0), (0.3, 0.0, 0.2), (0.35, 0.15, 0.15)]
    graphs = [brute.random_graph(rng, 6, *kind) for kind in kinds for _ in range(30)]
    with_children = [[node for node in graph.sort(graph.observed) if graph.children(node)] for graph in graphs]
    return [ask(brute, graph, str(rng.choice(some))) for graph, some in zip(graphs, with_children, strict=True) if some]


def direct(question: Question, start: str, end: str) -> bool:
    """Whether a directed path leads from start to end whose inner nodes are all hidden."""
    seen = question.full.subgraph((set(question.full) - question.graph.observed) | {start, end})
    return nx.has_path(seen, start, end)


def relatives(question: Question) -> tuple[frozenset, frozenset]:
    others = question.graph.observed - {question.outcome}
    children = {node for node in others if direct(question, question.outcome, node)}
    return frozenset(children), frozenset(node for node in others if direct(question, node, question.outcome))


@unchecked
def test_partitions_are_those_of_the_definition_and_are_refused_where_it_fails(questions):
    refused = with_spouses = 0
    for question in questions:
        children, parents = relatives(question)
        spouses = question.boundary - children - parents
        assert question.graph.markov_boundary(question.outcome) == question.boundary
        if question.separates(parents, spouses):
            partition = collider_partition(question.graph, question.outcome)
            parts = children, spouses, parents
            expected = ColliderPartition(question.outcome, *(tuple(question.graph.sort(part)) for part in parts))
            assert partition == expected == question.graph.collider_partition(question.outcome)
            with_spouses += bool(spouses)
        else:
            with pytest.raises(ColliderError) as caught:
                collider_partition(question.graph, question.outcome)
            assert set(caught.value.paths) == {node for node in spouses if not question.separates(parents, {node})}
            refused += 1
    assert min(refused, with_spouses) > 20


def refusal(question: Question) -> ColliderError | None:
    try:
        collider_partition(question.graph, question.outcome)
    except ColliderError as error:
        return error
    return None


def is_open_path(graph: CausalDAG, path, given) -> bool:
    """Whether a path follows edges of the graph, and by the definition is open."""
    for arrow, (a, b) in zip(path.arrows, itertools.pairwise(path), strict=True):
        edge = {"->": (a, b) in graph.edges, "<-": (b, a) in graph.edges, "<->": {a, b} in graph.bidirected}
        if not edge[arrow]:
            return False
    inner = list(zip(path.arrows, path.arrows[1:], path[1:], strict=False))
    colliders = {node for into, out, node in inner if into in ("->", "<->") and out in ("<-", "<->")}
    assert set(path.colliders) == colliders
    return not (set(path[1:-1]) - colliders) & given and all(graph.descendants(node) & given for node in colliders)


@unchecked
def test_a_refusal_shows_for_each_spouse_to_blame_an_open_path_and_its_kind(questions):
    effects = bound = 0
    for question, error in ((question, refusal(question)) for question in questions):
        for spouse, path in error.paths.items() if error else ():
            assert (path[0], path[-1]) == (question.outcome, spouse)
            assert is_open_path(question.graph, path, relatives(question)[1])
            causal = all(arrow == "->" for arrow in path.arrows)
            kind = "an effect of it" if causal else "bound to it by something hidden"
            assert f"{spouse!r} is {kind} ({path})" in str(error)
            assert causal or path.arrows[0] == "<->" or path[1] in question.graph.latent
            effects, bound = effects + causal, bound + (not causal)
    assert min(effects, bound) > 10


@unchecked
def test_a_refusal_says_what_holds_instead(questions):
    remaining = 0
    for question, error in ((question, refusal(question)) for question in questions):
        if error is None:
            continue
        children, parents = relatives(question)
        others = question.boundary - children - parents - set(error.paths)
        of, given = (tuple(question.graph.sort(some)) for some in (others, parents))
        first = [Independence(question.outcome, of, given)] if others else []
        fine = collider_independences(question.graph, question.outcome)
        assert list(error.independences) == [*first, *(some for some in fine if some not in first)]
        assert all(question.separates(set(some.given), some.of) for some in error.independences)
        usable = "; ".join(map(str, error.independences))
        assert str(error).endswith(usable or "holds no independence of it")
        remaining += bool(others)
    assert remaining > 3


@unchecked
def test_without_hidden_variables_effects_of_the_outcome_are_all_that_is_refused(brute):
    refused = 0
    for graph in brute.all_dags(4):
        parents, children = graph.parents("a"), graph.children("a")
        spouses = graph.parents(children) - parents - children - {"a"}
        assert graph.markov_boundary("a") == parents | children | spouses
        try:
            assert set(collider_partition(graph, "a").spouses) == spouses
            assert not spouses & graph.descendants("a")
        except ColliderError as error:
            assert set(error.paths) == spouses & graph.descendants("a")
            refused += 1
    assert refused > 10


@unchecked
def test_colliders_of_a_node_are_its_children_on_which_another_arrowhead_meets(questions):
    total = 0
    for question in questions:
        observed, hidden = question.graph.observed, set(question.full) - question.graph.observed
        expected = set()
        for child in relatives(question)[0]:
            causes = [node for node in observed - {child, question.outcome} if direct(question, node, child)]
            shared = [u for u in hidden if any(direct(question, u, node) for node in observed - {child})]
            if causes or any(direct(question, u, child) for u in shared):
                expected.add(child)
        assert question.graph.colliders(question.outcome) == expected
        total += len(expected)
    assert total > 50


@unchecked
def test_independences_have_as_few_conditions_as_there_can_be_and_say_as_much_as_they_can(questions):
    total = 0
    for question in questions:
        expected = set()
        for node in question.boundary:
            separating = [
                some for some in question.subsets(question.boundary - {node}) if question.separates(some, {node})
            ]
            minimal = [some for some in separating if not any(other < some for other in separating)]
            for given in minimal:
                of = {other for other in question.boundary - given if question.separates(given, {other})}
                assert question.separates(given, of)
                expected.add((frozenset(of), given))
        found = collider_independences(question.graph, question.outcome)
        assert [(frozenset(some.of), frozenset(some.given)) for some in found] == sorted(
            expected, key=lambda pair: order(question, pair)
        )
        for one, other in itertools.permutations(found, 2):
            follows = set(one.given) <= set(other.given) <= set(one.condition) and set(other.of) <= set(one.of)
            assert not follows
        total += len(found)
    assert total > 60


def order(question: Question, pair) -> tuple:
    return len(pair[1]), sorted(map(question.graph.position.__getitem__, pair[1]))


@unchecked
def test_the_strongest_independences_are_on_the_largest_sets_that_have_one(questions):
    several = 0
    for question in questions:
        splits = {some: question.splits(some) for some in question.subsets(question.boundary)}
        have = [some for some in splits if splits[some]]
        largest = [some for some in have if not any(some < other for other in have)]
        expected = [max(splits[some], key=lambda pair: len(pair[0])) for some in largest]
        found = strongest_independences(question.graph, question.outcome)
        assert [(frozenset(some.of), frozenset(some.given)) for some in found] == sorted(
            expected, key=lambda pair: order(question, pair)
        )
        for weaker in collider_independences(question.graph, question.outcome):
            assert any(set(weaker.condition) <= set(some.condition) for some in found)
        several += len(found) > 1
    assert several > 5


@unchecked
def test_there_is_an_independence_if_and_only_if_a_child_has_a_parent_that_is_not_adjacent_to_the_outcome(brute):
    for graph in brute.all_dags(4):  # proposition 3.1 of Bouabid, Fawkes and Sejdinovic (2023)
        adjacent = graph.parents("a") | graph.children("a") | {"a"}
        unshielded = any(graph.parents(child) - adjacent for child in graph.colliders("a"))
        assert bool(collider_independences(graph, "a")) == bool(strongest_independences(graph, "a")) == unshielded


@pytest.mark.parametrize("seed", range(6))
@unchecked
def test_regressions_obey_the_constraint_of_every_statement_and_of_its_parts(seed):
    rng = np.random.default_rng(seed)
    nodes = ("p", "s", "t", "y", "c", "d")
    edges = [("p", "y"), ("y", "c"), ("y", "d"), ("s", "c"), ("t", "d")]
    further = [("p", "s"), ("p", "t"), ("s", "t"), ("p", "c"), ("c", "d")]
    edges += [edge for edge in further if rng.random() < 0.5]
    bidirected = [pair for pair in [("s", "c"), ("t", "p"), ("y", "d")] if rng.random() < 0.4]
    law = oracle.DiscreteModel(rng, (nodes, edges, bidirected, []), sizes=(2, 3)).joint()
    graph = CausalDAG(edges, nodes=nodes, bidirected=bidirected)

    def regression(*on):
        """E[Y | on] as a table, from the law of the outcome's values 0, 1, ..."""
        table = law.sum([node for node in nodes if node not in {"y", *on}])
        return (table * table["y"]).sum("y") / table.sum("y")

    features = graph.sort(graph.markov_boundary("y"))
    best = regression(*features)
    statements = [*collider_independences(graph, "y"), *strongest_independences(graph, "y")]
    assert statements
    for statement in statements:
        weights = law.sum([node for node in nodes if node not in features])
        left = [node for node in features if node not in statement.condition]
        averaged = (weights * best).sum(left) / weights.sum(left)
        expected = regression(*statement.given).broadcast_like(averaged).transpose(*averaged.dims)
        np.testing.assert_allclose(averaged, expected, rtol=1e-12)  # sums of at most 3^6 rounded terms


def test_the_simple_collider_and_a_boundary_without_one():
    partition = collider_partition(SIMPLE, "y")
    assert partition == ColliderPartition("y", children=("c",), spouses=("s",), parents=())
    assert str(partition.independence) == "y _||_ s"
    assert collider_independences(SIMPLE, "y") == strongest_independences(SIMPLE, "y") == (partition.independence,)
    assert SIMPLE.colliders("y") == SIMPLE.colliders() == {"c"} and SIMPLE.colliders("c") == frozenset()
    chain = CausalDAG([("p", "y"), ("y", "c")])
    assert collider_partition(chain, "y") == ColliderPartition("y", ("c",), (), ("p",))
    assert str(collider_partition(chain, "y").independence) == "y _||_ () | p"
    assert collider_independences(chain, "y") == strongest_independences(chain, "y") == ()


def test_an_edge_from_a_child_to_a_spouse_is_refused_with_an_explanation():
    message = (
        "`outcome` 'y' has no collider partition: it must be independent of its spouses given its parents ['p'], but "
        "'s' is an effect of it (y -> c -> s). What can be used instead: y _||_ t | p; y _||_ t; y _||_ s, t | c"
    )
    with pytest.raises(ColliderError, match=f"^{re.escape(message)}$") as caught:
        CAVEAT.collider_partition("y")
    assert caught.value.independences[0] == Independence("y", ("t",), ("p",))
    assert strongest_independences(CAVEAT, "y") == (Independence("y", ("s", "t"), ("c", "p")),)


@pytest.mark.parametrize(
    ("graph", "path"),
    [
        (CausalDAG([("y", "c"), ("c", "m"), ("m", "s"), ("y", "d"), ("s", "d")]), "y -> c -> m -> s"),
        (CausalDAG([("y", "c"), ("c", "m"), ("m", "s"), ("y", "d"), ("s", "d")], latent="m"), "y -> c -> m -> s"),
        (CausalDAG([("y", "c"), ("s", "c")], bidirected=[("y", "s")]), "y <-> s"),
        (CausalDAG([("u", "y"), ("u", "s")], latent="u"), "y <- u -> s"),
        (CausalDAG([("p", "y"), ("s", "p")], bidirected=[("p", "y")]), "y <-> p <- s"),
    ],
    ids=["not by an edge", "by a latent node", "hidden cause", "latent cause", "opened by a parent"],
)
def test_dependence_without_an_edge_from_child_to_spouse_is_found(graph, path):
    with pytest.raises(ColliderError) as caught:
        collider_partition(graph, "y")
    assert [str(found) for found in caught.value.paths.values()] == [path]


def test_nothing_to_use_is_said():
    with pytest.raises(ColliderError, match="instead: nothing, its Markov boundary holds no independence of it$"):
        collider_partition(CausalDAG(bidirected=[("y", "s")]), "y")


def test_a_hidden_cause_of_child_and_spouse_does_no_harm():
    graph = CausalDAG([("y", "c"), ("p", "y"), ("p", "c")], bidirected=[("c", "s")])
    assert collider_partition(graph, "y") == ColliderPartition("y", ("c",), ("s",), ("p",))
    assert graph.colliders("y") == {"c"}


def test_each_parent_may_need_its_own_spouse():
    """Fine statements, the partition's on all spouses together, and those that children make stronger."""
    graph = CausalDAG([("p", "y"), ("p", "s"), ("q", "y"), ("q", "t"), ("y", "c"), ("y", "d"), ("s", "c"), ("t", "d")])
    assert [str(some) for some in collider_independences(graph, "y")] == ["y _||_ s | p", "y _||_ t | q"]
    assert str(collider_partition(graph, "y").independence) == "y _||_ s, t | p, q"
    strongest = ["y _||_ t | p, s, q, c", "y _||_ s | p, q, t, d"]
    assert [str(some) for some in strongest_independences(graph, "y")] == strongest


def test_large_boundaries_without_hidden_variables_have_a_strongest_independence_for_each_spouse():
    pairs = [(f"p{i}", f"s{i}", f"c{i}") for i in range(10)]  # a boundary of 30 nodes
    graph = CausalDAG([edge for p, s, c in pairs for edge in [(p, "y"), (p, s), ("y", c), (s, c)]])
    strongest = strongest_independences(graph, "y")
    assert {some.of: set(some.condition) for some in strongest} == {
        (s,): graph.markov_boundary("y") - {c} for _, s, c in pairs
    }
    assert {(some.of, some.given) for some in collider_independences(graph, "y")} == {((s,), (p,)) for p, s, _ in pairs}


def test_nodes_that_were_not_measured_can_be_hidden():
    graph = CausalDAG([("p", "y"), ("m", "c"), ("y", "m"), ("s", "m"), ("q", "p")], latent="c")
    hidden = graph.hide(["m", "p"])
    assert hidden == CausalDAG(graph.edges, latent=["c", "m", "p"]) and hidden.nodes == graph.nodes
    assert graph.hide(()) == graph
    assert collider_partition(graph, "y") == ColliderPartition("y", ("m",), ("s",), ("p",))
    assert collider_partition(hidden, "y") == ColliderPartition("y", (), (), ("q",))
    with pytest.raises(UnknownNodeError, match=r"`nodes` names no node of the graph: \['z'\]"):
        graph.hide("z")


@pytest.mark.parametrize("question", [collider_partition, collider_independences, strongest_independences])
def test_the_outcome_must_be_observed(question):
    graph = CausalDAG([("u", "y")], latent="u")
    with pytest.raises(LatentNodeError, match="`outcome` must be observed"):
        question(graph, "u")
    with pytest.raises(UnknownNodeError, match="`outcome` names no node"):
        question(graph, "z")
    with pytest.raises(UnknownNodeError, match="`node` names no node"):
        graph.colliders("u")


@unchecked
def test_statements_and_partitions_hold_names_or_positions():
    statement = Independence("y", ["a", "b"], ("p",))
    assert statement.of == ("a", "b") and statement.condition == ("a", "b", "p")
    assert str(statement) == "y _||_ a, b | p" and str(Independence("y", (0, 1))) == "y _||_ 0, 1"
    partition = ColliderPartition("y", (0, 1), [2], (3,))
    assert partition.features == (0, 1, 2, 3) and partition.condition == (2, 3)
    assert partition.independence == Independence("y", (2,), (3,)) and hash(partition) is not None
    with pytest.raises(dataclasses.FrozenInstanceError):
        partition.spouses = ()


@unchecked
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Independence("y", "ab"), r"`of` must be a sequence of names, got the string 'ab': write \('ab',\)"),
        (lambda: Independence("y", ("a",), ("b", "a")), r"`given` must name each variable once, got 'a', .* in `of`"),
        (lambda: Independence("y", ("y",)), r"`of` must name each variable once, got 'y', which is in `outcome`"),
        (lambda: ColliderPartition("y", (0, 0), (1,)), r"`children` must name each variable once, got 0"),
        (lambda: ColliderPartition("y", (), (1,), (1,)), r"`parents` must .* got 1, which is in `spouses`"),
    ],
)
def test_names_that_make_no_statement_are_refused(make, message):
    with pytest.raises(CausalError, match=message):
        make()
