r"""Sections of a kernel at rows of which only some features are present; the others are averaged over references.

.. math:: G_S(x) = k_S(Z, x_S) \odot k_{S^c}(Z, X_{S^c})\, w_S(x)

for a product kernel k, the points Z of the function, references X, and their weights: those of a conditional mean
embedding, :math:`w_S(x) = (K_{X_S X_S} + n \lambda I)^{-1} k(X_S, x_S)`, or 1/n each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kpp import RKHSFunction
from kpp.games.toolkit import restricted_matrices
from kpp.kernels import AbstractKernel, AbstractProductKernel
from kpp.kernels.toolkit import has_product_terms
from kpp.runtime.batching import sum_arrays

if TYPE_CHECKING:
    from kpp.games import Observational

#: A coalition: the features that are present.
Mask = Bool[Array, " d"]
#: A function of a coalition to the weights of the references, (n, q), or (n, 1) if all rows share them.
Weights = Callable[[Mask], Float[Array, "n q"]]
#: A function of a coalition and the weights of the references to the sections of a kernel, (m, q).
Sections = Callable[[Mask, Float[Array, "n w"]], Float[Array, "m q"]]


def absent_weights(
    observational: Observational, conditional: str, kernel: AbstractKernel, rows: Float[Array, "q d"]
) -> Weights:
    """Return a function from a coalition to the weights of the references, given the present features of rows (q, d).

    They are those of a conditional mean embedding, whose default kernel is the product term of `kernel`, or equal
    weights if `conditional` is "interventional".
    """
    if conditional == "observational":
        like = RKHSFunction(kernel, rows[:1], jnp.zeros(1, rows.dtype))
        return observational.weights_of(observational.kernel_for(like), rows)
    num_references = observational.background.shape[0]
    return lambda mask: jnp.full((num_references, 1), 1 / num_references, rows.dtype)


def restricted_sections(
    observational: Observational,
    conditional: str,
    kernel: AbstractKernel,
    points: Float[Array, "m d"],
    rows: Float[Array, "q d"],
) -> Sections:
    """Return a function from a mask (d,) and weights (n, q) or (n, 1) of the references to sections (m, q).

    A kernel that is not a sum of product kernels is evaluated at references whose present features are replaced by the
    features of a row. With observational weights it is evaluated at the unchanged references, which then replace the
    row in all features. The sections are those of the points Z (m, d) at the rows (q, d).
    """
    references = jnp.asarray(observational.background)
    if has_product_terms(kernel):
        parts = [_product_sections(term, points, rows, references) for term in kernel.product_terms()]
        return lambda mask, weights: sum_arrays(part(mask, weights) for part in parts)
    whole = kernel(points, rows)
    if conditional == "observational":
        known = kernel(points, references)
        exact = observational.has_exact_ends

        def embedded(mask: Mask, weights: Array) -> Array:
            return jnp.where(exact & jnp.all(mask), whole, jnp.matmul(known, weights, precision="highest"))

        return embedded

    def imputed(mask: Mask, weights: Array) -> Array:
        def add(total: Array, pair: tuple[Array, Array]) -> tuple[Array, None]:
            return total + pair[1][None] * kernel(points, jnp.where(mask[None], rows, pair[0][None])), None

        return jax.lax.scan(add, jnp.zeros_like(whole), (references, weights))[0]

    return imputed


def _product_sections(term: AbstractProductKernel, points: Array, rows: Array, references: Array) -> Sections:
    present, absent = restricted_matrices(term, points, rows), restricted_matrices(term, points, references)

    def sections(mask: Mask, weights: Array) -> Array:
        return term.scale * present(mask) * jnp.matmul(absent(~mask), weights, precision="highest")

    return sections
