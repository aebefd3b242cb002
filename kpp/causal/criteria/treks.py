"""The rank that a graph gives to the covariance of two sets of nodes: the number of separate treks between them.

A trek is a directed path backwards from one node to a common cause, and one forwards from there to the other node.
"""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx

from kpp.causal.graph.dag import CausalDAG
from kpp.causal.graph.mixed_graph import NodeSet

_SOURCE, _SINK = "source", "sink"

#: A node on the way back from the first set, or forth to the second, as it is entered or left.
_Stop = tuple[str, str, str]


def covariance_rank(graph: CausalDAG, first: NodeSet, second: NodeSet) -> int:
    r"""Return the rank of the covariance of two sets in almost every linear model of a graph.

    It is the largest number of treks from the first set to the second of which no two share a node on their ways back,
    nor on their ways forth: a maximum flow through two copies of the graph in which each node has the capacity 1.

    References:
        Sullivant, Talaska and Draisma, Trek separation for Gaussian graphical models, 2010, theorem 2.8.
    """
    network: nx.DiGraph = nx.DiGraph()
    network.add_nodes_from([_SOURCE, _SINK])
    network.add_edges_from(_edges(graph.canonical()), capacity=1)
    network.add_edges_from(((_SOURCE, ("back", node, "in")) for node in first), capacity=1)
    network.add_edges_from(((("forth", node, "out"), _SINK) for node in second), capacity=1)
    return int(nx.maximum_flow_value(network, _SOURCE, _SINK))


def _edges(graph: nx.DiGraph) -> Iterator[tuple[_Stop, _Stop]]:
    for node in graph:
        for way in ("back", "forth"):
            yield (way, node, "in"), (way, node, "out")
        yield ("back", node, "out"), ("forth", node, "in")
    for cause, effect in graph.edges:
        yield ("back", effect, "out"), ("back", cause, "in")
        yield ("forth", cause, "out"), ("forth", effect, "in")
