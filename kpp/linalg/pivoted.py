"""The pivoted Cholesky factorization: a root of low rank of a positive semi-definite matrix."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["pivoted_cholesky"]


def pivoted_cholesky(matrix: Float[Array, "n n"], rank: int) -> Float[Array, "n r"]:
    r"""Return a root of low rank, :math:`A \approx G G^\top`, by the pivoted Cholesky factorization.

    Each pivot is the row with the largest diagonal element that is left, as in a Cholesky factorization with complete
    pivoting, which stops after r columns. The error is positive semi-definite; its diagonal is what is left.

    Args:
        matrix: A, symmetric positive semi-definite, (n, n).
        rank: The number r of columns, at most n.

    Returns:
        G, (n, r). Once the largest element left is below 1e-12 of the mean diagonal, the other columns are 0.

    References:
        Harbrecht, Peters and Schneider, On the low-rank approximation by the pivoted Cholesky decomposition, 2012,
        algorithm 1.
    """
    diagonal = jnp.diagonal(matrix)
    least = 1e-12 * jnp.mean(diagonal)

    def step(index: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        left, root = state
        pivot = jnp.argmax(left)
        column = matrix[pivot] - root @ root[pivot]
        column = jnp.where(left[pivot] > least, column / jnp.sqrt(jnp.maximum(left[pivot], least)), 0.0)
        left = jnp.maximum(left - column**2, 0.0).at[pivot].set(0.0)
        return left, root.at[:, index].set(column)

    root = jnp.zeros((matrix.shape[0], rank), matrix.dtype)
    return jax.lax.fori_loop(0, rank, step, (diagonal, root))[1]
