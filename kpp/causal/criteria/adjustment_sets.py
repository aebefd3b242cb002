r"""Adjustment for covariates: the sets of nodes for which adjustment identifies a causal effect.

A set Z is an adjustment set for the effect of X on Y if, in every law with this graph,

$$p(y \mid do(x)) = \int p(y \mid x, z) \, p(z) \, dz.$$

The generalized adjustment criterion (Shpitser, VanderWeele and Robins, 2010; Perkovic et al., 2018) is sound and
complete for this, with several treatments and outcomes: no node of Z is a causal node or a descendant of one, and Z
    closes each proper path from X to Y that is not causal. The second condition is d-separation in the proper back-door
    graph. So a set is checked in linear time, and all sets are listed with polynomial delay (van der Zander, Liskiewicz
    and Textor, 2019).
"""

from __future__ import annotations

from collections.abc import Iterator

from kpp.causal.criteria.causal_paths import causal_nodes, directed_path, forbidden_nodes, path_to_forbidden
from kpp.causal.criteria.checks import CriterionCheck, as_observed, closed, offered_nodes, required_nodes
from kpp.causal.errors import NoAdjustmentError, NoOptimalSetError
from kpp.causal.graph.dag import CausalDAG
from kpp.causal.graph.nodes import Nodes, NodeSet, as_nodes, check_effect, check_question, reached
from kpp.causal.graph.separating_sets import boundary, minimal_separators, moral_graph, sets_between
from kpp.causal.graph.separation import d_connecting_path, d_separated, some_separator
from kpp.foundation.wording import named

CLOSES_NONCAUSAL = "an adjustment set closes every proper path that is not causal"
CLOSES_BACKDOOR = "a back-door set closes every path into a treatment"


def is_adjustment_set(graph: CausalDAG, *, treatment: Nodes, outcome: Nodes, adjusting: Nodes) -> CriterionCheck:
    """Check the generalized adjustment criterion, which is necessary and sufficient for adjustment.

    Args:
        graph: The graph.
        treatment: The treatments.
        outcome: The outcomes.
        adjusting: The nodes to adjust for.

    Returns:
        The check, true if the criterion holds; otherwise it says which part fails and shows a path.

    Raises:
        CausalError: See `check_question`; also if an adjusting node is latent, a treatment or an outcome.

    Example:
        >>> causal.is_adjustment_set(graph, **effect, adjusting=["age"])
        CriterionCheck(holds=True, criterion='', witness=None)
    """
    treatments, outcomes = check_question(graph, treatment, outcome)
    nodes = as_observed(graph, adjusting, "adjusting", treatments | outcomes)
    forbidden = forbidden_nodes(graph, treatment=treatments, outcome=outcomes) & nodes
    if forbidden:
        criterion = "an adjustment set holds no node on a proper causal path and none below one"
        return CriterionCheck(False, criterion, path_to_forbidden(graph, treatments, outcomes, forbidden))
    backdoor = proper_backdoor_graph(graph, treatment=treatments, outcome=outcomes)
    return closed(backdoor, treatments, outcomes, nodes, CLOSES_NONCAUSAL)


def is_backdoor_set(graph: CausalDAG, *, treatment: Nodes, outcome: Nodes, adjusting: Nodes) -> CriterionCheck:
    """Check Pearl's back-door criterion, which is sufficient for adjustment (Pearl, 2009, definition 3.3.1).

    No adjusting node is a descendant of a treatment, and the adjusting nodes close every proper path from a treatment
    to an outcome that begins with an arrow into the treatment.

    Args:
        graph: The graph.
        treatment: The treatments.
        outcome: The outcomes.
        adjusting: The nodes to adjust for.

    Returns:
        The check, true if the criterion holds; otherwise it says which part fails and shows a path.

    Raises:
        CausalError: See `check_question`; also if an adjusting node is latent, a treatment or an outcome.

    Example:
        >>> causal.is_backdoor_set(graph, **effect, adjusting=[]).witness
        ('dose', 'age', 'pain')
    """
    treatments, outcomes = check_question(graph, treatment, outcome)
    nodes = as_observed(graph, adjusting, "adjusting", treatments | outcomes)
    below = graph.descendants(treatments) & nodes
    if below:
        path = directed_path(graph, treatments, below)
        return CriterionCheck(False, "a back-door set holds no descendant of a treatment", path)
    return closed(graph.without_outgoing(treatments), treatments, outcomes, nodes, CLOSES_BACKDOOR)


