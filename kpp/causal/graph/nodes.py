"""The protocol of a graph, and checks of the names of nodes, shared by all functions of graphs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Protocol, runtime_checkable

import networkx as nx

from kpp.causal import errors

#: Nodes of a graph.
NodeSet = frozenset[str]

#: A node, or several, by name.
Nodes = str | Collection[str]


@runtime_checkable
class MixedGraph(Protocol):
    """A graph with directed and bidirected edges and latent nodes; `CausalDAG` says what each member returns."""

    @property
    def nodes(self) -> tuple[str, ...]: ...

    @property
    def edges(self) -> tuple[tuple[str, str], ...]: ...

    @property
    def bidirected(self) -> frozenset[NodeSet]: ...

    @property
    def latent(self) -> NodeSet: ...

    @property
    def observed(self) -> NodeSet: ...

    @property
    def position(self) -> dict[str, int]: ...

    def sort(self, nodes: Iterable[str]) -> list[str]: ...

    def neighbors(self, node: str) -> list[tuple[str, str]]: ...

    def parents(self, nodes: Nodes) -> NodeSet: ...

    def children(self, nodes: Nodes) -> NodeSet: ...

    def ancestors(self, nodes: Nodes) -> NodeSet: ...

    def descendants(self, nodes: Nodes) -> NodeSet: ...

    def markov_boundary(self, node: str) -> NodeSet: ...

    def do(self, nodes: Nodes) -> MixedGraph: ...

    def canonical(self) -> nx.DiGraph: ...

    def project(self) -> MixedGraph: ...


def as_nodes(graph: MixedGraph, nodes: Nodes, argument: str) -> NodeSet:
    """Return one name or several as a set of nodes of the graph.

    Raises:
        UnknownNodeError: If a name is not a node of the graph.
    """
    names = [nodes] if isinstance(nodes, str) else list(nodes)
    unknown = [name for name in names if not isinstance(name, Hashable) or name not in graph.position]
    if unknown:
        raise errors.UnknownNodeError(argument, unknown, graph.nodes)
    return frozenset(names)


def reached(step: Callable[[str], Iterable[str]], sources: NodeSet, walls: NodeSet = frozenset()) -> NodeSet:
    """Return the nodes that repeated steps from some nodes reach, these included, without entering walls."""
    found, waiting = set(sources), list(sources)
    while waiting:
        new = set(step(waiting.pop())) - found - walls
        found |= new
        waiting.extend(new)
    return frozenset(found)


def check_disjoint(**sets: NodeSet) -> None:
    """Raise NotDisjointError if sets of nodes overlap."""
    for first, second in itertools.combinations(sets, 2):
        if sets[first] & sets[second]:
            raise errors.NotDisjointError(sets[first] & sets[second], first, second)


def check_question(graph: MixedGraph, treatment: Nodes, outcome: Nodes) -> tuple[NodeSet, NodeSet]:
    """Return the treatments and the outcomes of a causal question as sets of observed nodes.

    The treatments need not be causes of the outcomes: that there is no effect is an answer.

    Raises:
        UnknownNodeError: If a name is not a node of the graph.
        LatentNodeError: If one of them is latent.
        TreatmentIsOutcomeError: If a node is both.
        CausalError: If the treatments or the outcomes are empty.
    """
    treatments, outcomes = as_nodes(graph, treatment, "treatment"), as_nodes(graph, outcome, "outcome")
    for argument, nodes in (("treatment", treatments), ("outcome", outcomes)):
        if not nodes:
            raise errors.CausalError(f"`{argument}` must name at least one node, got none")
        if nodes & graph.latent:
            raise errors.LatentNodeError(argument, nodes & graph.latent)
    if treatments & outcomes:
        raise errors.TreatmentIsOutcomeError(treatments & outcomes)
    return treatments, outcomes


def check_effect(graph: MixedGraph, treatment: Nodes, outcome: Nodes) -> tuple[NodeSet, NodeSet]:
    """Return the treatments and the outcomes of a causal effect that need not be zero, as sets of observed nodes.

    Raises:
        UnreachableOutcomeError: If no treatment is an ancestor of an outcome.
        CausalError: See `check_question`.
    """
    treatments, outcomes = check_question(graph, treatment, outcome)
    if not graph.descendants(treatments) & outcomes:
        raise errors.UnreachableOutcomeError(treatments, outcomes)
    return treatments, outcomes
