"""Checks of the points that a kernel receives, and points for examples."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float

from kpp.runtime.random import standard_normal
from kpp.typing import Points, RngKey


def check_points(kernel: object, x1: Points, x2: Points) -> int:
    """Return d for two points of shape (d,), or raise ValueError if their shapes differ from this."""
    shapes = _shape(x1), _shape(x2)
    if len(shapes[0]) == 1 and shapes[0] == shapes[1]:
        return shapes[0][0]
    raise ValueError(
        f"{type(kernel).__name__} compares points of the same shape (d,), rows of arrays (n, d); "
        f"got points of shapes {shapes[0]} and {shapes[1]}"
    )


def check_matrices(kernel: object, x1: Points, x2: Points) -> int:
    """Return d for two arrays of points (n1, d) and (n2, d), or raise ValueError if their shapes differ from this."""
    shapes = _shape(x1), _shape(x2)
    if len(shapes[0]) == len(shapes[1]) == 2 and shapes[0][1] == shapes[1][1]:
        return shapes[0][1]
    hint = "; write `x[:, None]` for n points with one feature" if 1 in map(len, shapes) else ""
    raise ValueError(
        f"{type(kernel).__name__} takes points `x` in arrays of shape (n, d), with the same number of features d; "
        f"got shapes {shapes[0]} and {shapes[1]}{hint}"
    )


def example_points(rng_key: RngKey, num_features: int, num_points: int = 6) -> Float[Array, "n d"]:
    """Draw standard normal points for the examples of a kernel."""
    return standard_normal(rng_key, (num_points, num_features))


def _shape(x: object) -> tuple[int, ...]:
    if not isinstance(x, jax.Array):
        raise ValueError(f"points `x` must be one array of shape (n, d), got {type(x).__name__}")
    return x.shape
