"""Explanations as netCDF files or Zarr stores: a dataset with an attribute that identifies it as an explanation."""

from __future__ import annotations

import os

import numpy as np
import xarray as xr

from kpp.explanations.parts.build import REQUIRED, additivity_error
from kpp.storage import netcdf, zarr_store

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
