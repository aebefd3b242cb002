"""A causal graph as an SVG drawing, in the color of the surrounding text, and the positions of its nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set

import networkx as nx

from kpp.runtime.notebook import Html, escaped

Point = tuple[float, float]

# Sizes in pixels: the distances between steps and between heights, half the height of a node, the width of a letter,
# the length of an arrow's tip.
_GAP, _ROW, _RADIUS, _LETTER, _TIP = 60.0, 56.0, 16.0, 7.4, 8.0
_BEND = 0.55


def draw_svg(directed: nx.DiGraph, bidirected: Sequence[Sequence[str]], latent: Set[str], title: str) -> Html:
    """Draw a graph: latent nodes dashed, bidirected edges dashed with two tips; names are text."""
    positions = layered_positions(directed)
    half = {node: _RADIUS + _LETTER * len(node) / 2 for node in directed}
    widest = max(half.values())
    step = 2 * widest + _GAP
    places = {node: (column * step, height * _ROW) for node, (column, height) in positions.items()}
    edges = [_edge(places, half, a, b, outer_side(positions, a, b) * _BEND * _ROW) for a, b in directed.edges]
    for a, b in bidirected:
        edges.append(_edge(places, half, a, b, -0.8 * _ROW, bidirected=True))
    nodes = [_node(node, places[node], half[node], node in latent) for node in directed]
    heights = [y for _, y in places.values()]
    left, top = -widest - 4, min(heights) - 1.3 * _ROW
    width, height = max(x for x, _ in places.values()) + widest + 4 - left, max(heights) + 1.3 * _ROW - top
    return Html(
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="{left:.1f} {top:.1f} {width:.1f} {height:.1f}" '
        f'width="{width:.0f}" height="{height:.0f}" style="max-width:100%" font-family="sans-serif" font-size="13">'
        f"<title>{escaped(title)}</title>{''.join(edges)}{''.join(nodes)}</svg>"
    )


def _node(node: str, place: Point, half: float, latent: bool) -> str:
    x, y = place
    dashes = ' stroke-dasharray="4 3"' if latent else ""
    return (
        f'<ellipse cx="{x:.1f}" cy="{y:.1f}" rx="{half:.1f}" ry="{_RADIUS:.1f}" fill="currentColor" '
        f'fill-opacity="{0 if latent else 0.08}" stroke="currentColor"{dashes}/>'
        f'<text x="{x:.1f}" y="{y + 4.5:.1f}" text-anchor="middle" fill="currentColor">{escaped(node)}</text>'
    )


def _edge(
    places: dict[str, Point], half: dict[str, float], a: str, b: str, bend: float, *, bidirected: bool = False
) -> str:
    """Draw an edge as a curve whose middle is moved by `bend`, between the borders of its nodes."""
    (x1, y1), (x2, y2) = places[a], places[b]
    # The middle of the curve is half as far from the straight line as its control point.
    control = (x1 + x2) / 2 + (2 * bend if x1 == x2 else 0.0), (y1 + y2) / 2 + (0.0 if x1 == x2 else 2 * bend)
    start, end = _border(places[a], half[a], control), _border(places[b], half[b], control)
    dashes = ' stroke-dasharray="5 4"' if bidirected else ""
    path = f"M{start[0]:.1f} {start[1]:.1f}Q{control[0]:.1f} {control[1]:.1f} {end[0]:.1f} {end[1]:.1f}"
    tips = _tip(end, control) + (_tip(start, control) if bidirected else "")
    return f'<path d="{path}" fill="none" stroke="currentColor"{dashes}/>{tips}'


def _border(center: Point, half: float, towards: Point) -> Point:
    """Return the point of a node's border in the direction of another point."""
    dx, dy = towards[0] - center[0], towards[1] - center[1]
    scale = 1 / max(math.hypot(dx / half, dy / _RADIUS), 1e-9)
    return center[0] + scale * dx, center[1] + scale * dy


def _tip(end: Point, control: Point) -> str:
    """Draw the tip of an arrow at the end of a curve."""
    angle = math.atan2(end[1] - control[1], end[0] - control[0])
    corners = [end, *((end[0] - _TIP * math.cos(angle + d), end[1] - _TIP * math.sin(angle + d)) for d in (-0.4, 0.4))]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return f'<polygon points="{points}" fill="currentColor"/>'


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
