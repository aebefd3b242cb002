"""Draw the rooms of a house and the imports between them as an SVG picture: up to three grounds, arrows downward.

The picture depends on the graph alone, to the last byte, so that a test can compare it; `fsum`, as `sum` adds floats in
another way since Python 3.12. Arrows that follow from others are left out, and arrows over several floors that lead to
the same room join on their way.
"""

from __future__ import annotations

import random
from bisect import bisect, insort
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from math import fsum

import networkx as nx

FILLS = {"models": "#f0f5ea", "plugins": "#faf2e7", "core": "#eef3f6"}
STROKES = {"models": "#8aa86c", "plugins": "#c79c66", "core": "#8ba4b4"}
TITLES = {"models": "models (kpp_models)", "plugins": "plugins (kpp_...)", "core": "core (kpp)"}
INK, PALE = "#26323a", "#66757f"
NOTE = "An arrow leads to what is imported. An arrow that follows from others is left out. A slash marks a folder."
# In pixels: a letter (generous, as the reader's font is unknown), the space beside a label, a box, a floor.
LETTER, PADDING, BOX, FLOOR = 7.7, 11.0, 26.0, 68.0
# In pixels: between boxes, for a passing arrow, around a band, for its title, between models and plugins,
# between the core and what is above it.
GAP, LANE, MARGIN, TITLE, ALLEY, STREET = 24.0, 16.0, 20.0, 34.0, 56.0, 58.0
STARTS, SWEEPS, ROUNDS = 100, 10, 1500
PULL = (
    1.0,
    3.0,
    30.0,
)  # of an arrow between two rooms, a room and a waypoint, two waypoints: long arrows stay straight

Room = tuple[str, str]  # the band (models, plugins or core) and the name
Stop = tuple[
    Room, int, str
]  # where an arrow to a room is on a floor, and the band there: the room itself, or a waypoint


@dataclass(frozen=True)
class Plan:
    """Where everything stands.

    Args:
        level: The floor of each room.
        floors: The stops of each floor, lowest floor first, from left to right.
        steps: The arrows, cut at each floor; each leads from a stop to one on the next lower floor.
        titles: What is written on the ground of each band.
    """

    level: Mapping[Room, int]
    floors: list[list[Stop]]
    steps: list[tuple[Stop, Stop]]
    titles: Mapping[str, str] = field(default_factory=lambda: TITLES)

    def is_room(self, stop: Stop) -> bool:
        """Return whether a stop is a room, not a waypoint."""
        return self.level[stop[0]] == stop[1]

    def width(self, stop: Stop) -> float:
        """Return the width that a stop takes on its floor."""
        return box_width(stop) + GAP if self.is_room(stop) else LANE

    def ends(self, band: str) -> tuple[int, int]:
        """Return the lowest and the highest floor of a band."""
        levels = [level for room, level in self.level.items() if room[0] == band]
        return min(levels), max(levels)

    @property
    def bands(self) -> list[str]:
        """The bands that have rooms."""
        return [band for band in FILLS if any(room[0] == band for room in self.level)]


def draw(graph: nx.DiGraph, titles: Mapping[str, str] = TITLES) -> str:
    """Return the picture of an acyclic graph of rooms in which no room of the core imports one of another band."""
    plan = tidy(replace(make_plan(nx.transitive_reduction(graph)), titles=titles))
    return svg(plan, place(plan))


def make_plan(graph: nx.DiGraph) -> Plan:
    """Put each room on its floor, and cut each arrow at each floor."""
    level = levels(graph)
    core = max((height for room, height in level.items() if room[0] == "core"), default=-1)
    stops, steps = {(room, height, room[0]) for room, height in level.items()}, set()
    for user, used in graph.edges:
        stop = (user, level[user], user[0])
        for height in range(level[user] - 1, level[used] - 1, -1):
            below = (used, height, "core" if height <= core else user[0])
            steps.add((stop, below))
            stop = below
            stops.add(below)
    floors = [sorted(stop for stop in stops if stop[1] == height) for height in range(max(level.values()) + 1)]
    return Plan(level, floors, sorted(steps))


def levels(graph: nx.DiGraph) -> dict[Room, int]:
    """Return the floor of each room.

    Each room stands as low as its imports allow, models and plugins above the whole core. A room with more users than
    imports then moves up to its users, which makes the arrows shorter.
    """
    upward = list(nx.lexicographical_topological_sort(graph.reverse()))
    level: dict[Room, int] = {}
    ground = 0
    for rooms in ([room for room in upward if (room[0] == "core") == core] for core in (True, False)):
        for room in rooms:
            level[room] = max([ground, *(level[used] + 1 for used in graph.successors(room))])
        ground = max(level.values(), default=-1) + 1
        for room in reversed(rooms):
            users = [user for user in graph.predecessors(room)]
            ceiling = [level.get(user, ground) - 1 for user in users]
            if len(users) > graph.out_degree(room):
                level[room] = min(ceiling)
    return level


