"""Explanations as ArviZ and shap objects, data frames, text and HTML, and as netCDF files or Zarr stores."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from kpp.data.tables import Schema
from kpp.explanations.parts.build import REQUIRED, additivity_error
from kpp.explanations.parts.uncertainty import drawn_independently, interval, is_uncertain, standard_deviation
from kpp.foundation.distribution import extra
from kpp.plots import credible_interval
from kpp.plots.attributions.importance import importance_order, mean_absolute
from kpp.plots.intervals import IntervalKind
from kpp.runtime.notebook import Html, bar, details, panel, table
from kpp.storage import arviz_data, netcdf, zarr_store
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
        raise ImportError(f"`to_shap` needs shap, which is an extra: {extra('shap')}") from error
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


_MARK = "kpp_explanation_format"
_FORMAT = 1
_GAP = "kpp_additivity_error"  # the largest one when it was saved: 0 up to rounding for most explainers


def save(dataset: xr.Dataset, path: str | os.PathLike[str]) -> None:
    """Write the dataset of an explanation by `netcdf.write`, or for a path that ends in .zarr by `zarr_store`."""
    held = marked(dataset)
    if not dataset.chunks:
        held = held.assign_attrs({_GAP: float(additivity_error(dataset).max())})
    (zarr_store.write if zarr_store.is_store(path) else netcdf.write)(path, held)


def marked(dataset: xr.Dataset) -> xr.Dataset:
    """Return a dataset with the attribute that identifies it as an explanation."""
    return dataset.assign_attrs({_MARK: _FORMAT})


def load(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read a dataset that `save` wrote.

    Raises FileNotFoundError if the file does not exist, and ValueError if it is neither a netCDF file nor a Zarr store,
    is not an explanation, was written by a later version of kpp, or its values do not add up as they did when it was
    saved.
    """
    dataset = zarr_store.read(path) if zarr_store.is_store(path) else netcdf.read(path)[0]
    version = dataset.attrs.pop(_MARK, None)
    if version is None:
        raise ValueError(
            f"`path` {os.fspath(path)!r} holds no explanation; it has {sorted(map(str, dataset.variables))}"
        )
    with netcdf.complete(path, "an explanation"):
        for name in (*REQUIRED, "feature"):
            dataset[name]
    if not isinstance(version, int) or version > _FORMAT:
        raise ValueError(f"`path` {os.fspath(path)!r} has format {version}; this version of kpp reads up to {_FORMAT}")
    gap = dataset.attrs.pop(_GAP, None)
    if gap is not None and not dataset.chunks:
        with netcdf.complete(path, "an explanation"):
            _check_sums(dataset, gap, os.fspath(path))
    return dataset


def _check_sums(dataset: xr.Dataset, gap: float, path: str) -> None:
    """Raise ValueError if the sums of the values are farther from the predictions than when they were saved."""
    values, found = dataset["values"], float(additivity_error(dataset).max())
    size = abs(values).sum("feature").max() + abs(dataset["predictions"]).max() + abs(dataset["base_values"]).max()
    rounding = 64 * np.finfo(values.dtype).eps * float(size)
    if not abs(found - gap) <= rounding:
        raise ValueError(
            f"`path` {path!r} was changed: base values and values differ from the predictions by up to {found:.3g}, "
            f"and did so by up to {gap:.3g} when it was saved"
        )
