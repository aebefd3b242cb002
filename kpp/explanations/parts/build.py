"""Checks of the results of an explainer, and their arrangement in one labeled dataset."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from kpp.foundation.distribution import versions
from kpp.typing import Numbers

SAMPLE_DIMS = ("chain", "draw")
#: The arrays that every explanation has.
REQUIRED = ("values", "base_values", "predictions", "data")


def build_dataset(
    values: Numbers,
    base_values: Numbers,
    predictions: Numbers,
    data: Numbers,
    *,
    names: Mapping[str, Any],
    draws: bool,
    optional: Mapping[str, Any],
    attrs: Mapping[str, Any],
) -> xr.Dataset:
    """Return the dataset behind an Explanation; the arguments are those of `create`, None allowed in `optional`.

    `names` are those of the features, outputs and instances by the dimensions, None for numbers.
    """
    array, base = finite_array(values, "values"), finite_array(base_values, "base_values")
    sample = SAMPLE_DIMS if draws else ()
    dims = _value_dims(array, sample)
    output = dims[len(sample) + 2 :]
    sizes = dict(zip(dims, array.shape, strict=True))
    common, own, pairs = (*sample, *output), (*sample, "instance", *output), ("feature", "feature_other", *output)
    if base.ndim == 0:
        base = np.full([sizes[dim] for dim in common], base)
    variables = {
        "values": (dims, array),
        "base_values": _shaped(base, "base_values", own if base.ndim == len(own) else common, sizes),
        "predictions": _shaped(predictions, "predictions", own, sizes),
        "data": _data(data, names["feature"], attrs.get("groups", {}), sizes),
    }
    coords = _coords(sizes, names)
    given = {name: value for name, value in optional.items() if value is not None}
    for name in ("variance", "standard_errors"):
        if name in given:
            variables[name] = _not_negative(given[name], name, dims, sizes)
    if "covariance" in given:
        rows = ("instance", "instance_other") if np.ndim(given["covariance"]) == len(dims) + 2 else ("instance",)
        variables["covariance"] = _shaped(given["covariance"], "covariance", (*sample, *rows, *pairs), sizes)
    for name, dim, read in (("variance_parts", "part", _not_negative), ("effects", "effect", _shaped)):
        if name in given:
            variables[name] = (*dims, dim), _stacked(given[name], name, read, dims, sizes)
            coords[dim] = [str(key) for key in given[name]]
    if "variance_parts" in given and "covariance" not in given and "variance" not in given:
        variables["variance"] = (dims, variables["variance_parts"][1].sum(axis=-1))
    if "interactions" in given:
        variables["interactions"] = _shaped(given["interactions"], "interactions", (*sample, "instance", *pairs), sizes)
    for name in ("feature", "instance"):
        if any(f"{name}_other" in variable[0] for variable in variables.values()):
            coords[f"{name}_other"] = list(coords[name])
    return xr.Dataset(variables, coords=coords, attrs=_complete(attrs))


def check_dataset(dataset: xr.Dataset) -> None:
    """Raise an error unless a dataset has the arrays of an explanation, with finite numbers.

    Arrays of Dask are not computed. The data may be NaN, for features that stand for several columns.
    """
    variables = dataset.variables
    missing = [name for name in (*REQUIRED, "feature") if name not in variables]
    if missing:
        raise ValueError(f"`dataset` must have the array {missing[0]!r}, got {sorted(map(str, variables))}")
    dims = variables["values"].dims
    if dims[2 * (dims[:2] == SAMPLE_DIMS) :] not in (("instance", "feature"), ("instance", "feature", "output")):
        raise ValueError(f"`values` must have dimensions ([chain, draw,] instance, feature[, output]), got {dims}")
    for name in dataset.data_vars:
        if name != "data" and variables[name].chunks is None:
            finite_array(variables[name].values, str(name))


def additivity_error(dataset: xr.Dataset) -> xr.DataArray:
    """Return the distance of the sums of base values and values from the predictions."""
    return abs(dataset["base_values"] + dataset["values"].sum("feature") - dataset["predictions"])


def finite_array(value: Numbers, name: str) -> np.ndarray:
    """Return a NumPy array of finite floats; a float type is kept."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"`{name}` must hold real numbers, got dtype {array.dtype}")
    array = array if array.dtype.kind == "f" else array.astype(float)
    bad = int((~np.isfinite(array)).sum())
    if bad:
        raise ValueError(f"`{name}` must be finite, got {bad} NaN or infinite values in shape {array.shape}")
    return array


