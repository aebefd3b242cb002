"""Positions of the nodes of a causal graph, causes to the left of their effects."""

from __future__ import annotations

import networkx as nx

Positions = dict[str, tuple[int, float]]


def layered_positions(directed: nx.DiGraph) -> Positions:
    """Place each node one step to the right of its last cause, by its step and its height in the step.

    Heights are centered at 0 and 1 apart; the nodes of a step are in the order of the mean height of their causes.
    """
    positions: Positions = {}
    for step, layer in enumerate(nx.topological_generations(directed)):
        causes = {node: [positions[cause][1] for cause in directed.pred[node]] for node in layer}
        height = {node: sum(found) / len(found) if found else 0.0 for node, found in causes.items()}
        for place, node in enumerate(sorted(layer, key=height.__getitem__)):
            positions[node] = step, place - (len(layer) - 1) / 2
    return positions


def outer_side(positions: Positions, cause: str, effect: str) -> int:
    """Return the side where an edge passes the nodes between its ends: 1 above, -1 below, 0 if there are none."""
    (first, low), (last, high) = positions[cause], positions[effect]
    if last - first <= 1:
        return 0
    return 1 if low + high >= 0 else -1
