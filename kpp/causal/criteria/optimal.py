"""The adjustment set with the smallest asymptotic variance in every law with the graph."""

from __future__ import annotations

from kpp.causal.criteria.adjustment_sets import allowed_nodes, check_adjustable, proper_backdoor_graph
from kpp.causal.errors import NoOptimalSetError
from kpp.causal.graph.dag import CausalDAG
from kpp.causal.graph.mixed_graph import Nodes
from kpp.causal.graph.nodes import check_effect, reached
from kpp.causal.graph.separating_sets import boundary, moral_graph
from kpp.causal.graph.separation import d_connecting_path, d_separated, some_separator


def optimal_adjustment_set(
    graph: CausalDAG, *, treatment: Nodes, outcome: Nodes, within: Nodes | None = None
) -> frozenset[str]:
    r"""Return the adjustment set with the smallest asymptotic variance in every law with the graph.

    If all nodes are observed and the treatments reach all outcomes, it is the O-set of Henckel, Perkovic and Maathuis
    (2022),

    $$O = pa(cn(X, Y)) \setminus (de(cn(X, Y)) \cup X).$$

    A node is useful if it is in any adjustment set. If some nodes are hidden, a set O is best among all adjustment sets
    Z under two conditions (Henckel, Perkovic and Maathuis, 2022; for hidden nodes Smucler, Sapienza and Rotnitzky,
    2022): X is independent of $O \setminus Z$ given Z, and Y is independent of all other useful nodes given O and X.
    The first condition holds for the useful nodes that are reached first from Y in the moral graph of An(X, Y) (the
    O-set if all nodes are observed), and for the useful nodes that these separate from X. If the second condition
    fails, some node carries information on the outcome and depends on the treatment, so its influence on the variance
    may depend on the law.

    Args:
        graph: The graph.
        treatment: The treatments.
        outcome: The outcomes.
        within: The nodes that the set may hold; by default all observed nodes.

    Raises:
        NoAdjustmentError: If there is no adjustment set.
        NoOptimalSetError: If no set is known to be best in every law; the error shows the path to the node in doubt.
        CausalError: See `check_effect`.
    """
    treatments, outcomes = check_effect(graph, treatment, outcome)
    allowed = allowed_nodes(graph, treatments, outcomes, within)
    check_adjustable(graph, treatments, outcomes, allowed)
    backdoor = proper_backdoor_graph(graph, treatment=treatments, outcome=outcomes)
    useful = frozenset(
        node
        for node in allowed
        if some_separator(backdoor, treatments, outcomes, frozenset({node}), allowed) is not None
    )
    causes = moral_graph(backdoor, treatments | outcomes)
    first = boundary(causes, reached(causes.__getitem__, outcomes, useful))
    everything = moral_graph(backdoor, treatments | outcomes | useful)
    apart = useful - first - reached(everything.__getitem__, treatments, first)
    best = first | apart
    path = d_connecting_path(graph, outcomes, useful - best, best | treatments)
    if path is not None:
        raise NoOptimalSetError(graph.sort(first), path)
    for node in graph.sort(apart):
        if d_separated(graph, outcomes, node, (best - {node}) | treatments):
            best -= {node}
    return best
