r"""Adjustment through mediators: front-door sets.

A set Z is a front-door set for the effect of X on Y (Pearl, 2009, definition 3.3.3, for sets of nodes) if

1. Z meets every directed path from X to Y,
2. no back-door path from X to Z is open, and
3. X closes every back-door path from Z to Y.

Then, for any hidden common causes of X and Y,

$$p(y \mid do(x)) = \int p(z \mid x) \int p(y \mid x', z) \, p(x') \, dx' \, dz.$$

Condition 2 concerns single nodes. Condition 3 has a largest solution: a node with an open back-door path to Y, given a
set, still has one for every smaller set (Jeong, Tian and Bareinboim, 2022). So one linear search finds the largest
front-door set between two bounds (Wienöbst, van der Zander and Liskiewicz, 2024); all functions here build on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from kpp.causal.criteria.causal_paths import directed_path
from kpp.causal.criteria.checks import CriterionCheck, as_observed, closed, offered_nodes, required_nodes
from kpp.causal.errors import NoAdjustmentError
from kpp.causal.graph.dag import CausalDAG
from kpp.causal.graph.nodes import Nodes, NodeSet, check_question
from kpp.causal.graph.separating_sets import sets_between
from kpp.causal.graph.separation import reachable
from kpp.foundation.wording import named

MEETS_CAUSAL = "a front-door set meets every directed path from a treatment to an outcome"
UNCONFOUNDED = "no back-door path from a treatment to a node of a front-door set is open"
CLOSED_BY_TREATMENT = "the treatments close every back-door path from a front-door set to an outcome"


def is_frontdoor_set(graph: CausalDAG, *, treatment: Nodes, outcome: Nodes, mediators: Nodes) -> CriterionCheck:
    """Check Pearl's front-door criterion.

    Args:
        graph: The graph.
        treatment: The treatments.
        outcome: The outcomes.
        mediators: The nodes to adjust through.

    Returns:
        The check, true if the criterion holds; otherwise it says which of the three parts fails and shows a path.

    Raises:
        CausalError: See `check_question`; also if a mediator is latent, a treatment or an outcome.

    Example:
        >>> causal.is_frontdoor_set(smoking, **of_smoking, mediators=["tar"])
        CriterionCheck(holds=True, criterion='', witness=None)
    """
    treatments, outcomes = check_question(graph, treatment, outcome)
    nodes = as_observed(graph, mediators, "mediators", treatments | outcomes)
    path = directed_path(graph, treatments, outcomes, avoiding=nodes)
    if path is not None:
        return CriterionCheck(False, MEETS_CAUSAL, path)
    unconfounded = closed(graph.without_outgoing(treatments), treatments, nodes, frozenset(), UNCONFOUNDED)
    if not unconfounded:
        return unconfounded
    return closed(graph.without_outgoing(nodes), nodes, outcomes, treatments, CLOSED_BY_TREATMENT)


def frontdoor_set(
    graph: CausalDAG, *, treatment: Nodes, outcome: Nodes, include: Nodes = (), within: Nodes | None = None
) -> NodeSet:
    """Return the largest front-door set; all others are subsets of it.

    Args:
        graph: The graph.
        treatment: The treatments.
        outcome: The outcomes.
        include: Nodes that the set must hold.
        within: The nodes that the set may hold; by default all observed nodes.

    Raises:
        NoAdjustmentError: If there is none; the error says why and shows a path.
        CausalError: See `check_question`; also if a node of `include` is latent, a treatment or an outcome.

    Example:
        >>> causal.frontdoor_set(smoking, **of_smoking)
        frozenset({'tar'})
    """
    treatments, outcomes, required, allowed = _bounds(graph, treatment, outcome, include, within)
    largest = _largest(graph, treatments, outcomes, allowed)
    if _admits(graph, treatments, outcomes, required, largest):
        return largest
    failed = is_frontdoor_set(graph, treatment=treatments, outcome=outcomes, mediators=largest | required)
    effect = f"the effect of {named(graph.sort(treatments))} on {named(graph.sort(outcomes))}"
    wanted = f" that holds {named(graph.sort(required))}" if required else ""
    raise NoAdjustmentError(
        f"{effect} has no front-door set of allowed nodes{wanted}", failed.criterion, failed.witness
    )


def frontdoor_sets(
    graph: CausalDAG, *, treatment: Nodes, outcome: Nodes, include: Nodes = (), within: Nodes | None = None
) -> Iterator[NodeSet]:
    """List all front-door sets, lazily and with polynomial delay: there can be exponentially many.

    Args:
        graph: The graph.
        treatment: The treatments.
        outcome: The outcomes.
        include: Nodes that each set must hold.
        within: The nodes that the sets may hold; by default all observed nodes.

    Returns:
        An iterator over the sets; an empty one if there are none.

    Raises:
        CausalError: See `check_question`; also if a node of `include` is latent, a treatment or an outcome.

    Example:
        >>> list(causal.frontdoor_sets(smoking, **of_smoking))
        [frozenset({'tar'})]
    """
    treatments, outcomes, required, allowed = _bounds(graph, treatment, outcome, include, within)

    def exists(least: NodeSet, most: NodeSet) -> bool:
        return _admits(graph, treatments, outcomes, least, _largest(graph, treatments, outcomes, most))

    return sets_between(graph, required, allowed, exists)


def minimal_frontdoor_set(
    graph: CausalDAG, *, treatment: Nodes, outcome: Nodes, within: Nodes | None = None
) -> NodeSet:
    """Return a minimal front-door set: no proper subset of it is a front-door set.

    Nodes are forbidden one after the other as long as a front-door set remains. If a proper subset of the result were a
    front-door set, one more node could have been forbidden.

    Args:
        graph: The graph.
        treatment: The treatments.
        outcome: The outcomes.
        within: The nodes that the set may hold; by default all observed nodes.

    Returns:
        The set. Another minimal front-door set can be smaller.

    Raises:
        NoAdjustmentError: If there is no front-door set; the error says why and shows a path.
        CausalError: See `check_question`.

    Example:
        >>> causal.minimal_frontdoor_set(smoking, **of_smoking)
        frozenset({'tar'})
    """
    treatments, outcomes = check_question(graph, treatment, outcome)
    found = frontdoor_set(graph, treatment=treatments, outcome=outcomes, within=within)
    for node in reversed(graph.sort(found)):
        if node in found:
            smaller = _largest(graph, treatments, outcomes, found - {node})
            if _admits(graph, treatments, outcomes, frozenset(), smaller):
                found = smaller
    return found


def _bounds(
    graph: CausalDAG, treatment: Nodes, outcome: Nodes, include: Nodes, within: Nodes | None
) -> tuple[NodeSet, NodeSet, NodeSet, NodeSet]:
    """Return the treatments, the outcomes, the nodes that front-door sets must hold, and the allowed nodes."""
    treatments, outcomes = check_question(graph, treatment, outcome)
    offered = offered_nodes(graph, within) - treatments - outcomes
    return treatments, outcomes, required_nodes(graph, include, offered, treatments | outcomes), offered


def _admits(graph: CausalDAG, treatments: NodeSet, outcomes: NodeSet, required: NodeSet, largest: NodeSet) -> bool:
    """Return whether the largest set for conditions 2 and 3 holds the required nodes and satisfies condition 1."""
    return required <= largest and directed_path(graph, treatments, outcomes, avoiding=largest) is None


def _largest(graph: CausalDAG, treatments: NodeSet, outcomes: NodeSet, allowed: NodeSet) -> NodeSet:
    """Return the largest set of allowed nodes that satisfies conditions 2 and 3.

    The search follows open walks from the outcomes, given the treatments, in the graph without the edges out of the
    set. A node of the set that a walk reaches through another edge is removed from the set; the walks that stopped at
    its removed edges then go on.
    """
    confounded = reachable(graph.without_outgoing(treatments), treatments)
    kept, waiting = set(allowed - confounded), set()
    queue = deque((node, False) for node in graph.sort(outcomes))
    seen = set(queue)
    while queue:
        node, pointed_at = queue.popleft()
        kept.discard(node)
        following = [(node, False)] if node in waiting else []
        for arrow, other in graph.neighbors(node):
            collider = pointed_at and arrow != "->"
            if collider != (node in treatments):
                continue
            if arrow == "<-" and other in kept:
                waiting.add(other)
            else:
                following.append((other, arrow != "<-"))
        queue.extend(state for state in following if state not in seen)
        seen.update(following)
    return frozenset(kept)
