"""Markov equivalence classes: causal graphs that imply the same independences, so that no table tells them apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any

from kpp.causal.errors import CausalError
from kpp.causal.graph.convert import as_pair
from kpp.causal.graph.dag import CausalDAG
from kpp.causal.graph.nodes import as_nodes
from kpp.causal.graph.text import from_pdag
from kpp.foundation.wording import named

_Edges = list[tuple[str, str]]


class CPDAG:
    """A class of causal graphs without hidden nodes that imply the same independences, as learned from data.

    All its graphs have the same edges up to their directions, and the same unshielded colliders: nodes with two causes
    that share no edge. Directed edges may also say what is known beyond the class, such as an order in time.

    Args:
        directed: The edges that all graphs share, pairs (cause, effect).
        undirected: The edges whose direction is open, pairs.
        nodes: Nodes to add to those of the edges; they come first in the order.

    Raises:
        CausalError: If an edge is not a pair or is given twice, or no graph of this kind has these edges.

    Example:
        >>> chain = CausalDAG([("age", "dose"), ("dose", "pain")])
        >>> len(list(causal.CPDAG.of(chain).graphs()))
        3
    """

    def __init__(self, directed: Iterable[Any] = (), undirected: Iterable[Any] = (), *, nodes: Iterable[str] = ()):
        self.directed: _Edges = [as_pair(edge, "directed") for edge in directed]
        self.undirected: _Edges = [as_pair(edge, "undirected") for edge in undirected]
        edges = self.directed + self.undirected
        self._empty = CausalDAG(nodes=[*nodes, *(node for edge in edges for node in edge)])
        self._adjacent = {frozenset(edge) for edge in edges if edge[0] != edge[1]}
        if len(self._adjacent) < len(edges):
            raise CausalError(f"`directed` and `undirected` must join different nodes, and once, got {named(edges)}")
        self._colliders = self._unshielded(self.directed)
        if next(self.graphs(), None) is None:
            raise CausalError(
                f"no graph without a cycle and without further unshielded colliders has the edges of {self}"
            )

    @classmethod
    def from_dagitty(cls, text: str) -> CPDAG:
        """Read a class in the language of dagitty, ``pdag {x -> y; y -- z}``; raise GraphSyntaxError if it is none."""
        return cls(**from_pdag(text))

    @classmethod
    def of(cls, graph: CausalDAG) -> CPDAG:
        """Return the class of a graph; raise CausalError if it has hidden causes."""
        if graph.latent or graph.bidirected:
            raise CausalError(f"`graph` must have neither latent nodes nor bidirected edges, got {graph}")
        whole = cls(graph.edges, nodes=graph.nodes)
        fixed = {(cause, node) for causes, node in whole._colliders for cause in causes}
        lines = [edge for edge in graph.edges if edge not in fixed]
        free = [
            (a, b) for a, b in lines if whole._extension([*fixed, (b, a)], [edge for edge in lines if edge != (a, b)])
        ]
        return cls([edge for edge in graph.edges if edge not in free], free, nodes=graph.nodes)

    def __repr__(self) -> str:
        edges = [f"{a} -> {b}" for a, b in self.directed] + [f"{a} -- {b}" for a, b in self.undirected]
        return f"CPDAG({'; '.join(edges)})"

    def graphs(self, parents_of: str | None = None) -> Iterator[CausalDAG]:
        """Iterate over the graphs of the class, each found in a time that is polynomial in the number of nodes.

        Args:
            parents_of: A node: one graph is returned for each set of its parents. Where a treatment has the same
                parents, it has the same effects (the IDA algorithm).

        References:
            Dor and Tarsi (1992), A simple algorithm to construct a consistent extension of a partially oriented graph.
            Maathuis, Kalisch and Bühlmann (2009), Estimating high-dimensional intervention effects from observational
            data, section 3.
        """
        ends = self._empty.observed if parents_of is None else as_nodes(self._empty, parents_of, "parents_of")
        lines = [edge for edge in self.undirected if not ends.isdisjoint(edge)]
        yield from self._directions(self.directed, lines, [edge for edge in self.undirected if edge not in lines])

    def _directions(self, directed: _Edges, undirected: _Edges, others: _Edges) -> Iterator[CausalDAG]:
        """Iterate over graphs with the directed edges, one for all directions of the undirected ones."""
        edges = self._extension(directed, undirected + others)
        if edges is not None and not undirected:
            yield CausalDAG(edges, nodes=self._empty.nodes)
        elif edges is not None:
            (a, b), *rest = undirected
            for edge in ((a, b), (b, a)):
                yield from self._directions([*directed, edge], rest, others)

    def _extension(self, directed: _Edges, undirected: _Edges) -> _Edges | None:
        """Return the edges of a graph of the class that has the directed edges; None if there is no such graph.

        Nodes are removed one after another. The next one has no effects among those that are left, and all nodes at
        its undirected edges, which become its causes, are adjacent to all its neighbors.
        """
        left, arrows, lines, found = set(self._empty.nodes), list(directed), list(undirected), list(directed)
        while left:
            last = next((node for node in left if self._may_be_last(node, arrows, lines)), None)
            if last is None:
                return None
            found += [(a if b == last else b, last) for a, b in lines if last in (a, b)]
            arrows, lines = ([edge for edge in edges if last not in edge] for edges in (arrows, lines))
            left.remove(last)
        return found if self._unshielded(found) == self._colliders else None

    def _may_be_last(self, node: str, arrows: _Edges, lines: _Edges) -> bool:
        causes = {end for edge in lines if node in edge for end in edge} - {node}
        neighbors = causes | {a for a, b in arrows if b == node}
        return all(a != node for a, _ in arrows) and all(
            a == b or frozenset((a, b)) in self._adjacent for a in causes for b in neighbors
        )

    def _unshielded(self, edges: Iterable[tuple[str, str]]) -> set[tuple[frozenset[str], str]]:
        """Return the unshielded colliders of directed edges, as pairs of the two causes and the node."""
        pairs = [(frozenset((a, c)), b) for (a, b), (c, d) in combinations(edges, 2) if b == d]
        return {(causes, node) for causes, node in pairs if causes not in self._adjacent}
