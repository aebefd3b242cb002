"""Segments that a boundary crosses: margins that count their calls, pairs of rows on opposite sides, and bisection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import cKDTree

from kpp.foundation.validation import positive
from kpp.runtime.batching import call_in_chunks
from kpp.typing import AnyArray


class CountedMargin:
    """A margin, from points (n, d) to (n,), positive inside, that counts its calls and returns the side of points.

    `function` is the margin without counting, for code that differentiates it and adds its calls to the counts.
    """

    def __init__(self, function: Callable[[Any], Any]):
        self.function = function
        self.num_calls = 0
        self.num_evaluations = 0

    def is_inside(self, x: Float[AnyArray, "n d"]) -> Bool[np.ndarray, " n"]:
        """Return for each point, (n, d), whether it is inside, that is, whether the margin is positive, (n,)."""
        if not len(x):
            return np.zeros(0, bool)
        values, _ = call_in_chunks(self.function, x)
        if values.ndim != 1:
            raise ValueError(f"`margin` must return one number per point, shape (n,), got shape {values.shape}")
        self.count(len(x))
        return values > 0.0

    def count(self, num_points: int, num_calls: int = 1) -> None:
        """Count calls with the given number of points each."""
        self.num_calls += num_calls
        self.num_evaluations += num_calls * num_points

    def through_jax(self, search: Callable[[Any], Any], rows: Float[AnyArray, "n e"]) -> Float[np.ndarray, "n f"]:
        """Return what a search by gradients of the margin finds for each row, in chunks."""
        try:
            return call_in_chunks(lambda chunk: search(jnp.asarray(chunk, jnp.result_type(float))), rows)[0]
        except jax.errors.TracerArrayConversionError as error:
            raise TypeError(
                "`margin` must be written in JAX, to have a gradient, got a function that needs NumPy arrays; "
                "BisectionSampler takes any function"
            ) from error


class Brackets(eqx.Module):
    """Segments with one end inside a boundary and the other outside."""

    inside: Float[np.ndarray, "k d"]  # the ends where the margin is positive
    outside: Float[np.ndarray, "k d"]  # the ends where it is not
    num_pairs: int = eqx.field(static=True)  # that were tried; k of them led to a crossing

    @property
    def midpoints(self) -> Float[np.ndarray, "k d"]:
        """The middles of the segments, (k, d)."""
        return 0.5 * (self.inside + self.outside)

    @property
    def widths(self) -> Float[np.ndarray, " k"]:
        """The lengths of the segments, (k,)."""
        return np.linalg.norm(self.inside - self.outside, axis=1)

    @staticmethod
    def joined(first: Brackets, second: Brackets) -> Brackets:
        """Return the segments of both."""
        return Brackets(
            np.concatenate([first.inside, second.inside]),
            np.concatenate([first.outside, second.outside]),
            first.num_pairs + second.num_pairs,
        )


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


def bisect(
    margin: Callable[[Any], Any] | CountedMargin, inside: AnyArray, outside: AnyArray, width: float = 1e-6
) -> Brackets:
    """Halve segments between points on opposite sides of a boundary until they are short.

    A round halves every segment that is longer than `width`, with one call of the margin for all of them. A segment
    stays longer only if there is no floating-point number between its ends.

    Args:
        margin: From points (n, d) to (n,), positive inside and zero or negative outside.
        inside: Points where it is positive, (k, d); k may be 0.
        outside: Points where it is not, (k, d).
        width: The length at which to stop, in the units of the points.

    Returns:
        The short segments, in the order of the pairs.

    Raises:
        ValueError: If `inside` and `outside` have different shapes, or a point is on the wrong side.
    """
    inside, outside = np.asarray(inside, dtype=float), np.asarray(outside, dtype=float)
    if inside.shape != outside.shape or inside.ndim != 2:
        raise ValueError(
            f"`inside` and `outside` must have the same shape (k, d), got shapes {inside.shape} and {outside.shape}"
        )
    positive(width, "width")
    margin = margin if isinstance(margin, CountedMargin) else CountedMargin(margin)
    sides = margin.is_inside(np.concatenate([inside, outside]))
    wrong = int((~sides[: len(inside)]).sum()), int(sides[len(inside) :].sum())
    if any(wrong):
        raise ValueError(
            "`margin` must be positive at every row of `inside` and at none of `outside`, got "
            f"{wrong[0]} of `inside` and {wrong[1]} of `outside` on the wrong side, of {len(inside)} pairs"
        )
    return halve(margin, Brackets(inside, outside, len(inside)), width)


def halve(margin: CountedMargin, brackets: Brackets, width: float) -> Brackets:
    """Halve segments, whose ends must be on opposite sides, until their lengths are at most `width`."""
    inside, outside = brackets.inside.copy(), brackets.outside.copy()
    remaining = np.flatnonzero(brackets.widths > width)
    while len(remaining):
        middle = 0.5 * (inside[remaining] + outside[remaining])
        # Neighboring floats have nothing between them.
        between = ((middle != inside[remaining]) & (middle != outside[remaining])).any(axis=1)
        remaining, middle = remaining[between], middle[between]
        is_inside = margin.is_inside(middle)
        inside[remaining[is_inside]] = middle[is_inside]
        outside[remaining[~is_inside]] = middle[~is_inside]
        lengths = np.linalg.norm(inside[remaining] - outside[remaining], axis=1)
        remaining = remaining[lengths > width]
    return Brackets(inside, outside, brackets.num_pairs)


def spread(points: Float[np.ndarray, "n d"], max_points: int, tolerance: float = 0.0) -> Int[np.ndarray, " k"]:
    r"""Choose points by farthest-point sampling: each one maximizes the distance to the points chosen so far.

    .. math:: i_{k+1} = \arg\max_i \min_{l \leq k} \|x_i - x_{i_l}\|

    The chosen points cover all points evenly: the largest distance of a point to the nearest chosen point is at most
    twice the smallest value for this number of points. The first chosen point is the nearest to the mean. The algorithm
    stops when all points are within the tolerance of a chosen one, so that duplicates are removed. The positions of the
    chosen points are in the order of the points.

    References:
        Gonzalez (1985), "Clustering to minimize the maximum intercluster distance", Theoretical Computer Science 38.
    """
    if not len(points):
        return np.zeros(0, int)
    columns = np.ascontiguousarray(points.T)
    chosen = [int(np.argmin(_squared_distances(columns, columns.mean(axis=1))))]
    nearest = _squared_distances(columns, columns[:, chosen[0]])
    while len(chosen) < max_points:
        farthest = int(np.argmax(nearest))
        if nearest[farthest] <= tolerance**2:
            break
        chosen.append(farthest)
        np.minimum(nearest, _squared_distances(columns, columns[:, farthest]), out=nearest)
    return np.sort(chosen)


def _squared_distances(columns: Float[np.ndarray, "d n"], point: Float[np.ndarray, " d"]) -> Float[np.ndarray, " n"]:
    return np.square(columns - point[:, None]).sum(axis=0)
