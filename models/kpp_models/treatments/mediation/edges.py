r"""Which edges out of a treatment carry its direct effect and its indirect effect, and whether both are identified.

A nested counterfactual such as :math:`Y(t, M(t'))` sets the treatment to t along some paths, and to t' along the
others. It is identified only if it is an *edge intervention*: all paths that share their first edge have the same
value. A child of the treatment with paths of both kinds is a *recanting witness* (Avin, Shpitser and Pearl, 2005).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from kpp.causal import CausalDAG, CausalError, NotCoveredError
from kpp.causal.toolkit import as_nodes, causal_nodes, check_effect, check_question, directed_path
from kpp.foundation.wording import named


@dataclasses.dataclass(frozen=True)
class MediationQuestion:
    """The direct effect of a treatment on an outcome, and the one through mediators.

    `features` has for each variable on a causal path, in causal order, what its law depends on: the treatment first,
    then other variables on causal paths, then covariates.
    """

    graph: CausalDAG  # of the measured variables, without latent nodes
    treatment: str
    outcome: str
    indirect: dict[str, bool]  # whether paths that begin with an edge to this child lead through a mediator
    features: dict[str, tuple[str, ...]]

    @classmethod
    def read(
        cls, graph: CausalDAG, treatment: str, mediators: Sequence[str], outcome: str, columns: Collection[str]
    ) -> MediationQuestion:
        """Return the question, if columns identify its answer.

        Raises NotCoveredError if they do not, or not by a regression of each variable, and CausalError if a variable is
        unknown, not measured, or not on a causal path from treatment to outcome.
        """
        treatments, outcomes = check_question(graph, treatment, outcome)
        through = as_nodes(graph, mediators, "mediators")
        missing = (treatments | outcomes | through) - frozenset(columns)
        if missing:
            raise CausalError(f"`data` must have the columns {named(graph.sort(missing))}, they are missing")
        known = graph.hide(graph.observed - frozenset(columns)).project()
        check_effect(known, treatments, outcomes)
        between = causal_nodes(known, treatment=treatments, outcome=outcomes)
        off = through - (between - outcomes)
        if off or not through:
            raise CausalError(
                f"`mediators` must be variables on the causal paths from {treatment!r} to {outcome!r}, "
                f"{named(known.sort(between - outcomes))}, got {named(known.sort(off))}"
            )
        children = known.sort(known.children(treatment) & between)
        indirect = {child: _is_indirect(known, treatment, child, through, outcome) for child in children}
        relevant = known.ancestors(treatments | outcomes)
        order = [node for node in known.topological_order() if node in between]
        features = {node: _features(known, treatment, node, between, relevant) for node in order}
        return cls(known, treatment, outcome, indirect, features)


def _is_indirect(graph: CausalDAG, treatment: str, child: str, mediators: frozenset[str], outcome: str) -> bool:
    """Return whether the paths that begin with an edge lead through a mediator; raise NotCoveredError if some do."""
    if child in mediators:
        return True
    on_paths = graph.descendants(child) & graph.ancestors(outcome) & mediators
    around = directed_path(graph, child, outcome, avoiding=mediators)
    if on_paths and around is not None:
        first = directed_path(graph, child, on_paths)
        raise NotCoveredError(
            f"the direct effect of {treatment!r} on {outcome!r} is not identified: {child!r} is a recanting witness, "
            f"because the paths {treatment} -> {around} and {treatment} -> {first} -> ... -> {outcome} begin with the "
            f"same edge, and only the second leads through `mediators` {named(graph.sort(mediators))}; add {child!r} "
            "to the mediators for the effect through any of them"
        )
    return bool(on_paths)


def _features(
    graph: CausalDAG, treatment: str, node: str, between: frozenset[str], relevant: frozenset[str]
) -> tuple[str, ...]:
    """Return what a variable depends on: its parents, and its district with their parents.

    Raises NotCoveredError if a hidden cause connects it to the treatment or to another variable that the treatment
    affects: then the law of these is not a product of regressions, and for two variables with different values of the
    treatment nothing identifies it (the recanting district of Shpitser, 2013).
    """
    district = next(part for part in graph.districts(relevant) if node in part)
    confounded = district & (between | {treatment}) - {node}
    if confounded:
        raise NotCoveredError(
            f"no regression gives the law of {node!r}: hidden causes connect it to {named(graph.sort(confounded))}, "
            "and none of these may be confounded; measure the common causes and add them to `graph` and `data`"
        )
    found = (district | graph.parents(district)) - {node}
    parts = found & {treatment}, found & between, found - between - {treatment}
    return tuple(name for part in parts for name in graph.sort(part))
