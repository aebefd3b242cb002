"""Points of a kernel, and one more, which stands for a function outside of the space of the kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.typing import Points


class ExtendedPoints(NamedTuple):
    """Points z, (m, d), each with 0 if it stands for the kernel's section at z, or 1 if it stands for the function."""

    points: Points
    shares: Float[Array, " m"]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the points."""
        return self.points.shape

    @property
    def dtype(self) -> Any:
        """The type of the points."""
        return self.points.dtype

    @classmethod
    def of(cls, points: Points, axis: int = 0) -> ExtendedPoints:
        """Return n points and one more, the last along their axis, which stands for the function."""

        def extend(leaf: Array) -> Array:
            return jnp.concatenate([leaf, jax.lax.slice_in_dim(leaf, -1, None, axis=axis)], axis=axis)

        first = jax.tree.leaves(points)[0]
        shares = jnp.zeros((*first.shape[:axis], first.shape[axis] + 1), jnp.result_type(first, jnp.float32))
        return cls(jax.tree.map(extend, points), shares.at[..., -1].set(1.0))
