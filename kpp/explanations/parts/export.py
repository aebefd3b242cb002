"""Explanations as ArviZ and shap objects, data frames and text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from kpp.data.tables import Schema
from kpp.explanations.parts.uncertainty import drawn_independently, interval, is_uncertain, standard_deviation
from kpp.plots import credible_interval
from kpp.plots.attributions.importance import importance_order, mean_absolute
from kpp.plots.intervals import IntervalKind
from kpp.runtime.notebook import Html, bar, details, panel, table
from kpp.storage import arviz_data
from kpp.storage.netcdf import encode_attrs

if TYPE_CHECKING:
    import pandas as pd


def to_arviz(dataset: xr.Dataset) -> Any:
    """Return an ArviZ object; see `Explanation.to_arviz`."""
    drawn = ("values", "base_values", "predictions", "interactions", "effects")
    posterior = dataset[[name for name in drawn if name in dataset]]
    if "chain" not in posterior.dims:
        posterior = posterior.expand_dims(chain=[0], draw=[0])
    constant = dataset[[name for name in dataset.data_vars if name not in drawn]]
    for group in (posterior, constant):
        group.attrs = encode_attrs(dataset.attrs)
    return arviz_data.from_groups({"posterior": posterior, "constant_data": constant})


def to_shap(dataset: xr.Dataset, schema: Schema, bounds: xr.DataArray | None) -> Any:
    """Return a shap.Explanation of a dataset without draws and the bounds of its values; see `Explanation.to_shap`."""
    shap = load_shap()
    values = dataset["values"]
    base_values = dataset["base_values"].broadcast_like(dataset["predictions"]).transpose(*dataset["predictions"].dims)
    data = dataset["data"].values.astype(np.float64)
    uncertainty: dict[str, np.ndarray] = {}
    if bounds is not None:
        ordered = bounds.transpose("bound", *values.dims).astype(np.float64)
        uncertainty |= {f"{bound}_bounds": ordered.sel(bound=bound).values for bound in ("lower", "upper")}
    if "standard_errors" in dataset:
        uncertainty["error_std"] = dataset["standard_errors"].values.astype(np.float64)
    return shap.Explanation(
        values=values.values.astype(np.float64),
        base_values=base_values.values.astype(np.float64),
        data=data,
        display_data=schema.as_objects(data) if schema.levels else None,
        feature_names=list(schema.feature_names),
        output_names=[str(name) for name in values.coords["output"].values] if "output" in values.dims else None,
        **uncertainty,
    )


def load_shap() -> Any:
    """Return the module shap; raise ImportError, with advice, if it is not installed."""
    try:
        import shap
    except ImportError as error:
        raise ImportError("`to_shap` needs shap, which is an extra: pip install 'kpp[shap]'") from error
    return shap


def to_dataframe(dataset: xr.Dataset, schema: Schema, probability: float, kind: IntervalKind) -> pd.DataFrame:
    """Return one row for each instance and feature (and output); see `Explanation.to_dataframe`."""
    values = dataset["values"]
    sample = [dim for dim in ("chain", "draw") if dim in values.dims]
    dims = [dim for dim in values.dims if dim not in sample]
    columns = {"value": values.mean(sample)}
    if is_uncertain(dataset):
        bounds = interval(dataset, probability, kind)
        columns["std"] = standard_deviation(dataset)
        columns["lower"] = bounds.sel(bound="lower", drop=True)
        columns["upper"] = bounds.sel(bound="upper", drop=True)
    if "variance_parts" in dataset:
        parts = dataset["variance_parts"].mean(sample) ** 0.5
        columns |= {f"std_{part}": parts.sel(part=part, drop=True) for part in parts.coords["part"].values}
    if "effects" in dataset:
        effects = dataset["effects"].mean(sample)
        columns |= {str(name): effects.sel(effect=name, drop=True) for name in effects.coords["effect"].values}
    if "standard_errors" in dataset:
        columns["standard_error"] = dataset["standard_errors"].mean(sample)
    coords = {dim: values.coords[dim] for dim in dims}
    table = xr.Dataset(
        {name: column.drop_vars(set(column.coords) - set(dims)) for name, column in columns.items()}, coords
    )
    shown = xr.DataArray(schema.as_objects(dataset["data"].values), dims=("instance", "feature"))
    table = table.assign(data=shown.broadcast_like(table["value"]))
    frame = table.to_dataframe(dim_order=dims).reset_index()
    if not schema.levels:
        frame["data"] = frame["data"].astype(float)
    return frame[[*dims, "data", *columns]]


def describe(dataset: xr.Dataset) -> str:
    """Return the lines of `repr(explanation)`."""
    sizes = dataset["values"].sizes
    shape = ", ".join(f"{dim}: {size}" for dim, size in sizes.items())
    made = {
        name: dataset.attrs[name]
        for name in ("explainer", "value_function", "method", "exact", "uncertainty")
        if name in dataset.attrs
    }
    how = ", ".join(f"{name}={value!r}" for name, value in made.items())
    optional = ("covariance", "variance", "variance_parts", "interactions", "standard_errors", "effects")
    held = [name for name in optional if name in dataset]
    names = [str(name) for name in dataset.coords["feature"].values]
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"Explanation({', '.join([shape, *held])})\n  features: {shown}" + (f"\n  {how}" if how else "")


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
