"""Errors of causal graphs and of questions about them: one class per kind of error, each a ValueError."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kpp.foundation.wording import brief, named


class CausalError(ValueError):
    """A causal graph that is not valid, or a question about one that is not valid or has no answer."""


class GraphSyntaxError(CausalError):
    """Text that does not describe a causal graph."""


class CycleError(CausalError):
    """Edges that form a cycle.

    Args:
        cycle: Its nodes, the first one again at the end.

    Example:
        >>> CausalDAG([("a", "b"), ("b", "a")])
        Traceback (most recent call last):
            ...
        kpp.causal.errors.CycleError: a causal graph has no directed cycle, got a -> b -> a: cut an edge
    """

    def __init__(self, cycle: Sequence[str]):
        self.cycle = tuple(cycle)
        super().__init__(f"a causal graph has no directed cycle, got {brief(' -> '.join(self.cycle))}: cut an edge")


class UnknownNodeError(CausalError):
    """Names that are not nodes of the graph.

    Args:
        argument: The argument that held them.
        unknown: The names.
        known: The nodes of the graph.
    """

    def __init__(self, argument: str, unknown: Collection[Any], known: Collection[str]):
        self.argument, self.unknown, self.known = argument, tuple(unknown), tuple(known)
        super().__init__(f"`{argument}` names no node of the graph: {named(unknown)}; its nodes are {named(known)}")


class NotDisjointError(CausalError):
    """A node in two sets that must be disjoint.

    Args:
        shared: The nodes in both.
        first: The argument that holds the first set.
        second: The argument that holds the second set.
    """

    def __init__(self, shared: Collection[str], first: str, second: str):
        self.shared = frozenset(shared)
        super().__init__(f"`{first}` and `{second}` must share no node, both hold {named(sorted(shared))}")


class LatentNodeError(CausalError):
    """Latent nodes where observed ones are needed.

    Args:
        argument: The argument that held them.
        latent: The nodes.
    """

    def __init__(self, argument: str, latent: Collection[str]):
        self.argument, self.latent = argument, frozenset(latent)
        super().__init__(f"`{argument}` must be observed, latent in the graph are {named(sorted(latent))}")


class TreatmentIsOutcomeError(NotDisjointError):
    """A treatment that is an outcome as well."""

    def __init__(self, shared: Collection[str]):
        super().__init__(shared, "treatment", "outcome")


class UnreachableOutcomeError(CausalError):
    """An outcome that no treatment causes, so that there is no effect.

    Args:
        treatment: The treatments.
        outcome: The outcomes; no directed path from a treatment reaches any of them.
    """

    def __init__(self, treatment: Collection[str], outcome: Collection[str]):
        self.treatment, self.outcome = frozenset(treatment), frozenset(outcome)
        super().__init__(
            f"no directed path leads from `treatment` {named(sorted(treatment))} to `outcome` "
            f"{named(sorted(outcome))}: the treatment has no effect on it"
        )


class NotIdentifiableError(CausalError):
    """An effect that the observed variables do not determine.

    Args:
        message: The question, and why it has no answer.
        hedge: The pair of C-forests that proves it.
    """

    def __init__(self, message: str, hedge: Any):
        self.hedge = hedge
        super().__init__(message)


class NoAdjustmentError(CausalError):
    """Nodes that fail a criterion for adjustment, or a graph in which all sets of nodes fail it.

    Args:
        message: The question and the nodes.
        criterion: The condition that fails, in words.
        path: A path that shows the failure; None if a path is not the reason.
    """

    def __init__(self, message: str, criterion: str, path: Sequence[str] | None = None):
        self.criterion, self.path = criterion, path
        witness = "" if path is None else f"; see the path {brief(path)}"
        super().__init__(f"{message}: {criterion}{witness}")


class NoOptimalSetError(CausalError):
    """A graph in which no adjustment set is known to be the best in every law.

    Args:
        sure: The nodes that every good set holds.
        path: The path from an outcome to a node that may help or harm.
    """

    def __init__(self, sure: Sequence[str], path: Sequence[str]):
        self.sure, self.path = tuple(sure), path
        super().__init__(
            f"no adjustment set is known to be optimal in every law with this graph: beside {named(sure)}, adjusting "
            f"for {path[-1]!r} may help or harm; see the path {brief(path)}. Take one of `minimal_adjustment_sets`"
        )


class NotCoveredError(CausalError):
    """An effect that an estimator does not cover.

    Args:
        message: The question.
        estimand: The expression that would have to be estimated, as text; None if the effect is not identified.
    """

    def __init__(self, message: str, estimand: str | None = None):
        self.estimand = estimand
        super().__init__(message)


class ColliderError(CausalError):
    """An outcome that depends on its spouses even given its parents, so that its boundary has no collider partition.

    Args:
        outcome: The outcome.
        parents: Its parents.
        paths: A path from the outcome to each spouse that depends on it, left open by the parents.
        independences: The statements on the outcome and its boundary that can be used instead.
    """

    def __init__(
        self, outcome: str, parents: Collection[str], paths: Mapping[str, Any], independences: Collection[Any]
    ):
        self.outcome, self.paths, self.independences = outcome, dict(paths), tuple(independences)
        kinds = {True: "an effect of it", False: "bound to it by something hidden"}
        blamed = [f"{node!r} is {kinds[path.arrows[0] == '->']} ({brief(path)})" for node, path in paths.items()]
        usable = brief("; ".join(map(str, independences))) or "nothing, its Markov boundary holds no independence of it"
        super().__init__(
            f"`outcome` {outcome!r} has no collider partition: it must be independent of its spouses given its parents "
            f"{named(parents)}, but {' and '.join(blamed)}. What can be used instead: {usable}"
        )
