r"""Pairs of items as points: their shape, their orientation, and kernels on them.

A pair is one point, an array (2, d), and a batch of pairs an array (m, 2, d); items of another shape come in pytrees
whose arrays lead with (m, 2). A function of pairs is skew-symmetric if :math:`g(b, a) = -g(a, b)`. To make this hold
exactly, for any order of operations that the compiler chooses, the function is computed for one orientation of each
pair, with the items in lexicographic order. The value then gets the sign of the orientation of the input.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kpp.typing import Points


class Oriented(NamedTuple):
    """Pairs, each with its items in lexicographic order.

    Attributes:
        pairs: The pairs, arrays that lead with (m, 2).
        signs: 1 where a pair is unchanged, -1 where its items were exchanged, (m,).
        trivial: Where the two items are the same, (m,).
    """

    pairs: Any
    signs: Float[Array, " m"]
    trivial: Bool[Array, " m"]

    def skew(self, values: Float[Array, "..."], axis: int = 0) -> Float[Array, "..."]:
        """Multiply values at the oriented pairs by the signs of the original pairs.

        Rounding errors at pairs of an item with itself, whose values are 0, are removed; derivatives there are kept.

        Returns:
            The values of a function that is skew-symmetric exactly, without rounding errors.
        """
        shape = [-1 if i == axis else 1 for i in range(values.ndim)]
        rounding = jnp.where(self.trivial.reshape(shape), values, jnp.zeros_like(values))
        return self.signs.reshape(shape).astype(values.dtype) * (values - jax.lax.stop_gradient(rounding))


def orient(pairs: Points, owner: object, name: str) -> Oriented:
    """Put the items of each pair into lexicographic order.

    Raises:
        ValueError: If the shape is not that of a batch of pairs.
    """
    pairs = jnp.asarray(pairs) if isinstance(pairs, list) else jax.tree.map(jnp.asarray, pairs)
    check_pairs(pairs, owner, name)
    return _orient(pairs)


@functools.partial(jax.jit, inline=True)
def _orient(pairs: Points) -> Oriented:
    leaves = jax.tree.leaves(pairs)
    numbers = jnp.concatenate([leaf.reshape(*leaf.shape[:2], -1).astype(jnp.result_type(float)) for leaf in leaves], 2)
    ordered = jax.lax.stop_gradient(jnp.where(jnp.isnan(numbers), jnp.inf, numbers))  # padding of a bag may be NaN
    first, second = ordered[:, 0], ordered[:, 1]
    differs = first != second
    at = jnp.argmax(differs, axis=1)[:, None]
    exchanged = (jnp.take_along_axis(first, at, 1) > jnp.take_along_axis(second, at, 1))[:, 0]

    def exchange(leaf: Array) -> Array:
        return jnp.where(exchanged.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf[:, ::-1], leaf)

    signs = jnp.where(exchanged, -1.0, 1.0)
    return Oriented(jax.tree.map(exchange, pairs), signs, ~differs.any(axis=1))


def check_pairs(pairs: Points, owner: object, name: str) -> None:
    """Raise ValueError unless `pairs` is a batch of pairs; the arguments are the same as for `orient`."""
    leaves = jax.tree.leaves(pairs)
    if any(leaf.ndim < 2 + isinstance(pairs, jax.Array) or leaf.shape[1] != 2 for leaf in leaves):
        shapes = ", ".join(str(leaf.shape) for leaf in leaves)
        raise ValueError(
            f"`{name}` must hold pairs of items for {type(owner).__name__}: an array of shape (m, 2, d), or arrays "
            f"that lead with (m, 2), got {shapes}; `jnp.stack([first, second], axis=1)` makes pairs of two arrays "
            "(m, d), and `pair[None]` is one pair"
        )


def stack_items(pairs: Points) -> Any:
    """Return the 2m items of m pairs as one batch: the first of every pair, then the second of every pair."""
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1).reshape(-1, *leaf.shape[2:]), pairs)
