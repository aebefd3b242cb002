"""The result of a criterion for sets of nodes, and the checks that the criteria share."""

from __future__ import annotations

import dataclasses

from kpp.causal.errors import CausalError, LatentNodeError
from kpp.causal.graph.nodes import MixedGraph, Nodes, NodeSet, as_nodes, check_disjoint
from kpp.causal.graph.separation import Path, d_connecting_path
from kpp.foundation.wording import brief, named


@dataclasses.dataclass(frozen=True)
class CriterionCheck:
    """Whether nodes satisfy a criterion; its truth value is the result.

    Args:
        holds: Whether they do.
        criterion: The condition that fails, in words; empty if none does.
        witness: A path that shows it; None if none does.
    """

    holds: bool
    criterion: str = ""
    witness: Path | None = None

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        if self.holds:
            return "holds"
        shown = "this does not hold" if self.witness is None else f"see the path {brief(self.witness)}"
        return f"{self.criterion}; {shown}"


def offered_nodes(graph: MixedGraph, within: Nodes | None) -> NodeSet:
    """Return the observed nodes among the given nodes, or all observed nodes for None."""
    return graph.observed if within is None else as_nodes(graph, within, "within") & graph.observed


def required_nodes(graph: MixedGraph, include: Nodes, offered: NodeSet, others: NodeSet) -> NodeSet:
    """Return the nodes that each set must hold; they must be among the nodes that it may hold."""
    required = as_observed(graph, include, "include", others)
    if not required <= offered:
        raise CausalError(f"`include` must be part of `within`, which lacks {named(graph.sort(required - offered))}")
    return required


def as_observed(graph: MixedGraph, nodes: Nodes, argument: str, others: NodeSet) -> NodeSet:
    """Return names as a set of observed nodes that are neither treatments nor outcomes."""
    found = as_nodes(graph, nodes, argument)
    check_disjoint(**{argument: found, "treatment` or `outcome": others})
    if found & graph.latent:
        raise LatentNodeError(argument, found & graph.latent)
    return found


def closed(graph: MixedGraph, x: NodeSet, y: NodeSet, given: NodeSet, criterion: str) -> CriterionCheck:
    """Check that a third set closes all paths between two sets in a graph from which a criterion removed edges."""
    path = d_connecting_path(graph, x, y, given)
    return CriterionCheck(True) if path is None else CriterionCheck(False, criterion, path)
