"""Small bars as inline SVG: their colors follow the style of the page, in light and dark and on paper.

The picture of a bar is 100 units wide and 10 high, and is stretched to the width of its cell. It holds no text: the
cells beside it say the same in numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

_TIP = 1.5  # the length of the tip of an arrow


class Scale:
    """The map from values to the width of a picture, 0 to 100, such that some values fit in.

    The margin is the room left on either side, as a share of the range.
    """

    def __init__(self, values: Sequence[float] | np.ndarray, *, margin: float = 0.02) -> None:
        low, high = float(np.min(values)), float(np.max(values))
        room = margin * (high - low)
        self.low = low - room
        self.width = (high - low + 2 * room) or 1.0

    def __call__(self, value: float) -> str:
        """Return a place as text with one digit after the point."""
        return f"{self._place(value):.1f}".removesuffix(".0")

    def _place(self, value: float) -> float:
        return min(100.0, max(0.0, 100.0 * (value - self.low) / self.width))

    def arrow(self, start: float, end: float) -> str:
        """Return the outline of an arrow from one value to another; it points to the left if the value falls."""
        places = self._place(start), self._place(end)
        tip = min(_TIP, abs(places[1] - places[0])) * (1 if end >= start else -1)
        first, neck, last = (f"{place:.1f}".removesuffix(".0") for place in (places[0], places[1] - tip, places[1]))
        return f"M{first} 1H{neck}L{last} 5 {neck} 9H{first}z"


def bar(scale: Scale, size: float, bounds: Sequence[float] | None) -> Markup:
    """Draw a bar from zero to a size, with a line for its interval."""
    shape = f'<path class="size" d="M{scale(0.0)} 1H{scale(size)}V9H{scale(0.0)}z"/>'
    return _picture(shape + _line(scale, bounds))


def step(scale: Scale, start: float, size: float, bounds: Sequence[float] | None, base: float) -> Markup:
    """Draw one step of a waterfall as an arrow, with a line for its interval, and the base value as a thin line."""
    kind = "up" if size >= 0 else "down"
    arrow = f'<path class="{kind}" d="{scale.arrow(start, start + size)}"/>' if size else ""
    shifted = None if bounds is None else [start + bound for bound in bounds]
    return _picture(f'<path class="base" d="M{scale(base)} 0V10"/>{arrow}' + _line(scale, shifted))


def _line(scale: Scale, bounds: Sequence[float] | None) -> str:
    return "" if bounds is None else f'<path class="ci" d="M{scale(bounds[0])} 5H{scale(bounds[1])}"/>'


def _picture(content: str) -> Markup:
    """Return a picture; it holds only our own elements and numbers."""
    opening = '<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
    return Markup(f"{opening}{content}</svg>")
