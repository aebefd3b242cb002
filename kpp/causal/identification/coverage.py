"""The adjustment that an embedding can use for an effect, given the columns that were measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

from kpp.causal.criteria.adjustment_sets import is_adjustment_set, minimal_adjustment_sets, optimal_adjustment_set
from kpp.causal.criteria.frontdoor import minimal_frontdoor_set
from kpp.causal.errors import CausalError, NoAdjustmentError, NoOptimalSetError, NotCoveredError, NotIdentifiableError
from kpp.causal.graph.dag import CausalDAG
from kpp.causal.graph.nodes import Nodes, NodeSet, check_effect, check_question
from kpp.causal.identification.identify import identify
from kpp.foundation.wording import brief, named


@dataclasses.dataclass(frozen=True)
class Adjustment:
    """How to compute the effect of a treatment from a regression on it.

    Args:
        kind: "none" for no adjustment, "backdoor" to average over covariates, "frontdoor" to adjust through mediators.
        variables: The covariates or mediators, in the graph's order.
    """

    kind: Literal["none", "backdoor", "frontdoor"]
    variables: tuple[str, ...] = ()


def find_adjustment(
    graph: CausalDAG, *, treatment: Nodes, outcome: Nodes, columns: Iterable[str] | None = None
) -> Adjustment:
    """Return the adjustment for an effect: none if none is needed, else back-door, else front-door.

    Among the back-door sets within the columns it is the optimal one, or, if none is known to be optimal, the minimal
    one nearest to the outcome. Among the front-door sets it is a minimal one. "Back-door" has the wide sense of
    `is_adjustment_set`.

    Args:
        graph: The graph.
        treatment: The treatments.
        outcome: The outcomes.
        columns: The measured variables; names outside the graph are ignored. By default all observed nodes.

    Raises:
        NotCoveredError: If neither kind of set lies within the columns; the error holds the estimand if there is one.
        CausalError: If a treatment or an outcome is not a column; see also `check_effect`.

    Example:
        >>> causal.find_adjustment(graph, **effect)
        Adjustment(kind='backdoor', variables=('age',))
    """
    treatments, outcomes = check_question(graph, treatment, outcome)
    measured = graph.observed if columns is None else frozenset(columns) & graph.observed
    if not treatments | outcomes <= measured:
        missing = graph.sort((treatments | outcomes) - measured)
        raise CausalError(f"`columns` must hold the treatment and the outcome, lacks {named(missing)}")
    check_effect(graph, treatments, outcomes)
    if is_adjustment_set(graph, treatment=treatments, outcome=outcomes, adjusting=()):
        return Adjustment("none")
    try:
        return Adjustment("backdoor", _backdoor(graph, treatments, outcomes, measured))
    except NoAdjustmentError as error:
        backdoor = error
    try:
        mediators = minimal_frontdoor_set(graph, treatment=treatments, outcome=outcomes, within=measured)
    except NoAdjustmentError as frontdoor:
        raise _not_covered(graph, treatments, outcomes, measured, [backdoor, frontdoor]) from None
    return Adjustment("frontdoor", tuple(graph.sort(mediators)))


def _backdoor(graph: CausalDAG, treatments: NodeSet, outcomes: NodeSet, measured: NodeSet) -> tuple[str, ...]:
    """Return the optimal adjustment set, or the minimal one nearest to the outcomes, in the graph's order."""
    try:
        best = optimal_adjustment_set(graph, treatment=treatments, outcome=outcomes, within=measured)
    except NoOptimalSetError:
        best = next(minimal_adjustment_sets(graph, treatment=treatments, outcome=outcomes, within=measured))
    return tuple(graph.sort(best))


def _not_covered(
    graph: CausalDAG, treatments: NodeSet, outcomes: NodeSet, measured: NodeSet, reasons: Iterable[NoAdjustmentError]
) -> NotCoveredError:
    """Return the error for an effect without either kind of set, with its estimand in the measured variables."""
    narrowed = graph.hide(graph.observed - measured)
    try:
        estimand = str(identify(narrowed, outcome=outcomes, treatment=treatments))
    except NotIdentifiableError as error:
        estimand, known = None, str(error)
    else:
        known = f"it is identified as {brief(estimand)}, which kpp.embeddings.EstimandEmbedding estimates"
    x, y, columns = (named(graph.sort(nodes)) for nodes in (treatments, outcomes, measured))
    failures = [f"{reason.criterion}, unlike {brief(reason.path)}" for reason in reasons]
    effect = f"the effect of {x} on {y} from {columns}"
    return NotCoveredError("; ".join([f"no embedding covers {effect} by an adjustment: {known}", *failures]), estimand)
