"""Plot of a causal graph, causes to the left of their effects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpp.plots import _parts

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes

    from kpp.causal import CausalDAG


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

    Returns:
        The axis.

    Raises:
        ValueError: If the graph has no nodes.
        UnknownNodeError: If `highlight` or `labels` holds a name that is not a node of the graph.
    """
    import networkx as nx

    from kpp.causal import as_nodes

    if not len(graph):
        raise ValueError("`graph` must have at least one node to be drawn, got none")
    colors, texts = highlight or {}, labels or {}
    as_nodes(graph, list(colors), "highlight")
    as_nodes(graph, list(texts), "labels")
    directed = graph.digraph
    layers = list(nx.topological_generations(directed))
    layer = {node: step for step, generation in enumerate(layers) for node in generation}
    ax = _parts.axes_for(ax, height=1.2 + 1.1 * max(map(len, layers)), width=1.6 + 1.5 * len(layers))
    positions = _positions(directed, layers)
    texts = {node: texts.get(node, node) for node in graph.nodes}
    size = (16 + 6 * max(map(len, texts.values()))) ** 2
    for nodes, style in ((graph.observed, "solid"), (graph.latent, "dashed")):
        shown = graph.sort(nodes)
        face = [colors.get(node, _parts.FAINT) if style == "solid" else "white" for node in shown]
        edge = [colors.get(node, _parts.INK) for node in shown]
        circles = nx.draw_networkx_nodes(
            directed, positions, shown, node_size=size, node_color=face, edgecolors=edge, ax=ax
        )
        circles.set_linestyle(style)
    nx.draw_networkx_labels(directed, positions, texts, font_size=9, font_color=_parts.INK, ax=ax)
    arrows = {"node_size": size, "edge_color": _parts.INK, "ax": ax}
    for a, b in graph.edges:
        # A bent edge runs on the outer side: above the middle if its nodes are above it, otherwise below.
        outside = -0.3 if positions[a][1] + positions[b][1] >= 0 else 0.3
        bend = outside if layer[b] - layer[a] > 1 else 0.0
        nx.draw_networkx_edges(directed, positions, [(a, b)], connectionstyle=f"arc3,rad={bend}", **arrows)
    pairs = nx.DiGraph(sorted(graph.sort(pair) for pair in graph.bidirected))
    nx.draw_networkx_edges(
        pairs, positions, arrowstyle="<|-|>", style="dashed", connectionstyle="arc3,rad=0.4", **arrows
    )
    ax.margins(0.18)
    ax.set_axis_off()
    return ax


def _positions(directed: nx.DiGraph, layers: list[list[str]]) -> dict[str, tuple[float, float]]:
    """Place each layer in a column, its nodes in the order of the mean height of their causes."""
    positions: dict[str, tuple[float, float]] = {}
    for step, layer in enumerate(layers):
        causes = {node: [positions[cause][1] for cause in directed.pred[node]] for node in layer}
        height = {node: sum(found) / len(found) if found else 0.0 for node, found in causes.items()}
        for place, node in enumerate(sorted(layer, key=height.__getitem__)):
            positions[node] = float(step), place - (len(layer) - 1) / 2
    return positions
