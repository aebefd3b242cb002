"""netCDF files: written completely or not at all (see `kpp.runtime.files`), with attributes that are restored exactly.

netCDF attributes are numbers and text. `encode_attrs` writes everything else as JSON and lists the names of these
attributes; `decode_attrs` reverses it. `write` and `read` use both, for the datasets of a file and its groups.

A file ends with the SHA-256 digest of everything before it; HDF5 ignores what follows its own end. So damage is noticed
before the HDF5 library sees the file. A file of an earlier version or of another program has no digest; it is read too.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from kpp.runtime.files import replace_when_complete
from kpp.runtime.memory import check_expansion, check_memory

if TYPE_CHECKING:
    import h5py

_AS_JSON = "kpp_json_attributes"  # the attribute that lists which of the other attributes are JSON
_MAX_INTEGER = 2**63  # netCDF integers have 64 bits; larger ones are written as JSON
# Both ends of the digest are marked, 64 bytes apart, so that no single damage makes a file look as if it had no digest.
_BEFORE, _AFTER = b"kpp-sha256:", b":kpp-sha256"
_DIGEST_LENGTH = len(_BEFORE) + 64 + len(_AFTER)
# Filters that are part of HDF5 and that netCDF writers use; HDF5 loads all others as plugins, which are code.
_FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32"}
# A heap of texts and references begins with this mark and its length; each entry has its number and its size in front.
_HEAP, _ENTRY = b"GCOL\x01\x00\x00\x00", struct.Struct("<H6xQ")


def write(path: str | os.PathLike[str], dataset: xr.Dataset, groups: Mapping[str, xr.Dataset] | None = None) -> None:
    """Write a dataset, and further datasets as groups, into one netCDF file.

    The file appears only when it is complete, and an existing one is replaced; it is unchanged if writing fails. Raises
    TypeError if an attribute is neither a number nor text, and cannot be written as JSON.
    """
    import h5netcdf
    from xarray.backends import H5NetCDFStore

    # In memory, because the HDF5 library crashes the process when the disk is full or a file may not grow.
    buffer = io.BytesIO()
    with h5netcdf.File(buffer, "w") as file:
        _encoded(dataset).dump_to_store(H5NetCDFStore(file))
        for name, group in (groups or {}).items():
            _encoded(group).dump_to_store(H5NetCDFStore(file, group=name))
    buffer.seek(0, io.SEEK_END)
    buffer.write(_digest(buffer.getvalue()))
    with replace_when_complete(path) as partial:
        partial.write_bytes(buffer.getbuffer())


def read(path: str | os.PathLike[str]) -> tuple[xr.Dataset, dict[str, xr.Dataset]]:
    """Read a file written by `write` into memory.

    Returns the dataset outside of groups, and the groups by name. Raises FileNotFoundError if the file does not exist,
    and ValueError if it is not a netCDF file, is damaged, refers to other files, or expands too much.
    """
    import h5netcdf
    import h5py

    with _opened(path) as raw, h5netcdf.File(raw, "r", decode_vlen_strings=True) as file:
        names = [name for name, part in raw.items() if isinstance(part, h5py.Group)]
        return _decoded(file, None), {name: _decoded(file, name) for name in names}


def read_attrs(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the attributes of the dataset outside of groups; the errors are those of `read`."""
    import h5netcdf

    with _opened(path) as raw, h5netcdf.File(raw, "r", decode_vlen_strings=True) as file:
        return decode_attrs(file.attrs)


