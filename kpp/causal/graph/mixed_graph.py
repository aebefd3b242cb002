"""The protocol of a graph in functions of graphs; with it `CausalDAG` can offer these functions as methods."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol, runtime_checkable

import networkx as nx

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
