"""The independences that a causal graph implies, one for each pair of observed variables that a set separates."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from kpp.causal.colliders import Independence
from kpp.causal.graph.causal_order import as_causal_graph
from kpp.causal.graph.dag import CausalDAG
from kpp.causal.graph.separation import minimal_separator


def implied_independences(graph: Any) -> tuple[Independence, ...]:
    r"""Return one independence for each pair of observed nodes that some set of observed nodes separates.

    .. math:: Y \perp X \mid S

    S is a minimal set that separates the two: the smaller one of those nearest to X and to Y. If no node is hidden, the
    pairs are those without an edge, and in a distribution in which pairwise independences imply joint ones, such as a
    Gaussian one, all independences of the graph follow from these. Hidden nodes also imply equalities that are not
    independences; those are not among them.

    Args:
        graph: The graph; see `kpp.causal.as_graph`.

    Returns:
        The statements, in the order of the graph: the later node of each pair is the outcome.

    Raises:
        CausalError: If `graph` is not a causal graph.

    Example:
        >>> chain = CausalDAG([("a", "b"), ("b", "c")])
        >>> print(*causal.implied_independences(chain))
        c _||_ a | b
    """
    known = as_causal_graph(graph)
    projection = known.project()
    pairs = combinations(projection.topological_order(), 2)
    found = [(first, second, _separator(projection, first, second)) for first, second in pairs]
    return tuple(
        Independence(second, (first,), tuple(projection.sort(given)))
        for first, second, given in found
        if given is not None
    )


def _separator(graph: CausalDAG, first: str, second: str) -> frozenset[str] | None:
    """Return the smaller one of the minimal separators nearest to either end; None if no set separates them."""
    near = minimal_separator(graph, first, second)
    if near is None:
        return None
    far = minimal_separator(graph, second, first)
    assert far is not None, "what separates a pair separates it in either order"
    return min(far, near, key=len)
