"""Rows in chunks of one size, so that memory is bounded and everything compiles once."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

__all__ = ["average_chunks", "map_rows", "split_rows", "sum_arrays"]


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
