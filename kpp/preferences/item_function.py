r"""A preference function on few items and many pairs of them, evaluated by matrices over items."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kpp.features import AbstractFeatureKernel
from kpp.functions import RKHSFunction
from kpp.kernels import AbstractKernel
from kpp.kernels.pairs.oriented import check_pairs, orient
from kpp.preferences.item_tables import (
    PreferenceTerm,
    distinct_items,
    multiply_skew,
    preference_terms,
    row_sums,
    skew_table,
)
from kpp.typing import Numbers
from kpp.validation import as_points

__all__ = ["ItemFunction"]

_BATCH = 4096  # pairs that are evaluated at the same time


class ItemFunction(eqx.Module):
    r"""A function of pairs: a weighted sum of sections of a kernel at m pairs of n items.

    .. math:: g(x, x') = \sum_i \alpha_i\, k_E\bigl((x, x'), (x_{a_i}, x_{b_i})\bigr)
        = \sum_t s_t\, k_t(x, X)\, A\, k_t(X, x') + \sum_u s_u\, \bigl(k_u(x, X) - k_u(x', X)\bigr) A 1

    t runs over the generalised preferential kernels in the sum :math:`k_E`, u over the preferential kernels in it, and
    A is the table of `skew_table`. It is the function that `function` returns, but it needs n instead of m kernel
    evaluations per item. A positive value means that the first item is preferred.

    Args:
        kernel: :math:`k_E`; `preference_terms` lists the supported kernels.
        items: X, the items, (n, d).
        pairs: The item numbers of each pair, (m, 2).
        coefficients: :math:`\alpha`, (m,).

    Raises:
        TypeError: If the kernel is not a sum of preferential kernels.
    """

    kernel: AbstractKernel
    items: Float[Array, "n d"]
    pairs: Int[Array, "m 2"]
    coefficients: Float[Array, " m"]

    def __check_init__(self) -> None:
        """Raise TypeError if the kernel is not a sum of preferential kernels."""
        preference_terms(self.kernel)

    @classmethod
    def of(cls, function: RKHSFunction) -> ItemFunction:
        """Build it from a function on pairs. Not traceable by JAX.

        Args:
            function: A function of one draw, without intercept.

        Returns:
            The same function, on its different items.

        Raises:
            ValueError: If the function has draws, several outputs, or an intercept other than 0.
            TypeError: If its kernel is not a sum of preferential kernels.
        """
        preference_terms(function.kernel)
        if function.batch_shape or function.output_shape or function.intercept != 0:
            raise ValueError(
                "`function` must have one draw, one output and no intercept, got draws of shape "
                f"{function.batch_shape}, outputs {function.output_shape} and the intercept {function.intercept}"
            )
        items, pairs = distinct_items(function.points)
        return cls(function.kernel, jax.device_put(items), jnp.asarray(pairs, int), function.coefficients)

    def function(self) -> RKHSFunction:
        """Return the same function as an `RKHSFunction` on the m pairs, for explainers."""
        return RKHSFunction(self.kernel, self.items[self.pairs], self.coefficients)

    def __call__(self, x: Numbers) -> Float[Array, " p"]:
        """Evaluate at p pairs, in batches.

        Args:
            x: The pairs, (p, 2, d).

        Returns:
            The values, (p,), exactly skew-symmetric.

        Raises:
            ValueError: If `x` does not hold pairs.
        """
        pairs = jnp.asarray(x, float)
        check_pairs(pairs, self.kernel, "x")
        if pairs.shape[0] <= _BATCH:
            return _evaluate(self, pairs)
        starts = range(0, pairs.shape[0], _BATCH)
        return jnp.concatenate([_evaluate(self, pairs[start : start + _BATCH]) for start in starts])

    def preference_matrix(self, items: Numbers | None = None) -> Float[Array, "p p"]:
        """Evaluate at all pairs of p items.

        Args:
            items: The items, an array (p, d); by default the n items themselves.

        Returns:
            The values, (p, p), exactly skew-symmetric; a positive value means that the item of the row is preferred.
        """
        return _tabulate(self, self.items if items is None else as_points(items, "items"))


def _sections(function: ItemFunction, term: PreferenceTerm, x: Float[Array, "p d"]) -> Float[Array, "p q"]:
    """Return the features of items, or the sections of the kernel at them if it does not have finite rank."""
    kernel = term.kernel
    return kernel.feature_map(x) if isinstance(kernel, AbstractFeatureKernel) else kernel(x, function.items)


def _weights(function: ItemFunction, term: PreferenceTerm) -> Float[Array, "q *rest"]:
    """Return the factor of `_sections`: the row sums of A, (q,), or A itself, (q, q), in these features."""
    pairs, coefficients, n = function.pairs, function.coefficients, function.items.shape[0]
    if not isinstance(term.kernel, AbstractFeatureKernel):
        return row_sums(pairs, coefficients, n) if term.has_utility else skew_table(pairs, coefficients, n)
    features = term.kernel.feature_map(function.items)
    if term.has_utility:
        return features.T @ row_sums(pairs, coefficients, n)
    return features.T @ multiply_skew(pairs, coefficients, features)


@eqx.filter_jit
def _tabulate(function: ItemFunction, items: Float[Array, "p d"]) -> Float[Array, "p p"]:
    total = jnp.zeros((items.shape[0], items.shape[0]), function.coefficients.dtype)
    for term in preference_terms(function.kernel):
        sections, weights = _sections(function, term, items), _weights(function, term)
        if term.has_utility:
            utility = sections @ weights
            total += term.scale * (utility[:, None] - utility[None, :])
        else:
            total += term.scale * (sections @ weights @ sections.T)
    return (total - total.T) / 2


@eqx.filter_jit
def _evaluate(function: ItemFunction, x: Float[Array, "p 2 d"]) -> Float[Array, " p"]:
    oriented = orient(x, function.kernel, "x")
    pairs = oriented.pairs
    total = jnp.zeros(pairs.shape[0], function.coefficients.dtype)
    for term in preference_terms(function.kernel):
        first, second = (_sections(function, term, pairs[:, side]) for side in (0, 1))
        weights = _weights(function, term)
        if term.has_utility:
            total += term.scale * ((first - second) @ weights)
        else:
            total += term.scale * jnp.sum((first @ weights) * second, axis=1)
    return oriented.skew(total)
