"""Graphs and causal orders from what users write."""

from __future__ import annotations

from typing import Any

from kpp.causal.errors import CausalError
from kpp.causal.graph.causal_order import CausalOrder
from kpp.causal.graph.dag import CausalDAG
from kpp.causal.graph.text import from_text
from kpp.foundation.validation import wrong_kind


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
