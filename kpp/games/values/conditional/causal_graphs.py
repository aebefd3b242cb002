"""The features of a causal value function as nodes of its graph."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from kpp.causal import CausalDAG, CausalOrder, UnknownNodeError
from kpp.causal.toolkit import LawFactor, intervention_law
from kpp.foundation.wording import named

Graph = CausalDAG | CausalOrder


def as_names(names: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the names of features as a tuple, or None."""
    return None if names is None else tuple(map(str, names))


def names_of_features(graph: Graph, feature_names: tuple[str, ...] | None, num_features: int) -> tuple[str, ...]:
    """Return the names of the features.

    The default is x0, x1, ... if these are nodes, and otherwise the observed nodes in the graph's order.

    Raises:
        ValueError: If their number is not the number of features, or a name occurs twice.
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


@functools.lru_cache(maxsize=64)
def factors_of_features(graph: Graph, feature_names: tuple[str, ...]) -> tuple[LawFactor, ...]:
    """Return the factors of the law of the features after an intervention on some of them.

    Nodes of a graph that are not features, such as the outcome, are treated as latent.

    Raises:
        UnknownNodeError: If a feature is not a node of the graph, or a name in a causal order is not a feature.
        NotIdentifiableError: If the law is not identified for some coalition.
    """
    unknown = [name for name in feature_names if name not in graph.nodes]
    if unknown:
        raise UnknownNodeError("feature_names", unknown, graph.nodes)
    others = [name for name in graph.nodes if name not in feature_names]
    if isinstance(graph, CausalOrder):
        if others:
            raise UnknownNodeError("graph", others, feature_names)
        return intervention_law(graph)
    return intervention_law(graph.hide(others).project())


def positions(names: Sequence[str], feature_names: tuple[str, ...]) -> list[int]:
    """Return the positions of names among the features."""
    return [feature_names.index(name) for name in names]
