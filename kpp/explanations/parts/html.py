"""Explanations in notebooks: how they were made, and the mean absolute contribution of each feature."""

from __future__ import annotations

import numpy as np
import xarray as xr

from kpp.explanations.parts.uncertainty import drawn_independently
from kpp.plots import credible_interval
from kpp.plots.attributions.importance import importance_order, mean_absolute
from kpp.runtime.notebook import Html, bar, details, panel, table

_PROBABILITY = 0.9
_SHOWN = 15


def explanation_html(dataset: xr.Dataset) -> Html:
    """Return a summary of the dataset of an explanation as HTML; arrays that are not in memory are not computed."""
    shape = ", ".join(f"{size} {dim}s" if size != 1 else f"1 {dim}" for dim, size in dataset["values"].sizes.items())
    parts = [shape]
    if dataset["values"].chunks is None:
        parts.append(_importances(dataset["values"], drawn_independently(dataset)))
    else:
        parts.append("The values are computed when they are needed, block by block.")
    recorded = [(name, value) for name, value in dataset.attrs.items()]
    return panel("Explanation", *parts, details("How it was made", table(recorded)))


def _importances(values: xr.DataArray, independent: bool) -> Html:
    draws = [dim for dim in ("chain", "draw") if dim in values.dims]
    importance = mean_absolute(values, independent=independent)
    mean = importance.mean(draws).values
    header = ["feature", "mean absolute contribution", ""]
    cells = [[f"{value:.3g}"] for value in mean]
    if draws:
        header.insert(2, f"{100 * _PROBABILITY:g} % interval")
        bounds = credible_interval(importance, _PROBABILITY).values
        cells = [[*row, f"{low:.3g} to {high:.3g}"] for row, (low, high) in zip(cells, bounds, strict=True)]
    order = importance_order(importance)
    longest = max(float(mean.max(initial=0.0)), np.finfo(float).tiny)
    names = importance.coords["feature"].values
    rows = [(names[j], *cells[j], bar(mean[j] / longest)) for j in order[:_SHOWN]]
    if len(order) > _SHOWN:
        rows.append((f"{len(order) - _SHOWN} other features", f"{mean[order[_SHOWN:]].sum():.3g} in total"))
    return table(rows, header)
