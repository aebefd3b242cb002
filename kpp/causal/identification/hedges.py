"""Hedges: structures in a causal graph that prove that an effect is not identified."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx

from kpp.causal.graph.dag import CausalDAG
from kpp.causal.graph.mixed_graph import NodeSet
from kpp.causal.identification.estimand import query_text


@dataclass(frozen=True)
class Hedge:
    r"""Two nested C-forests with the same roots, of which only the larger one holds treatments.

    A C-forest is a graph whose nodes are connected by bidirected edges and in which each node has at most one child;
    its roots are the nodes without a child. The forests F and :math:`F' \subseteq F` are a hedge for :math:`P(y \mid
    do(x))` if both have the roots R, F holds nodes of x, F' holds none, and R are ancestors of y in the graph without
    the edges into x. Then two causal models exist that have the same observed law and different effects.

    Args:
        graph: The graph of the question, without latent nodes.
        treatment: x. For a conditional effect these are the treatments and the conditioning nodes that can be exchanged
            for treatments by the second rule of do-calculus.
        outcome: y. For a conditional effect these are the outcomes and the other conditioning nodes.
        forest: F.
        subforest: F'.

    Raises:
        ValueError: If the forests are not a hedge; the message says which conditions fail.

    References:
        Shpitser & Pearl, Identification of joint interventional distributions in recursive semi-Markovian causal
        models, 2006, definitions 3 to 6 and theorem 4; Shpitser & Pearl, Identification of conditional interventional
        distributions, 2006, for conditional effects.
    """

    graph: CausalDAG
    treatment: NodeSet
    outcome: NodeSet
    forest: CausalDAG
    subforest: CausalDAG

    def __post_init__(self) -> None:
        causes = self.graph.do(self.treatment).ancestors(self.outcome)
        conditions = {
            "F is part of the graph": _is_part(self.forest, self.graph),
            "F' is part of F": _is_part(self.subforest, self.forest),
            "F is a C-forest": _is_c_forest(self.forest),
            "F' is a C-forest": _is_c_forest(self.subforest),
            "F and F' have the same roots": _roots(self.forest) == _roots(self.subforest),
            "F holds a treatment": bool(self.forest.observed & self.treatment),
            "F' holds no treatment": not self.subforest.observed & self.treatment,
            "the roots are causes of the outcomes that no treatment cuts off": self.roots <= causes,
        }
        broken = [condition for condition, holds in conditions.items() if not holds]
        if broken:
            raise ValueError(f"`forest` and `subforest` must be a hedge, but this fails: {'; '.join(broken)}")

    @property
    def roots(self) -> NodeSet:
        """R, the nodes of F without a child in F."""
        return _roots(self.forest)

    def __str__(self) -> str:
        query = query_text(self.outcome, self.treatment, frozenset())
        return f"F = {self.forest}, F' = {self.subforest} for {query}"


def hedge_between(graph: CausalDAG, treatment: NodeSet, outcome: NodeSet, larger: NodeSet, smaller: NodeSet) -> Hedge:
    """Return the hedge on two nested districts at which the identification algorithm stops.

    The bidirected edges are reduced to a spanning tree of the larger set that contains a spanning tree of the smaller
    one. A node of the smaller set keeps one child in it; another node keeps the next node on a shortest path to the
    smaller set. The graph has no latent nodes. Within the larger set, which is connected by bidirected edges, all nodes
    are ancestors of the smaller set, its part that remains without the treatments, which is connected too.
    """
    links: nx.Graph = nx.Graph()
    for first, second in (graph.sort(pair) for pair in graph.bidirected if pair <= larger):
        links.add_edge(first, second, weight=int(not {first, second} <= smaller))
    tree = sorted(graph.sort(pair) for pair in nx.minimum_spanning_edges(links, data=False))

    part = graph.subgraph(larger).digraph.reverse()
    ways = nx.multi_source_dijkstra_path(part, smaller)
    arrows = [(node, ways[node][-2]) for node in graph.sort(larger - smaller)]
    for node in graph.sort(smaller):
        arrows += [(node, child) for child in graph.sort(graph.children(node) & smaller)[:1]]

    forest = CausalDAG(arrows, nodes=graph.sort(larger), bidirected=tree)
    return Hedge(graph, treatment, outcome, forest, forest.subgraph(smaller))


def _roots(graph: CausalDAG) -> NodeSet:
    return frozenset(node for node in graph.nodes if not graph.children(node))


def _is_c_forest(graph: CausalDAG) -> bool:
    return len(graph.districts()) == 1 and all(len(graph.children(node)) < 2 for node in graph.nodes)


def _is_part(part: CausalDAG, whole: CausalDAG) -> bool:
    return (
        set(part.nodes) <= set(whole.nodes)
        and set(part.edges) <= set(whole.edges)
        and part.bidirected <= whole.bidirected
        and not part.latent
    )
