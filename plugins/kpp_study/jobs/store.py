"""The Zarr store of a job: its parameters, the arrays, and which blocks are there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from kpp.explanations.toolkit import marked
from kpp.lazy.block_task import Layout
from kpp.lazy.blocks import Blocks
from kpp.runtime.files import remove_leftovers, temporary_path
from kpp.storage import zarr_store
from kpp.storage.netcdf import encode_attrs

_JOB = "kpp_job"


class JobStore:
    """A store that is filled block by block. A block counts as done only after all its arrays are stored."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, first: xr.Dataset, blocks: Blocks, job: Mapping[str, str]) -> JobStore:
        """Make a store that holds the first block. It appears in one step, if no other run has made it meanwhile.

        All blocks are of one size except the last. If another run of the same job has made the store, it is returned,
        with the blocks that it has finished. Raises OSError if it cannot be written, and then nothing is left;
        ValueError if another run has made something else there meanwhile.
        """
        layout, partial = Layout.of(first), temporary_path(path)
        try:
            zarr_store.write_new(partial, _skeleton(first, layout, blocks, job), compute=False)
            store = cls(partial)
            store.write({name: first[name].values for name in layout.dims if name not in layout.shared}, 0, 0)
            try:
                partial.rename(path)  # not onto a store that another run has made meanwhile
            except OSError:
                if (other := cls.find(path, job)) is None:
                    raise
                return other
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return cls(path)

    @classmethod
    def find(cls, path: Path, job: Mapping[str, str]) -> JobStore | None:
        """Return the store of an earlier run of the same job; None if there is nothing.

        Raises FileNotFoundError if the folder around it does not exist, and ValueError if something else is there, or
        the store of another job; the message names what differs.
        """
        if not path.parent.is_dir():
            raise FileNotFoundError(f"`path` {str(path)!r} lies in a folder that does not exist")
        remove_leftovers(path)
        if not path.exists():
            return None
        try:
            earlier = json.loads(zarr_store.open_dataset(path).attrs[_JOB])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"`path` {str(path)!r} exists and is not the store of a job; choose another") from error
        different = sorted(name for name in {*earlier, *job} if earlier.get(name) != job.get(name))
        if different:
            listed = ", ".join(f"`{name}`" for name in different)
            raise ValueError(
                f"`path` {str(path)!r} belongs to a job that differs in {listed}; choose another path, or delete the "
                "store to begin again"
            )
        return cls(path)

    def done(self) -> np.ndarray:
        """Return whether each block is there."""
        return np.asarray(zarr_store.open_dataset(self.path)[zarr_store.DONE], dtype=bool)

    def layout(self) -> Layout:
        """Return the layout of all blocks."""
        return Layout.of(zarr_store.open_dataset(self.path).drop_vars(zarr_store.DONE))

    def write(self, arrays: Mapping[str, np.ndarray], number: int, start: int) -> None:
        """Store the arrays of a block, whose first row has the position `start`, and then that it is done."""
        dataset = zarr_store.open_dataset(self.path)  # checks what Zarr is about to open
        group = zarr_store.needed().open_group(self.path, mode="r+", zarr_format=zarr_store.FORMAT)
        for name, values in arrays.items():
            axis = dataset[name].dims.index("instance")
            rows = slice(start, start + values.shape[axis])
            array = group[name].with_config({"write_empty_chunks": True})  # a block that is not there is damage
            array[(*[slice(None)] * axis, rows)] = values
        group[zarr_store.DONE].with_config({"write_empty_chunks": True})[number] = True


def _skeleton(first: xr.Dataset, layout: Layout, blocks: Blocks, job: Mapping[str, str]) -> xr.Dataset:
    """Return the dataset of all blocks, without values."""
    import dask.array as da

    variables: dict[str, Any] = {}
    for name, dims in layout.dims.items():
        if name in layout.shared:
            variables[name] = (dims, layout.shared[name])
            continue
        chunks = tuple(blocks.size if dim == "instance" else first.sizes[dim] for dim in dims)
        shape = layout.shape(name, first, blocks.num_rows)
        variables[name] = (dims, da.zeros(shape, chunks=chunks, dtype=layout.dtypes[name]), {}, {"_FillValue": None})
    done = np.zeros(len(blocks.lengths), dtype=bool)
    variables[zarr_store.DONE] = (("block",), done, {}, {"chunks": (1,)})
    coords: dict[str, Any] = {str(name): coord.values for name, coord in first.coords.items() if name != "instance"}
    dataset = marked(xr.Dataset(variables, {**coords, "instance": np.arange(blocks.num_rows)}, layout.attrs))
    return dataset.assign_attrs(encode_attrs({**dataset.attrs, _JOB: json.dumps(dict(job), sort_keys=True)}))
