"""Pairs of rows on opposite sides of a boundary."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import cKDTree

from kpp_gpec.boundary.brackets import Brackets, CountedMargin

# Rows of a side among which neighbors are searched; and mixed rows that are tried if all rows are on one side.
_MAX_ROWS = 10_000


def two_sides(
    rng: np.random.Generator, margin: CountedMargin, z: Float[np.ndarray, "n d"]
) -> tuple[Float[np.ndarray, "a d"], Float[np.ndarray, "b d"]]:
    """Divide rows by their side; if all are on one side, add rows with randomly mixed features."""
    is_inside = margin.is_inside(z)
    if is_inside.all() or not is_inside.any():
        mixed = np.take_along_axis(z, rng.integers(len(z), size=(_MAX_ROWS, z.shape[1])), axis=0)
        z = np.concatenate([z, mixed])
        is_inside = np.concatenate([is_inside, margin.is_inside(mixed)])
    return z[is_inside], z[~is_inside]


def pair_up(
    rng: np.random.Generator, inside: Float[np.ndarray, "a d"], outside: Float[np.ndarray, "b d"], num_pairs: int
) -> Brackets:
    """Pair rows of the two sides: half of them with the nearest row on the other side, the rest at random."""
    inside, outside = _some(rng, inside, _MAX_ROWS), _some(rng, outside, _MAX_ROWS)
    starts = _some(rng, np.arange(len(inside) + len(outside)), -(-num_pairs // 2))
    from_inside, from_outside = starts[starts < len(inside)], starts[starts >= len(inside)] - len(inside)
    num_random = num_pairs - len(starts)
    first = [from_inside, nearest(outside[from_outside], inside), rng.integers(len(inside), size=num_random)]
    second = [nearest(inside[from_inside], outside), from_outside, rng.integers(len(outside), size=num_random)]
    return Brackets(inside[np.concatenate(first)], outside[np.concatenate(second)], num_pairs)


def _some(rng: np.random.Generator, values: np.ndarray, count: int) -> np.ndarray:
    """Return at most `count` of the values, drawn without replacement."""
    return values if len(values) <= count else values[rng.choice(len(values), count, replace=False)]


def nearest(points: Float[np.ndarray, "k d"], others: Float[np.ndarray, "m d"]) -> Int[np.ndarray, " k"]:
    """Return the position of the nearest of the others to each point."""
    return cKDTree(others).query(points)[1].astype(int) if len(points) else np.zeros(0, int)
