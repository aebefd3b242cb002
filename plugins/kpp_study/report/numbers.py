"""Numbers and names as the text of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_MINUS = "\u2212"  # screen readers say it, and may leave out a hyphen
_LONGEST = 60
NOTHING = "\u2013"


def number(value: float, digits: int = 4) -> str:
    """Write a number with `digits` significant digits, without an exponent if possible."""
    if not np.isfinite(value):
        return NOTHING
    if value == 0 or 1e-3 <= abs(value) < 10**digits:
        text = f"{value:.{digits}g}"
    else:
        text = f"{value:,.0f}" if 1 <= abs(value) < 1e7 else f"{value:.{digits - 1}e}"
    return text.replace("-", _MINUS)


def short(value: float) -> str:
    """Write a number with three significant digits."""
    return number(value, 3)


def fixed(value: float, digits: int) -> str:
    """Write a number with `digits` digits after the point."""
    return f"{value:,.{digits}f}".replace("-", _MINUS) if np.isfinite(value) else NOTHING


def signed(value: float) -> str:
    """Write a number with its sign and three significant digits."""
    return f"+{short(value)}" if value > 0 else short(value)


def counted(count: int, word: str) -> str:
    """Write a number of things that a word names."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def percent(share: float) -> str:
    """Write a share in percent without digits after the point."""
    return f"{share:.0%}"


def interval(bounds: Sequence[float] | np.ndarray) -> str:
    """Write the lower and the upper bound of an interval; one dash if they are not known."""
    if not np.isfinite(bounds).any():
        return NOTHING
    return f"{short(float(bounds[0]))} to {short(float(bounds[1]))}"


def short_name(name: Any) -> str:
    """Return a name on one line, the middle of a long one left out."""
    text = " ".join(str(name).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 20]} \u2026 {text[-17:]}"
