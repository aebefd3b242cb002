r"""Sums over matches as bilinear forms over items.

.. math:: \sum_j \beta_j \bigl(u_{a_j} v_{b_j} - u_{b_j} v_{a_j}\bigr) = u^\top M v

for matches of items :math:`a_j, b_j`, with a skew-symmetric matrix M, whose size is the number of items and does not
depend on the number of matches. A thousand items with forty thousand matches take a product of matrices with a thousand
rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kpp.typing import AnyArray

#: A function of left vectors (n, q), right vectors (n, r), and which of them meet, (p,) twice, to values (p,).
Evaluation = Callable[[Array, Array, AnyArray, AnyArray], Float[Array, " p"]]

# The most entries of M, beyond which matches are summed one by one; and the entries of a chunk of matches.
_MAX_TABLE, _MAX_CHUNK = 2**26, 2**22


class SkewForm(NamedTuple):
    """A weighted sum over matches."""

    size: int  # the number of items
    first: Int[AnyArray, " m"]  # the number of the first item of each match
    second: Int[AnyArray, " m"]  # that of the second item
    weights: Float[Array, "..."]  # of the matches, (m,), or (m, p) with separate weights for each value

    @classmethod
    def compare(
        cls, has_utility: bool, size: int, first: Int[AnyArray, " k"], second: Int[AnyArray, " k"], weights: Array
    ) -> SkewForm:
        r"""Return the form of a kernel on pairs, of which the vectors are sections of the kernel of an item.

        Differences of utilities, :math:`k(x, a) - k(x, b) - k(x', a) + k(x', b)`, equal the terms of matches of a and
        of b with one additional item, whose section is the constant 1: see `extend`. With a utility the kernel is
        `Preferential`, otherwise `GeneralizedPreferential`.
        """
        if not has_utility:
            return cls(size, first, second, weights)
        items = jnp.concatenate([jnp.asarray(first), jnp.asarray(second)])
        return cls(size + 1, items, jnp.full_like(items, size), jnp.concatenate([weights, -weights]))

    def extend(self, sections: Float[Array, "n q"], constant: Float[Array, "..."]) -> Float[Array, "n1 q"]:
        """Add the section of the constant 1, (q,) or a number, if the form has an item for it."""
        if sections.shape[0] == self.size:
            return sections
        return jnp.concatenate([sections, jnp.broadcast_to(constant, (1, sections.shape[1]))])

    def prepare(self) -> Evaluation:
        """Return the function that evaluates the form, after the computations that all evaluations share."""
        if self.weights.ndim == 2:
            groups = np.zeros(len(self.first), int)
            return lambda left, right, left_at, right_at: self.sum_groups(left, right, left_at, right_at, groups, 1)[0]
        multiply: Callable[[Array], Array] = self._multiply
        if self.size**2 <= _MAX_TABLE:
            zeros = jnp.zeros((self.size, self.size), self.weights.dtype)
            upper = zeros.at[self.first, self.second].add(self.weights)
            multiply = functools.partial(jnp.matmul, upper - upper.T, precision="highest")

        def evaluate(left: Array, right: Array, left_at: AnyArray, right_at: AnyArray) -> Float[Array, " p"]:
            return jnp.sum(left[:, left_at] * multiply(right)[:, right_at], axis=0)

        return evaluate

    def sum_groups(
        self,
        left: Array,
        right: Array,
        left_at: AnyArray,
        right_at: AnyArray,
        groups: Int[AnyArray, " m"],
        num_groups: int,
    ) -> Float[Array, "groups p"]:
        """Sum each group of matches separately, (num_groups, p), for vectors (n, q) and (n, r).

        `left_at` and `right_at` are the columns for each value, (p,), and `groups` is the group of each match that
        `compare` was given, (m,).
        """
        left, right = left[:, left_at], right[:, right_at]

        def add(total: Array, chunk: tuple[Array, ...]) -> tuple[Array, None]:
            first, second, weights, group = chunk
            values = weights.reshape(len(first), -1) * (left[first] * right[second] - left[second] * right[first])
            if num_groups == 1:
                return total + values.sum(axis=0, keepdims=True), None
            return total.at[group].add(values), None

        start = jnp.zeros((num_groups, left.shape[1]), left.dtype)
        groups = jnp.resize(jnp.asarray(groups), (len(self.first),))
        return jax.lax.scan(add, start, self._chunks(left.shape[1], groups))[0]

    def _multiply(self, right: Float[Array, "n r"]) -> Float[Array, "n r"]:
        """Return M times vectors, match by match."""

        def add(total: Array, chunk: tuple[Array, ...]) -> tuple[Array, None]:
            first, second, weights = chunk
            total = total.at[first].add(weights[:, None] * right[second])
            return total.at[second].add(-weights[:, None] * right[first]), None

        return jax.lax.scan(add, jnp.zeros_like(right), self._chunks(right.shape[1]))[0]

    def _chunks(self, width: int, *others: AnyArray) -> tuple[Array, ...]:
        """Return first items, second items, weights and more in chunks, the last one filled up with weights of 0."""
        num_matches = len(self.first)
        size = max(1, min(num_matches, _MAX_CHUNK // width))

        def split(values: AnyArray) -> Array:
            padding = [(0, -num_matches % size)] + [(0, 0)] * (values.ndim - 1)
            return jnp.pad(jnp.asarray(values), padding).reshape(-1, size, *values.shape[1:])

        return tuple(map(split, (self.first, self.second, self.weights, *others)))
