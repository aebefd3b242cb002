"""Causal graphs: directed acyclic graphs with latent nodes and bidirected edges, and their properties."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from itertools import combinations, product
from typing import Any

import networkx as nx

from kpp.causal.colliders import ColliderPartition, collider_partition
from kpp.causal.errors import CausalError, CycleError
from kpp.causal.graph.convert import as_edges, as_pair, from_numpyro
from kpp.causal.graph.drawing import draw_svg
from kpp.causal.graph.nodes import Nodes, NodeSet, as_nodes, reached
from kpp.causal.graph.separation import Path, d_connecting_path, d_separated
from kpp.causal.graph.text import from_dagitty, from_dot, from_lavaan, to_dot
from kpp.foundation.wording import named
from kpp.runtime.notebook import escaped
from kpp.storage.serialization import written_as_text


@written_as_text(to_dot)
class CausalDAG:
    """A causal graph: an edge `a -> b` says that a causes b, an edge `a <-> b` that a hidden variable causes both.

    Graphs are immutable; methods that change a graph return a new one. Nodes keep the order in which they were given,
    and every result is in this order, so the same graph gives the same answers in the same order.

    Args:
        edges: Pairs (cause, effect), a mapping from each cause to its effects, or a `networkx.DiGraph`.
        nodes: Nodes to add to those of the edges; they come first in the order.
        latent: The nodes that are not observed.
        bidirected: Pairs of nodes that share a hidden common cause.

    Raises:
        CycleError: If the edges form a cycle; the error shows it.
        UnknownNodeError: If a latent node is neither on an edge nor in `nodes`.
        CausalError: If a name is not a string, or an edge is not a pair of two different nodes.

    Example:
        >>> graph = kpp.causal.CausalDAG([("age", "dose"), ("age", "pain"), ("dose", "pain")])
        >>> sorted(graph.parents("pain"))
        ['age', 'dose']
    """

    def __init__(
        self,
        edges: Any = (),
        *,
        nodes: Iterable[str] = (),
        latent: Nodes = (),
        bidirected: Iterable[Collection[str]] = (),
    ):
        found, directed = as_edges(edges)
        hidden = [as_pair(pair, "bidirected") for pair in bidirected]
        graph: nx.DiGraph = nx.DiGraph()
        graph.add_nodes_from(nodes)
        graph.add_nodes_from(found)
        graph.add_edges_from(as_pair(edge, "edges") for edge in directed)
        graph.add_nodes_from(node for pair in hidden for node in pair)
        strange = [node for node in graph if not isinstance(node, str) or not node]
        if strange:
            raise CausalError(f"`nodes` and `edges` must hold non-empty strings as names, got {named(strange)}")
        if not nx.is_directed_acyclic_graph(graph):
            cycle = [cause for cause, _ in nx.find_cycle(graph)]
            raise CycleError([*cycle, cycle[0]])
        self._graph = nx.freeze(graph)
        self._bidirected = frozenset(frozenset(pair) for pair in hidden)
        self._latent: NodeSet = frozenset()  # set first: `as_nodes` reads the graph's nodes
        self._latent = as_nodes(self, latent, "latent")

    @classmethod
    def from_dot(cls, text: str) -> CausalDAG:
        """Read a graph in Graphviz's DOT language: see `kpp.causal.graph.text.from_dot`."""
        return cls(**from_dot(text))

    @classmethod
    def from_dagitty(cls, text: str) -> CausalDAG:
        """Read a graph in the language of dagitty: see `kpp.causal.graph.text.from_dagitty`."""
        return cls(**from_dagitty(text))

    @classmethod
    def from_lavaan(cls, text: str) -> CausalDAG:
        """Read a graph in the model syntax of lavaan: see `kpp.causal.graph.text.from_lavaan`."""
        return cls(**from_lavaan(text))

    @classmethod
    def from_numpyro(cls, model: Callable[..., Any], *args: Any, plate: str | None = None, **kwargs: Any) -> CausalDAG:
        """Read the graph of a NumPyro model's sites: see `kpp.causal.graph.convert.from_numpyro`."""
        return cls(**from_numpyro(model, args, kwargs, plate))

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """All nodes, in the order in which they were given."""
        return tuple(self._graph)

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """The directed edges, as pairs (cause, effect)."""
        return tuple(self._graph.edges)

    @property
    def digraph(self) -> nx.DiGraph:
        """A copy of the directed edges, latent nodes included."""
        return nx.DiGraph(self._graph)

    @property
    def bidirected(self) -> frozenset[NodeSet]:
        """The pairs with a hidden common cause."""
        return self._bidirected

    @property
    def latent(self) -> NodeSet:
        """The nodes that are not observed."""
        return self._latent

    @property
    def observed(self) -> NodeSet:
        """The nodes that are observed."""
        return frozenset(self._graph) - self._latent

    def __contains__(self, node: object) -> bool:
        return isinstance(node, str) and node in self._graph

    def __len__(self) -> int:
        return len(self._graph)

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, CausalDAG) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    @cached_property
    def _key(self) -> tuple[frozenset[Any], ...]:
        return frozenset(self._graph), frozenset(self._graph.edges), self._latent, self._bidirected

    def __repr__(self) -> str:
        hidden = sorted(self.sort(pair) for pair in self._bidirected)
        arrows = [f"{a} -> {b}" for a, b in self._graph.edges] + [f"{a} <-> {b}" for a, b in hidden]
        alone = [node for node in self._graph if not self._graph.degree(node) and not self._spouses[node]]
        latent = f", latent={self.sort(self._latent)}" if self._latent else ""
        return f"CausalDAG({'; '.join([*arrows, *alone])}{latent})"

    def _repr_html_(self) -> str:
        """Return a drawing for notebooks."""
        pairs = sorted(self.sort(pair) for pair in self._bidirected)
        return draw_svg(self._graph, pairs, self._latent, repr(self)) if len(self) else escaped(repr(self))

    @cached_property
    def position(self) -> dict[str, int]:
        """Map from each node to its position in the graph's order."""
        return {node: position for position, node in enumerate(self._graph)}

    @cached_property
    def _effects(self) -> dict[str, list[str]]:
        return {node: list(children) for node, children in self._graph.adjacency()}

    @cached_property
    def _causes(self) -> dict[str, list[str]]:
        return {node: list(self._graph.predecessors(node)) for node in self._graph}

    @cached_property
    def _spouses(self) -> dict[str, list[str]]:
        """Node -> the other ends of its bidirected edges, in the graph's order."""
        spouses: dict[str, list[str]] = {node: [] for node in self._graph}
        for pair in self._bidirected:
            for node, other in (tuple(pair), tuple(pair)[::-1]):
                spouses[node].append(other)
        return {node: self.sort(others) for node, others in spouses.items()}

    def sort(self, nodes: Iterable[str]) -> list[str]:
        """Return nodes in the graph's order."""
        return sorted(nodes, key=self.position.__getitem__)

    def topological_order(self) -> tuple[str, ...]:
        """Return all nodes, causes before effects, and otherwise in the graph's order."""
        return self._topological_order

    @cached_property
    def _topological_order(self) -> tuple[str, ...]:
        return tuple(nx.lexicographical_topological_sort(self._graph, key=self.position.__getitem__))

    def parents(self, nodes: Nodes) -> NodeSet:
        """Return the direct causes of one node, or of any of several."""
        return frozenset(a for node in as_nodes(self, nodes, "nodes") for a in self._causes[node])

    def children(self, nodes: Nodes) -> NodeSet:
        """Return the direct effects of one node, or of any of several."""
        return frozenset(b for node in as_nodes(self, nodes, "nodes") for b in self._effects[node])

    def spouses(self, nodes: Nodes) -> NodeSet:
        """Return the nodes that share a bidirected edge with one node, or with any of several."""
        return frozenset(b for node in as_nodes(self, nodes, "nodes") for b in self._spouses[node])

    def ancestors(self, nodes: Nodes) -> NodeSet:
        """Return the causes, direct or not, of one node or of any of several, and these nodes themselves."""
        return reached(self._causes.__getitem__, as_nodes(self, nodes, "nodes"))

    def descendants(self, nodes: Nodes) -> NodeSet:
        """Return the effects, direct or not, of one node or of any of several, and these nodes themselves."""
        return reached(self._effects.__getitem__, as_nodes(self, nodes, "nodes"))

    def neighbors(self, node: str) -> list[tuple[str, str]]:
        """Return the edges at a node, each as its arrow (`->`, `<-`, `<->`) and its other end."""
        if node not in self._links:
            as_nodes(self, node, "node")
        return self._links[node]

    @cached_property
    def _links(self) -> dict[str, list[tuple[str, str]]]:
        ends = (("->", self._effects), ("<-", self._causes), ("<->", self._spouses))
        return {node: [(arrow, other) for arrow, found in ends for other in found[node]] for node in self._graph}

    def colliders(self, node: str | None = None) -> NodeSet:
        """Return the nodes at which two arrowheads meet; a bidirected edge has an arrowhead at each end.

        Args:
            node: An observed node; if given, only its own colliders are returned: its children, in the projection, at
                which another arrowhead meets its own.

        Returns:
            The colliders, latent ones included if no node is given.

        Raises:
            UnknownNodeError: If the name is not an observed node of the graph.
        """
        if node is not None:
            projection = self.project()
            (node,) = as_nodes(projection, node, "node")
            return projection.children(node) & projection.colliders()
        return frozenset(node for node in self._graph if self._graph.in_degree(node) + len(self._spouses[node]) > 1)

    def hide(self, nodes: Nodes) -> CausalDAG:
        """Return the graph with some more nodes latent, such as nodes that were not measured."""
        hidden = self._latent | as_nodes(self, nodes, "nodes")
        return CausalDAG(self._graph, latent=hidden, bidirected=self._bidirected)

    def subgraph(self, nodes: Nodes) -> CausalDAG:
        """Return the graph of some nodes and the edges among them; the other nodes are deleted, not marginalized."""
        kept = as_nodes(self, nodes, "nodes")
        edges = [(a, b) for a, b in self._graph.edges if a in kept and b in kept]
        hidden = [pair for pair in self._bidirected if pair <= kept]
        return CausalDAG(edges, nodes=self.sort(kept), latent=self._latent & kept, bidirected=hidden)

    def do(self, nodes: Nodes) -> CausalDAG:
        """Return the graph after an intervention on nodes: without the edges into them, bidirected ones included."""
        fixed = as_nodes(self, nodes, "nodes")
        edges = [(a, b) for a, b in self._graph.edges if b not in fixed]
        return self._replace(edges, [pair for pair in self._bidirected if not pair & fixed])

    def without_outgoing(self, nodes: Nodes) -> CausalDAG:
        """Return the graph without the directed edges out of nodes; bidirected edges stay."""
        cut = as_nodes(self, nodes, "nodes")
        return self._replace([(a, b) for a, b in self._graph.edges if a not in cut], self._bidirected)

    def _replace(self, edges: Iterable[tuple[str, str]], bidirected: Iterable[NodeSet]) -> CausalDAG:
        return CausalDAG(edges, nodes=self._graph, latent=self._latent, bidirected=bidirected)

    def canonical(self) -> nx.DiGraph:
        """Return the graph with each bidirected edge replaced by a node that causes both ends, named after the edge."""
        graph = nx.DiGraph(self._graph)
        for a, b in sorted(self.sort(pair) for pair in self._bidirected):
            name = f"{a} <-> {b}"
            while name in graph:
                name += "'"
            graph.add_edges_from([(name, a), (name, b)])
        return graph

    def project(self) -> CausalDAG:
        """Return the latent projection: the graph over the observed nodes alone.

        It has an edge a -> b for each directed path from a to b whose inner nodes are latent. It has an edge a <-> b if
        such paths lead to a and to b from the same latent node, or from the two ends of a bidirected edge.

        Returns:
            A graph without latent nodes that implies the same separations among observed nodes and the same effects.
        """
        return self._projection

    @cached_property
    def _projection(self) -> CausalDAG:
        if not self._latent:
            return self
        reached: dict[str, NodeSet] = {}  # latent node -> the observed nodes that it reaches through latent ones
        for node in reversed(self.topological_order()):
            if node in self._latent:
                children = self._effects[node]
                reached[node] = frozenset().union(*(reached.get(child, {child}) for child in children))
        observed = self.sort(self.observed)
        pairs = [(a, child) for a in observed for child in self._effects[a]]
        edges = [(a, b) for a, child in pairs for b in self.sort(reached.get(child, {child}))]
        hidden = {frozenset(pair) for found in reached.values() for pair in combinations(found, 2)}
        for first, second in map(tuple, self._bidirected):
            ends = product(reached.get(first, {first}), reached.get(second, {second}))
            hidden |= {frozenset(pair) for pair in ends if pair[0] != pair[1]}
        return CausalDAG(edges, nodes=observed, bidirected=hidden)

    def districts(self, within: Nodes | None = None) -> tuple[NodeSet, ...]:
        """Return the c-components: the sets of observed nodes that bidirected edges of the projection connect.

        Args:
            within: The observed nodes to keep, with the projection's edges among them; all by default.

        Returns:
            The components, in the order of their first nodes.
        """
        projection = self.project()
        kept = projection.observed if within is None else as_nodes(projection, within, "within")
        linked: nx.Graph = nx.Graph()
        linked.add_nodes_from(projection.sort(kept))
        linked.add_edges_from(tuple(pair) for pair in projection.bidirected if pair <= kept)
        return tuple(frozenset(component) for component in nx.connected_components(linked))

    def markov_boundary(self, node: str) -> NodeSet:
        """Return the smallest set of observed nodes that separates a node from all other observed nodes.

        In the projection these are the node's district, its children and their districts, and the parents of all these
        nodes.

        Args:
            node: An observed node.

        Raises:
            UnknownNodeError: If the name is not an observed node of the graph.
        """
        projection = self.project()
        (node,) = as_nodes(projection, node, "node")
        seeds = projection.children(node) | {node}
        districts = frozenset().union(*(part for part in projection.districts() if part & seeds))
        return (districts | projection.parents(districts)) - {node}

    def collider_partition(self, outcome: str) -> ColliderPartition:
        """Return a node's children, spouses and parents: see `kpp.causal.collider_partition`."""
        return collider_partition(self, outcome)

    def d_separated(self, x: Nodes, y: Nodes, given: Nodes = ()) -> bool:
        """Return whether `given` separates `x` from `y`: see `kpp.causal.d_separated`."""
        return d_separated(self, x, y, given)

    def d_connecting_path(self, x: Nodes, y: Nodes, given: Nodes = ()) -> Path | None:
        """Return a path that `given` leaves open, or None: see `kpp.causal.d_connecting_path`."""
        return d_connecting_path(self, x, y, given)

    def to_dot(self) -> str:
        """Return the graph in Graphviz's DOT language, as `from_dot` reads it."""
        return to_dot(self)
