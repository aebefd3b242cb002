r"""A preference function on few items and many pairs of them, evaluated by matrices over items.

Tables over items save time if there are more matches than items. A weighted sum of sections at m pairs of n items is,
for `kpp.kernels.GeneralizedPreferential`,

.. math:: g(x, x') = \sum_i \alpha_i\, k_E\bigl((x, x'), (x_{a_i}, x_{b_i})\bigr) = k(x, X)\, A\, k(X, x'), \qquad
    A = \sum_i \alpha_i \bigl(e_{a_i} e_{b_i}^\top - e_{b_i} e_{a_i}^\top\bigr)

with a sparse skew-symmetric table A, (n, n), and for `kpp.kernels.Preferential` a difference of utilities,
:math:`u(x) = k(x, X)\, A 1`. No array of shape (m, m) is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kpp.features import AbstractFeatureKernel, GeneralizedPreferentialFeatures, PreferentialFeatures
from kpp.foundation.validation import as_points, as_targets, check_same_rows
from kpp.functions import RKHSFunction
from kpp.kernels import AbstractKernel, Contextual, GeneralizedPreferential, Preferential, Scaled, Sum
from kpp.kernels.pairs.oriented import check_pairs, orient
from kpp.preferences._reading import distinct_contexts, distinct_items
from kpp.runtime.batching import map_rows, sum_over
from kpp.typing import Numbers


class PreferenceTerm(NamedTuple):
    """One term of a kernel on pairs.

    Attributes:
        scale: The factor of the term.
        kernel: The kernel of one item.
        has_utility: Whether it is the preferential kernel, whose functions are differences of utilities; otherwise it
            is the generalized preferential kernel.
        context_kernel: The kernel of contexts, by which the kernel on pairs is multiplied, or None.
    """

    scale: Any
    kernel: AbstractKernel
    has_utility: bool
    context_kernel: AbstractKernel | None = None

    def weigh(self, values: Float[Array, "*rest"]) -> Float[Array, "*rest"]:
        """Multiply values by the factor, in their precision."""
        return jnp.asarray(self.scale, values.dtype) * values


def preference_terms(kernel: AbstractKernel) -> tuple[PreferenceTerm, ...]:
    """Write a kernel on pairs as a sum of multiples of preferential and generalized preferential kernels.

    Args:
        kernel: `Preferential`, `GeneralizedPreferential`, the features of either, `Contextual` of one of these, or sums
            and multiples of these.

    Returns:
        The terms.

    Raises:
        TypeError: If the kernel is not of this form.
    """
    if isinstance(kernel, Sum):
        return tuple(term for part in kernel.kernels for term in preference_terms(part))
    if isinstance(kernel, Scaled):
        return tuple(term._replace(scale=kernel.variance * term.scale) for term in preference_terms(kernel.kernel))
    if isinstance(kernel, Contextual):
        terms = preference_terms(kernel.kernel)
        if all(term.context_kernel is None for term in terms):
            return tuple(term._replace(context_kernel=kernel.context_kernel) for term in terms)
    if isinstance(kernel, (Preferential, PreferentialFeatures)):
        return (PreferenceTerm(1.0, kernel.kernel, True),)
    if isinstance(kernel, (GeneralizedPreferential, GeneralizedPreferentialFeatures)):
        return (PreferenceTerm(1.0, kernel.kernel, False),)
    raise TypeError(
        "`kernel` must be Preferential or GeneralizedPreferential, Contextual of these, or a sum of multiples of "
        f"these, to be written with matrices of items, got {type(kernel).__name__}"
    )


def check_contexts(kernel: AbstractKernel, *, has_contexts: bool) -> None:
    """Check that every term of a kernel on pairs has a kernel of contexts if there are contexts, and none otherwise.

    Raises:
        TypeError: If the kernel is not a sum of preferential kernels.
        ValueError: If contexts or kernels of contexts are missing.
    """
    without = [term.context_kernel is None for term in preference_terms(kernel)]
    if has_contexts and any(without):
        raise ValueError(
            "`kernel` must have a kernel of contexts in every term, because the matches have contexts; use "
            "Contextual(kernel, context_kernel), with a constant for `context_kernel` where the context has no effect"
        )
    if not has_contexts and not all(without):
        raise ValueError("`kernel` must have no kernel of contexts, because the matches have no contexts")


def skew_table(pairs: Int[Array, "m 2"], coefficients: Float[Array, " m"], num_items: int) -> Float[Array, "n n"]:
    r"""Return the table :math:`A = \sum_i \alpha_i (e_{a_i} e_{b_i}^\top - e_{b_i} e_{a_i}^\top)`.

    Args:
        pairs: The item numbers (a, b) of each pair, (m, 2).
        coefficients: :math:`\alpha`, (m,).
        num_items: n.

    Returns:
        The table, (n, n), exactly skew-symmetric.
    """
    half = jnp.zeros((num_items, num_items), coefficients.dtype).at[pairs[:, 0], pairs[:, 1]].add(coefficients)
    return half - half.T


def row_sums(pairs: Int[Array, "m 2"], coefficients: Float[Array, " m"], num_items: int) -> Float[Array, " n"]:
    """Return the row sums of the table A without forming it, (n,); the arguments are as in `skew_table`."""
    sums = jnp.zeros(num_items, coefficients.dtype)
    return sums.at[pairs[:, 0]].add(coefficients).at[pairs[:, 1]].add(-coefficients)


def multiply_skew(
    pairs: Int[Array, "m 2"], coefficients: Float[Array, " m"], values: Float[Array, "n q"]
) -> Float[Array, "n q"]:
    r"""Return :math:`A V` for the table A of `skew_table`.

    The table, with :math:`n^2` entries, is formed only if it is smaller than m rows of V.

    Args:
        pairs: The item numbers of each pair, (m, 2).
        coefficients: :math:`\alpha`, (m,).
        values: V, (n, q).

    Returns:
        The product, (n, q).
    """
    if _is_dense(pairs, values):
        return skew_table(pairs, coefficients, values.shape[0]) @ values
    first, second = pairs[:, 0], pairs[:, 1]
    product = jnp.zeros_like(values).at[first].add(coefficients[:, None] * values[second])
    return product.at[second].add(-coefficients[:, None] * values[first])


def entries_at_pairs(
    left: Float[Array, "n q"], right: Float[Array, "n q"], pairs: Int[Array, "m 2"]
) -> Float[Array, " m"]:
    r"""Return the entries of :math:`L R^\top` at pairs; the product is formed only if that needs less memory.

    Args:
        left: L, (n, q).
        right: R, (n, q).
        pairs: The row and the column of each entry, (m, 2).

    Returns:
        The entries, (m,).
    """
    first, second = pairs[:, 0], pairs[:, 1]
    if _is_dense(pairs, left):
        return (left @ right.T)[first, second]
    return jnp.sum(left[first] * right[second], axis=1)


def _is_dense(pairs: Int[Array, "m 2"], values: Float[Array, "n q"]) -> bool:
    """Return whether a table over all n items has fewer entries than m rows of V."""
    return values.shape[0] ** 2 <= pairs.shape[0] * values.shape[1]


_BATCH = 4096  # pairs that are evaluated at the same time


class ItemFunction(eqx.Module):
    r"""A function of pairs: a weighted sum of sections of a kernel at m pairs of n items, possibly in contexts.

    .. math:: g(x, x') = \sum_i \alpha_i\, k_E\bigl((x, x'), (x_{a_i}, x_{b_i})\bigr)
        = \sum_t s_t\, k_t(x, X)\, A\, k_t(X, x') + \sum_u s_u\, \bigl(k_u(x, X) - k_u(x', X)\bigr) A 1

    t runs over the generalized preferential kernels in the sum :math:`k_E`, u over the preferential kernels in it, and
    A is the table of `skew_table`. It is the function that `function` returns, but it needs n instead of m kernel
    evaluations per item. A positive value means that the first item is preferred.

    With contexts, a term of the kernel is also multiplied by :math:`k_z(z, z') = \sum_j \phi_j(z) \phi_j(z')`, and its
    part of the function is :math:`\sum_j \phi_j(z)\, g_j(x, x')`, where :math:`g_j` has the coefficients
    :math:`\alpha_i\, \phi_j(z_i)`. If :math:`k_z` does not have few features, the sum runs over the different contexts.

    Args:
        kernel: :math:`k_E`; `preference_terms` lists the supported kernels.
        items: X, the items, (n, d).
        pairs: The item numbers of each pair, (m, 2).
        coefficients: :math:`\alpha`, (m,).
        contexts: The different contexts, (c, f), or None.
        context_numbers: The number of the context of each pair, (m,), or None.

    Raises:
        TypeError: If the kernel is not a sum of preferential kernels.
        ValueError: If contexts, their numbers, or kernels of contexts are missing.
    """

    kernel: AbstractKernel
    items: Float[Array, "n d"]
    pairs: Int[Array, "m 2"]
    coefficients: Float[Array, " m"]
    contexts: Float[Array, "c f"] | None = None
    context_numbers: Int[Array, " m"] | None = None

    def __check_init__(self) -> None:
        if (self.contexts is None) != (self.context_numbers is None):
            raise ValueError("`contexts` and `context_numbers` go together; give both or neither")
        check_contexts(self.kernel, has_contexts=self.contexts is not None)

    @classmethod
    def of(cls, function: RKHSFunction) -> ItemFunction:
        """Build it from a function on pairs. Not traceable by JAX.

        Args:
            function: A function of one draw, without intercept; for example `function` of a `kpp.Fit` with one draw.

        Returns:
            The same function, on its different items and contexts.

        Raises:
            ValueError: If the function has several draws, several outputs, or an intercept other than 0.
            TypeError: If its kernel is not a sum of preferential kernels.
        """
        preference_terms(function.kernel)
        if set(function.batch_shape) - {1} or function.output_shape or np.any(np.asarray(function.intercept)):
            raise ValueError(
                "`function` must have one draw, one output and no intercept, got draws of shape "
                f"{function.batch_shape}, outputs {function.output_shape} and the intercept {function.intercept}"
            )
        kernel, coefficients = jax.tree.map(
            lambda leaf: leaf[(0,) * len(function.batch_shape)] if eqx.is_array(leaf) else leaf,
            (function.kernel, function.coefficients),
        )
        points, contexts = function.points if isinstance(function.points, tuple) else (function.points, None)
        items, pairs = distinct_items(points)
        found, numbers = (None, None) if contexts is None else map(jax.device_put, distinct_contexts(contexts))
        return cls(kernel, jax.device_put(items), jax.device_put(pairs), coefficients, found, numbers)

    @property
    def points(self) -> Any:
        """The inputs of the kernel, the m pairs (m, 2, d), or a tuple of them with contexts (m, f)."""
        pairs = self.items[self.pairs]
        return pairs if self.contexts is None else (pairs, self.contexts[self.context_numbers])

    def function(self) -> RKHSFunction:
        """Return the same function as an `RKHSFunction` on the m pairs, for explainers."""
        return RKHSFunction(self.kernel, self.points, self.coefficients)

    def __call__(self, x: Any) -> Float[Array, " p"]:
        """Evaluate at p pairs, in batches.

        Args:
            x: The pairs, (p, 2, d), or a tuple of them with contexts (p, f).

        Returns:
            The values, (p,), exactly skew-symmetric.

        Raises:
            ValueError: If `x` does not hold pairs, or contexts are missing or not expected.
        """
        if isinstance(x, tuple) != (self.contexts is not None):
            wanted = "pairs" if self.contexts is None else "a tuple of pairs and contexts"
            raise ValueError(f"`x` must be {wanted} for this function, got {type(x).__name__}")
        pairs, contexts = x if isinstance(x, tuple) else (x, None)
        pairs = jnp.asarray(pairs, float)
        check_pairs(pairs, self.kernel, "x")
        if self.contexts is not None:
            contexts = as_points(contexts, "x[1]", num_features=self.contexts.shape[1])
            check_same_rows(pairs.shape[0], contexts.shape[0], "x[0]", "x[1]")
        return _evaluate(self, pairs, contexts)

    def preference_matrix(self, items: Numbers | None = None, *, context: Numbers | None = None) -> Float[Array, "p p"]:
        """Evaluate at all pairs of p items.

        Args:
            items: The items, an array (p, d); by default the n items themselves.
            context: The context of all pairs, (f,), if the function has contexts.

        Returns:
            The values, (p, p), exactly skew-symmetric; a positive value means that the item of the row is preferred.

        Raises:
            ValueError: If the context is missing, not expected or of another length.
        """
        if (context is None) != (self.contexts is None):
            raise ValueError(f"`context` must be given if and only if the function has contexts, got {context!r}")
        row = None
        if self.contexts is not None:
            row = as_points(as_targets(context, name="context")[None], "context", num_features=self.contexts.shape[1])
        return _tabulate(self, self.items if items is None else as_points(items, "items"), row)


def _sections(function: ItemFunction, term: PreferenceTerm, x: Float[Array, "p d"]) -> Float[Array, "p q"]:
    """Return the features of items, or the sections of the kernel at them if it does not have finite rank."""
    kernel = term.kernel
    return kernel.feature_map(x) if isinstance(kernel, AbstractFeatureKernel) else kernel(x, function.items)


def _few_features(kernel: AbstractKernel, known: Float[Array, "c f"], x: Float[Array, "p f"]) -> Array | None:
    """Return the features of contexts if there are at most as many as different contexts, else None."""
    features = kernel.finite_features(x)
    return None if features is None or features.shape[1] > known.shape[0] else features


def _context_sections(
    function: ItemFunction, term: PreferenceTerm, contexts: Float[Array, "p f"] | None
) -> Float[Array, "p s"] | None:
    """Return the features of contexts, or the sections of the kernel at them; None without contexts."""
    kernel, known = term.context_kernel, function.contexts
    if kernel is None or known is None or contexts is None:
        return None
    features = _few_features(kernel, known, contexts)
    return kernel(contexts, known) if features is None else features


def _coefficients(function: ItemFunction, term: PreferenceTerm) -> Float[Array, "s m"]:
    """Return the coefficients of the pairs for each of the `_context_sections`; one row without contexts."""
    kernel, known = term.context_kernel, function.contexts
    if kernel is None or known is None:
        return function.coefficients[None]
    features = _few_features(kernel, known, known)
    by_context = jnp.eye(known.shape[0], dtype=function.coefficients.dtype) if features is None else features
    return by_context[function.context_numbers].T * function.coefficients[None]


def _weights(function: ItemFunction, term: PreferenceTerm) -> Float[Array, "s q *rest"]:
    """Return the factors of `_sections`, for each of the `_context_sections`.

    They are the row sums of A, (q,), or A itself, (q, q), in these features.
    """
    pairs, n = function.pairs, function.items.shape[0]
    has_features = isinstance(term.kernel, AbstractFeatureKernel)
    features = _sections(function, term, function.items) if has_features else None

    def of_coefficients(coefficients: Float[Array, " m"]) -> Array:
        if term.has_utility:
            sums = row_sums(pairs, coefficients, n)
            return sums if features is None else features.T @ sums
        if features is None:
            return skew_table(pairs, coefficients, n)
        return features.T @ multiply_skew(pairs, coefficients, features)

    return jax.lax.map(of_coefficients, _coefficients(function, term))


@eqx.filter_jit
def _tabulate(
    function: ItemFunction, items: Float[Array, "p d"], context: Float[Array, "1 f"] | None
) -> Float[Array, "p p"]:
    total = jnp.zeros((items.shape[0], items.shape[0]), function.coefficients.dtype)
    for term in preference_terms(function.kernel):
        sections, weights = _sections(function, term, items), _weights(function, term)
        known = _context_sections(function, term, context)
        weights = weights[0] if known is None else jnp.tensordot(known[0], weights, 1)
        if term.has_utility:
            utility = sections @ weights
            total += term.scale * (utility[:, None] - utility[None, :])
        else:
            total += term.scale * (sections @ weights @ sections.T)
    return (total - total.T) / 2


@eqx.filter_jit
def _evaluate(function: ItemFunction, x: Float[Array, "p 2 d"], contexts: Float[Array, "p f"] | None) -> Array:
    parts = [(term, _weights(function, term)) for term in preference_terms(function.kernel)]

    def evaluate(rows: tuple[Array, Array | None]) -> Float[Array, " p"]:
        return _evaluate_block(function, parts, *rows)

    return evaluate((x, contexts)) if x.shape[0] <= _BATCH else map_rows(evaluate, (x, contexts), _BATCH)


def _evaluate_block(
    function: ItemFunction, parts: list[tuple[PreferenceTerm, Array]], x: Array, contexts: Array | None
) -> Float[Array, " p"]:
    oriented = orient(x, function.kernel, "x")
    pairs = oriented.pairs
    total = jnp.zeros(pairs.shape[0], function.coefficients.dtype)
    for term, weights in parts:
        first, second = (_sections(function, term, pairs[:, side]) for side in (0, 1))

        def value(weight: Array, first: Array = first, second: Array = second) -> Float[Array, " p"]:
            return (first - second) @ weight if weight.ndim == 1 else jnp.sum((first @ weight) * second, axis=1)

        total += term.scale * _combine(value, weights, _context_sections(function, term, contexts))
    return oriented.skew(total)


def _combine(
    value: Callable[[Array], Array], weights: Float[Array, "s q *rest"], sections: Float[Array, "p s"] | None
) -> Float[Array, " p"]:
    """Return the sum of the values of each of s weights, multiplied by the sections of contexts."""
    if sections is None:
        return value(weights[0])
    return sum_over(lambda part: part[1] * value(part[0]), (weights, sections.T))
