"""netCDF files: written completely or not at all (see `kpp.files`), with attributes that are restored exactly.

netCDF attributes are numbers and text. `encode_attrs` writes everything else as JSON and lists the names of these
attributes; `decode_attrs` reverses it. `write` and `read` use both, for the datasets of a file and its groups.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from kpp.files import replace_when_complete

__all__ = ["complete", "decode_attrs", "encode_attrs", "read", "write"]

_AS_JSON = "kpp_json_attributes"  # the attribute that lists which of the other attributes are JSON
_MAX_INTEGER = 2**63  # netCDF integers have 64 bits; larger ones are written as JSON


def write(path: str | os.PathLike[str], dataset: xr.Dataset, groups: Mapping[str, xr.Dataset] | None = None) -> None:
    """Write a dataset, and further datasets as groups, into one netCDF file.

    Args:
        path: The file. It appears only when it is complete; an existing one is replaced.
        dataset: The dataset outside of groups, whose attributes become those of the file.
        groups: Further datasets by the name of the group.

    Raises:
        FileNotFoundError: If the folder does not exist.
        OSError: If the file cannot be written, such as on a full disk; an existing file is unchanged.
        TypeError: If an attribute is neither a number nor text, and cannot be written as JSON.
    """
    import h5netcdf
    from xarray.backends import H5NetCDFStore

    # In memory, because the HDF5 library crashes the process when the disk is full or a file may not grow.
    buffer = io.BytesIO()
    with h5netcdf.File(buffer, "w") as file:
        _encoded(dataset).dump_to_store(H5NetCDFStore(file))
        for name, group in (groups or {}).items():
            _encoded(group).dump_to_store(H5NetCDFStore(file, group=name))
    with replace_when_complete(path) as partial:
        partial.write_bytes(buffer.getbuffer())


def read(path: str | os.PathLike[str]) -> tuple[xr.Dataset, dict[str, xr.Dataset]]:
    """Read a file written by `write` into memory.

    Args:
        path: The file.

    Returns:
        The dataset outside of groups, and the groups by name.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If it is not a netCDF file, or is damaged.
    """
    import h5py

    target = Path(path)
    if not target.is_file():
        raise FileNotFoundError(f"`path` {str(target)!r} is not a file")
    try:
        with h5py.File(target, "r") as file:
            file.visititems(lambda name, part: None)  # finds damage before h5netcdf, which would not close the file
            names = [name for name, part in file.items() if isinstance(part, h5py.Group)]
        return _decoded(target, None), {name: _decoded(target, name) for name in names}
    except Exception as error:  # the libraries raise errors of many types for a file that is damaged
        raise ValueError(f"`path` {str(target)!r} is not a netCDF file that h5netcdf can read ({error})") from error


@contextlib.contextmanager
def complete(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Convert the errors of reading parts that a file lacks, or that do not fit together, into a ValueError.

    Args:
        path: The file.
        what: What the file should hold, for the message: "a saved fit".

    Raises:
        ValueError: In place of other errors of the block; it names the file.
    """
    try:
        yield
    except KeyError as error:
        raise ValueError(f"`path` {os.fspath(path)!r} is not {what}, or was edited: it lacks {error}") from error
    except (AttributeError, IndexError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"`path` {os.fspath(path)!r} is not {what}, or was edited: {error}") from error


def encode_attrs(attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """Return attributes that netCDF can hold: numbers and text unchanged, everything else as JSON.

    Raises:
        TypeError: If an attribute cannot be written as JSON.
    """
    plain = {str(name): value.item() if isinstance(value, np.generic) else value for name, value in attrs.items()}
    encoded = {name: json.dumps(value) for name, value in plain.items() if not _is_plain(value)}
    return plain | encoded | {_AS_JSON: json.dumps(sorted(encoded))}


def decode_attrs(attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the original attributes of `encode_attrs`, with Python's numbers in place of NumPy's."""
    encoded = json.loads(attrs.get(_AS_JSON, "[]"))
    plain = {str(name): value.item() if isinstance(value, np.generic) else value for name, value in attrs.items()}
    return {name: json.loads(value) if name in encoded else value for name, value in plain.items() if name != _AS_JSON}


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return bool(value)  # HDF5 cannot store empty text
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < _MAX_INTEGER
    return isinstance(value, float)


def _encoded(dataset: xr.Dataset) -> xr.Dataset:
    copy = dataset.copy()
    copy.attrs = encode_attrs(dataset.attrs)
    return copy


def _decoded(path: Path, group: str | None) -> xr.Dataset:
    dataset = xr.load_dataset(path, group=group, engine="h5netcdf")
    dataset.attrs = decode_attrs(dataset.attrs)
    return dataset
