"""Waterfall: how the contributions lead from the base value to one prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from kpp.plots import _colors, _parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def waterfall(
    values: xr.DataArray,
    base_value: xr.DataArray,
    prediction: xr.DataArray,
    data: xr.DataArray | None = None,
    *,
    intervals: xr.DataArray | None = None,
    max_features: int = 10,
    ax: Axes | None = None,
) -> Axes:
    """Plot the contributions to one prediction, from the base value on top down to the prediction, the largest first.

    Args:
        values: Contributions to one prediction, ([chain, draw,] feature); draws are shown by their mean.
        base_value: The value that the contributions are added to, ([chain, draw]).
        prediction: The prediction, ([chain, draw]).
        data: The instance, (feature), for the labels; numbers or text, NaN where a feature has no value.
        intervals: Bounds (feature, bound) from `credible_interval`; each is drawn from where its bar starts.
        max_features: How many rows; the last sums up the remaining features.
        ax: Where to draw; a new figure by default.
    """
    mean = _parts.average(_parts.check_dims(values, "values", ("feature",))).values
    base, end = (
        float(_parts.average(_parts.check_dims(v, n, ())))
        for v, n in ((base_value, "base_value"), (prediction, "prediction"))
    )
    labels = [_label(name, data, j) for j, name in enumerate(_parts.names_of(values))]
    shown, rest, labels = _parts.with_rest(np.argsort(-np.abs(mean), kind="stable"), max_features, labels)
    steps = np.append(mean[shown], mean[rest].sum()) if len(rest) else mean[shown]
    starts = base + np.append(0.0, np.cumsum(steps)[:-1])
    ax = _parts.axes_for(ax, _parts.height_for(len(labels)) + 0.5)
    _draw_steps(ax, starts, steps)
    if intervals is not None:
        bounds = starts[: len(shown), None] + intervals.transpose("feature", "bound").values[shown]
        ax.hlines(np.arange(len(shown)), bounds[:, 0], bounds[:, 1], color=_colors.ink(), linewidth=1.4)
    _parts.feature_rows(ax, labels)
    _mark_ends(ax, base, end)
    _parts.label_x(ax, "prediction", None if intervals is None else intervals.attrs)
    return ax


def _label(name: str, data: xr.DataArray | None, j: int) -> str:
    if data is None or not _parts.has_value(data.values[j]):
        return name
    return f"{name} = {_parts.show_value(data.values[j])}"


def _draw_steps(ax: Axes, starts: np.ndarray, steps: np.ndarray) -> None:
    rows = np.arange(len(steps))
    colors = [_colors.POSITIVE if step >= 0 else _colors.NEGATIVE for step in steps]
    ax.barh(rows, steps, left=starts, height=0.62, color=colors, alpha=0.85)
    ax.vlines(starts[1:], rows[:-1] - 0.31, rows[1:] + 0.31, color=_colors.NEUTRAL, linewidth=0.6)
    for row, (start, step) in enumerate(zip(starts, steps, strict=True)):
        ax.annotate(
            _parts.signed(step), (max(start, start + step), row), (4, 6), textcoords="offset points", fontsize="small"
        )
    ax.margins(x=0.12)


def _mark_ends(ax: Axes, base: float, end: float) -> None:
    for value, style in ((base, "dotted"), (end, "dashed")):
        ax.axvline(value, color=_colors.NEUTRAL, linewidth=1.0, linestyle=style, zorder=0)
    # Two lines, because the title is centered above the axis and must fit into narrow figures with long labels.
    start, stop = (_parts.number(value, ".4g") for value in (base, end))
    title = f"from the base value {start} (dotted)\nto the prediction {stop} (dashed)"
    ax.set_title(title, fontsize="medium", color=_colors.ink(), pad=4)
