"""Bars of a number of each feature, such as its importance over all instances, of one or several explanations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from kpp.plots import _colors, _parts
from kpp.plots.attributions.importance import importance_order, mean_absolute
from kpp.plots.intervals import IntervalKind, check_probability, credible_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def bar(
    values: xr.DataArray,
    *,
    probability: float = 0.9,
    kind: IntervalKind = "eti",
    max_features: int = 10,
    independent: bool = False,
    ax: Axes | None = None,
) -> Axes:
    r"""Plot the mean absolute contribution of each feature, :math:`I_j = \frac1p \sum_i |\phi_{ij}|`.

    With draws the bar is the mean of its draws, and the line its interval. They have no bias, so the interval of a
    feature without effect reaches 0; see `kpp.plots.toolkit.mean_absolute`.

    Args:
        values: Contributions, ([chain, draw,] instance, feature).
        probability: The probability of the intervals.
        kind: Their kind, "eti" or "hdi".
        max_features: How many rows; the last sums up the remaining features.
        independent: Whether the draws of instances are independent, although their errors are not.
        ax: Where to draw; a new figure by default.

    Example:
        >>> values = xr.DataArray(x[:3], dims=("instance", "feature"), coords={"feature": ["a", "b"]})
        >>> kpp.plots.bar(values).get_xlabel()
        'mean absolute contribution'
    """
    values = _parts.check_dims(values, "values", ("instance", "feature"))
    importance = mean_absolute(values, independent=independent)
    shown, rest, labels = _parts.with_rest(importance_order(importance), max_features, _parts.names_of(values))
    values = _with_rest(importance, shown, rest)
    return _draw_bars(values, labels, "mean absolute contribution", probability, kind, ax)


def scores(
    values: xr.DataArray,
    *,
    label: str = "score",
    probability: float = 0.9,
    kind: IntervalKind = "eti",
    max_features: int = 10,
    ax: Axes | None = None,
) -> Axes:
    """Plot a number of each feature, the largest first; the bar is its mean and the line its interval.

    Args:
        values: The numbers, ([chain, draw,] feature).
        label: What the numbers are, for the horizontal axis.
        probability: The probability of the intervals, which need draws.
        kind: Their kind, "eti" or "hdi".
        max_features: How many features are shown.
        ax: Where to draw; a new figure by default.
    """
    values = _parts.check_dims(values, "values", ("feature",))
    shown = _parts.first(importance_order(values), max_features)
    names = _parts.names_of(values)
    return _draw_bars(values.isel(feature=shown), [names[j] for j in shown], label, probability, kind, ax)


def _with_rest(importance: xr.DataArray, shown: np.ndarray, rest: np.ndarray) -> xr.DataArray:
    kept = importance.isel(feature=shown).drop_vars("feature", errors="ignore")
    if not len(rest):
        return kept
    return xr.concat([kept, importance.isel(feature=rest).sum("feature").expand_dims("feature")], dim="feature")


def _draw_bars(
    values: xr.DataArray, labels: list[str], label: str, probability: float, kind: IntervalKind, ax: Axes | None
) -> Axes:
    """Draw one bar for each label, in the order of `values`, ([chain, draw,] feature)."""
    check_probability(probability, kind)
    height = _parts.average(values).values
    ax = _parts.axes_for(ax, _parts.height_for(len(labels)))
    rows = np.arange(len(labels))
    ax.barh(rows, height, height=0.62, color=_colors.NEGATIVE, alpha=0.85)
    bounds = credible_interval(values, probability, kind) if _parts.has_draws(values) else None
    ends = height
    if bounds is not None:
        ax.hlines(rows, bounds.values[:, 0], bounds.values[:, 1], color=_colors.ink(), linewidth=1.8)
        ends = np.maximum(bounds.values[:, 1], height)
    for row, (mean, end) in enumerate(zip(height, np.maximum(ends, 0.0), strict=True)):
        ax.annotate(_parts.number(mean), (end, row), (5, 0), textcoords="offset points", va="center", fontsize="small")
    ax.margins(x=0.12)
    if min(height.min(), 0.0 if bounds is None else bounds.values.min()) >= 0.0:
        ax.set_xlim(left=0.0)
    else:
        ax.axvline(0.0, color=_colors.ink(), linewidth=0.8)
    _parts.feature_rows(ax, labels)
    _parts.label_x(ax, label, None if bounds is None else bounds.attrs)
    return ax


_HEIGHT = 0.8


def comparison(values: xr.DataArray, *, max_features: int = 10, ax: Axes | None = None) -> Axes:
    r"""Plot the mean absolute contribution :math:`\frac1p \sum_i |\phi_{ij}|` of each feature by each explanation.

    Args:
        values: Expected contributions, (explanation, instance, feature), such as ``values`` in the result of
            `kpp.explanations.compare`.
        max_features: How many rows, the features with the largest contributions; the others are left out.
        ax: Where to draw; a new figure by default.
    """
    values = _parts.check_dims(values, "values", ("explanation", "instance", "feature"))
    importance = mean_absolute(values).values
    shown = _parts.first(np.argsort(-importance.max(axis=0), kind="stable"), max_features)
    explanations, names = _parts.names_of(values, "explanation"), _parts.names_of(values)
    count = len(explanations)
    ax = _parts.axes_for(ax, _parts.height_for(len(shown), count))
    rows = np.arange(len(shown))
    for lane, (name, color) in enumerate(zip(explanations, _colors.distinct_colors(count), strict=True)):
        y = rows + (lane - (count - 1) / 2.0) * _HEIGHT / count
        label, width = _parts.wrapped(name), 0.9 * _HEIGHT / count
        ax.barh(y, importance[lane, shown], height=width, color=color, alpha=0.85, label=label)
    ax.set_xlim(left=0.0)
    _parts.legend_beside(ax)
    _parts.feature_rows(ax, [names[j] for j in shown])
    _parts.label_x(ax, "mean absolute contribution")
    return ax
