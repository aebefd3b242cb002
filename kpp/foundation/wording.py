"""Words of messages and reports: long lists and texts, durations, and a warning that all grid searches share."""

from __future__ import annotations

import difflib
import logging
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

_LOGGER = logging.getLogger("kpp")
_FEWEST = 3  # values of a grid that has an inside
#: The most names in one message: more of them hide what it says.
_MOST = 20


def listed(parts: Sequence[str], most: int) -> str:
    """Join the first parts of a list by commas, and say how many others there are."""
    more = f" and {len(parts) - most} more" if len(parts) > most else ""
    return ", ".join(parts[:most]) + more


def named(values: Iterable[Any]) -> str:
    """Write names as a list in a message, `['x', 'y']`, the first 20 of a long one."""
    return f"[{listed([repr(value) for value in values], _MOST)}]"


def warn_at_edge(chosen: Mapping[str, tuple[float, Any]]) -> None:
    """Warn if the best value of a grid is its least or largest one, because a better one may lie beyond.

    Each name has the best value and all values of its grid. A grid of fewer than 3 values has no inside.
    """
    at_edge = [
        f"{name} = {value:.4g}"
        for name, (value, grid) in chosen.items()
        if len(grid) >= _FEWEST and (value <= np.min(grid) or value >= np.max(grid))
    ]
    if at_edge:
        _LOGGER.warning(
            "the best value is at the edge of the grid, so a better one may lie beyond (%s); extend the grid",
            ", ".join(at_edge),
        )


def brief(text: object) -> str:
    """Return the beginning of a long text, such as the path or the formula in a message."""
    return textwrap.shorten(str(text), 400, placeholder=" ...")


def duration(seconds: float) -> str:
    """Return a duration as text, such as "4.2 s" or "3 min 20 s"."""
    if seconds < 99.5:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def unknown_feature(feature: str, known: Sequence[str]) -> str:
    """Return the message for a feature that does not exist, with similar names."""
    close = difflib.get_close_matches(str(feature), list(known), n=3)
    hint = f"; did you mean {' or '.join(repr(c) for c in close)}?" if close else ""
    return f"unknown feature name {feature!r}; known are {named(known)}{hint}"