def _value_dims(values: np.ndarray, sample: tuple[str, ...]) -> tuple[str, ...]:
    dims = (*sample, "instance", "feature", "output")
    if values.ndim not in (len(dims) - 1, len(dims)):
        shape = ", ".join(dims[:-1])
        raise ValueError(f"`values` must have shape ({shape}[, output]), got shape {values.shape}")
    if 0 in values.shape:
        raise ValueError(f"`values` must hold at least one value, got shape {values.shape}")
    return dims[: values.ndim]


def _shaped(
    value: Numbers, name: str, dims: tuple[str, ...], sizes: Mapping[str, int]
) -> tuple[tuple[str, ...], np.ndarray]:
    array = finite_array(value, name)
    expected = tuple(sizes[dim.removesuffix("_other")] for dim in dims)
    if array.shape != expected:
        raise ValueError(f"`{name}` must have shape {expected} for {dims}, got shape {array.shape}")
    return dims, array


def _data(
    value: Numbers, feature_names: Sequence[str], groups: Mapping[str, Any], sizes: Mapping[str, int]
) -> tuple[tuple[str, ...], np.ndarray]:
    """Check the instances: finite, except that features of several columns may be NaN everywhere."""
    array = np.asarray(value)
    blank = np.zeros(array.shape, dtype=bool)
    if groups and array.ndim == 2 and array.dtype.kind == "f":
        grouped = np.isin(np.arange(array.shape[1]), [j for j, name in enumerate(feature_names) if name in groups])
        blank |= (grouped & np.isnan(array).all(axis=0))[None, :]
    dims, known = _shaped(np.where(blank, 0.0, array) if blank.any() else array, "data", ("instance", "feature"), sizes)
    return dims, np.where(blank, np.nan, known)


def _not_negative(
    value: Numbers, name: str, dims: tuple[str, ...], sizes: Mapping[str, int]
) -> tuple[tuple[str, ...], np.ndarray]:
    dims, array = _shaped(value, name, dims, sizes)
    if array.min() < 0:
        raise ValueError(f"`{name}` must not be negative, got {array.min():g}")
    return dims, array


def _stacked(
    arrays: Mapping[str, Any], name: str, read: Callable[..., Any], dims: tuple[str, ...], sizes: Mapping[str, int]
) -> np.ndarray:
    if not isinstance(arrays, Mapping) or not arrays:
        raise ValueError(f"`{name}` must be a mapping from at least one name to an array, got {arrays!r}")
    return np.stack([read(array, f"{name}[{key!r}]", dims, sizes)[1] for key, array in arrays.items()], axis=-1)


def _coords(sizes: Mapping[str, int], names: Mapping[str, Any]) -> dict[str, list[Any]]:
    outputs = names["output"]
    if outputs is not None and "output" not in sizes:
        raise ValueError(f"`output_names` go with an output dimension; `values` has none, got {list(outputs)}")
    coords: dict[str, list[Any]] = {}
    for dim, size in sizes.items():
        given = names.get(dim)
        labels = range(size) if given is None else given
        coords[dim] = [str(label) for label in labels] if dim in ("feature", "output") else list(labels)
    for dim, labels in coords.items():
        if len(labels) != sizes[dim]:
            raise ValueError(f"`{dim}_names` must have {sizes[dim]} entries, got {len(labels)}")
        if len(set(labels)) < len(labels):
            raise ValueError(f"`{dim}_names` must differ from each other, got {labels}")
    return coords


def _complete(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the attributes, check that they can be written as JSON, and record versions."""
    try:
        completed = json.loads(json.dumps(dict(attrs)))
    except TypeError as error:
        raise ValueError(f"`attrs` must be values that JSON can hold ({error})") from None
    return {"versions": versions("jax", "numpy"), **completed}


def select(dataset: xr.Dataset, indexers: Mapping[str, object]) -> xr.Dataset:
    """Return the part of a dataset at some positions; see `Explanation.isel`."""
    allowed = [dim for dim in (*SAMPLE_DIMS, "instance", "output") if dim in dataset["values"].dims]
    unknown = sorted(set(indexers) - set(allowed))
    if unknown:
        raise ValueError(f"`isel` selects along {allowed}, got {unknown}")
    kept: dict[str, Any] = {dim: _keep_dim(index) if dim != "output" else index for dim, index in indexers.items()}
    if "instance" in kept and "instance_other" in dataset.dims:
        kept["instance_other"] = kept["instance"]
    selected = dataset.isel(kept)
    return selected if "output" in selected.dims else selected.drop_vars("output", errors="ignore")


def _keep_dim(index: object) -> object:
    return [int(index)] if isinstance(index, (int, np.integer)) else index
