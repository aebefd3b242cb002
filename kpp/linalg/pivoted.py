r"""The pivoted Cholesky factorization: roots and whiteners of positive semi-definite matrices.

The kernel matrix of landmarks is often singular up to rounding, in particular if the kernel is restricted to one
feature in which the landmarks have equal or close values. A jitter of 1e-10 would change the features of points far
from the landmarks by its square root, 1e-5, and a small ridge multiplies this error. Pivoting needs no jitter: it drops
the landmarks whose sections are combinations of others up to rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kpp.linalg.cholesky import check_factor, check_room, invert_lower, max_relative_jitter, whitener_tangent
from kpp.typing import AnyArray

# The smallest pivot of a whitener, in units of the machine precision times the largest diagonal element: the entries of
# kernel matrices have errors of a few units. With a larger number, features at points far from the landmarks are lost.
_UNITS = 8


class _Factorization(NamedTuple):
    """The first steps of a factorization."""

    left: Float[Array, " n"]  # the diagonal that is left; 0 for pivots
    root: Float[Array, "n r"]  # the columns; 0 for the steps to come
    turns: Int[Array, " n"]  # the step in which a row was the pivot; n for other rows
    rank: Int[Array, ""]  # the number of steps


def pivoted_cholesky(matrix: Float[Array, "n n"], rank: int) -> Float[Array, "n r"]:
    r"""Return a root of low rank, :math:`A \approx G G^\top`, by the pivoted Cholesky factorization.

    Each pivot is the row with the largest diagonal element that is left, as in a Cholesky factorization with complete
    pivoting, which stops after r columns. The error is positive semi-definite; its diagonal is what is left. Once the
    largest element left is below 1e-12 of the mean diagonal, the other columns are 0.

    References:
        Harbrecht, Peters and Schneider, On the low-rank approximation by the pivoted Cholesky decomposition, 2012,
        algorithm 1.
    """
    return _factorize(matrix, rank, 1e-12 * jnp.mean(jnp.diagonal(matrix))).root


def pivoted_whitener(matrix: Float[AnyArray, "n n"], *, what: str = "the kernel matrix") -> Float[Array, "n n"]:
    r"""Return a `whitener` of a symmetric positive semi-definite matrix, with rows of 0 if its rank r is below n.

    .. math:: R A R^\top = \mathrm{diag}(1, \ldots, 1, 0, \ldots, 0), \qquad A R^\top R A = A

    R is the inverse of the lower factor of A, or, if a pivot of this factor is a rounding error, the inverse of the
    factor of the r rows and columns that are pivots. In the derivative the pivots are constant. Negative eigenvalues,
    apart from rounding errors, give NaN in traced code, and otherwise a FactorizationError.
    """
    matrix = jnp.asarray(matrix)
    check_room(matrix, 2, what)
    return check_factor(_whitener(matrix), matrix, what=what)


@jax.custom_jvp
def _whitener(matrix: Array) -> Array:
    size, diagonal = matrix.shape[0], jnp.diagonal(matrix)
    least = _UNITS * jnp.finfo(matrix.dtype).eps * jnp.max(diagonal)
    factor = jnp.linalg.cholesky(matrix)
    regular = jnp.min(jnp.diagonal(factor)) ** 2 > least  # False for NaN
    # A regular matrix takes no steps, and keeps its order.
    steps = _factorize(matrix, size, jnp.where(regular, jnp.inf, least))
    order, is_pivot = jnp.argsort(steps.turns), jnp.arange(size) < steps.rank
    pivoted = jnp.where(is_pivot[:, None] & is_pivot[None], steps.root[order], jnp.eye(size, dtype=matrix.dtype))
    inverse = invert_lower(jnp.where(regular, factor, pivoted))[:, jnp.argsort(order)]
    error = jnp.max(jnp.abs(matrix - steps.root @ steps.root.T))
    valid = regular | (error <= max_relative_jitter(matrix.dtype) * jnp.mean(diagonal))
    return jnp.where(valid, jnp.where((regular | is_pivot)[:, None], inverse, 0.0), jnp.nan)


@_whitener.defjvp
def _whitener_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    inverse = _whitener(*primals)
    return inverse, whitener_tangent(inverse, tangents[0])[1]


def _factorize(matrix: Array, num_columns: int, least: Array) -> _Factorization:
    """Take pivots until there are enough columns or no element of the diagonal is above `least`."""
    size = matrix.shape[0]

    def goes_on(steps: _Factorization) -> Array:
        return (steps.rank < num_columns) & (jnp.max(steps.left) > least)

    def step(steps: _Factorization) -> _Factorization:
        left, root, turns, rank = steps
        pivot = jnp.argmax(left)
        column = (matrix[pivot] - root @ root[pivot]) / jnp.sqrt(left[pivot])
        column = column.at[pivot].set(jnp.sqrt(left[pivot]))  # the division gives this up to rounding
        left = jnp.maximum(left - column**2, 0.0).at[pivot].set(0.0)  # rounding may make it negative
        return _Factorization(left, root.at[:, rank].set(column), turns.at[pivot].set(rank), rank + 1)

    start = jnp.zeros((size, num_columns), matrix.dtype), jnp.full(size, size), jnp.asarray(0)
    return jax.lax.while_loop(goes_on, step, _Factorization(jnp.diagonal(matrix), *start))