def adjustment_sets(
    graph: CausalDAG, *, treatment: Nodes, outcome: Nodes, include: Nodes = (), within: Nodes | None = None
) -> Iterator[NodeSet]:
    """List all adjustment sets, lazily and with polynomial delay: there can be exponentially many.

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
        >>> list(causal.adjustment_sets(graph, **effect))
        [frozenset({'age'})]
    """
    treatments, outcomes = check_question(graph, treatment, outcome)
    required = required_nodes(graph, include, offered_nodes(graph, within), treatments | outcomes)
    allowed = allowed_nodes(graph, treatments, outcomes, within)
    backdoor = proper_backdoor_graph(graph, treatment=treatments, outcome=outcomes)

    def exists(least: NodeSet, most: NodeSet) -> bool:
        return some_separator(backdoor, treatments, outcomes, least, most) is not None

    # Algorithm ListSep (van der Zander, Liskiewicz and Textor, 2019, section 3): a branch with a set in it is followed.
    return sets_between(backdoor, required, allowed, exists)


def minimal_adjustment_sets(
    graph: CausalDAG, *, treatment: Nodes, outcome: Nodes, within: Nodes | None = None
) -> Iterator[NodeSet]:
    """List the minimal adjustment sets (no proper subset is one), lazily and with polynomial delay.

    The first set is the one nearest to the outcome. With a single treatment it gives the smallest asymptotic variance
    among the minimal sets, in every law with this graph (Smucler, Sapienza and Rotnitzky, 2022).

    Args:
        graph: The graph.
        treatment: The treatments.
        outcome: The outcomes.
        within: The nodes that the sets may hold; by default all observed nodes.

    Returns:
        An iterator over the sets; an empty one if there are none.

    Raises:
        CausalError: See `check_question`.

    Example:
        >>> list(causal.minimal_adjustment_sets(graph, **effect))
        [frozenset({'age'})]
    """
    treatments, outcomes = check_question(graph, treatment, outcome)
    allowed = allowed_nodes(graph, treatments, outcomes, within)
    backdoor = proper_backdoor_graph(graph, treatment=treatments, outcome=outcomes)
    return minimal_separators(backdoor, treatments, outcomes, allowed)


def proper_backdoor_graph(graph: CausalDAG, *, treatment: Nodes, outcome: Nodes) -> CausalDAG:
    """Return the graph without the first edge of each proper causal path.

    A set that separates treatments from outcomes in it, and holds no forbidden node, is an adjustment set (van der
    Zander, Liskiewicz and Textor, 2019, section 5).

    Raises:
        UnknownNodeError: If a name is not a node of the graph.
    """
    treatments = as_nodes(graph, treatment, "treatment")
    after = causal_nodes(graph, treatment=treatment, outcome=outcome)
    edges = [(a, b) for a, b in graph.edges if not (a in treatments and b in after)]
    return CausalDAG(edges, nodes=graph.nodes, latent=graph.latent, bidirected=graph.bidirected)


def allowed_nodes(graph: CausalDAG, treatments: NodeSet, outcomes: NodeSet, within: Nodes | None) -> NodeSet:
    """Return the observed nodes that an adjustment set may hold, among the given nodes or among all."""
    forbidden = forbidden_nodes(graph, treatment=treatments, outcome=outcomes)
    return offered_nodes(graph, within) - treatments - outcomes - forbidden


def check_adjustable(graph: CausalDAG, treatments: NodeSet, outcomes: NodeSet, allowed: NodeSet) -> None:
    """Raise NoAdjustmentError if no adjustment set lies within the allowed nodes."""
    backdoor = proper_backdoor_graph(graph, treatment=treatments, outcome=outcomes)
    if some_separator(backdoor, treatments, outcomes, frozenset(), allowed) is None:
        candidate = backdoor.ancestors(treatments | outcomes) & allowed
        path = d_connecting_path(backdoor, treatments, outcomes, candidate)
        effect = f"the effect of {named(graph.sort(treatments))} on {named(graph.sort(outcomes))}"
        raise NoAdjustmentError(f"no set of allowed nodes adjusts for {effect}", CLOSES_NONCAUSAL, path)


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

    Example:
        >>> causal.optimal_adjustment_set(graph, **effect)
        frozenset({'age'})
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
