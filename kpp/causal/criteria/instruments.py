r"""Instruments: nodes that affect the outcome through the treatment alone.

A node I is an instrument for the effect of X on Y given W under three conditions: W holds no node on a causal path from
X to Y and no descendant of one; W closes every path from I to Y after the first edges of the causal paths are removed;
and W leaves open a path from I to X (Pearl, 2009, definition 7.4.1, and Brito and Pearl, 2002, for the total effect).
In a linear model

$$\frac{\mathrm{Cov}(I, Y \mid W)}{\mathrm{Cov}(I, X \mid W)}$$

is the effect of X on Y, for any hidden common causes of X and Y.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from kpp.causal.criteria.adjustment_sets import (
    CriterionCheck,
    allowed_nodes,
    as_observed,
    closed,
    proper_backdoor_graph,
)
from kpp.causal.criteria.causal_paths import forbidden_nodes, path_to_forbidden
from kpp.causal.errors import CausalError
from kpp.causal.graph.dag import CausalDAG
from kpp.causal.graph.nodes import check_disjoint, check_question
from kpp.causal.graph.separation import d_separated, nearest_separators


@dataclasses.dataclass(frozen=True)
class Instrument:
    """An instrument and the nodes to condition on.

    Args:
        node: The instrument.
        given: The nodes to condition on; may be empty.
    """

    node: str
    given: frozenset[str]


def is_instrument(
    graph: CausalDAG,
    instrument: str,
    *,
    treatment: str | Collection[str],
    outcome: str | Collection[str],
    given: str | Collection[str] = (),
) -> CriterionCheck:
    """Check whether a node is an instrument for the effect of a treatment on an outcome given others.

    Args:
        graph: The graph.
        instrument: The node.
        treatment: The treatment, one node.
        outcome: The outcome, one node.
        given: The nodes conditioned on.

    Returns:
        The check, true if the node is an instrument; otherwise it says which part of the definition fails and shows a
        path, if a path is the reason.

    Raises:
        CausalError: See `check_question`; also if there are several treatments or outcomes, if the instrument or a
            conditioning node is latent, or if one node has two roles.
    """
    x, y = _single_effect(graph, treatment, outcome)
    node = as_observed(graph, instrument, "instrument", x | y)
    conditions = as_observed(graph, given, "given", x | y)
    check_disjoint(instrument=node, given=conditions)
    forbidden = forbidden_nodes(graph, treatment=x, outcome=y) & conditions
    if forbidden:
        criterion = "the nodes given are none on a causal path and none below one"
        return CriterionCheck(False, criterion, path_to_forbidden(graph, x, y, forbidden))
    if d_separated(graph, node, x, conditions):
        return CriterionCheck(False, "the nodes given leave a path from the instrument to the treatment open")
    criterion = "the nodes given close every path from the instrument to the outcome but for the treatment's effect"
    return closed(proper_backdoor_graph(graph, treatment=x, outcome=y), node, y, conditions, criterion)


def instruments(
    graph: CausalDAG, *, treatment: str | Collection[str], outcome: str | Collection[str]
) -> tuple[Instrument, ...]:
    """Return the nodes that can be instruments, each with the nodes to condition on.

    The conditioning set of an instrument is the set nearest to the outcome that separates the two in the graph without
    the treatment's effect (van der Zander, Textor and Liskiewicz, 2015). If any instrument exists, for any conditioning
    set, at least one is found. An instrument is not found if it needs conditioning on a node that is an ancestor
    neither of the instrument nor of the outcome: to find all instruments is NP-hard, to check one (`is_instrument`) is
    not.

    Args:
        graph: The graph.
        treatment: The treatment, one node.
        outcome: The outcome, one node.

    Returns:
        The instruments, in the graph's order; empty if there are none.

    Raises:
        CausalError: See `check_question`; also if there are several treatments or outcomes.
    """
    x, y = _single_effect(graph, treatment, outcome)
    backdoor, allowed = proper_backdoor_graph(graph, treatment=x, outcome=y), allowed_nodes(graph, x, y, None)
    found = []
    for node in graph.sort(graph.observed - x - y):
        candidates = nearest_separators(backdoor, y, frozenset({node}), frozenset(), allowed - {node})
        # The smaller set first: the larger one may open paths to the treatment through more colliders.
        for given in reversed(candidates or ()):
            if not d_separated(graph, node, x, given):
                found.append(Instrument(node, given))
                break
    return tuple(found)


def _single_effect(
    graph: CausalDAG, treatment: str | Collection[str], outcome: str | Collection[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the treatment and the outcome as sets of one node each."""
    x, y = check_question(graph, treatment, outcome)
    for argument, nodes in (("treatment", x), ("outcome", y)):
        if len(nodes) != 1:
            raise CausalError(f"`{argument}` must be one node, got {graph.sort(nodes)}")
    return x, y
