r"""Functions of pairs as tables over items, which save time if there are more matches than items.

A weighted sum of sections at m pairs of n items is, for `kpp.kernels.GeneralizedPreferential`,

.. math:: g(x, x') = \sum_i \alpha_i\, k_E\bigl((x, x'), (x_{a_i}, x_{b_i})\bigr) = k(x, X)\, A\, k(X, x'), \qquad
    A = \sum_i \alpha_i \bigl(e_{a_i} e_{b_i}^\top - e_{b_i} e_{a_i}^\top\bigr)

with a sparse skew-symmetric table A, (n, n), and for `kpp.kernels.Preferential` a difference of utilities,
:math:`u(x) = k(x, X)\, A 1`. No array of shape (m, m) is needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kpp.features import GeneralizedPreferentialFeatures, PreferentialFeatures
from kpp.kernels import AbstractKernel, Contextual, GeneralizedPreferential, Preferential, Scaled, Sum


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