@contextlib.contextmanager
def complete(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Convert errors of reading parts that a file lacks, or that do not fit together, into a ValueError."""
    try:
        yield
    except KeyError as error:
        raise ValueError(f"`path` {os.fspath(path)!r} is not {what}, or was edited: it lacks {error}") from error
    except (AttributeError, IndexError, RecursionError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"`path` {os.fspath(path)!r} is not {what}, or was edited: {error}") from error


def encode_attrs(attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """Return attributes that netCDF can hold: numbers and text unchanged, everything else as JSON if it can be."""
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
    copy = dataset.drop_encoding()
    copy.attrs = encode_attrs(dataset.attrs)
    return copy


def _decoded(file: Any, group: str | None) -> xr.Dataset:
    from xarray.backends import H5NetCDFStore

    dataset = xr.open_dataset(H5NetCDFStore(file, group=group)).load()
    dataset.attrs = decode_attrs(dataset.attrs)
    return dataset


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[h5py.File]:
    """Open a file after all checks; errors of the block become a ValueError that names the file."""
    import h5py

    target = Path(path)
    if not target.is_file():
        raise FileNotFoundError(f"`path` {str(target)!r} is not a file")
    try:
        check_memory(target.stat().st_size, "the file", "use a machine with more memory")
        content = target.read_bytes()
        _check_digest(content)
        _check_heaps(content)
        with h5py.File(target, "r") as file:
            _check_parts(file, content)
            del content  # the arrays take its place
            yield file
    except Exception as error:  # the libraries raise errors of many types for a file that is damaged
        raise ValueError(f"`path` {str(target)!r} is not a netCDF file that kpp can read ({error})") from error


def _digest(content: bytes) -> bytes:
    return _BEFORE + hashlib.sha256(content).hexdigest().encode() + _AFTER


def _check_digest(content: bytes) -> None:
    end = content[-_DIGEST_LENGTH:]
    if (_BEFORE in end or _AFTER in end) and end != _digest(content[:-_DIGEST_LENGTH]):
        raise ValueError("it is damaged: its bytes do not have the digest at its end")


def _check_heaps(content: bytes) -> None:
    """Check the sizes of the entries of all heaps: the HDF5 library never ends if one has no size."""
    start = content.find(_HEAP)
    while start >= 0:
        entry = start + len(_HEAP) + 8
        end = min(start + int.from_bytes(content[start + len(_HEAP) : entry], "little"), len(content))
        while entry + _ENTRY.size <= end:
            number, size = _ENTRY.unpack_from(content, entry)
            entry += _ENTRY.size + -(-size // 8) * 8 if number else size  # the size of the unused rest is the whole one
            if (number == 0 and size == 0) or entry > end:
                raise ValueError("it is damaged: the entries of a heap do not fit into it")
        start = content.find(_HEAP, start + 1)


def _check_parts(file: h5py.File, content: bytes) -> None:
    """Check that everything is data in the file itself, in types and filters that HDF5 reads without plugins."""
    import h5py

    groups, seen, num_bytes = [file["/"]], set(), 0
    while groups:
        group = groups.pop()
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise ValueError(f"{name!r} is a link to another place, and kpp only reads what lies in the file")
            part = group[name]
            address = h5py.h5o.get_info(part.id).addr
            if address in seen:
                raise ValueError(f"{name!r} is there under two names")
            seen.add(address)
            if isinstance(part, h5py.Group):
                groups.append(part)
            else:
                _check_part(part)
                num_bytes += part.nbytes + _text_length(part, content)
    check_expansion(num_bytes, len(content))


def _check_part(part: Any) -> None:
    import h5py

    if not isinstance(part, h5py.Dataset):
        raise ValueError(f"{part.name!r} is not an array")
    if part.external or part.is_virtual:
        raise ValueError(f"the numbers of {part.name!r} lie in other files, and kpp only reads what lies in the file")
    if part.dtype.kind not in "biufcSU" and h5py.check_string_dtype(part.dtype) is None:
        raise ValueError(f"{part.name!r} has the type {part.dtype}, and kpp reads numbers and text")
    settings = part.id.get_create_plist()
    filters = {settings.get_filter(number)[0] for number in range(settings.get_nfilters())}
    if not filters <= set(_FILTERS):
        raise ValueError(f"{part.name!r} has the HDF5 filters {sorted(filters)}, and kpp reads {_FILTERS}")


def _text_length(part: h5py.Dataset, content: bytes) -> int:
    """Return the length of all texts of an array, which may all refer to the same bytes of the file."""
    import h5py

    text = h5py.check_string_dtype(part.dtype)
    if text is None or text.length is not None or part.size == 0:
        return 0
    start = part.id.get_offset()
    if start is None:
        raise ValueError(f"the texts of {part.name!r} are stored in chunks, and kpp reads those in one piece")
    references = np.frombuffer(content, "<u4, <u8, <u4", part.size, start)  # length, address and number of each text
    return int(references["f0"].sum(dtype=np.uint64))
