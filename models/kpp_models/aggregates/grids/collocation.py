"""Fields of different resolutions and conventions, such as those of CMIP6, on one grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from kpp.foundation.validation import one_of
from kpp_models.aggregates.grids.points import as_dataset

_NAMES = {"lat": ("lat", "latitude", "nav_lat", "rlat"), "lon": ("lon", "longitude", "nav_lon", "rlon")}
_METHODS = ("linear", "nearest")
_TURN = 360.0


def collocate(fields: Mapping[str, object], like: object, *, method: str = "linear") -> xr.Dataset:
    """Interpolate fields on latitudes and longitudes to the grid of one of them.

    The dimensions may be called lat and lon, latitude and longitude, or anything whose ``standard_name`` says so.
    Longitudes may run from 0 to 360 or from -180 to 180 degrees, latitudes up or down. Other dimensions of length 1,
    such as time, are dropped. A field that goes around the globe is interpolated across the end of its longitudes;
    other fields end half a pixel beyond their outer pixel centers.

    Args:
        fields: The variables by their new names: DataArrays, or Datasets with one variable (others whose names end in
            "bnds" or "bounds" are ignored).
        like: A DataArray or Dataset on the grid to interpolate to.
        method: "linear", or "nearest" to keep the values of coarse pixels.

    Returns:
        The variables on the dimensions (lat, lon), with the coordinates of `like`; NaN outside a field, or where it is
        missing. Attributes such as units are kept.

    Raises:
        ValueError: If a field has no latitudes and longitudes, or fewer than 2 of them, or another dimension that is
            longer than 1.
    """
    one_of(method, "method", _METHODS)
    if not fields:
        raise ValueError("`fields` must hold at least one field, got none")
    target = _as_field(like, "like")
    grid = {dim: target.coords[dim] for dim in _NAMES}
    return xr.Dataset({name: _interpolate(_as_field(field, name), grid, method) for name, field in fields.items()})


def _interpolate(field: xr.DataArray, grid: dict[str, xr.DataArray], method: Any) -> xr.DataArray:
    west = float(grid["lon"].min())
    # Now the longitudes of both grids begin at the same meridian, whether they ran from -180 or from 0.
    field = field.assign_coords(lon=(field["lon"] - west) % _TURN + west).sortby(["lat", "lon"])
    field = _extend(_extend(field, "lat"), "lon")
    found = field.interp(lat=grid["lat"].values, lon=grid["lon"].values, method=method)
    return found.assign_coords(lat=grid["lat"].variable, lon=grid["lon"].variable).assign_attrs(field.attrs)


def _extend(field: xr.DataArray, dim: str) -> xr.DataArray:
    """Repeat the outer pixels half a pixel further, or continue around the globe."""
    centers = field[dim].values
    if dim == "lon" and np.allclose(np.diff(centers), _TURN / len(centers), rtol=1e-3):
        places, ends = (-1, 0), (centers[-1] - _TURN, centers[0] + _TURN)
    else:
        halves = 0.5 * (centers[1] - centers[0]), 0.5 * (centers[-1] - centers[-2])
        places, ends = (0, -1), (centers[0] - halves[0], centers[-1] + halves[1])
    before, after = (
        field.isel({dim: [place]}).assign_coords({dim: [end]}) for place, end in zip(places, ends, strict=True)
    )
    return xr.concat([before, field, after], dim=dim)


def _as_field(field: object, name: str) -> xr.DataArray:
    """Return a field on (lat, lon), with these names, without other dimensions and coordinates."""
    dataset = as_dataset(field, name)
    variables = [key for key in dataset.data_vars if not str(key).endswith(("bnds", "bounds"))]
    wanted = [key for key in variables if {_role(dataset, dim) for dim in dataset[key].dims} >= set(_NAMES)]
    if not wanted or (name != "like" and len(wanted) > 1):
        raise ValueError(
            f"`{name}` must hold one variable on latitudes and longitudes, got {[str(key) for key in wanted]} among "
            f"{[str(key) for key in dataset.data_vars]}"
        )
    array = dataset[wanted[0]]
    array = array.rename({dim: _role(dataset, dim) for dim in array.dims if _role(dataset, dim) in _NAMES})
    others = {str(dim): array.sizes[dim] for dim in array.dims if dim not in _NAMES}
    if any(size > 1 for size in others.values()):
        raise ValueError(
            f"`{name}` must have no dimension besides latitude and longitude that is longer than 1, got {others}; take "
            "a mean or select one, as in field.mean('time')"
        )
    if min(array.sizes[dim] for dim in _NAMES) < 2:
        raise ValueError(f"`{name}` must have at least 2 latitudes and 2 longitudes, got {dict(array.sizes)}")
    return array.squeeze(list(others), drop=True).reset_coords(drop=True).transpose("lat", "lon").astype(float)


def _role(dataset: xr.Dataset, dim: object) -> str:
    """Return "lat" or "lon" for such a dimension, otherwise its name."""
    standard = dataset.coords[dim].attrs.get("standard_name") if dim in dataset.coords else None
    for role, names in _NAMES.items():
        if dim in names or standard == names[1]:
            return role
    return str(dim)
