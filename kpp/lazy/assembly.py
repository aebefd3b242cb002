"""An explanation backed by Dask arrays, from one task for each block of rows."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import xarray as xr

from kpp.lazy.block_task import BlockTask, Explain, Layout
from kpp.lazy.blocks import Blocks, read_blocks
from kpp.lazy.schedulers import complete_all
from kpp.typing import RngKey


def explain_blocks(
    explain: Explain, x: object, *, rng_key: RngKey | None, columns: tuple[str, ...] | None
) -> xr.Dataset:
    """Return the dataset of the explanation of a table in blocks, computed when it is needed.

    The first block is computed at once, because it shows which arrays the explanation has, and is kept. `explain` gives
    the dataset of some rows and a random key, which is ``jax.random.fold_in(rng_key, b)`` for block b. Only the
    `columns` of data frames are read; None stands for all.
    """
    import dask.array as da
    from dask.delayed import delayed

    blocks = read_blocks(x)
    task, first = first_block(explain, blocks, rng_key, columns)
    layout = Layout.of(first)
    shared_task, shared_layout = (delayed(thing, traverse=False) for thing in (task, layout))
    parts: list[dict[str, Any]] = [{name: da.from_array(first[name].values, chunks=-1) for name in _with_rows(layout)}]
    for number, (piece, start, length) in enumerate(itertools.islice(blocks.places, 1, None), 1):
        arrays = delayed(block_arrays)(shared_task, shared_layout, piece, number, start, length, blocks.size)
        parts.append(
            {
                name: da.from_delayed(arrays[name], layout.shape(name, first, length), layout.dtypes[name])
                for name in _with_rows(layout)
            }
        )
    return _joined(parts, layout, first, blocks)


def first_block(
    explain: Explain, blocks: Blocks, rng_key: RngKey | None, columns: tuple[str, ...] | None
) -> tuple[BlockTask, xr.Dataset]:
    """Compute the first block, and return the task for all blocks and the dataset of the first.

    Its attributes are those of the whole: the user's key, the number of rows in a block, and how rows were drawn.
    """
    if blocks.columns is not None and columns is not None:
        missing = [name for name in columns if name not in blocks.columns]
        if missing:
            raise ValueError(f"`x` lacks the columns {missing}; it has {list(blocks.columns)}")
    task = BlockTask(explain, rng_key, columns)
    first = _compute_first(task, blocks)
    if rng_key is None and "rng_key" in first.attrs and len(blocks.lengths) > 1:
        # The explainer has chosen the key 0, which must not be the key of all blocks.
        rng_key = jax.random.key(0)
        task = BlockTask(explain, rng_key, columns)
        first = _compute_first(task, blocks)
    if "instance_other" in first.dims and len(blocks.lengths) > 1:
        raise ValueError(
            "the explainer computes a covariance across rows, which blocks of rows do not have; ask it for the "
            "covariance of each row (rkhs-shap: `covariance` 'point')"
        )
    if rng_key is not None and "rng_key" in first.attrs:
        first.attrs["rng_key"] = task.key_numbers
    if "instances_drawn" in first.attrs and len(blocks.lengths) > 1:
        first.attrs["instances_drawn"] = "independently"
    first.attrs["rows_per_block"] = blocks.size
    return task, first


def _compute_first(task: BlockTask, blocks: Blocks) -> xr.Dataset:
    from dask.delayed import delayed

    piece = delayed(BlockTask.explain)(delayed(task, traverse=False), blocks.pieces[0], 0, 0, blocks.size)
    if_gone = "nothing has been explained; call again with another scheduler or without"
    (dataset,) = complete_all([piece], lambda _: None, if_gone)
    return dataset.isel({dim: slice(blocks.lengths[0]) for dim in dataset.dims if dim.startswith("instance")})


def block_arrays(
    task: BlockTask, layout: Layout, block: Any, number: int, start: int, length: int, size: int
) -> dict[str, np.ndarray]:
    """Explain a block, and return its arrays that have rows by name; `size` is that of the largest block."""
    where = f"block {number} (rows {start} to {start + length - 1})"
    return layout.arrays(task.explain(block, number, start, size), length, where)


def _with_rows(layout: Layout) -> list[str]:
    return [name for name in layout.dims if name not in layout.shared]


def _joined(parts: list[dict[str, Any]], layout: Layout, first: xr.Dataset, blocks: Blocks) -> xr.Dataset:
    import dask.array as da

    variables: dict[str, Any] = {
        name: (dims, layout.shared[name])
        if name in layout.shared
        else (dims, da.concatenate([part[name] for part in parts], axis=dims.index("instance")))
        for name, dims in layout.dims.items()
    }
    coords: dict[str, Any] = {str(name): coord.values for name, coord in first.coords.items() if name != "instance"}
    return xr.Dataset(variables, {**coords, "instance": np.arange(blocks.num_rows)}, layout.attrs)
