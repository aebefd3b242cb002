"""Directed paths from treatments to outcomes: one such path, the nodes on them, and the nodes not to adjust for."""

from __future__ import annotations

from collections import deque

from kpp.causal.graph.nodes import MixedGraph, Nodes, NodeSet, as_nodes, reached
from kpp.causal.graph.separation import Path


def directed_path(graph: MixedGraph, source: Nodes, target: Nodes, avoiding: Nodes = ()) -> Path | None:
    """Return a shortest directed path from `source` to `target` that avoids some nodes, or None.

    Returns:
        The path, a single node if `source` and `target` share one; None if there is no path.

    Raises:
        UnknownNodeError: If a name is not a node of the graph.
    """
    targets, avoided = as_nodes(graph, target, "target"), as_nodes(graph, avoiding, "avoiding")
    starts = graph.sort(as_nodes(graph, source, "source") - avoided)
    came_from: dict[str, str | None] = dict.fromkeys(starts)
    queue = deque(starts)
    while queue:
        node = queue.popleft()
        if node in targets:
            nodes = [node]
            while (before := came_from[nodes[-1]]) is not None:
                nodes.append(before)
            return Path(reversed(nodes), ["->"] * (len(nodes) - 1))
        for child in graph.sort(graph.children(node) - avoided):
            if child not in came_from:
                came_from[child] = node
                queue.append(child)
    return None


def causal_nodes(graph: MixedGraph, *, treatment: Nodes, outcome: Nodes) -> NodeSet:
    """Return the nodes on proper causal paths, without the treatments.

    Returns:
        The mediators and the outcomes that a treatment reaches: cn(X, Y) in Henckel et al. (2022), section 2.

    Raises:
        UnknownNodeError: If a name is not a node of the graph.
    """
    treatments = as_nodes(graph, treatment, "treatment")
    after = reached(graph.children, graph.children(treatments) - treatments, treatments)
    return after & reached(graph.parents, as_nodes(graph, outcome, "outcome") - treatments, treatments)


def forbidden_nodes(graph: MixedGraph, *, treatment: Nodes, outcome: Nodes) -> NodeSet:
    """Return the nodes that no adjustment may hold: `causal_nodes` and all their descendants.

    Returns:
        Dpcp(X, Y) in van der Zander, Liskiewicz and Textor (2019), section 5.

    Raises:
        UnknownNodeError: If a name is not a node of the graph.
    """
    nodes = causal_nodes(graph, treatment=treatment, outcome=outcome)
    return graph.descendants(nodes)


def path_to_forbidden(graph: MixedGraph, treatments: NodeSet, outcomes: NodeSet, nodes: NodeSet) -> Path:
    """Return a directed path from a treatment to a forbidden node whose first edge is that of a proper causal path."""
    between = causal_nodes(graph, treatment=treatments, outcome=outcomes)
    below = next(path for path in (directed_path(graph, between, node) for node in graph.sort(nodes)) if path)
    above = directed_path(graph.do(treatments), treatments, below[0])
    assert above is not None, "a causal node is reached from a treatment"
    return Path([*above, *below[1:]], [*above.arrows, *below.arrows])
