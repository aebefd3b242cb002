"""Explanations as Zarr stores: folders of blocks of rows, which are written and read one at a time."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import xarray as xr

from kpp import netcdf
from kpp.files import remove_leftovers, replace_folder, temporary_path
from kpp.lazy import waiting_for_threads

__all__ = ["DONE", "FORMAT", "is_store", "needed", "read", "write"]

#: The version 2 of Zarr's format: version 3 has no type for the names of features yet.
FORMAT = 2
#: The array of a store that is written block by block: whether each block is there.
DONE = "block_done"
_SUFFIX = ".zarr"


def is_store(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is the name of a Zarr store: it ends in .zarr."""
    return Path(path).suffix == _SUFFIX


def needed() -> Any:
    """Import and return zarr, for which Dask must be there, too.

    Raises:
        ImportError: If one is not installed, with the command that installs both.
    """
    try:
        import dask.array  # noqa: F401
        import zarr
    except ImportError as error:
        raise ImportError("Zarr stores need dask and zarr, which are an extra: pip install 'kpp[dask]'") from error
    return zarr


def write(path: str | os.PathLike[str], dataset: xr.Dataset) -> None:
    """Write a dataset; arrays of Dask are computed and written block by block.

    Args:
        path: The folder, which appears only when it is complete. Another store there is replaced.
        dataset: The dataset.

    Raises:
        FileNotFoundError: If the folder around it does not exist.
        FileExistsError: If something is there that is not a Zarr store.
        OSError: If it cannot be written, such as on a full disk; what is there is unchanged.
    """
    needed()
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"`path` {str(target)!r} lies in a folder that does not exist")
    if target.exists() and not (target / ".zgroup").is_file():
        raise FileExistsError(f"`path` {str(target)!r} exists and is not a Zarr store, so it is not replaced")
    remove_leftovers(target)
    partial = temporary_path(target)
    plain = dataset.drop_encoding()
    plain.attrs = netcdf.encode_attrs(dataset.attrs)
    if dataset.chunks:  # chunks of a store have one size
        plain = plain.chunk({str(dim): max(sizes) for dim, sizes in dataset.chunks.items()})
    try:
        with waiting_for_threads():
            plain.to_zarr(partial, mode="w-", zarr_format=FORMAT, consolidated=True)
        replace_folder(partial, target)
    finally:
        _wait_for_writes()
        shutil.rmtree(partial, ignore_errors=True)


def _wait_for_writes() -> None:
    """Wait for the writes that Zarr has begun: after an error in one, its own thread goes on with the others."""
    from zarr.core.sync import sync

    async def others_are_done() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    sync(others_are_done())


def read(path: str | os.PathLike[str]) -> xr.Dataset:
    """Return the dataset of a store, whose arrays are read when they are needed.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If it is not a Zarr store, is damaged, or not all of its blocks have been written.
    """
    needed()
    target = Path(path)
    if not target.is_dir():
        raise FileNotFoundError(f"`path` {str(target)!r} is not a folder")
    try:
        dataset = xr.open_zarr(target, chunks={}, zarr_format=FORMAT)
        dataset.attrs = netcdf.decode_attrs(dataset.attrs)
    except Exception as error:  # the libraries raise errors of many types for a store that is damaged
        raise ValueError(f"`path` {str(target)!r} is not a Zarr store that xarray can read ({error})") from error
    if DONE in dataset:
        done = dataset[DONE].values
        if not done.all():
            raise ValueError(
                f"`path` {str(target)!r} is not complete: {int(done.sum())} of {done.size} blocks are there; run its "
                "job again to compute the others"
            )
        dataset = dataset.drop_vars(DONE)
    return dataset
