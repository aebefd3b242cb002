"""Tables in blocks of rows: Dask arrays, Dask data frames and chunked xarray objects, as lists of delayed pieces."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

from kpp.foundation.validation import count


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Blocks of consecutive rows, none of them empty."""

    pieces: Sequence[Any]  # Dask's delayed objects: arrays (k, d), or pandas data frames
    lengths: tuple[int, ...]
    columns: tuple[str, ...] | None  # None for arrays

    @property
    def num_rows(self) -> int:
        """The number of rows of all blocks."""
        return sum(self.lengths)

    @property
    def size(self) -> int:
        """The number of rows of the largest block."""
        return max(self.lengths)

    @property
    def starts(self) -> list[int]:
        """The position of the first row of each block."""
        return [0, *itertools.accumulate(self.lengths[:-1])]

    @property
    def places(self) -> Iterator[tuple[Any, int, int]]:
        """Each block with the position of its first row and the number of its rows."""
        return zip(self.pieces, self.starts, self.lengths, strict=True)


def is_chunked(x: object) -> bool:
    """Return whether `x` is a Dask array, a Dask data frame, or an xarray object that holds one; imports no Dask."""
    if "dask" not in sys.modules:
        return False
    from dask.base import is_dask_collection

    return is_dask_collection(x)


def read_blocks(x: object, rows_per_block: int | None = None) -> Blocks:
    """Return a table in blocks of rows.

    The rows of a data frame are counted, which reads it once. Nothing else is computed. A table is a Dask array (n, d),
    whose chunks along other axes are joined, a Dask data frame, or an `xarray.DataArray` with chunks; empty chunks and
    partitions are left out. All blocks but the last have `rows_per_block` rows, or, by default, those of the chunks.
    Raises TypeError for another collection of Dask, and ValueError if there are no rows, chunks of unknown size, or
    partitions with different columns.
    """
    import dask.array as da

    if rows_per_block is not None:
        count(rows_per_block, "rows_per_block")
    if isinstance(x, xr.DataArray):
        x = x.data
    if isinstance(x, da.Array):
        return _of_array(x, rows_per_block)
    if hasattr(x, "to_delayed") and hasattr(x, "columns") and hasattr(x, "npartitions"):
        return _of_frame(x, rows_per_block)
    raise TypeError(
        "`x` must be a Dask array (n, d), a Dask data frame or an xarray.DataArray with chunks, got a "
        f"{type(x).__module__}.{type(x).__qualname__}"
    )


def _of_array(x: Any, rows_per_block: int | None) -> Blocks:
    if x.ndim < 2:
        raise ValueError(f"`x` must have shape (n, d), got shape {x.shape}")
    if any(map(math.isnan, itertools.chain(*x.chunks))):
        raise ValueError(f"`x` has chunks of unknown size, got chunks {x.chunks}; call `x.compute_chunk_sizes()` first")
    if 0 in x.shape:
        raise ValueError(f"`x` must have at least one row and one column, got shape {x.shape}")
    rows = x.chunks[0] if rows_per_block is None else rows_per_block
    x = x.rechunk({0: rows, **{axis: -1 for axis in range(1, x.ndim)}})
    pieces = zip(x.to_delayed().ravel(), x.chunks[0], strict=True)
    kept = [(piece, length) for piece, length in pieces if length]
    return Blocks([piece for piece, _ in kept], tuple(int(length) for _, length in kept), None)


def _of_frame(x: Any, rows_per_block: int | None) -> Blocks:
    from dask.base import compute
    from dask.delayed import delayed

    columns = tuple(x.columns)
    parts = x.to_delayed()
    counts = compute(*(delayed(_count)(part, columns, number) for number, part in enumerate(parts)))
    kept = [(part, length) for part, length in zip(parts, counts, strict=True) if length]
    if not kept:
        raise ValueError(f"`x` must have at least one row, got {len(parts)} empty partitions")
    blocks = Blocks([part for part, _ in kept], tuple(length for _, length in kept), columns)
    return blocks if rows_per_block is None else _cut(blocks, rows_per_block)


def _count(frame: Any, columns: tuple[str, ...], number: int) -> int:
    """Return the number of rows of a partition, whose columns must be those of the whole data frame."""
    found = tuple(frame.columns)
    if set(found) != set(columns):
        missing, strange = [c for c in columns if c not in found], [c for c in found if c not in columns]
        raise ValueError(
            f"`x` must have the same columns in all partitions; partition {number} lacks {missing} and has {strange} "
            "in addition"
        )
    return len(frame)


def _cut(blocks: Blocks, size: int) -> Blocks:
    """Return the rows of a data frame in blocks of another size."""
    from dask.delayed import delayed

    pieces, lengths = [], []
    for start in range(0, blocks.num_rows, size):
        stop = min(start + size, blocks.num_rows)
        parts, cuts = [], []
        for piece, first, length in blocks.places:
            low, high = max(start - first, 0), min(stop - first, length)
            if low < high:
                parts.append(piece)
                cuts.append((low, high))
        pieces.append(delayed(_join)(parts, cuts))
        lengths.append(stop - start)
    return Blocks(pieces, tuple(lengths), blocks.columns)


def _join(parts: Sequence[Any], cuts: Sequence[tuple[int, int]]) -> Any:
    import pandas as pd

    rows = [part.iloc[low:high] for part, (low, high) in zip(parts, cuts, strict=True)]
    return rows[0] if len(rows) == 1 else pd.concat(rows, ignore_index=True)


def refuse_bad_rows(block: Any, columns: Sequence[str] | None, start: int) -> None:
    """Raise ValueError for the first missing or infinite number of a block, with its row and column."""
    if hasattr(block, "columns"):
        names = [name for name in block.columns if columns is None or name in columns]
        bad = np.stack([_is_bad(block[name]) for name in names], axis=1)
    else:
        array = np.asarray(block)
        if array.dtype.kind != "f":
            return
        bad = ~np.isfinite(array.reshape(len(array), -1))
        names = [f"x{j % array.shape[-1]}" for j in range(bad.shape[1])]
    if bad.any():
        row, column = (int(position) for position in np.argwhere(bad)[0])
        name = names[column]
        value = block[name].iloc[row] if hasattr(block, "columns") else array.reshape(len(array), -1)[row, column]
        raise ValueError(
            f"`x` must hold finite numbers and no missing values, got {value} in row {start + row}, column {name!r} "
            f"({int(bad.any(axis=1).sum())} such rows in the block of rows {start} to {start + len(bad) - 1})"
        )


def _is_bad(column: Any) -> np.ndarray:
    missing = np.asarray(column.isna())
    values = np.asarray(column)
    return missing | ~np.isfinite(values) if values.dtype.kind == "f" else missing
