r"""Conditional mean embeddings of all coalitions: the weights of background points given the present features.

.. math:: W_S = (K_{Z_S Z_S} + m \eta I)^{-1} K_{Z_S, x_S}

One matrix per coalition is factorized, for all explained points together.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from kpp.games.values.product_games import masked_product
from kpp.kernels import RBF, AbstractKernel, AbstractProductKernel, Constant
from kpp.kernels.toolkit import has_product_terms
from kpp.linalg.toolkit import DenseRidge
from kpp.typing import Points

#: The name of the factorized matrix in messages.
REGULARIZED = "the regularized kernel matrix of the background"

#: A function from a coalition of features, which may be traced, to a matrix.
MatrixOf = Callable[[Bool[Array, " d"]], Float[Array, "n1 n2"]]

# The largest number of entries of a table of factors; beyond it factors are computed again for each coalition.
_MAX_TABLE = 2**25
# The number of background points from whose distances the default kernel gets its lengthscales.
_MEDIAN_ROWS = 128


def restricted_matrices(kernel: AbstractKernel, x1: Points, x2: Points) -> MatrixOf:
    """Return a function that restricts a kernel to a coalition and evaluates it at pairs of points.

    The scale of the kernel is removed. From a product kernel the factors of the other features are removed too. Any
    other kernel receives zeros in place of the other features; a kernel of distances then equals the kernel of the
    remaining features.

    Returns:
        A function of a mask (d,) that returns the matrix (n1, n2).
    """
    if not isinstance(kernel, AbstractProductKernel):
        correlation = kernel.split_scale()[1]
        return lambda mask: correlation(jnp.where(mask[None], x1, 0.0), jnp.where(mask[None], x2, 0.0))
    if not is_tabulated(kernel, x1.shape[0], x2):
        return lambda mask: kernel.restrict(mask)(x1, x2)
    factors = kernel.factors(x1, x2)
    return lambda mask: masked_product(factors, mask)


def is_tabulated(kernel: AbstractKernel, num_rows: int, points: Points) -> bool:
    """Return whether a table of the factors between rows and points saves time, and is not too large."""
    if isinstance(kernel, RBF) or not isinstance(kernel, AbstractProductKernel):  # an RBF takes one exponential
        return False
    return num_rows * points.size <= _MAX_TABLE


def median_kernel(background: Float[Array, "m d"]) -> RBF:
    r"""Return the RBF kernel whose lengthscales are :math:`\sqrt d` times the median distances, which may be traced.

    As in `kpp.kernels.median_heuristic`, pairs of points with equal values of a feature are left out, and a constant
    feature gets 1. If there are more than 128 points, 128 of them at equal steps are used.
    """
    rows = background[:: -(-background.shape[0] // _MEDIAN_ROWS)]
    first, second = np.triu_indices(rows.shape[0], 1)
    distances = jnp.abs(rows[first] - rows[second])
    medians = jnp.nanmedian(jnp.where(distances > 0, distances, jnp.nan), axis=0)
    return RBF(lengthscale=jnp.sqrt(rows.shape[1]) * jnp.where(jnp.isnan(medians), 1.0, medians))


def single_term(kernel: AbstractKernel) -> AbstractKernel | None:
    """Return the single product kernel of a kernel, ignoring constants; None if the kernel has several or none."""
    if not has_product_terms(kernel):
        return None
    terms = [term for term in kernel.product_terms() if not isinstance(term, Constant)]
    return terms[0] if len(terms) == 1 else None


def direct_solve(matrix: Float[Array, "m m"], right: Float[Array, "m p"], ridge: ArrayLike) -> Float[Array, "m p"]:
    r"""Return :math:`(A + \rho I)^{-1} B`, (m, p), by a Cholesky factorization.

    For many right-hand sides the inverse is formed: a matrix product takes half the time of two triangular solves.
    """
    system = DenseRidge.create(matrix, ridge, what=REGULARIZED)
    if 2 * right.shape[1] < right.shape[0]:
        return system.solve(right)
    return jnp.matmul(system.inverse(), right, precision="highest")
