"""Tables that need not fit into memory, in blocks (arrays, memory maps, Parquet, Dask), and sums over their rows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from kpp.foundation.distribution import extra
from kpp.foundation.validation import refuse_masked
from kpp.lazy.blocks import Blocks, is_chunked, read_blocks
from kpp.lazy.schedulers import complete_all
from kpp.lazy.tasks import TravelingFunction
from kpp.runtime.batching import NUM_BLOCKS, progress_bar

#: What the user should know if the scheduler of Dask is gone.
_IF_GONE = "nothing is kept of the fit; fit again with another scheduler or without"
_AT_ONCE = 8  # partial sums that a task adds

Block = tuple[Float[np.ndarray, "b d"], Float[np.ndarray, " b"]]
Taken = tuple[Float[np.ndarray, "c d"], Float[np.ndarray, " c"]]


@dataclasses.dataclass(frozen=True)
class RowBlocks:
    """A table that is read in blocks, as often as needed."""

    num_rows: int
    feature_names: tuple[str, ...]
    read: Callable[[], Iterator[tuple[Any, Any]]]  # iterates over blocks of points and targets, in order
    pieces: Blocks | None = None  # the blocks of a table of Dask, which its workers can read; None for another table
    first: int = 0  # the number of the first row; not 0 if this is a part of a table

    def blocks(self) -> Iterator[tuple[int, Block]]:
        """Yield for each block the number of its first row, its points and its targets, as finite numbers."""
        start = self.first
        for x, y in self.read():
            refuse_masked(x, "x")  # `np.asarray` would lose the mask
            refuse_masked(y, "y")
            points, targets = np.asarray(x), np.asarray(y)
            _check_finite(points, "x", self.feature_names, start)
            _check_finite(targets[:, None], "y", ("y",), start)
            yield start, (points, targets)
            start += len(points)
        if start != self.first + self.num_rows:
            raise ValueError(f"`x` must have {self.num_rows} rows at each reading, got {start - self.first}")

    @classmethod
    def of_block(cls, feature_names: tuple[str, ...], start: int, block: tuple[Any, Any]) -> RowBlocks:
        """Return the part of a table that is one block, which has been read and starts with the row `start`."""
        return cls(len(block[0]), feature_names, lambda: iter([block]), first=start)

    def take(self, chosen: np.ndarray) -> Taken:
        """Return some rows with their targets, given by their numbers in ascending order, in one reading.

        The rows of a table of Dask are taken where its blocks are.
        """
        if self.pieces is None:
            found = [_inside(chosen, start, block) for start, block in self.blocks()]
        else:
            from dask.delayed import delayed

            take = delayed(_take_from_piece)
            tasks = [take(self.feature_names, chosen, start, block) for block, start, _ in self.pieces.places]
            found = complete_all(tasks, lambda _: None, _IF_GONE)
        return np.concatenate([x for x, _ in found]), np.concatenate([y for _, y in found])


def _take_from_piece(feature_names: tuple[str, ...], chosen: np.ndarray, start: int, block: tuple[Any, Any]) -> Taken:
    ((_, checked),) = RowBlocks.of_block(feature_names, start, block).blocks()
    return _inside(chosen, start, checked)


def _inside(chosen: np.ndarray, start: int, block: Block) -> Taken:
    """Return the chosen rows of a block, given by their numbers in the table."""
    x, y = block
    own = chosen[(chosen >= start) & (chosen < start + len(x))] - start
    return x[own], y[own]


def read_rows_and_targets(x: object, y: object, rows_per_block: int) -> RowBlocks:
    """Return a table in blocks of at most `rows_per_block` rows.

    Points and targets are arrays (n, d) and (n,), such as a `numpy.memmap` or arrays of Dask; or a data frame of Dask
    or the path of a Parquet file, with the name of the column of targets, and all other columns are features. Raises
    TypeError if they are of another kind; ValueError if they do not have the same number of rows, or a column is
    missing or does not hold numbers.
    """
    if isinstance(x, (str, Path)):
        return _of_parquet(Path(x), _column(y), rows_per_block)
    if is_chunked(x):
        return _of_dask_frame(x, _column(y), rows_per_block) if isinstance(y, str) else _of_dask(x, y, rows_per_block)
    points, targets = np.asanyarray(x), np.asanyarray(y)
    _check_shapes(points.shape, targets.shape)
    _check_dtypes(points, targets)

    def read() -> Iterator[tuple[Any, Any]]:
        for start in range(0, len(points), rows_per_block):
            rows = slice(start, start + rows_per_block)
            yield points[rows], targets[rows]

    return RowBlocks(len(points), tuple(f"x{j}" for j in range(points.shape[1])), read)


def _check_finite(values: np.ndarray, argument: str, names: tuple[str, ...], start: int) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        row, column = (int(position) for position in np.argwhere(bad)[0])
        raise ValueError(
            f"`{argument}` must hold finite numbers and no missing values, got {values[row, column]} in row "
            f"{start + row}, column {names[column]!r}"
        )


def _check_shapes(x: tuple[Any, ...], y: tuple[Any, ...]) -> None:
    if len(x) != 2 or len(y) != 1 or x[0] != y[0] or 0 in x:
        raise ValueError(f"`x` must have shape (n, d) and `y` shape (n,), got {x} and {y}")


def _check_dtypes(x: Any, y: Any) -> None:
    for name, array in (("x", x), ("y", y)):
        if array.dtype.kind not in "fiub":
            raise TypeError(f"`{name}` must hold numbers, got an array of {array.dtype}")


def _column(y: object) -> str:
    if not isinstance(y, str):
        raise TypeError(f"`y` must be the name of a column of `x`, got {type(y).__name__}")
    return y


def _features(names: list[str], target: str) -> tuple[str, ...]:
    if target not in names:
        raise ValueError(f"`y` must be a column of `x`, got {target!r}; the columns are {names}")
    return tuple(name for name in names if name != target)


def _check_column(name: object, dtype: object, is_number: bool) -> None:
    if not is_number:
        raise ValueError(f"column {name!r} of `x` must hold numbers, got {dtype}; encode it, or leave it out")


def _of_parquet(path: Path, target: str, rows_per_block: int) -> RowBlocks:
    try:
        from pyarrow import parquet, types
    except ImportError as error:
        raise ImportError(f"Parquet files need pyarrow, which is an extra: {extra('parquet')}") from error
    if not path.is_file():
        raise FileNotFoundError(f"`x` must be the path of a Parquet file, got {str(path)!r}")
    file = parquet.ParquetFile(path)
    schema = file.schema_arrow
    names = _features(schema.names, target)
    for field in schema:
        kinds = (types.is_floating, types.is_integer, types.is_boolean)
        _check_column(field.name, field.type, any(is_kind(field.type) for is_kind in kinds))
    if file.metadata.num_rows == 0:
        raise ValueError(f"`x` must have at least one row, got none in {str(path)!r}")

    def read() -> Iterator[tuple[Any, Any]]:
        for batch in parquet.ParquetFile(path).iter_batches(rows_per_block):
            yield _split(batch.to_pandas(), names, target)

    return RowBlocks(file.metadata.num_rows, names, read)


def _of_dask(x: Any, y: Any, rows_per_block: int) -> RowBlocks:
    import dask.array as da
    from dask.delayed import delayed

    blocks = read_blocks(x, rows_per_block)
    _check_shapes((blocks.num_rows, x.shape[1]), y.shape)
    targets = y if is_chunked(y) else da.from_array(np.asanyarray(y))
    _check_dtypes(x, targets)

    pieces = [delayed(tuple)([piece, targets[start : start + length]]) for piece, start, length in blocks.places]
    return _of_pieces(blocks, pieces, tuple(f"x{j}" for j in range(x.shape[1])))


def _of_pieces(blocks: Blocks, pieces: Sequence[Any], names: tuple[str, ...]) -> RowBlocks:
    """Return a table whose blocks of points and targets are delayed objects of Dask."""
    both = dataclasses.replace(blocks, pieces=pieces, columns=None)
    return RowBlocks(blocks.num_rows, names, lambda: (piece.compute() for piece in pieces), both)


def _of_dask_frame(x: Any, target: str, rows_per_block: int) -> RowBlocks:
    names = _features([str(name) for name in x.columns], target)
    for name, dtype in x.dtypes.items():
        _check_column(name, dtype, getattr(dtype, "kind", "O") in "fiub")
    from dask.delayed import delayed

    blocks = read_blocks(x, rows_per_block)
    return _of_pieces(blocks, [delayed(_split)(piece, names, target) for piece in blocks.pieces], names)


def _split(frame: Any, names: tuple[str, ...], target: str) -> tuple[np.ndarray, np.ndarray]:
    return frame[list(names)].to_numpy(dtype=float), frame[target].to_numpy(dtype=float)


def sum_over_rows(sums: Callable[[RowBlocks], PyTree], table: RowBlocks, label: str, *, progress: bool) -> PyTree:
    """Return sums over the rows of a table, by a function that can travel to workers.

    The blocks of a table of Dask are summed by its workers, and their sums are added in an order that depends only on
    the number of blocks. So the result is the same, bit for bit, for any number of workers. Raises RuntimeError if the
    scheduler of Dask is gone, and ValueError, with row and column, if the data are invalid.
    """
    if table.pieces is None:
        return sums(table)
    from dask.delayed import delayed

    call, add = delayed(_sum_of_block), delayed(_add)
    shared = delayed(TravelingFunction(functools.partial(_as_numpy, sums)).pack("the model"), traverse=False)
    groups, places = [], [*table.pieces.places]
    size = -(-len(places) // NUM_BLOCKS)  # of consecutive blocks, one group for each step of a progress bar
    for first in range(0, len(places), size):
        parts = [call(shared, table.feature_names, start, block) for block, start, _ in places[first : first + size]]
        while len(parts) > 1:
            parts = [add(*parts[start : start + _AT_ONCE]) for start in range(0, len(parts), _AT_ONCE)]
        groups += parts
    with progress_bar(len(groups), label, show=progress) as bar:
        return jax.tree.map(jnp.asarray, _add(*complete_all(groups, bar.update, _IF_GONE)))


def _as_numpy(sums: Callable[[RowBlocks], PyTree], table: RowBlocks) -> PyTree:
    """Return sums as NumPy arrays, which keep their precision wherever they are read."""
    return jax.tree.map(np.asarray, sums(table))


def _sum_of_block(
    sums: TravelingFunction, feature_names: tuple[str, ...], start: int, block: tuple[Any, Any]
) -> PyTree:
    return sums(RowBlocks.of_block(feature_names, start, block))


def _add(*sums: PyTree) -> PyTree:
    return functools.reduce(lambda total, part: jax.tree.map(np.add, total, part), sums)
