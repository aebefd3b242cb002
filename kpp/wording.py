"""Long lists and texts in messages and reports: the beginning, and how much is left out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["brief", "listed", "named"]

#: The most names in one message: more of them hide what it says.
_MOST = 20


def listed(parts: Sequence[str], most: int) -> str:
    """Join the first parts of a list by commas, and say how many others there are."""
    more = f" and {len(parts) - most} more" if len(parts) > most else ""
    return ", ".join(parts[:most]) + more


def named(values: Iterable[Any]) -> str:
    """Write names as a list in a message, `['x', 'y']`, the first 20 of a long one."""
    return f"[{listed([repr(value) for value in values], _MOST)}]"


def brief(text: object) -> str:
    """Return the beginning of a long text, such as the path or the formula in a message."""
    return textwrap.shorten(str(text), 400, placeholder=" ...")
