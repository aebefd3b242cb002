"""Enumeration of all sets, and of all minimal sets, of allowed nodes that separate two sets of nodes.

Both enumerations have polynomial delay: the number of searches between one set and the next is linear in the nodes, and
    each search is linear in the edges (of the moral graph, for minimal sets). Earlier sets are not kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kpp.causal.graph.nodes import MixedGraph, NodeSet, reached

#: An undirected graph: the neighbors of each node.
Moral = dict[str, set[str]]


def minimal_separators(graph: MixedGraph, x: NodeSet, y: NodeSet, within: NodeSet) -> Iterator[NodeSet]:
    """Yield every minimal set within the allowed nodes that separates `x` from `y`, the one nearest to y first.

    They are the minimal vertex cuts, through allowed nodes, of the moral graph of An(x, y). A cut is determined by its
    side, the part of the graph that stays connected to y. Among all cuts whose side holds a connected set A there is a
    cut S nearest to y. The other cuts are found by adding one node of S to A at a time (Takata, 2010).
    """
    moral = moral_graph(graph, x | y)
    allowed = within & frozenset(moral)
    first = _nearest_cut(moral, x, y, y, allowed, frozenset())
    stack = [] if first is None else [(*first, NodeSet())]
    while stack:
        cut, side, beyond = stack.pop()
        yield cut
        following = []
        for node in graph.sort(cut - beyond):
            found = _nearest_cut(moral, x, y, side | {node}, allowed, beyond)
            if found is not None:
                following.append((*found, beyond))
            beyond |= {node}
        stack.extend(reversed(following))


def _nearest_cut(
    moral: Moral, x: NodeSet, y: NodeSet, side: NodeSet, allowed: NodeSet, beyond: NodeSet
) -> tuple[NodeSet, NodeSet] | None:
    """Return the cut nearest to y whose side holds a set, and this side; None if the side holds excluded nodes."""
    neighbors = moral.__getitem__
    grown = reached(neighbors, side, allowed - side)
    if grown & x:
        return None
    cut = boundary(moral, reached(neighbors, x, boundary(moral, grown)))
    left = reached(neighbors, y, cut)
    return None if left & beyond else (cut, left)


def sets_between(
    graph: MixedGraph, include: NodeSet, within: NodeSet, exists: Callable[[NodeSet, NodeSet], bool]
) -> Iterator[NodeSet]:
    """Yield every set between `include` and `within` for which `exists`, given two sets, finds a set between them.

    Each set is yielded once; the number of tests between two sets is linear in the nodes.
    """
    stack = [(include, within)] if include <= within and exists(include, within) else []
    while stack:
        required, allowed = stack.pop()
        if required == allowed:
            yield required
            continue
        node = graph.sort(allowed - required)[0]
        branches = [(required | {node}, allowed), (required, allowed - {node})]
        stack.extend(branch for branch in branches if exists(*branch))


def moral_graph(graph: MixedGraph, nodes: NodeSet) -> Moral:
    """Return the moral graph of some nodes and their ancestors; each hidden common cause is a node of it."""
    full, moral = graph.canonical(), dict[str, set[str]]()
    for node in graph.ancestors(nodes):
        family = {node, *full.pred[node]}
        for member in family:
            moral.setdefault(member, set()).update(family - {member})
    return moral


def boundary(moral: Moral, nodes: NodeSet) -> NodeSet:
    """Return the neighbors of a set in a moral graph that are not in it."""
    return frozenset(other for node in nodes for other in moral[node]) - nodes
