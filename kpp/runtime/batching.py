"""Work in blocks: memory is bounded, one compiled program serves every block, and a bar shows the progress.

There are three kinds of blocks. Inside a compiled function, `map_rows` processes some rows at a time. `in_blocks` and
`map_blocks` call a function for each block and show a progress bar. `call_in_chunks` calls a user's function and checks
its results.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import math
import operator
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, Shaped
from tqdm.auto import tqdm

from kpp.runtime.memory import check_memory
from kpp.runtime.signals import end_if_asked
from kpp.runtime.threads import call_in_threads, is_alone_in_thread
from kpp.typing import AnyArray

_CHUNK = 4096
_UNCHECKED = 2**29  # bytes that fit into the memory of any computer
_LONG = 600.0  # seconds that are told before they begin
_LOGGER = logging.getLogger("kpp")
_FEWER = "ask for fewer points or draws at once"
#: The largest number of blocks of draws, which threads take in turn, and so of steps of a progress bar.
NUM_BLOCKS = 20
# Seconds between the lines of a progress bar in a log.
_PAUSE = 10.0


def progress_bar(total: int | None, label: str, *, unit: str = "block", show: bool = True, delay: float = 1.0) -> tqdm:
    """Return a progress bar with the time passed and an estimate of the time left.

    If the error stream is a file or a pipe, the bar is a line every 10 seconds, so that a log stays readable. A thread
    that does one of several pieces of work shows no bar, because the bars of these pieces would mix. Without a `total`
    the bar counts steps, each called `unit`, and shows their rate. It appears after `delay` seconds.
    """
    show = show and not is_alone_in_thread()
    if sys.stderr.isatty() or "ipykernel" in sys.modules:
        return _Bar(total=total, desc=label, unit=unit, delay=delay, disable=not show)
    delay = max(delay, _PAUSE)
    return _Bar(total=total, desc=label, unit=unit, delay=delay, mininterval=_PAUSE, disable=not show, file=_Lines())


@contextlib.contextmanager
def announce(bar: tqdm | None, text: str) -> Iterator[None]:
    """Show a text in a bar, from its delay on, while something is done during which the bar does not advance."""
    if bar is None or bar.disable:
        yield
        return
    timer = threading.Timer(bar.delay, bar.set_postfix_str, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        bar.set_postfix_str("", refresh=False)


class _Bar(tqdm):
    """A bar whose steps are the places where a command that a signal has asked to end does so."""

    def update(self, n: int | float | None = 1) -> bool | None:
        end_if_asked()
        return super().update(n)


class _Lines:
    """The error stream, for a bar that writes each of its states on a line of its own."""

    def write(self, text: str) -> None:
        shown = text.strip()
        if shown:
            sys.stderr.write(f"{shown}\n")

    def flush(self) -> None:
        sys.stderr.flush()


def rows_that_fit(num_rows: int, entries_per_row: int, max_entries: int) -> int:
    """Return the largest number of rows with at most `max_entries` entries together, at least one row."""
    return max(1, min(num_rows, max_entries // max(1, entries_per_row)))


def even_size(num_rows: int, largest: int) -> int:
    """Return the size of blocks, at most `largest`, for which the last block has as few additional rows as possible."""
    largest = max(1, min(num_rows, largest))
    return math.ceil(num_rows / math.ceil(num_rows / largest))


def map_blocks(
    f: Callable[[PyTree], PyTree], rows: PyTree, size: int, *, axis: int = 0, bar: tqdm | None = None, threads: int = 1
) -> PyTree:
    """Call a function for each block of rows, and join the results.

    The last block is filled up with copies of the last row, so that all blocks have one shape. The first block is
    computed alone, because that compiles the program of all blocks. Then there may be several threads, whose programs
    run at the same time. The rows are a pytree of arrays (n, ...) with n at least 1; the results are NumPy arrays,
    which have the rows along `axis`. The bar advances by one step per block.
    """
    num_rows = jax.tree.leaves(rows)[0].shape[0]
    positions = _positions(num_rows, size)
    return _join(_call_each(lambda chosen: f(_rows(rows, chosen)), positions, bar, threads), axis, num_rows)


def _call_each(f: Callable[[Any], PyTree], tasks: Iterable[Any], bar: tqdm | None, threads: int) -> list[PyTree]:
    """Call a function for each task, the first one alone and the others in some threads."""

    def call(task: Any) -> PyTree:
        result = jax.tree.map(np.asarray, f(task))
        if bar is not None:
            bar.update()
        return result

    first, *others = tasks
    start = time.perf_counter()
    with announce(bar, "first block, with compilation"):
        found = call(first)
    took = time.perf_counter() - start
    if took * len(others) / threads > _LONG:
        _LOGGER.warning(
            "the first of %d blocks took %.1f s, so all of them may take %.0f minutes; fewer points, draws or features "
            "take less",
            len(others) + 1,
            took,
            took * (1 + len(others) / threads) / 60,
        )
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(found))
    if size * len(others) > _UNCHECKED:
        check_memory(size * len(others), f"the rest of the results, {len(others)} more blocks,", _FEWER)
    return [found, *call_in_threads(call, others, threads)]


def _rows(rows: PyTree, chosen: Int[np.ndarray, " b"]) -> PyTree:
    """Return some rows, or all if as many are chosen."""
    if len(chosen) == jax.tree.leaves(rows)[0].shape[0]:
        return rows
    return jax.tree.map(functools.partial(_take, chosen), rows)


def in_blocks(
    solve: Callable[[Any, PyTree], PyTree],
    function: Any,
    x: PyTree,
    *,
    instances_at_once: int,
    label: str,
    progress: bool,
    threads: int = 1,
    row_axis: int | None = None,
) -> PyTree:
    """Apply a computation to blocks of draws and points, with a progress bar, and join the results.

    Args:
        solve: A function from `function` and a block of points (b, d) to a pytree of arrays that lead with (*draws, b).
        function: The function. If it has a method ``take_draws``, as a `kpp.RKHSFunction`, some of its draws are taken
            at a time; all draws of anything else with a ``batch_shape`` are taken together.
        x: The points, (p, d).
        instances_at_once: The largest number of points in a block.
        label: The text in front of the progress bar.
        progress: Whether to show the bar, after one second.
        threads: As for `map_blocks`.
        row_axis: The axis of the points in the results; by default it follows the axes of ``batch_shape``.

    Returns:
        The result of `solve` for all draws and points, as NumPy arrays.
    """
    shape = getattr(function, "batch_shape", ())
    row_axis = len(shape) if row_axis is None else row_axis
    num_draws = shape[-1] if shape and hasattr(function, "take_draws") else 0
    num_rows = jax.tree.leaves(x)[0].shape[0]
    draws = _positions(num_draws, math.ceil(num_draws / NUM_BLOCKS)) if num_draws else []
    parts = [function.take_draws(chosen) for chosen in draws] or [function]
    positions = _positions(num_rows, instances_at_once)

    def of_task(task: tuple[Any, Int[np.ndarray, " b"]]) -> PyTree:
        part, chosen = task
        return solve(part, _rows(x, chosen))

    with progress_bar(len(parts) * len(positions), label, show=progress) as bar:
        results = _call_each(of_task, itertools.product(parts, positions), bar, threads)
    of_parts = [
        _join(results[start : start + len(positions)], row_axis, num_rows)
        for start in range(0, len(results), len(positions))
    ]
    return _join(of_parts, row_axis - 1, num_draws) if num_draws else of_parts[0]


def _positions(count: int, size: int) -> list[np.ndarray]:
    """Split 0, ..., count - 1 into blocks of one size; the last one repeats the last position."""
    size = max(1, min(size, count))
    return [np.minimum(np.arange(start, start + size), count - 1) for start in range(0, count, size)]


def _take(chosen: Int[np.ndarray, " b"], leaf: AnyArray) -> AnyArray:
    """Return some rows of an array of either library, by one compiled program for all blocks."""
    return leaf[chosen] if isinstance(leaf, np.ndarray) else jnp.take(leaf, chosen, axis=0, mode="clip")


def _join(parts: list[PyTree], axis: int, count: int) -> PyTree:
    """Concatenate blocks and remove the additional rows of the last one."""

    def join(*leaves: np.ndarray) -> np.ndarray:
        joined = leaves[0] if len(leaves) == 1 else np.concatenate(leaves, axis=axis)
        return np.take(joined, np.arange(count), axis=axis) if joined.shape[axis] > count else joined

    return jax.tree.map(join, *parts)


def filled_chunks(rows: Shaped[np.ndarray, "n d"], size: int) -> Iterator[Shaped[np.ndarray, "k d"]]:
    """Yield rows in chunks of `size`, the last filled up to a power of two with copies of its last row."""
    for start in range(0, len(rows), size):
        chunk = rows[start : start + size]
        filled = min(size, 1 << (len(chunk) - 1).bit_length())
        yield np.concatenate([chunk, np.repeat(chunk[-1:], filled - len(chunk), axis=0)])


def call_in_chunks(
    function: Callable[[Any], Any], rows: Shaped[AnyArray, "n d"], size: int = _CHUNK
) -> tuple[np.ndarray, int]:
    """Call a function of points on rows, `size` at a time.

    The last chunk is filled up to a power of two with copies of its last row. So memory is bounded, and a function that
    JAX compiles is compiled for only a few shapes, for any number of rows. The function gives predictions (k,) or (k,
    outputs), possibly led by (chain, draw), of points (k, d). Returns those of all rows, and the axis of the rows.
    Raises ValueError if there is not one prediction per row, or one is not a finite number.
    """
    rows = np.asarray(rows)
    parts, axis = [], 0
    for chunk in filled_chunks(rows, size):
        predictions = np.asarray(function(chunk))
        axis = row_axis(predictions, len(chunk))
        parts.append(predictions)
    joined = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=axis)
    values = joined[(slice(None),) * axis + (slice(len(rows)),)]
    if values.dtype.kind not in "fiub":
        raise ValueError(
            f"`function` must return real numbers, got dtype {values.dtype}; explain probabilities of labels"
        )
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise ValueError(f"`function` must return finite numbers, got {bad} that are not, for {len(rows)} points")
    return values, axis


def row_axis(predictions: AnyArray, num_rows: int) -> int:
    """Return the axis of the rows of predictions: the first axis, or the axis after (chain, draw).

    Raises ValueError if it has another length, or there are other axes than these and one of outputs.
    """
    axis = 0 if predictions.ndim <= 2 else 2
    if predictions.ndim not in range(1, 5) or predictions.shape[axis] != num_rows:
        raise ValueError(
            "`function` must return one prediction per point, shape (n,) or (n, outputs), got shape "
            f"{predictions.shape} for {num_rows} points"
        )
    return axis


def split_rows(x: PyTree[Shaped[Array, "n ..."]], size: int) -> PyTree[Shaped[Array, "chunks size ..."]]:
    """Split the rows of a batch into chunks, repeating the last row to fill the last chunk."""

    def split(leaf: Array) -> Array:
        filled = jnp.concatenate([leaf, jnp.repeat(leaf[-1:], -leaf.shape[0] % size, axis=0)])
        return filled.reshape(-1, size, *leaf.shape[1:])

    return jax.tree.map(split, x)


def split_weights(weights: Shaped[Array, "n ..."], size: int) -> Shaped[Array, "chunks size ..."]:
    """Split numbers that belong to rows as `split_rows` does the rows, with 0 for those that fill the last chunk."""
    filled = jnp.pad(weights, [(0, -weights.shape[0] % size)] + [(0, 0)] * (weights.ndim - 1))
    return filled.reshape(-1, size, *weights.shape[1:])


def map_rows(f: Callable[[PyTree], PyTree], x: PyTree, size: int) -> PyTree:
    """Apply a function of rows, whose results lead with the same rows, to `size` rows at a time."""
    num_rows = jax.tree.leaves(x)[0].shape[0]
    values = jax.lax.map(f, split_rows(x, size))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:num_rows], values)


def average_chunks(
    x: Float[Array, "m d"], size: int
) -> tuple[Float[Array, "chunks size d"], Float[Array, "chunks size"]]:
    """Split rows into chunks, with weights 1/m for the true rows and 0 for the rows that fill the last chunk."""
    return split_rows(x, size), split_weights(jnp.full(x.shape[0], 1 / x.shape[0], x.dtype), size)


def sum_over(f: Callable[[Any], PyTree], blocks: PyTree) -> Any:
    """Add up the results of a function of one block of arrays that lead with the blocks, one block at a time."""
    shapes = jax.eval_shape(f, jax.tree.map(lambda leaf: leaf[0], blocks))
    start = jax.tree.map(lambda result: jnp.zeros(result.shape, result.dtype), shapes)
    return jax.lax.scan(lambda sums, block: (jax.tree.map(jnp.add, sums, f(block)), None), start, blocks)[0]


def sum_arrays(arrays: Iterable[Array]) -> Array:
    """Add up arrays of one shape, at least one."""
    return functools.reduce(operator.add, arrays)
