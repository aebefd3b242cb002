"""Plot of a causal graph, causes to the left of their effects."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from kpp.plots import _colors, _parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kpp.causal import CausalDAG

#: The largest side of a new figure in inches: a larger image exceeds what matplotlib can draw.
_LARGEST = 50.0
#: The number of characters in a line of a label: nodes are as wide as their labels.
_LINE = 12


def causal_graph(
    graph: CausalDAG,
    *,
    highlight: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a causal graph in layers: each node is one step to the right of its last cause.

    Latent nodes are hollow with a dashed outline, bidirected edges dashed with two heads. Edges over more than one step
    are bent, so that they pass the nodes between.

    Args:
        graph: The graph.
        highlight: The colors of some nodes, such as the treatment and the outcome; the others are gray.
        labels: Labels that replace the names of some nodes.
        ax: Where to draw; a new figure by default.

    Raises:
        ValueError: If the graph has no nodes.
        UnknownNodeError: If `highlight` or `labels` holds a name that is not a node of the graph.

    Example:
        >>> from kpp import plots
        >>> axes = plots.causal_graph(graph, highlight={"dose": "orange"})
    """
    import networkx as nx

    from kpp.causal.graph.drawing import layered_positions, outer_side
    from kpp.causal.toolkit import as_nodes

    if not len(graph):
        raise ValueError("`graph` must have at least one node to be drawn, got none")
    colors, texts = highlight or {}, labels or {}
    as_nodes(graph, list(colors), "highlight")
    as_nodes(graph, list(texts), "labels")
    directed = graph.digraph
    positions = layered_positions(directed)
    rows = collections.Counter(step for step, _ in positions.values())
    texts = {node: _parts.wrapped(texts.get(node, node), _LINE) for node in graph.nodes}
    points = 16 + 6 * max(len(line) for text in texts.values() for line in text.split("\n"))  # across a node
    height = 1.2 + max(1.1, points / 72 + 0.3) * max(rows.values())
    width = 1.6 + max(1.5, points / 72 + 0.5) * len(rows)
    ax = _parts.axes_for(ax, height=min(height, _LARGEST), width=min(width, _LARGEST))
    size = points**2
    for nodes, style in ((graph.observed, "solid"), (graph.latent, "dashed")):
        shown = graph.sort(nodes)
        face = [colors.get(node, _colors.FAINT) if style == "solid" else "white" for node in shown]
        edge = [colors.get(node, _colors.INK) for node in shown]
        circles = nx.draw_networkx_nodes(
            directed, positions, shown, node_size=size, node_color=face, edgecolors=edge, ax=ax
        )
        circles.set_linestyle(style)
    nx.draw_networkx_labels(directed, positions, texts, font_size=9, font_color=_colors.INK, ax=ax)
    arrows = {"node_size": size, "edge_color": _colors.ink(), "ax": ax}
    for side in (-1, 0, 1):  # all edges of a bend at once: each call goes through all that is drawn
        edges = [edge for edge in graph.edges if outer_side(positions, *edge) == side]
        nx.draw_networkx_edges(directed, positions, edges, connectionstyle=f"arc3,rad={-0.3 * side}", **arrows)
    pairs = nx.DiGraph(sorted(graph.sort(pair) for pair in graph.bidirected))
    nx.draw_networkx_edges(
        pairs, positions, arrowstyle="<|-|>", style="dashed", connectionstyle="arc3,rad=0.4", **arrows
    )
    ax.margins(0.18)
    ax.set_axis_off()
    return ax
