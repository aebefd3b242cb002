"""Explanations as netCDF files, written through h5netcdf."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

_MARK = "kpp_explanation_format"
_FORMAT = 1
_AS_JSON = "kpp_json_attributes"


def save(dataset: xr.Dataset, path: str | os.PathLike[str]) -> None:
    """Write a dataset beside `path` and move it there once it is whole."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"`path` {str(target)!r} lies in a folder that does not exist")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    stored = dataset.assign_attrs()
    stored.attrs = {_MARK: _FORMAT, **encode_attrs(dataset.attrs)}
    try:
        stored.to_netcdf(part, engine="h5netcdf")
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read a dataset that `save` wrote."""
    target = Path(path)
    if not target.is_file():
        raise FileNotFoundError(f"`path` {str(target)!r} is not a file")
    try:
        dataset = xr.load_dataset(target, engine="h5netcdf")
    except OSError as error:
        raise ValueError(f"`path` {str(target)!r} is not a netCDF file that h5netcdf can read ({error})") from error
    found = dataset.attrs.pop(_MARK, None)
    if found is None:
        raise ValueError(f"`path` {str(target)!r} holds no explanation; it has {sorted(map(str, dataset.variables))}")
    if int(found) > _FORMAT:
        raise ValueError(f"`path` {str(target)!r} has format {found}; this version of kpp reads up to {_FORMAT}")
    dataset.attrs = decode_attrs(dataset.attrs)
    return dataset


def encode_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes that netCDF can hold: text and floats as they are, everything else as JSON, and which."""
    plain = {
        name: value for name, value in attrs.items() if isinstance(value, float) or (isinstance(value, str) and value)
    }
    encoded = {name: json.dumps(value) for name, value in attrs.items() if name not in plain}
    return {**plain, **encoded, _AS_JSON: json.dumps(sorted(encoded))}


def decode_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `encode_attrs` was given."""
    encoded = json.loads(attrs.get(_AS_JSON, "[]"))
    plain = {
        name: value if isinstance(value, str) else value.item() for name, value in attrs.items() if name != _AS_JSON
    }
    return {name: json.loads(value) if name in encoded else value for name, value in plain.items()}
