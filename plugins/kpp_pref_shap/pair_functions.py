r"""The parts of functions on pairs: checks of them, and the matches that span them."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from kpp import RKHSFunction
from kpp.foundation.validation import as_finite_array, is_concrete
from kpp.kernels import AbstractKernel, BagMean
from kpp.preferences.toolkit import preference_terms
from kpp.typing import AnyArray

#: Pairs (p, 2, d), or a tuple of pairs and contexts (p, c).
PairPoints = AnyArray | tuple[AnyArray, AnyArray]


def split_points(points: Any) -> tuple[Any, Any]:
    """Return pairs and contexts of a batch of points; without contexts the second is None."""
    return points if isinstance(points, tuple) else (points, None)


def as_pairs(pairs: ArrayLike | None, name: str, num_features: int | None = None) -> Float[Array, "p 2 d"]:
    """Return pairs of items as an array, or raise ValueError if they are not pairs of items with finite features."""
    array = as_finite_array(pairs, name)
    if array.ndim != 3 or array.shape[1] != 2 or 0 in array.shape:
        raise ValueError(f"`{name}` must hold pairs of items, shape (p, 2, d), got shape {array.shape}")
    if num_features is not None and array.shape[2] != num_features:
        raise ValueError(f"`{name}` must hold items with {num_features} columns (features), got shape {array.shape}")
    return array


def is_mean(node: object) -> bool:
    """Return whether a part of a kernel is one of teams."""
    return isinstance(node, BagMean)


def compares_teams(kernel: AbstractKernel) -> bool:
    """Return whether a kernel on pairs is one of teams."""
    return any(map(is_mean, jax.tree.leaves(kernel, is_leaf=is_mean)))


def check_preference(function: object, *, contextual: bool = False) -> RKHSFunction:
    """Return an RKHS function of pairs, with contexts if they are needed, unchanged if it can be explained."""
    if not isinstance(function, RKHSFunction):
        raise TypeError(f"`function` must be a kpp.RKHSFunction on pairs of items, got {type(function).__name__}")
    if function.output_shape:
        raise TypeError(f"`function` must have one output, got {function.output_shape[0]}")
    terms = preference_terms(function.kernel)
    if compares_teams(function.kernel):
        raise TypeError("`function` must be of items described by rows here, got one of teams, whose kernel is BagMean")
    pairs, _ = split_points(function.points)
    if not isinstance(pairs, jax.Array):
        raise TypeError(f"`function` must have points that are arrays (m, 2, d), got {type(pairs).__name__}")
    if contextual and any(term.context_kernel is None for term in terms):
        raise TypeError(
            "`function` must depend on contexts to explain what they contribute: its kernel needs to be Contextual, "
            f"got {type(function.kernel).__name__}"
        )
    return function


def as_known(array: Float[AnyArray, "*shape"]) -> Float[AnyArray, "*shape"]:
    """Return an array in NumPy's form, whose operations need not be compiled, unless JAX traces it."""
    return np.asarray(array) if is_concrete(array) else array


def number_rows(rows: Float[AnyArray, "k d"]) -> tuple[Float[AnyArray, "n d"], Int[np.ndarray, " k"]]:
    """Return the distinct rows, sorted, and the number of each row among them; traced rows count as distinct."""
    if not is_concrete(rows):
        return rows, np.arange(rows.shape[0])
    distinct, index = np.unique(np.asarray(rows) + 0.0, axis=0, return_inverse=True)  # makes -0. equal to 0.
    return distinct, index.reshape(-1)


class MatchTable(eqx.Module):
    """The matches that span a preference function: numbered items in numbered contexts, without repetitions."""

    items: Float[AnyArray, "n d"]  # the distinct ones
    first: Int[AnyArray, " m"]  # the number of the first item of each match
    second: Int[AnyArray, " m"]  # that of the second item
    contexts: Float[AnyArray, "u c"] | None  # the distinct ones
    context: Int[AnyArray, " m"] | None  # the number of each match's context

    @classmethod
    def read(cls, points: PairPoints) -> MatchTable:
        """Number the items and contexts of points, pairs (m, 2, d) or a tuple of pairs and contexts (m, c)."""
        pairs, contexts = split_points(points)
        items, first, second = number_items(pairs)
        if contexts is None:
            return cls(items, first, second, None, None)
        distinct, context = number_rows(contexts)
        return cls(items, first, second, distinct, context)

    def in_contexts(self) -> tuple[Float[AnyArray, "u c"], Int[AnyArray, " m"]]:
        """Return `contexts` and `context` of a function that has contexts."""
        assert self.contexts is not None and self.context is not None, "the kernel is one of contexts"
        return self.contexts, self.context

    @classmethod
    def shared(cls, function: RKHSFunction) -> MatchTable | None:
        """Return the table that all draws of a function share, or None if each draw has its own points."""
        pairs, _ = split_points(function.points)
        return None if pairs.ndim > 3 else cls.read(function.points)


def number_items(
    pairs: Float[AnyArray, "m 2 d"],
) -> tuple[Float[AnyArray, "n d"], Int[np.ndarray, " m"], Int[np.ndarray, " m"]]:
    """Return the distinct items of pairs, and the numbers of each pair's first and second item."""
    items, index = number_rows(as_known(pairs).reshape(-1, pairs.shape[-1]))
    first, second = index.reshape(-1, 2).T
    return items, first, second
