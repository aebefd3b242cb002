"""Explanations as Zarr stores: folders of blocks of rows, which are written and read one at a time."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from kpp.foundation.distribution import extra
from kpp.lazy.schedulers import waiting_for_threads
from kpp.runtime.files import remove_leftovers, replace_folder, temporary_path
from kpp.storage import netcdf

#: The version 2 of Zarr's format: version 3 has no type for the names of features yet.
FORMAT = 2
#: The array of a store that is written block by block: whether each block is there.
DONE = "block_done"
_SUFFIX = ".zarr"
_ARRAYS = "kpp_arrays"  # the attribute that lists the arrays that kpp wrote, by which a store is replaced


def is_store(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is the name of a Zarr store: it ends in .zarr."""
    return Path(path).suffix == _SUFFIX


def needed() -> Any:
    """Import and return zarr, for which Dask must be there, too; an ImportError has the command that installs both."""
    try:
        import dask.array  # noqa: F401
        import zarr
    except ImportError as error:
        raise ImportError(f"Zarr stores need dask and zarr, which are an extra: {extra('dask')}") from error
    return zarr


def write(path: str | os.PathLike[str], dataset: xr.Dataset) -> None:
    """Write a dataset; arrays of Dask are computed and written block by block.

    The folder appears only when it is complete. Another store of `write` there is replaced; anything else is refused by
    FileExistsError, and unchanged, as is everything if writing fails.
    """
    needed()
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"`path` {str(target)!r} lies in a folder that does not exist")
    remove_leftovers(target)
    _refuse_others(target)
    partial = temporary_path(target)
    plain = dataset.drop_encoding()
    plain.attrs = netcdf.encode_attrs(dataset.attrs)
    if dataset.chunks:  # chunks of a store have one size
        plain = plain.chunk({str(dim): max(sizes) for dim, sizes in dataset.chunks.items()})
    try:
        with waiting_for_threads():
            write_new(partial, plain)
        replace_folder(partial, target)
    finally:
        _wait_for_writes()
        shutil.rmtree(partial, ignore_errors=True)


def write_new(path: Path, dataset: xr.Dataset, compute: bool = True) -> None:
    """Write a dataset into a new folder, with a checksum of each block and the list of its arrays.

    Attributes of the dataset are encoded. If `compute` is False, blocks of Dask are left out.
    """
    from numcodecs import CRC32

    from kpp.storage.zarr_checks import CHECKSUM

    marked = dataset.assign_attrs({_ARRAYS: json.dumps(sorted(map(str, dataset.variables)))})
    for name, variable in dataset.variables.items():
        if variable.dtype.kind in "OT":  # Zarr's codec of texts of any length has no checksum
            texts = np.array([str(text) for text in variable.values.ravel()]).reshape(variable.shape)
            marked = marked.assign_coords({name: (variable.dims, texts, variable.attrs)})
    checksum = CRC32(location=CHECKSUM["location"])
    encoding = {name: {**variable.encoding, "filters": [checksum]} for name, variable in dataset.variables.items()}
    marked.to_zarr(  # type: ignore[call-overload]
        path,
        mode="w-",
        zarr_format=FORMAT,
        consolidated=True,
        compute=compute,
        encoding=encoding,
        write_empty_chunks=True,
    )


def _refuse_others(target: Path) -> None:
    """Raise FileExistsError unless a path is free, or a folder in which nothing is but a store of kpp."""
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_dir():
        raise FileExistsError(f"`path` {str(target)!r} exists and is not a folder, so it is not replaced")
    try:
        arrays = "|".join(map(re.escape, json.loads(json.loads((target / ".zattrs").read_bytes())[_ARRAYS])))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileExistsError(
            f"`path` {str(target)!r} exists and is not a Zarr store that this version of kpp wrote, so it is not "
            "replaced; delete it first, or choose another path"
        ) from error
    block = r"\d+(\.\d+)*(\.[0-9a-f]{32}\.partial)?"  # partial if the process was killed that wrote it
    own = re.compile(rf"({arrays})(/(\.zarray|\.zattrs|{block}))?|\.zgroup|\.zattrs|\.zmetadata")
    others = [name for name in (str(path.relative_to(target)) for path in target.rglob("*")) if not own.fullmatch(name)]
    if others:
        raise FileExistsError(
            f"`path` {str(target)!r} holds other files ({', '.join(map(repr, sorted(others)[:3]))}), so it is not "
            "replaced; choose another path"
        )


def _wait_for_writes() -> None:
    """Wait for the writes that Zarr has begun: after an error in one, its own thread goes on with the others."""
    from zarr.core.sync import sync

    async def others_are_done() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    sync(others_are_done())


def read(path: str | os.PathLike[str]) -> xr.Dataset:
    """Return the dataset of a store, whose arrays are read when they are needed.

    Raises FileNotFoundError if there is no such folder, and ValueError if it is not a Zarr store, is damaged, or not
    all of its blocks have been written.
    """
    target = Path(path)
    if not target.is_dir():
        raise FileNotFoundError(f"`path` {str(target)!r} is not a folder")
    dataset = open_dataset(target, complete=True)
    if DONE in dataset:
        done = dataset[DONE].values
        if not done.all():
            raise ValueError(
                f"`path` {str(target)!r} is not complete: {int(done.sum())} of {done.size} blocks are there; run its "
                "job again to compute the others"
            )
        dataset = dataset.drop_vars(DONE)
    return dataset


def open_dataset(path: Path, complete: bool = False) -> xr.Dataset:
    """Return the dataset of a store, whose blocks are checked and read when they are needed.

    If the store should be complete, the size of its files is compared with the arrays. Raises ValueError if it is not a
    Zarr store, is damaged, or has codecs or types that kpp does not read.
    """
    needed()
    from kpp.storage.zarr_checks import CheckedStore, check_size, read_descriptions

    try:
        arrays = read_descriptions(path)
        if complete:
            check_size(path, arrays)
        dataset = xr.open_zarr(CheckedStore(path, arrays), chunks={}, zarr_format=FORMAT)
        dataset.attrs = netcdf.decode_attrs(dataset.attrs)
    except Exception as error:  # the libraries raise errors of many types for a store that is damaged
        raise ValueError(f"`path` {str(path)!r} is not a Zarr store that kpp can read ({error})") from error
    dataset.attrs.pop(_ARRAYS, None)
    return dataset
