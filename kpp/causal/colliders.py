r"""Independences of an outcome that a causal graph implies, and that constrain the regression of the outcome.

The features of a regression are the outcome's Markov boundary: its children $X_1$, its parents $X_3$, and the rest,
$X_2$, its spouses. A spouse belongs to the boundary because its arrow and an arrow of the outcome meet at the same
node: the children are colliders. Spouses say nothing about the outcome $Y$ until a child is observed, so that

$$Y \perp X_2 \mid X_3, \qquad E[f(X) \mid X_2, X_3] = E[Y \mid X_3] \quad\text{for}\quad f(x) = E[Y \mid X = x].$$

An ordinary regression does not know this; collider regression (Bouabid, Fawkes and Sejdinovic, 2023) makes use of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from kpp.causal.errors import CausalError, ColliderError, LatentNodeError
from kpp.causal.graph.nodes import MixedGraph, NodeSet, as_nodes
from kpp.causal.graph.separating_sets import minimal_separators
from kpp.causal.graph.separation import d_connecting_path, d_separated, reachable

#: The name of a variable, or the position of its column in an array.
Name = str | int


@dataclasses.dataclass(frozen=True)
class Independence:
    r"""A statement on an outcome: $Y \perp A \mid B$. It prints as `Y _||_ A1, A2 | B1, B2`.

    For a regression $f(x) = E[Y \mid X = x]$ on features that hold A and B it says that $E[f(X) \mid A, B]$ is
    $E[Y \mid B]$. That constrains f if A and B are not all of the features.

    Args:
        outcome: The variable Y.
        of: The variables A that it is independent of; an empty tuple makes a statement without content.
        given: The variables B that are conditioned on.

    Raises:
        CausalError: If a variable is named twice, or names come as one string.

    Example:
        >>> print(causal.Independence("y", ("a",), ("b",)))
        y _||_ a | b
    """

    outcome: Name
    of: tuple[Name, ...]
    given: tuple[Name, ...] = ()

    def __post_init__(self) -> None:
        _keep_distinct(self, ("of", "given"))

    @property
    def condition(self) -> tuple[Name, ...]:
        """All variables on which the averaged regression is conditioned: `of`, then `given`."""
        return self.of + self.given

    def __str__(self) -> str:
        left = f"{self.outcome} _||_ {_listed(self.of) or '()'}"
        return f"{left} | {_listed(self.given)}" if self.given else left


@dataclasses.dataclass(frozen=True)
class ColliderPartition:
    r"""The Markov boundary of an outcome in three parts, with $Y \perp X_2 \mid X_3$.

    Args:
        outcome: The variable Y.
        children: Its children, $X_1$.
        spouses: The nodes of the boundary that are neither children nor parents, $X_2$; without spouses the partition
            does not constrain the regression.
        parents: Its parents, $X_3$.

    Raises:
        CausalError: If a variable is named twice, or names come as one string.
    """

    outcome: Name
    children: tuple[Name, ...]
    spouses: tuple[Name, ...]
    parents: tuple[Name, ...] = ()

    def __post_init__(self) -> None:
        _keep_distinct(self, ("children", "spouses", "parents"))

    @property
    def features(self) -> tuple[Name, ...]:
        """The boundary: children, then spouses, then parents."""
        return self.children + self.spouses + self.parents

    @property
    def condition(self) -> tuple[Name, ...]:
        """All variables on which the averaged regression is conditioned: spouses, then parents."""
        return self.spouses + self.parents

    @property
    def independence(self) -> Independence:
        """The statement: the outcome is independent of the spouses given the parents."""
        return Independence(self.outcome, self.spouses, self.parents)


def collider_partition(graph: MixedGraph, outcome: str) -> ColliderPartition:
    r"""Return the children, spouses and parents of an outcome, where the parents separate it from the spouses.

    $$Y \perp X_2 \mid X_3.$$

    Latent nodes are marginalized first, so a parent may be an indirect cause. The paper requires that no edge leads
    from a child to a spouse. That is not enough: a spouse must not be an effect of the outcome at all, also not through
    nodes outside the boundary, and the two must not have a hidden common cause.

    Args:
        graph: The graph.
        outcome: An observed node.

    Returns:
        The partition of its Markov boundary, each part in the graph's order.

    Raises:
        ColliderError: If the parents leave a path to a spouse open; the error shows the paths and what can be used
            instead.
        UnknownNodeError: If the outcome is not a node of the graph.
        LatentNodeError: If it is latent.

    References:
        Bouabid, Fawkes and Sejdinovic (2023), "Returning the favour: when regression benefits from probabilistic
        causal knowledge", section 5, figure 5.
    """
    projection, boundary = _boundary(graph, outcome)
    parents, children = projection.parents(outcome), projection.children(outcome)
    spouses = graph.sort(boundary - parents - children)
    paths = {spouse: d_connecting_path(graph, outcome, spouse, parents) for spouse in spouses}
    blamed = {spouse: path for spouse, path in paths.items() if path is not None}
    given = tuple(graph.sort(parents))
    if not blamed:
        return ColliderPartition(outcome, tuple(graph.sort(children)), tuple(spouses), given)
    others = Independence(outcome, tuple(spouse for spouse in spouses if spouse not in blamed), given)
    usable = dict.fromkeys([others] * bool(others.of) + [*collider_independences(graph, outcome)])
    raise ColliderError(outcome, given, blamed, tuple(usable))


def collider_independences(graph: MixedGraph, outcome: str) -> tuple[Independence, ...]:
    r"""Return the independences of an outcome within its Markov boundary, with the fewest possible conditions.

    A statement $Y \perp A \mid B$ is returned for each subset B of the boundary that separates Y from some node of the
    boundary while no proper subset of B separates them. A holds all nodes of the boundary that B separates from Y. No
    statement follows from another one by leaving out nodes of A or by moving them to B. These statements have few
    conditions, so they are the statements to test on data.

    Args:
        graph: The graph; it need not have a collider partition.
        outcome: An observed node.

    Returns:
        The statements, those with fewer conditions first; none if the outcome is adjacent to its whole boundary.

    Raises:
        UnknownNodeError: If the outcome is not a node of the graph.
        LatentNodeError: If it is latent.

    Example:
        >>> collider = CausalDAG([("y", "sign"), ("cause", "sign")])
        >>> print(*causal.collider_independences(collider, "y"))
        y _||_ cause
    """
    projection, boundary = _boundary(graph, outcome)
    conditions = {
        given
        for node in boundary
        for given in minimal_separators(projection, frozenset([outcome]), frozenset([node]), boundary - {node})
    }
    return _statements(
        graph, outcome, {given: boundary - given - reachable(projection, outcome, given) for given in conditions}
    )


def strongest_independences(graph: MixedGraph, outcome: str) -> tuple[Independence, ...]:
    r"""Return the independences of an outcome within its Markov boundary that constrain its regression the most.

    The constraint $E[f(X) \mid A, B] = E[Y \mid B]$ implies the constraints of all statements on fewer variables:
    average it over the other variables. So a statement $Y \perp A \mid B$ is returned for each largest set $A \cup B$
    that has such a statement; B is the Markov boundary of Y within the set. The constraints of all other independences
    in the boundary follow, the constraint of the collider partition included. The price is a conditional expectation
    given more variables.

    Args:
        graph: The graph; it need not have a collider partition.
        outcome: An observed node.

    Returns:
        The statements, those with fewer conditions first; none if the outcome is adjacent to its whole boundary.

    Raises:
        UnknownNodeError: If the outcome is not a node of the graph.
        LatentNodeError: If it is latent.

    Example:
        >>> collider = CausalDAG([("y", "sign"), ("cause", "sign")])
        >>> print(*causal.strongest_independences(collider, "y"))
        y _||_ cause
    """
    projection, boundary = _boundary(graph, outcome)
    found = {
        given | {node} for node in boundary for given in _large_separators(projection, outcome, node, boundary - {node})
    }
    largest = [some for some in found if not any(some < other for other in found)]
    free = [frozenset(n for n in some if d_separated(projection, outcome, n, some - {n})) for some in largest]
    return _statements(graph, outcome, {some - of: of for some, of in zip(largest, free, strict=True)})


def _boundary(graph: MixedGraph, outcome: str) -> tuple[MixedGraph, NodeSet]:
    """Return the projection of a graph, and in it the Markov boundary of an outcome."""
    if as_nodes(graph, outcome, "outcome") & graph.latent:
        raise LatentNodeError("outcome", [outcome])
    return graph.project(), graph.markov_boundary(outcome)


def _large_separators(graph: MixedGraph, outcome: str, node: str, within: NodeSet) -> Iterator[NodeSet]:
    """Yield sets that separate a node from the outcome; all largest such sets are among them.

    If a path is open given a set, it is closed given a part of the set only if a collider on the path has no descendant
    in that part; each collider is tried. A collider that is an ancestor of the outcome or of the node does not help: an
    open path then leads from it directly to the outcome or the node. Without hidden variables only one collider has to
    be tried, a common child of both.
    """
    ends = {outcome, node}
    waiting, seen = [within], {within}
    while waiting:
        given = waiting.pop()
        path = d_connecting_path(graph, outcome, node, given)
        if path is None:
            yield given
            continue
        smaller = {given - below for below in map(graph.descendants, path.colliders) if not below & ends} - seen
        seen |= smaller
        waiting.extend(smaller)


def _statements(graph: MixedGraph, outcome: str, found: dict[NodeSet, NodeSet]) -> tuple[Independence, ...]:
    """Return one statement per set of conditions and the nodes that it separates, the fewest conditions first."""
    in_order = sorted(found, key=lambda given: (len(given), sorted(map(graph.position.__getitem__, given))))
    return tuple(Independence(outcome, tuple(graph.sort(found[given])), tuple(graph.sort(given))) for given in in_order)


def _keep_distinct(statement: Independence | ColliderPartition, fields: Iterable[str]) -> None:
    """Convert the fields to tuples; raise CausalError if a variable is named twice."""
    known: dict[Name, str] = {statement.outcome: "outcome"}
    for field in fields:
        names = getattr(statement, field)
        if isinstance(names, str):
            raise CausalError(f"`{field}` must be a sequence of names, got the string {names!r}: write ({names!r},)")
        object.__setattr__(statement, field, tuple(names))
        for name in getattr(statement, field):
            if name in known:
                raise CausalError(f"`{field}` must name each variable once, got {name!r}, which is in `{known[name]}`")
            known[name] = field


def _listed(names: Iterable[Name]) -> str:
    return ", ".join(map(str, names))
