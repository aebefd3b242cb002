r"""The three rules of do-calculus. Each check returns the graph that it looks at, and an open path if the rule fails.

For disjoint sets of nodes, a rule says when two laws after an intervention on x agree (Pearl, 2009, theorem 3.4.1):

1. $p(y \mid do(x), z, w) = p(y \mid do(x), w)$: observations of z may be dropped, or inserted;
2. $p(y \mid do(x), do(z), w) = p(y \mid do(x), z, w)$: actions may be exchanged for observations;
3. $p(y \mid do(x), do(z), w) = p(y \mid do(x), w)$: actions may be dropped, or inserted.

Each rule holds in every law with the graph if x and w separate y from z in a graph from which some edges are removed.
Otherwise it fails in some law.
"""

from __future__ import annotations

import dataclasses

from kpp.causal.graph.dag import CausalDAG
from kpp.causal.graph.nodes import Nodes, NodeSet, as_nodes, check_disjoint
from kpp.causal.graph.separation import Path, d_connecting_path


@dataclasses.dataclass(frozen=True)
class RuleCheck:
    """Whether a rule of do-calculus applies; its truth value is the result.

    Args:
        equation: The two laws that the rule equates, as text.
        holds: Whether it applies.
        graph: The graph without the edges that the rule removes.
        witness: A path from y to z that x and w leave open in that graph; None if the rule applies.
    """

    equation: str
    holds: bool
    graph: CausalDAG
    witness: Path | None

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        return f"{self.equation}: {'holds' if self.holds else f'fails, see the path {self.witness}'}"


def insert_observation(graph: CausalDAG, y: Nodes, x: Nodes, z: Nodes, w: Nodes = ()) -> RuleCheck:
    r"""Check rule 1: $p(y \mid do(x), z, w) = p(y \mid do(x), w)$.

    It holds if x and w separate y from z in the graph without the edges into x.

    Args:
        graph: The graph.
        y: The nodes whose law is given.
        x: The nodes intervened on; may be empty.
        z: The nodes whose observation is inserted or dropped.
        w: Other nodes conditioned on.

    Raises:
        UnknownNodeError: If a name is not a node of the graph.
        NotDisjointError: If two of the sets share a node.

    Example:
        >>> chain = CausalDAG([("a", "b"), ("b", "c")])
        >>> causal.insert_observation(chain, "c", "b", "a")
        RuleCheck(equation='P(c | do(b), a) = P(c | do(b))', holds=True, graph=CausalDAG(b -> c; a), witness=None)
    """
    ys, xs, zs, ws = _checked(graph, y, x, z, w)
    equation = f"{_law(graph, ys, xs, zs | ws)} = {_law(graph, ys, xs, ws)}"
    return _check(equation, graph.do(xs), ys, zs, xs | ws)


def exchange_action(graph: CausalDAG, y: Nodes, x: Nodes, z: Nodes, w: Nodes = ()) -> RuleCheck:
    r"""Check rule 2: $p(y \mid do(x), do(z), w) = p(y \mid do(x), z, w)$.

    It holds if x and w separate y from z in the graph without the edges into x and those out of z.

    Args:
        graph: The graph.
        y: The nodes whose law is given.
        x: The nodes intervened on on both sides; may be empty.
        z: The nodes intervened on or observed.
        w: Other nodes conditioned on.

    Raises:
        UnknownNodeError: If a name is not a node of the graph.
        NotDisjointError: If two of the sets share a node.

    Example:
        >>> rule = causal.exchange_action(graph, "pain", [], "dose", ["age"])
        >>> rule.equation, rule.holds
        ('P(pain | do(dose), age) = P(pain | age, dose)', True)
    """
    ys, xs, zs, ws = _checked(graph, y, x, z, w)
    equation = f"{_law(graph, ys, xs | zs, ws)} = {_law(graph, ys, xs, zs | ws)}"
    return _check(equation, graph.do(xs).without_outgoing(zs), ys, zs, xs | ws)


def insert_action(graph: CausalDAG, y: Nodes, x: Nodes, z: Nodes, w: Nodes = ()) -> RuleCheck:
    r"""Check rule 3: $p(y \mid do(x), do(z), w) = p(y \mid do(x), w)$.

    It holds if x and w separate y from z in the graph without the edges into x and without the edges into Z(w). Z(w)
    holds the nodes of z that are not ancestors of w in the graph without the edges into x.

    Args:
        graph: The graph.
        y: The nodes whose law is given.
        x: The nodes intervened on on both sides; may be empty.
        z: The nodes on which an intervention is inserted or dropped.
        w: Other nodes conditioned on.

    Raises:
        UnknownNodeError: If a name is not a node of the graph.
        NotDisjointError: If two of the sets share a node.

    Example:
        >>> rule = causal.insert_action(graph, "age", [], "dose")
        >>> rule.equation, rule.holds
        ('P(age | do(dose)) = P(age)', True)
    """
    ys, xs, zs, ws = _checked(graph, y, x, z, w)
    equation = f"{_law(graph, ys, xs | zs, ws)} = {_law(graph, ys, xs, ws)}"
    after = graph.do(xs)
    return _check(equation, after.do(zs - after.ancestors(ws)), ys, zs, xs | ws)


def _checked(graph: CausalDAG, y: Nodes, x: Nodes, z: Nodes, w: Nodes) -> tuple[NodeSet, NodeSet, NodeSet, NodeSet]:
    sets = {name: as_nodes(graph, nodes, name) for name, nodes in (("y", y), ("x", x), ("z", z), ("w", w))}
    check_disjoint(**sets)
    return sets["y"], sets["x"], sets["z"], sets["w"]


def _check(equation: str, graph: CausalDAG, y: NodeSet, z: NodeSet, given: NodeSet) -> RuleCheck:
    witness = d_connecting_path(graph, y, z, given)
    return RuleCheck(equation, witness is None, graph, witness)


def _law(graph: CausalDAG, y: NodeSet, actions: NodeSet, given: NodeSet) -> str:
    """Return a law as text: `P(y | do(x), w)`."""
    done = [f"do({', '.join(graph.sort(actions))})"] if actions else []
    conditions = ", ".join([*done, *graph.sort(given)])
    return f"P({', '.join(graph.sort(y))}{' | ' * bool(conditions)}{conditions})"
