"""Graphs from edges in Python, from text (DOT, dagitty) and from NumPyro models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import networkx as nx

from kpp.causal.errors import CausalError

if TYPE_CHECKING:
    from kpp.causal.graph import CausalDAG


def as_edges(edges: Any) -> tuple[list[Any], list[Any]]:
    """Return the nodes and the directed edges of what `CausalDAG` takes as edges.

    Args:
        edges: Pairs (cause, effect), a mapping from each cause to its effects, or a `networkx.DiGraph`.

    Returns:
        The nodes that a mapping or a graph names, and the edges.

    Raises:
        CausalError: If it is a graph that is not directed, or with several edges between two nodes.
    """
    if isinstance(edges, nx.Graph):
        if not edges.is_directed() or edges.is_multigraph():
            raise CausalError(f"`edges` must be a networkx.DiGraph, got {type(edges).__name__}")
        return list(edges), list(edges.edges)
    if isinstance(edges, Mapping):
        wrong = [cause for cause, effects in edges.items() if isinstance(effects, str)]
        if wrong:
            raise CausalError(f"`edges` must map each cause to a collection of effects, got a string for {wrong}")
        return list(edges), [(cause, effect) for cause, effects in edges.items() for effect in effects]
    return [], list(edges)


def as_pair(edge: Any, argument: str) -> tuple[Any, Any]:
    """Return the two different ends of an edge, or refuse it by the name of its argument."""
    ends = () if isinstance(edge, str) or not isinstance(edge, Iterable) else tuple(edge)
    if len(ends) != 2 or (argument == "bidirected" and ends[0] == ends[1]):
        raise CausalError(f"`{argument}` must hold pairs of two nodes, got {edge!r}")
    return ends
