"""The colors that the plots share, and the range of values that a scale of colors covers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from matplotlib.colors import Colormap

POSITIVE = "#c8553d"
NEGATIVE = "#33658a"
NEUTRAL = "#8d99ae"
INK = "#2b2d42"
FAINT = "#d9dce3"
WHISKER = "#b9bfcc"

#: The colors of levels of a category: those of Okabe and Ito without yellow, and two of Tol's, for any color vision.
LEVELS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#332288")
#: A level of a category has a color and a shape: the shapes differ where colors are used twice.
LEVEL_STYLES = [(color, marker) for marker in "o^" for color in LEVELS]

PERCENTILES = "5th to 95th percentile"
_QUANTILES = (0.05, 0.95)
# A range this many times as long as that from the 5th to the 95th percentile holds outliers. That of 10,000 values is
# 2.4 times as long for a normal distribution, and 5 times as long for an exponential one.
_OUTLYING = 10.0


def ink() -> str:
    """Return the color of lines and text outside of bars and cells: that of the user's style, if it is not black."""
    import matplotlib as mpl

    color = str(mpl.rcParams["text.color"])
    return INK if color == "black" else color


def value_colormap() -> Colormap:
    """Return the colors of feature values, from low to high."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("kpp", [NEGATIVE, "#c9b8c8", POSITIVE])


def diverging_colormap(name: str) -> Colormap:
    """Return the colors of values of both signs, white in the middle."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(name, [NEGATIVE, "white", POSITIVE])


def distinct_colors(count: int) -> list[Any]:
    """Return colors that distinguish a few things."""
    if count == 1:
        return [NEGATIVE]
    import matplotlib as mpl

    return [mpl.colormaps["viridis"](place) for place in np.linspace(0.1, 0.85, count)]


def percentile_range(values: np.ndarray) -> tuple[float, float]:
    """Return the 5th and the 95th percentile, or the smallest and the largest value if the percentiles are equal."""
    low, high = np.quantile(values, _QUANTILES)
    if low == high:
        low, high = values.min(), values.max()
    return (float(low), float(high)) if low < high else (float(low) - 0.5, float(high) + 0.5)


def range_without_outliers(values: np.ndarray) -> tuple[float, float]:
    """Return the smallest and the largest value, or the 5th and the 95th percentile if there are outliers."""
    low, high = float(values.min()), float(values.max())
    inner = percentile_range(values)
    return inner if high - low > _OUTLYING * (inner[1] - inner[0]) else (low, high)


def clipped_ends(values: np.ndarray, low: float, high: float) -> Literal["neither", "min", "max", "both"]:
    """Return at which ends of a scale of colors values lie beyond it; a color bar has an arrow there."""
    below, above = bool((values < low).any()), bool((values > high).any())
    if below and above:
        return "both"
    return "min" if below else "max" if above else "neither"
