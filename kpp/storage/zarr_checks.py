"""Checks of Zarr stores from anybody: nothing is decoded before its description and its size have been checked.

A codec of Zarr is named in the store and may run code, as numcodecs' "pickle" does. So every array must be numbers or
text in codecs that only decompress, and lie in the folder itself. Zarr reads from a `CheckedStore`, which also checks
each block before Zarr sees it. This module needs zarr, which is an extra.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
from zarr.storage import LocalStore, WrapperStore

from kpp.runtime.memory import check_expansion

#: The filter of every array that kpp writes: a checksum of each block.
CHECKSUM = {"id": "crc32", "location": "end"}
_TEXT = {"id": "vlen-utf8"}
_FILTERS: tuple[list[dict[str, str]], ...] = ([], [CHECKSUM], [_TEXT], [_TEXT, CHECKSUM])
_COMPRESSORS = (None, "blosc", "zstd")
_TYPES = re.compile(r"\|b1|\|[iu]1|[<>][iuf][248]|[<>]U\d{1,6}|\|S\d{1,6}|\|O")
_KEYS = {"zarr_format", "shape", "chunks", "dtype", "fill_value", "order", "filters", "compressor"}
_ALL_KEYS = _KEYS | {"dimension_separator"}
_LARGEST_DESCRIPTION = 2**26  # bytes; the levels of categories are the largest part
_MOST_BLOCKS = 10**6  # of an array: Dask makes a task for each
_BLOCK = re.compile(r"(.+)/\d+(\.\d+)*")


def read_descriptions(path: Path) -> dict[str, dict[str, Any]]:
    """Return the checked description of each array by its name, and the attributes of the store under ""."""
    folders = [entry for entry in os.scandir(path) if entry.is_dir()]
    places = ["", *(f"{folder.name}/" for folder in folders)]
    found = {
        place + name: _read(path / place / name)
        for place in places
        for name in (".zgroup", ".zarray", ".zattrs", "zarr.json")
        if os.path.lexists(path / place / name)
    }
    if ".zgroup" not in found or any(name.endswith(("zarr.json", "/.zgroup")) for name in found):
        raise ValueError("it must be one group of Zarr's format 2")
    if os.path.lexists(path / ".zmetadata") and _read(path / ".zmetadata").get("metadata") != found:
        raise ValueError("it is damaged: its arrays are described in two ways")
    arrays = {name.removesuffix("/.zarray"): text for name, text in found.items() if name.endswith("/.zarray")}
    for folder in folders:
        if folder.is_symlink():
            raise ValueError(f"{folder.name!r} is a link to another place, and kpp only reads what lies in the store")
        if folder.name in arrays:
            _check_description(folder.name, arrays[folder.name])
    return {"": found.get(".zattrs", {}), **arrays}


def check_size(path: Path, arrays: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ValueError if the arrays are much larger than the files of a store."""
    files = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    check_expansion(
        sum(math.prod(array["shape"]) * np.dtype(array["dtype"]).itemsize for name, array in arrays.items() if name),
        sum(os.lstat(file).st_size for file in files),
    )


class CheckedStore(WrapperStore):  # type: ignore[type-arg]
    """A store to read from, with the checked descriptions of its arrays; a missing or damaged block is a ValueError."""

    def __init__(self, path: Path, arrays: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__(LocalStore(path, read_only=True))
        self._path, self._arrays = path, arrays

    def _with_store(self, store: Any) -> CheckedStore:
        return CheckedStore(store.root, self._arrays)

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Return the bytes of a file, after a check if it is a block."""
        block = _BLOCK.fullmatch(key)
        if block is not None:
            try:
                _check_block(self._path / key, self._arrays[block[1]])
            except Exception as error:  # the codecs raise errors of many types for a block that is damaged
                raise ValueError(f"`path` {str(self._path)!r} is damaged in block {key!r} ({error})") from error
        return await super().get(key, prototype, byte_range)


def _read(path: Path) -> Any:
    """Return the JSON of a small file that is no link."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST_DESCRIPTION:
        raise ValueError(f"{path.name!r} must be a file of at most {_LARGEST_DESCRIPTION} bytes, and not a link")
    return json.loads(path.read_bytes())


def _check_description(name: str, array: dict[str, Any]) -> None:
    """Check that an array has only parts that kpp writes, or that earlier versions wrote."""
    shape, chunks, compressor = array["shape"], array["chunks"], array["compressor"]
    filters = array["filters"] or []
    checks = {
        "keys": _KEYS <= set(array) <= _ALL_KEYS and array["zarr_format"] == 2,
        "dtype": _TYPES.fullmatch(array["dtype"]) is not None,
        "filters": filters in _FILTERS and (_TEXT in filters) == (array["dtype"] == "|O"),
        "compressor": (compressor and compressor["id"]) in _COMPRESSORS,
        "order": array["order"] == "C" and array.get("dimension_separator", ".") == ".",
        "shape": len(shape) == len(chunks) and all(type(size) is int and size >= 0 for size in [*shape, *chunks]),
        "chunks": math.prod(-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True)) <= _MOST_BLOCKS,
        "fill_value": not isinstance(array["fill_value"], (list, dict)),
    }
    for part, right in checks.items():
        if not right:
            raise ValueError(f"the array {name!r} has a {part} that kpp does not read: {array.get(part, array)}")


def _check_block(path: Path, array: Mapping[str, Any]) -> None:
    """Check the length and the checksum of a block."""
    filters = array["filters"] or []
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ValueError("it is a link to another place")
    if not path.exists():
        if CHECKSUM in filters:  # earlier versions left out blocks of zeros, and had no checksums
            raise ValueError("it is missing")
        return
    content = path.read_bytes()
    length = _unpacked_length(content, array["compressor"])
    if array["dtype"] == "|O":
        check_expansion(length, len(content))
    else:
        expected = math.prod(array["chunks"]) * np.dtype(array["dtype"]).itemsize + 4 * (CHECKSUM in filters)
        if length != expected:
            raise ValueError(f"it has {length} bytes, and its array asks for {expected}")
    for codec in [array["compressor"], *reversed(filters)]:
        if codec == _TEXT and int.from_bytes(content[:4], "little") != math.prod(array["chunks"]):
            raise ValueError("it has another number of texts than its array asks for")
        content = content if codec is None else numcodecs.get_codec(dict(codec)).decode(content)


def _unpacked_length(content: bytes, compressor: Mapping[str, Any] | None) -> int:
    """Return the length of a block that is not yet unpacked, as the header of its compressor says."""
    if compressor is None:
        return len(content)
    if compressor["id"] == "blosc":
        return int.from_bytes(content[4:8], "little")
    # The frame header of zstd, RFC 8878: magic number, descriptor, [window], [dictionary], length of the content.
    single, kind = content[4] >> 5 & 1, content[4] >> 6
    start = 6 - single + (0, 1, 2, 4)[content[4] & 3]
    width = (single, 2, 4, 8)[kind]
    if not width:
        raise ValueError("its compressor does not say how long it is")
    return int.from_bytes(content[start : start + width], "little") + (256 if kind == 1 else 0)
