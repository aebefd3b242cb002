"""The features of a causal value function as nodes of its graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kpp.causal import CausalDAG, CausalOrder
from kpp.foundation.wording import named

Graph = CausalDAG | CausalOrder


def as_names(names: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the names of features as a tuple, or None."""
    return None if names is None else tuple(map(str, names))


def names_of_features(graph: Graph, feature_names: tuple[str, ...] | None, num_features: int) -> tuple[str, ...]:
    """Return the names of the features.

    The default is x0, x1, ... if these are nodes, and otherwise the observed nodes in the graph's order.
    """
    numbered = tuple(f"x{j}" for j in range(num_features))
    if feature_names is None and set(numbered) <= set(graph.nodes):
        return numbered
    hidden = () if isinstance(graph, CausalOrder) else graph.latent
    names = feature_names or tuple(node for node in graph.nodes if node not in hidden)
    if len(names) != num_features:
        argument = "feature_names" if feature_names else "graph"
        raise ValueError(
            f"`{argument}` must name the {num_features} features of `background`, got {len(names)}: {named(names)}"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"`feature_names` must be different from each other, got {twice} more than once")
    return names


def positions(names: Sequence[str], feature_names: tuple[str, ...]) -> list[int]:
    """Return the positions of names among the features."""
    return [feature_names.index(name) for name in names]
