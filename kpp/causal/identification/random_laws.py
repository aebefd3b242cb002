"""Random laws of a causal graph, to compare an expression with the effect that it stands for."""

from __future__ import annotations

import numpy as np
import xarray as xr

from kpp.causal.graph.mixed_graph import MixedGraph, NodeSet

#: The law of all nodes, hidden ones too, holds this many probabilities at most: 128 MiB.
_MOST_PROBABILITIES = 2**24


def random_laws(
    graph: MixedGraph, treatment: NodeSet, num_levels: int, rng: np.random.Generator
) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the observed law of a random discrete model, and its law once treatments are set.

    Each node has a random table P(node | parents), and each bidirected edge a hidden parent of both ends. The second
    law is the truncated product: the tables of the treatments are left out (Pearl, Causality, 2009, equation (3.10)).

    Args:
        graph: The graph.
        treatment: The treatments.
        num_levels: The number of values of each node.
        rng: The generator.

    Raises:
        ValueError: If the law has more than 2^24 probabilities.
    """
    network = graph.canonical()
    if num_levels ** len(network) > _MOST_PROBABILITIES:
        raise ValueError(
            f"`graph` must have at most {int(np.log(_MOST_PROBABILITIES) / np.log(num_levels))} nodes and bidirected "
            f"edges with {num_levels} levels, got {len(network)}"
        )
    tables = {}
    for node in network:
        names = [*network.predecessors(node), node]
        # Away from 0, so that no condition of an expression has the probability 0.
        weights = rng.uniform(0.2, 1.0, [num_levels] * len(names))
        tables[node] = xr.DataArray(weights / weights.sum(-1, keepdims=True), dims=names)
    hidden = [node for node in network if node not in graph.observed]
    kept = [table for node, table in tables.items() if node not in treatment]
    return xr.dot(*tables.values(), dim=hidden, optimize=True), xr.dot(*kept, dim=hidden, optimize=True)
