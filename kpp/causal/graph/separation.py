"""d-separation: whether a set of nodes separates others, and an open path if it does not.

All functions search the reachable nodes, in time linear in the edges. The state of a search is a node and whether the
last edge points at it; these two decide where a path may go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from kpp.causal.errors import CausalError
from kpp.causal.graph.nodes import MixedGraph, Nodes, NodeSet, as_nodes, check_disjoint
from kpp.foundation.wording import named

#: A node, and whether the last edge of the search points at it.
State = tuple[str, bool]


class Path(tuple[str, ...]):
    """The nodes of a path, in order; it prints with its arrows: `x -> m <-> y`.

    Args:
        nodes: The nodes.
        arrows: The arrow between each node and the next: `->`, `<-` or `<->`.
    """

    arrows: tuple[str, ...]

    def __new__(cls, nodes: Iterable[str], arrows: Iterable[str]) -> Path:
        """Join nodes and arrows; the number of arrows is the number of nodes less 1."""
        path = super().__new__(cls, nodes)
        path.arrows = tuple(arrows)
        if len(path.arrows) != max(len(path) - 1, 0):
            raise ValueError(f"`arrows` must be one fewer than `nodes`, got {len(path.arrows)} for {len(path)}")
        return path

    @property
    def colliders(self) -> tuple[str, ...]:
        """The inner nodes at which both arrows point."""
        met = zip(self[1:], self.arrows, self.arrows[1:], strict=False)
        return tuple(node for node, into, out in met if into != "<-" and out != "->")

    def __str__(self) -> str:
        return " ".join([self[0], *(f"{arrow} {node}" for arrow, node in zip(self.arrows, self[1:], strict=True))])


def d_connecting_path(graph: MixedGraph, x: Nodes, y: Nodes, given: Nodes = ()) -> Path | None:
    """Return a shortest path from `x` to `y` that `given` leaves open, or None if `given` closes all paths.

    A path is open if each collider on it is an ancestor of `given` (or in it) and no other node on it is in `given`.

    Args:
        graph: The graph.
        x: The nodes to start from.
        y: The nodes to reach.
        given: The nodes conditioned on.

    Raises:
        UnknownNodeError: If a name is not a node of the graph.
        NotDisjointError: If two of the sets share a node.

    Example:
        >>> print(causal.d_connecting_path(graph, "dose", "pain", given=["age"]))
        dose -> pain
    """
    sources, targets = as_nodes(graph, x, "x"), as_nodes(graph, y, "y")
    closed = as_nodes(graph, given, "given")
    check_disjoint(x=sources, y=targets, given=closed)
    if not targets:
        return None
    came_from = _search(graph, sources, targets, closed, graph.ancestors(closed), None)
    # A walk found by breadth-first search visits no node twice: a walk that did would not be a shortest one.
    ends = [state for state in came_from if state[0] in targets]
    return _trace(came_from, ends[0]) if ends else None


def reachable(graph: MixedGraph, x: Nodes, given: Nodes = ()) -> NodeSet:
    """Return the nodes that `given` does not separate from `x`, those of `x` included.

    Raises:
        UnknownNodeError: If a name is not a node of the graph.
        NotDisjointError: If the sets share a node.
    """
    sources, closed = as_nodes(graph, x, "x"), as_nodes(graph, given, "given")
    check_disjoint(x=sources, given=closed)
    return frozenset(on_open_walks(graph, sources, closed) - closed)


def d_separated(graph: MixedGraph, x: Nodes, y: Nodes, given: Nodes = ()) -> bool:
    """Return whether `given` separates `x` from `y`: whether it closes every path between them.

    Args:
        graph: The graph.
        x: Nodes.
        y: Nodes.
        given: The nodes conditioned on.

    Raises:
        UnknownNodeError: If a name is not a node of the graph.
        NotDisjointError: If two of the sets share a node.

    Example:
        >>> causal.d_separated(smoking, "smoking", "cancer", given=["tar"])
        False
    """
    sources, targets = as_nodes(graph, x, "x"), as_nodes(graph, y, "y")
    closed = as_nodes(graph, given, "given")
    check_disjoint(x=sources, y=targets, given=closed)
    return not targets or targets.isdisjoint(on_open_walks(graph, sources, closed, targets=targets))


def minimal_separator(
    graph: MixedGraph, x: Nodes, y: Nodes, *, include: Nodes = (), within: Nodes | None = None
) -> NodeSet | None:
    """Return a minimal set that holds `include` and separates `x` from `y`: no proper subset with `include` does.

    If any allowed set separates them, then so does Z0 = An(x, y, include) & within. The nodes of Z0 that can be reached
    from x are kept, and then, among these, the nodes that can be reached from y: algorithm FINDMINSEP of van der Zander
    and Liskiewicz (2020), "Finding minimal d-separators in linear time".

    Args:
        graph: The graph.
        x: Nodes.
        y: Nodes.
        include: Nodes that the set must hold.
        within: The nodes that the set may hold, by default the observed nodes; nodes of x and y are left out.

    Returns:
        The minimal set that is nearest to x, or None if no set separates.

    Raises:
        UnknownNodeError: If a name is not a node of the graph.
        NotDisjointError: If two of `x`, `y` and `include` share a node.
        CausalError: If `include` is not inside `within`.

    Example:
        >>> chain = CausalDAG([("a", "b"), ("b", "c")])
        >>> causal.minimal_separator(chain, "a", "c")
        frozenset({'b'})
    """
    first, second, required = as_nodes(graph, x, "x"), as_nodes(graph, y, "y"), as_nodes(graph, include, "include")
    allowed = graph.observed if within is None else as_nodes(graph, within, "within")
    check_disjoint(x=first, y=second, include=required)
    if not required <= allowed:
        raise CausalError(f"`include` must hold nodes that are allowed, got {named(graph.sort(required - allowed))}")
    found = nearest_separators(graph, first, second, required, allowed - first - second)
    return None if found is None else found[1]


def is_minimal_separator(graph: MixedGraph, x: Nodes, y: Nodes, given: Nodes, *, include: Nodes = ()) -> bool:
    """Return whether a set separates `x` from `y` while none of its proper subsets that hold `include` does.

    Args:
        graph: The graph.
        x: Nodes.
        y: Nodes.
        given: The set.
        include: Nodes of the set that are never left out.

    Returns:
        Whether the set separates, and leaving out any node that is not in `include` opens a path.

    Raises:
        UnknownNodeError: If a name is not a node of the graph.
        NotDisjointError: If two of `x`, `y` and `given` share a node.
        CausalError: If `include` is not inside `given`.

    Example:
        >>> chain = CausalDAG([("a", "b"), ("b", "c")])
        >>> causal.is_minimal_separator(chain, "a", "c", ["b"])
        True
    """
    closed = as_nodes(graph, given, "given")
    return d_separated(graph, x, y, closed) and minimal_separator(graph, x, y, include=include, within=closed) == closed


def nearest_separators(
    graph: MixedGraph, x: NodeSet, y: NodeSet, include: NodeSet, allowed: NodeSet
) -> tuple[NodeSet, NodeSet] | None:
    """Return the separator of ancestors nearest to x, and the part of it that y reaches; None if none separates.

    Both hold the nodes of `include`, and else only nodes of `allowed`, which holds no nodes of x or y.
    """
    ancestral = graph.ancestors(x | y | include)
    start = allowed & ancestral
    from_x = on_open_walks(graph, x, start, ancestral)
    if from_x & y:
        return None
    near = start & (from_x | include)
    from_y = on_open_walks(graph, y, near, ancestral)
    return near, near & (from_y | include)


def some_separator(graph: MixedGraph, x: NodeSet, y: NodeSet, include: NodeSet, within: NodeSet) -> NodeSet | None:
    """Return a set between `include` and `within` that separates `x` from `y`, or None if there is none.

    If any set separates them, the allowed ancestors do (van der Zander, Liskiewicz and Textor, 2019, section 3): Z =
    An(x, y, include) & within. `within` holds `include` and no nodes of x or y.
    """
    candidate = graph.ancestors(x | y | include) & within
    return candidate if d_separated(graph, x, y, candidate) else None


def on_open_walks(
    graph: MixedGraph, sources: NodeSet, closed: NodeSet, inside: NodeSet | None = None, targets: NodeSet = frozenset()
) -> set[str]:
    """Return the nodes on open walks from some nodes, with the closed nodes at which the walks end or turn.

    The closed nodes among them are those that the other closed nodes do not separate from the sources. The walks may
    visit the nodes `inside`, which must hold the ancestors of each of its nodes; by default all. The search stops once
    it reaches one of the `targets`, and the other nodes may then be missing.
    """
    return {node for node, _ in _search(graph, sources, targets, closed, closed, inside)}


def _search(
    graph: MixedGraph, sources: NodeSet, targets: NodeSet, closed: NodeSet, opened: NodeSet, inside: NodeSet | None
) -> dict[State, tuple[State, str] | None]:
    """Search breadth-first along open walks, until a target: state -> the state before and the arrow between them.

    `opened` holds the colliders at which a walk may go on. With the ancestors of the closed nodes, a shortest walk is a
    path. With the closed nodes alone, which are known without a search, the same nodes are reached: the walk goes down
    from a collider to the closed node and back up (the "Bayes ball"; Shachter, 1998). If `inside` is given, the walks
    stay in it; it must hold the ancestors of each of its nodes.
    """
    starts = [(node, False) for node in graph.sort(sources)]
    came_from: dict[State, tuple[State, str] | None] = dict.fromkeys(starts)
    queue = deque(starts)
    while queue:
        state = node, pointed_at = queue.popleft()
        down = node in sources or node not in closed
        up = node in opened if pointed_at and node not in sources else down  # at a collider, if the walk came down
        for arrow, other in graph.neighbors(node) if up or down else ():
            following = other, arrow != "<-"
            if (down if arrow == "->" else up) and following not in came_from and (inside is None or other in inside):
                came_from[following] = state, arrow
                if other in targets:
                    return came_from
                queue.append(following)
    return came_from


def _trace(came_from: dict[State, tuple[State, str] | None], end: State) -> Path:
    """Follow a search back to where it started."""
    nodes, arrows = [end[0]], []
    step = came_from[end]
    while step is not None:
        state, arrow = step
        nodes.append(state[0])
        arrows.append(arrow)
        step = came_from[state]
    return Path(reversed(nodes), reversed(arrows))
