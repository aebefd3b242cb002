"""Segments that a boundary crosses, and margins that count their calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

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
