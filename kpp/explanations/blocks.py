"""Work in blocks of draws and of instances: memory is bounded, a bar moves, and one compiled program does for all."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from tqdm import tqdm

from kpp.functions import RKHSFunction

__all__ = ["in_blocks"]

# As often the bar moves, at most, along the draws.
_STEPS = 20
# Seconds after which the bar appears.
_PATIENCE = 1.0


def in_blocks(
    solve: Callable[[Any, Array], Any],
    function: Any,
    x: Float[Array, "p d"],
    *,
    instances_at_once: int,
    label: str,
    progress: bool,
) -> Any:
    """Apply a computation to blocks of draws and instances, and put the results together.

    The last block of a kind is filled up by repetition, so that all have one shape.

    Args:
        solve: From a function and some points (b, d) to a pytree of arrays that lead with (*draws, b).
        function: The function; the draws of an `RKHSFunction` are taken some at a time, those of anything else with a
            ``batch_shape`` together.
        x: The points, (p, d).
        instances_at_once: At most so many points in one block.
        label: What the bar says.
        progress: Whether to show a bar, after a second.

    Returns:
        What `solve` would return for all at once, as NumPy arrays.
    """
    shape = getattr(function, "batch_shape", ())
    axis, num_draws = len(shape), shape[-1] if shape and isinstance(function, RKHSFunction) else 0
    draws, rows = _positions(num_draws, math.ceil(num_draws / _STEPS)), _positions(len(x), instances_at_once)
    with tqdm(total=len(draws) * len(rows), desc=label, unit="block", delay=_PATIENCE, disable=not progress) as bar:

        def solve_rows(part: Any, chosen: np.ndarray) -> Any:
            result = jax.tree.map(np.asarray, solve(part, jnp.take(x, chosen, axis=0)))
            bar.update()
            return result

        parts = []
        for chosen in draws:
            part = function.take_draws(chosen) if num_draws else function
            parts.append(_join([solve_rows(part, block) for block in rows], axis, len(x)))
    return _join(parts, axis - 1, num_draws) if num_draws else parts[0]


def _positions(count: int, size: int) -> list[np.ndarray]:
    """Split 0, ..., count - 1 into blocks of one size, the last position repeated; one empty block if there is none."""
    size = max(1, min(size, count))
    return [np.minimum(np.arange(start, start + size), max(count - 1, 0)) for start in range(0, max(count, 1), size)]


def _join(parts: list[Any], axis: int, count: int) -> Any:
    """Put blocks one behind the other and cut off what filled up the last one."""

    def join(*leaves: np.ndarray) -> np.ndarray:
        joined = leaves[0] if len(leaves) == 1 else np.concatenate(leaves, axis=axis)
        return np.take(joined, np.arange(count), axis=axis) if joined.shape[axis] > count else joined

    return jax.tree.map(join, *parts)