def links(plan: Plan) -> tuple[dict[Stop, list[Stop]], dict[Stop, list[Stop]]]:
    """Return for each stop those that its arrows come from, and those that they lead to."""
    above, below = defaultdict(list), defaultdict(list)
    for upper, lower in plan.steps:
        above[lower].append(upper)
        below[upper].append(lower)
    return above, below


def tidy(plan: Plan) -> Plan:
    """Order the stops on each floor so that few arrows cross: sweeps of barycenters from several random orders."""
    above, below = links(plan)
    generator = random.Random(0)
    candidates: list[list[list[Stop]]] = []
    for _ in range(STARTS):
        floors = [sort_floor(floor, lambda stop: generator.random()) for floor in plan.floors]
        for sweep in range(SWEEPS):
            order = range(1, len(floors)) if sweep % 2 else range(len(floors) - 2, -1, -1)
            for height in order:
                other, ends = (floors[height - 1], below) if sweep % 2 else (floors[height + 1], above)
                floors[height] = sort_floor(floors[height], barycenter(floors[height], other, ends))
            candidates.append(list(floors))
    return replace(plan, floors=min(candidates, key=lambda floors: crossings(floors, below)))


def sort_floor(floor: Sequence[Stop], key: Callable[[Stop], float]) -> list[Stop]:
    """Sort the stops of a floor, the plugins to the right of the models."""
    return sorted(floor, key=lambda stop: (stop[2] == "plugins", key(stop), stop))


def barycenter(
    floor: Sequence[Stop], other: Sequence[Stop], ends: Mapping[Stop, list[Stop]]
) -> Callable[[Stop], float]:
    """Return a stop's mean relative rank of the stops on the other floor that it is linked to; without any, its own."""
    own, rank = ({stop: index / len(row) for index, stop in enumerate(row)} for row in (floor, other))
    return lambda stop: fsum(rank[end] for end in ends[stop]) / len(ends[stop]) if ends[stop] else own[stop]


def crossings(floors: Sequence[Sequence[Stop]], below: Mapping[Stop, list[Stop]]) -> int:
    """Count the pairs of arrows that cross."""
    total = 0
    for lower, upper in zip(floors, floors[1:], strict=False):
        rank = {stop: index for index, stop in enumerate(lower)}
        seen: list[int] = []
        for stop in upper:
            ends = [rank[end] for end in below[stop]]
            total += sum(len(seen) - bisect(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def frames(plan: Plan) -> dict[str, tuple[float, float]]:
    """Return the left and right end of each band: the core below, models and plugins side by side above it."""
    rows = {band: [[stop for stop in floor if stop[2] == band] for floor in plan.floors] for band in FILLS}
    need = {band: max(fsum(map(plan.width, row)) for row in rows[band]) for band in FILLS}
    upper = need["models"] + need["plugins"]
    total = max(need["core"], upper + ALLEY)
    wall = (total - ALLEY) * need["models"] / upper if upper else total
    return {"models": (0.0, wall), "plugins": (wall + ALLEY, total), "core": (0.0, total)}


def place(plan: Plan) -> dict[Stop, float]:
    """Return the horizontal center of each stop: near the stops that it is linked to, and without overlaps."""
    above, below = links(plan)
    frame = frames(plan)
    linked = {stop: above[stop] + below[stop] for floor in plan.floors for stop in floor}
    pulls = {stop: [PULL[2 - plan.is_room(stop) - plan.is_room(end)] for end in linked[stop]] for stop in linked}
    x = {stop: fsum(frame[stop[2]]) / 2 for stop in linked}
    rows = [[stop for stop in floor if stop[2] == band] for floor in plan.floors for band in frame]
    rows = [row for row in rows if row]
    for turn in range(ROUNDS):
        for row in rows if turn % 2 else reversed(rows):
            weights = [fsum(pulls[stop]) or 1.0 for stop in row]
            sums = [fsum(pull * x[end] for pull, end in zip(pulls[stop], linked[stop], strict=True)) for stop in row]
            wanted = [
                total / weight if linked[stop] else x[stop]
                for stop, total, weight in zip(row, sums, weights, strict=True)
            ]
            centers = spread(wanted, weights, [plan.width(stop) for stop in row], frame[row[0][2]])
            x |= zip(row, centers, strict=True)
    return x


def spread(
    wanted: Sequence[float], weights: Sequence[float], widths: Sequence[float], frame: tuple[float, float]
) -> list[float]:
    """Return the centers closest to those wanted that neither overlap nor leave the frame (isotonic regression)."""
    offsets = [fsum(widths[:index]) + width / 2 for index, width in enumerate(widths)]
    blocks: list[tuple[float, float, int]] = []  # sum of weights, weighted sum of left ends, number of stops
    for want, weight, offset in zip(wanted, weights, offsets, strict=True):
        blocks.append((weight, weight * (want - offset), 1))
        while len(blocks) > 1 and blocks[-2][1] / blocks[-2][0] > blocks[-1][1] / blocks[-1][0]:
            last, before = blocks.pop(), blocks.pop()
            blocks.append((before[0] + last[0], before[1] + last[1], before[2] + last[2]))
    starts = [total / weight for weight, total, count in blocks for _ in range(count)]
    left, right = frame[0], frame[1] - fsum(widths)
    return [min(max(start, left), right) + offset for start, offset in zip(starts, offsets, strict=True)]


def box_width(stop: Stop) -> float:
    """Return the width of the box of a room."""
    return LETTER * len(stop[0][1]) + 2 * PADDING


def svg(plan: Plan, x: Mapping[Stop, float]) -> str:
    """Write the picture."""
    left, width = -2 * MARGIN, frames(plan)["core"][1] + 4 * MARGIN
    bottom = vertical(plan, 0) + BOX / 2 + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.0f} 0 {width:.0f} {bottom + 44:.0f}" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="13" fill="{INK}">\n'
        "<title>The parts of kpp and the imports between them</title>\n"
        f"<defs>{''.join(map(marker, plan.bands))}</defs>\n"
        f'<rect x="{left:.0f}" width="100%" height="100%" fill="#fff"/>'
    )
    parts = [
        *(panel(plan, band) for band in plan.bands),
        *(arrow(plan, x, upper, lower) for upper, lower in plan.steps),
        *(box(plan, x, stop) for floor in plan.floors for stop in floor if plan.is_room(stop)),
    ]
    note = f'<text x="-4" y="{bottom + 26:.1f}" fill="{PALE}">{NOTE}</text>'
    return "\n".join([head, *parts, note, "</svg>"]) + "\n"


