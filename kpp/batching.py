"""Rows in chunks of few sizes, so that memory is bounded and everything compiles for a handful of shapes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from kpp.typing import AnyArray

__all__ = [
    "average_chunks",
    "call_in_chunks",
    "filled_chunks",
    "map_rows",
    "row_axis",
    "split_rows",
    "sum_arrays",
]

_CHUNK = 4096


def filled_chunks(rows: Float[np.ndarray, "n d"], size: int) -> Iterator[Float[np.ndarray, "k d"]]:
    """Yield rows in chunks of `size`, the last filled up to a power of two with copies of its last row.

    Args:
        rows: The rows, (n, d), at least one.
        size: The most rows of a chunk.
    """
    for start in range(0, len(rows), size):
        chunk = rows[start : start + size]
        filled = min(size, 1 << (len(chunk) - 1).bit_length())
        yield np.concatenate([chunk, np.repeat(chunk[-1:], filled - len(chunk), axis=0)])


def call_in_chunks(
    function: Callable[[Any], Any], rows: Float[AnyArray, "n d"], size: int = _CHUNK
) -> tuple[np.ndarray, int]:
    """Call a function of points on rows, `size` at a time.

    The last chunk is filled up to a power of two with copies of its last row. So memory is bounded, and a function that
    JAX compiles is compiled for a handful of shapes, however many rows come.

    Args:
        function: From points (k, d) to predictions (k,) or (k, outputs), perhaps led by (chain, draw).
        rows: The points, (n, d), at least one.
        size: The most rows of a call.

    Returns:
        The predictions, (n,), led by (chain, draw) if so, with the outputs last, and the axis of the rows.

    Raises:
        ValueError: If the function does not return one prediction a row, or one is no number or not finite.
    """
    rows = np.asarray(rows)
    parts, axis = [], 0
    for chunk in filled_chunks(rows, size):
        predictions = np.asarray(function(chunk))
        axis = row_axis(predictions, len(chunk))
        parts.append(predictions)
    values = np.take(np.concatenate(parts, axis=axis), np.arange(len(rows)), axis=axis)
    if values.dtype.kind not in "fiub":
        raise ValueError(
            f"`function` must return real numbers, got dtype {values.dtype}; explain probabilities of labels"
        )
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise ValueError(f"`function` must return finite numbers, got {bad} that are not, for {len(rows)} points")
    return values, axis


def row_axis(predictions: AnyArray, num_rows: int) -> int:
    """Return the axis of the rows of predictions: the first, or the one behind (chain, draw).

    Raises:
        ValueError: If it has another length, or there are other axes than these and one of outputs.
    """
    axis = 0 if predictions.ndim <= 2 else 2
    if predictions.ndim not in range(1, 5) or predictions.shape[axis] != num_rows:
        raise ValueError(
            "`function` must return one prediction a point, shape (n,) or (n, outputs), got shape "
            f"{predictions.shape} for {num_rows} points"
        )
    return axis


def split_rows(x: Shaped[Array, "n *rest"], size: int) -> Shaped[Array, "chunks size *rest"]:
    """Split rows into chunks, repeating the last row to fill the last chunk."""
    missing = -x.shape[0] % size
    filled = jnp.concatenate([x, jnp.repeat(x[-1:], missing, axis=0)])
    return filled.reshape(-1, size, *x.shape[1:])


def map_rows(f: Callable[[Any], Array], x: Any, size: int) -> Float[Array, "n *results"]:
    """Apply a function of rows, whose results are led by the same rows, to `size` of them at a time.

    Args:
        f: The function.
        x: An array (n, ...), or a pytree of such.
        size: How many rows are worked on at once.

    Returns:
        The results, (n, ...).
    """
    values = jax.lax.map(f, jax.tree.map(lambda leaf: split_rows(leaf, size), x))
    return values.reshape(-1, *values.shape[2:])[: jax.tree.leaves(x)[0].shape[0]]


def average_chunks(
    x: Float[Array, "m d"], size: int
) -> tuple[Float[Array, "chunks size d"], Float[Array, "chunks size"]]:
    """Split rows into chunks, with weights 1/m for true rows and 0 for those that fill the last chunk."""
    chunks = split_rows(x, size)
    weights = jnp.arange(chunks.shape[0] * size) < x.shape[0]
    return chunks, (weights / x.shape[0]).astype(x.dtype).reshape(-1, size)


def sum_arrays(arrays: Iterable[Array]) -> Array:
    """Add up arrays of one shape, at least one."""
    return functools.reduce(operator.add, arrays)
