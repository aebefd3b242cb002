"""Explanations as netCDF files or Zarr stores: a dataset with an attribute that identifies it as an explanation."""

from __future__ import annotations

import os

import xarray as xr

from kpp import netcdf
from kpp.explanations import zarr_store

__all__ = ["load", "marked", "save"]

_MARK = "kpp_explanation_format"
_FORMAT = 1


def save(dataset: xr.Dataset, path: str | os.PathLike[str]) -> None:
    """Write the dataset of an explanation by `kpp.netcdf.write`, or for a path that ends in .zarr by `zarr_store`."""
    (zarr_store.write if zarr_store.is_store(path) else netcdf.write)(path, marked(dataset))


def marked(dataset: xr.Dataset) -> xr.Dataset:
    """Return a dataset with the attribute that identifies it as an explanation."""
    return dataset.assign_attrs({_MARK: _FORMAT})


def load(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read a dataset that `save` wrote.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If it is neither a netCDF file nor a Zarr store, is not an explanation, or was written by a later
            version of kpp.
    """
    dataset = zarr_store.read(path) if zarr_store.is_store(path) else netcdf.read(path)[0]
    version = dataset.attrs.pop(_MARK, None)
    if version is None:
        raise ValueError(
            f"`path` {os.fspath(path)!r} holds no explanation; it has {sorted(map(str, dataset.variables))}"
        )
    with netcdf.complete(path, "an explanation"):
        for name in ("values", "base_values", "predictions", "data", "feature"):
            dataset[name]
    if not isinstance(version, int) or version > _FORMAT:
        raise ValueError(f"`path` {os.fspath(path)!r} has format {version}; this version of kpp reads up to {_FORMAT}")
    return dataset