def marker(band: str) -> str:
    """Write the head of the arrows from a band."""
    return (
        f'<marker id="{band}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 .5L8 4L0 7.5z" fill="{STROKES[band]}"/></marker>'
    )


def vertical(plan: Plan, height: int) -> float:
    """Return how far below the top of the picture a floor is; the core stands a little apart from what is above it."""
    core = plan.ends("core")[1] if "core" in plan.bands else -1
    apart = STREET if height <= core < len(plan.floors) - 1 else 0.0
    return MARGIN + TITLE + BOX / 2 + (len(plan.floors) - 1 - height) * FLOOR + apart


def panel(plan: Plan, band: str) -> str:
    """Write the colored ground of a band and its title."""
    left, right = frames(plan)[band]
    lowest, highest = plan.ends(band)
    top, bottom = vertical(plan, highest) - BOX / 2 - TITLE, vertical(plan, lowest) + BOX / 2 + MARGIN
    width, height = right - left + 2 * MARGIN, bottom - top
    return (
        f'<rect x="{left - MARGIN:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="12" '
        f'fill="{FILLS[band]}"/>'
        f'<text x="{left - 4:.1f}" y="{top + 21:.1f}" font-size="15" font-weight="bold" fill="{PALE}">'
        f"{plan.titles[band]}</text>"
    )


def arrow(plan: Plan, x: Mapping[Stop, float], upper: Stop, lower: Stop) -> str:
    """Write one step of an arrow; past a floor it goes straight down."""
    start, end = vertical(plan, upper[1]) + BOX / 2, vertical(plan, lower[1]) - BOX / 2
    middle = (start + end) / 2
    path = (
        f"M{x[upper]:.1f} {start:.1f}C{x[upper]:.1f} {middle:.1f} {x[lower]:.1f} {middle:.1f} {x[lower]:.1f} {end:.1f}"
    )
    last = f' marker-end="url(#{upper[2]})"' if plan.is_room(lower) else ""
    down = "" if plan.is_room(lower) else f"v{BOX:.1f}"
    return f'<path d="{path}{down}" fill="none" stroke="{STROKES[upper[2]]}" stroke-width="1.3"{last}/>'


def box(plan: Plan, x: Mapping[Stop, float], stop: Stop) -> str:
    """Write the box and the name of a room."""
    width, middle = box_width(stop), vertical(plan, stop[1])
    return (
        f'<rect x="{x[stop] - width / 2:.1f}" y="{middle - BOX / 2:.1f}" width="{width:.1f}" height="{BOX:.0f}" rx="6" '
        f'fill="#fff" stroke="{STROKES[stop[2]]}"/>'
        f'<text x="{x[stop]:.1f}" y="{middle + 4.5:.1f}" text-anchor="middle">{escape(stop[0][1])}</text>'
    )
