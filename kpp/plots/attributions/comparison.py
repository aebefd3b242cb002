"""Comparison: the importance of each feature in several explanations of the same points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from kpp.plots import _colors, _parts
from kpp.plots.attributions.importance import mean_absolute

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
