"""The colors, axes, orders of features and labels that the plots share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from kpp.plots.intervals import describe_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

POSITIVE = "#c8553d"
NEGATIVE = "#33658a"
NEUTRAL = "#8d99ae"
INK = "#2b2d42"
FAINT = "#d9dce3"
WHISKER = "#b9bfcc"

_SAMPLE_DIMS = ("chain", "draw")
# The number of characters from which a label is shortened.
_LONGEST = 60


def axes_for(ax: Axes | None, height: float, width: float = 7.0) -> Axes:
    """Return `ax`, or the axis of a new figure of that size in inches."""
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    return ax


def height_for(rows: int) -> float:
    """Return the height in inches of a figure with one row per feature."""
    return 1.1 + 0.42 * rows


def value_colormap() -> Colormap:
    """Return the colors of feature values, from low to high."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("kpp", [NEGATIVE, "#c9b8c8", POSITIVE])


def diverging_colormap(name: str) -> Colormap:
    """Return the colors of values of both signs, white in the middle."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(name, [NEGATIVE, "white", POSITIVE])


def check_dims(array: xr.DataArray, name: str, dims: Sequence[str]) -> xr.DataArray:
    """Return an array in the order of `dims`, after chain and draw; raise ValueError if it has other dimensions."""
    found = [dim for dim in array.dims if dim not in _SAMPLE_DIMS]
    if set(found) != set(dims):
        hint = "; select one output first" if "output" in found else ""
        raise ValueError(f"`{name}` must have the dimensions ([chain, draw,] {', '.join(dims)}), got {found}{hint}")
    return array.transpose(..., *dims)


def average(array: xr.DataArray) -> xr.DataArray:
    """Return the mean over chains and draws, if there are any."""
    return array.mean([dim for dim in _SAMPLE_DIMS if dim in array.dims])


def has_draws(array: xr.DataArray) -> bool:
    """Return whether there are chains and draws."""
    return all(dim in array.dims for dim in _SAMPLE_DIMS)


def largest_first(importance: np.ndarray, max_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the features shown, the most important first, and of the combined remaining ones."""
    if max_features < 1:
        raise ValueError(f"`max_features` must be at least 1, got {max_features}")
    order = np.argsort(-importance, kind="stable")
    shown = len(order) if len(order) <= max_features else max_features - 1
    return order[:shown], order[shown:]


def largest(importance: np.ndarray, max_features: int) -> np.ndarray:
    """Return the positions of the most important features, the most important first."""
    if max_features < 1:
        raise ValueError(f"`max_features` must be at least 1, got {max_features}")
    return np.argsort(-importance, kind="stable")[:max_features]


def distinct_colors(count: int) -> list[Any]:
    """Return colors that distinguish a few things."""
    if count == 1:
        return [NEGATIVE]
    import matplotlib as mpl

    return [mpl.colormaps["viridis"](place) for place in np.linspace(0.1, 0.85, count)]


def names_of(array: xr.DataArray, dim: str = "feature") -> list[str]:
    """Return the labels along a dimension as text."""
    return (
        [str(name) for name in array.coords[dim].values]
        if dim in array.coords
        else [str(i) for i in range(array.sizes[dim])]
    )


def plain(text: str) -> str:
    """Return text as matplotlib shows it well: one line, the middle of a long one left out, and no formula for a $."""
    import matplotlib as mpl

    text = " ".join(text.split())
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - 20]} \u2026 {text[-17:]}"
    return text.replace("$", r"\$") if mpl.rcParams["text.parse_math"] else text


def rest_label(count: int) -> str:
    """Return the label of the remaining features, which are shown as one row."""
    return f"{count} other features" if count > 1 else "1 other feature"


def has_value(value: Any) -> bool:
    """Return whether a feature has a value; the value of a feature of several columns is NaN."""
    return not (isinstance(value, (float, np.floating)) and np.isnan(value))


def show_value(value: Any) -> str:
    """Return a feature's value as short text."""
    return f"{value:.3g}" if isinstance(value, (float, np.floating)) else str(value)


def feature_rows(ax: Axes, labels: Sequence[str]) -> None:
    """Give the vertical axis one row per feature, the first on top, without a frame."""
    ax.set_yticks(range(len(labels)), [plain(label) for label in labels])
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)


def label_x(ax: Axes, text: str, interval: Mapping[str, Any] | None = None) -> None:
    """Label the horizontal axis; a second line explains the thin lines, if kind and probability are given."""
    note = "" if interval is None else f"\nlines: {describe_interval(**interval)}"
    ax.set_xlabel(plain(text) + note)


def signed(value: float) -> str:
    """Return a number with its sign, with the typographic minus for negative numbers."""
    return f"{value:+.3g}".replace("-", "\u2212")


def open_frame(ax: Axes) -> None:
    """Leave only the left and lower lines of the frame."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
