"""The matches that a preference function is spanned by, with items and contexts that occur repeatedly written once."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kpp import RKHSFunction
from kpp_pref_shap.comparisons import split_points
from kpp_pref_shap.skew_forms import number_rows

__all__ = ["MatchTable"]


class MatchTable(eqx.Module):
    """Matches of numbered items in numbered contexts.

    Args:
        items: The different items, (n, d).
        first: The number of the first item of each match, (m,).
        second: The number of the second one, (m,).
        contexts: The different contexts, (u, c), or None.
        context: The number of each match's context, (m,), or None.
    """

    items: Float[Array, "n d"]
    first: Int[Array, " m"]
    second: Int[Array, " m"]
    contexts: Float[Array, "u c"] | None
    context: Int[Array, " m"] | None

    @classmethod
    def read(cls, points: Any) -> MatchTable:
        """Number the items and contexts of points, pairs (m, 2, d) or a tuple of them and contexts (m, c)."""
        pairs, contexts = split_points(points)
        items, index = number_rows(pairs.reshape(-1, pairs.shape[-1]))
        first, second = jnp.asarray(index).reshape(-1, 2).T
        if contexts is None:
            return cls(items, first, second, None, None)
        different, context = number_rows(contexts)
        return cls(items, first, second, different, jnp.asarray(context))

    def in_contexts(self) -> tuple[Float[Array, "u c"], Int[Array, " m"]]:
        """Return `contexts` and `context` of a function that has contexts."""
        assert self.contexts is not None and self.context is not None, "the kernel is one of contexts"
        return self.contexts, self.context

    @classmethod
    def shared(cls, function: RKHSFunction) -> MatchTable | None:
        """Return the table that all draws of a function share, or None if each has points of its own."""
        pairs, _ = split_points(function.points)
        own = jax.tree.leaves(pairs)[0].ndim > 3
        return None if own else cls.read(function.points)
