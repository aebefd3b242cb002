"""Causal orders: groups of which earlier ones may cause later ones; reading of orders and graphs that users write."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from kpp.causal.errors import CausalError
from kpp.causal.graph.dag import CausalDAG
from kpp.causal.graph.text import from_text
from kpp.foundation.validation import wrong_kind
from kpp.foundation.wording import named
from kpp.storage.serialization import data_class


@data_class
@dataclasses.dataclass(frozen=True)
class CausalOrder:
    """A partial order of variables: groups, each caused by all groups before it.

    Within a group, the dependence comes either from hidden common causes ("confounded"), or from effects of its members
    on each other, such as by feedback. An intervention on some members then changes the others only in the second case.

    Args:
        groups: The names of the variables of each group, causes first.
        confounded: For each group, whether its members depend by hidden common causes; or one value for all.

    Raises:
        CausalError: If a group is empty, a name is in two groups, or `confounded` has another length.

    Example:
        >>> causal.CausalOrder([["age"], ["dose", "weight"]])
        CausalOrder(groups=(('age',), ('dose', 'weight')), confounded=(True, True))

    References:
        Heskes, Sijben, Bucur and Claassen, Causal Shapley values, 2020, section 5: the chain components of a causal
        chain graph.
    """

    groups: tuple[tuple[str, ...], ...]
    confounded: tuple[bool, ...]

    def __init__(self, groups: Sequence[str | Sequence[str]], confounded: Any = True) -> None:
        found = tuple((group,) if isinstance(group, str) else tuple(group) for group in groups)
        names = [name for group in found for name in group]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if not found or not all(found) or repeated:
            what = f"{named(repeated)} more than once" if repeated else named(found)
            raise CausalError(f"`groups` must hold groups of at least one name, each name once, got {what}")
        flags = (confounded,) * len(found) if isinstance(confounded, bool) else tuple(map(bool, confounded))
        if len(flags) != len(found):
            raise CausalError(f"`confounded` must be a bool or one per group, got {len(flags)} for {len(found)} groups")
        object.__setattr__(self, "groups", found)
        object.__setattr__(self, "confounded", flags)

    @property
    def nodes(self) -> tuple[str, ...]:
        """All names, in the order of the groups."""
        return tuple(name for group in self.groups for name in group)

    def causes(self, position: int) -> tuple[str, ...]:
        """Return the names of all groups before the one at a position."""
        return tuple(name for group in self.groups[:position] for name in group)


def as_graph(graph: Any) -> CausalDAG | CausalOrder:
    """Return a causal graph or a causal order.

    Args:
        graph: A `CausalDAG` or a `CausalOrder`, which are returned unchanged; a text in the language of dagitty, of
            Graphviz or of lavaan; or the edges of a graph: pairs (cause, effect), a mapping, or a `networkx.DiGraph`.

    Raises:
        CausalError: If the graph is not valid.
        TypeError: If it is none of these.
    """
    if isinstance(graph, CausalDAG | CausalOrder):
        return graph
    if isinstance(graph, str):
        return CausalDAG(**from_text(graph))
    if not hasattr(graph, "__iter__"):
        raise wrong_kind(graph, "graph", ["a causal graph", "a text", "edges"])
    return CausalDAG(graph)


def as_causal_graph(graph: Any) -> CausalDAG:
    """Return a causal graph, read as by `as_graph`; raise CausalError for an order."""
    known = as_graph(graph)
    if not isinstance(known, CausalDAG):
        raise CausalError(f"`graph` must be a causal graph, got a {type(known).__name__}")
    return known


def as_order(order: Any) -> CausalDAG | CausalOrder | None:
    """Return an order of players, read as by `as_graph`, or None for no order."""
    return None if order is None else as_graph(order)
