"""The axes, rows of features, labels and legends that the plots share."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SAMPLE_DIMS = ("chain", "draw")
# The number of characters from which a label is shortened, and that of a line of a label with several lines.
_LONGEST, _LINE = 60, 25
# The smallest text in points that can still be read, and the height of a line of text and the mean width of a
# character, as multiples of its size.
_SMALLEST, _LINE_HEIGHT, _CHARACTER_WIDTH = 4.0, 1.25, 0.6
_MOST_TICKS = 40


def axes_for(ax: Axes | None, height: float, width: float = 7.0) -> Axes:
    """Return `ax`, or the axis of a new figure of that size in inches."""
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    return ax


def height_for(rows: int, lanes: int = 1) -> float:
    """Return the height in inches of a figure with one row per feature, each with some points or bars side by side."""
    return 1.1 + rows * float(np.clip(0.14 + 0.07 * lanes, 0.42, 0.8))


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


def with_rest(order: np.ndarray, max_features: int, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return the positions of the features shown and of the others, which share the last row, and the rows' labels."""
    shown, rest = first(order, max_features), order[:0]
    if len(shown) == len(order):
        return shown, rest, [names[j] for j in shown]
    shown, rest = shown[:-1], order[max_features - 1 :]
    others = f"{len(rest)} other features" if len(rest) > 1 else "1 other feature"
    return shown, rest, [*(names[j] for j in shown), others]


def first(order: np.ndarray, max_features: int) -> np.ndarray:
    """Return the positions of the most important features, the most important first."""
    if max_features < 1:
        raise ValueError(f"`max_features` must be at least 1, got {max_features}")
    return order[:max_features]


def names_of(array: xr.DataArray, dim: str = "feature") -> list[str]:
    """Return the labels along a dimension as text."""
    return (
        [str(name) for name in array.coords[dim].values]
        if dim in array.coords
        else [str(i) for i in range(array.sizes[dim])]
    )


def plain(text: str) -> str:
    """Return text as matplotlib shows it well: one line, the middle of a long one left out, and no formula for a $."""
    return _without_formulas(_shortened(text))


def wrapped(text: str, width: int = _LINE) -> str:
    """Return text as `plain` does, in lines of 25 characters, which end at a space or after a joint if possible."""
    text = _shortened(text)
    if len(text) > width:
        # textwrap breaks lines at a vertical tab, which cannot be in text whose words were joined by spaces.
        text = re.sub(r"(?<=[_/.])(?=[^\W\d])", "\v", text)
        lines = textwrap.wrap(text, width, expand_tabs=False, replace_whitespace=False)
        text = "\n".join(lines).replace("\v", "")
    return _without_formulas(text)


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 20]} \u2026 {text[-17:]}"


def _without_formulas(text: str) -> str:
    import matplotlib as mpl

    return text.replace("$", r"\$") if mpl.rcParams["text.parse_math"] else text


def has_value(value: Any) -> bool:
    """Return whether a feature has a value; the value of a feature of several columns is NaN."""
    return not (isinstance(value, (float, np.floating)) and np.isnan(value))


def show_value(value: Any) -> str:
    """Return a feature's value as short text."""
    return number(float(value)) if isinstance(value, (float, np.floating)) else str(value)


def number(value: float, form: str = ".3g") -> str:
    """Return a number as text, by default with three digits, with the typographic minus."""
    return f"{value:{form}}".replace("-", "\u2212")


def signed(value: float) -> str:
    """Return a number with its sign, with the typographic minus for negative numbers."""
    return number(value, "+.3g")


def feature_rows(ax: Axes, labels: Sequence[str]) -> None:
    """Give the vertical axis one row per feature, the first on top, without a frame."""
    ax.set_yticks(range(len(labels)), [wrapped(label) for label in labels])
    for label in ax.get_yticklabels():  # only long names are written smaller
        label.set_fontsize(fitting_size(ax, ax.bbox.height / len(labels), [label.get_text()]))
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)


def name_ticks(ax: Axes, names: Sequence[str]) -> None:
    """Put names at 0, 1, ... on the horizontal axis, turned if they do not fit side by side; of very many some."""
    places = range(0, len(names), -(-len(names) // _MOST_TICKS))
    texts = [wrapped(names[place]) for place in places]
    room = ax.bbox.width / len(texts)
    longest = max(len(line) for text in texts for line in text.split("\n"))
    if longest * _CHARACTER_WIDTH * _pixels(ax, _tick_size()) < 0.8 * room:
        ax.set_xticks(places, texts)
        return
    size = fitting_size(ax, room / np.sqrt(2.0), texts)
    ax.set_xticks(places, texts, fontsize=size, rotation=45, ha="right", rotation_mode="anchor")


def fitting_size(ax: Axes, height: float, texts: Sequence[str], width: float = np.inf) -> float:
    """Return the size in points of texts that fit into a height and a width in pixels, at most that of the ticks."""
    lines = max(text.count("\n") + 1 for text in texts)
    longest = max(len(line) for text in texts for line in text.split("\n"))
    pixels = min(height / (_LINE_HEIGHT * lines), width / (_CHARACTER_WIDTH * max(1, longest)))
    return float(np.clip(pixels / _pixels(ax, 1.0), _SMALLEST, _tick_size()))


def _pixels(ax: Axes, points: float) -> float:
    return points * ax.figure.dpi / 72.0


def _tick_size() -> float:
    import matplotlib as mpl
    from matplotlib.font_manager import FontProperties

    return float(FontProperties(size=mpl.rcParams["ytick.labelsize"]).get_size_in_points())


def legend_beside(ax: Axes, title: str | None = None) -> None:
    """Put the legend to the right of the axis, where there is no data."""
    count = len(ax.get_legend_handles_labels()[1])
    legend = ax.legend(
        loc="upper left", bbox_to_anchor=(1.02, 1.0), borderaxespad=0.0, frameon=False, fontsize="small", title=title,
        title_fontsize="small", ncols=-(-count // 25),
    )  # fmt: skip
    if ax.figure.get_layout_engine() is None:  # nobody else makes room for it
        box, share = ax.get_position(), legend.get_window_extent().width / ax.figure.bbox.width
        ax.set_position((box.x0, box.y0, max(0.97 * box.width - share, 0.3 * box.width), box.height))


def label_x(ax: Axes, text: str, interval: Mapping[str, Any] | None = None) -> None:
    """Label the horizontal axis; a second line explains the thin lines, if kind and probability are given."""
    kinds = {"eti": "equal-tailed", "hdi": "highest-density"}
    words = "" if interval is None else f"{100 * interval['probability']:g}% {kinds[interval['kind']]} interval"
    note = f"\nlines: {words}" if words else ""
    ax.set_xlabel(plain(text) + note)


def open_frame(ax: Axes) -> None:
    """Leave only the left and lower lines of the frame."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
