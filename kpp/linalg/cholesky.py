r"""Cholesky factorization and its jitter, in one place.

A kernel matrix is positive semi-definite in exact arithmetic, but rounding may make it indefinite. `cholesky` first
factorizes the matrix unchanged. Only if that fails, it adds a multiple of the mean diagonal, at most 1e-10 of it in
float64. A matrix that still fails is an error that names the matrix and its condition number. Inside traced code, where
nothing can be raised, the factor is NaN, which NumPyro treats as a point of zero density; `check_factor` raises once
the factor is concrete. Only `cho_inverse` and whiteners form an inverse.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float

from kpp.foundation.validation import is_concrete
from kpp.runtime.memory import check_matrices
from kpp.typing import AnyArray

_LARGE = 2**26  # entries, 512 MiB in float64


class FactorizationError(ValueError):
    """A matrix that must be positive definite is not, even with the largest jitter allowed."""


def max_relative_jitter(dtype: jnp.dtype) -> float:
    """Return the largest jitter, as a fraction of the mean diagonal: 1e-10 in float64, 1e-5 in float32."""
    return 1e-10 if jnp.finfo(dtype).bits == 64 else 1e-5


def add_diagonal(matrix: Float[AnyArray, "n n"], value: AnyArray | float) -> Float[Array, "n n"]:
    """Return ``matrix + diag(value)`` for a scalar or an (n,) array `value`."""
    matrix = jnp.asarray(matrix)
    return _add_diagonal(matrix, jnp.asarray(value, dtype=matrix.dtype))


def cholesky(matrix: Float[AnyArray, "n n"], *, what: str = "the kernel matrix") -> Float[Array, "n n"]:
    r"""Factorize a symmetric positive definite matrix as :math:`A = L L^\top`.

    The matrix is first factorized unchanged; only if that fails, 1e-10 (float32: 1e-5) of its mean diagonal is added.

    Args:
        matrix: A, of shape (n, n).
        what: What the matrix is, for the message.

    Returns:
        The lower factor L, of shape (n, n). In traced code it is NaN where the factorization failed.

    Raises:
        FactorizationError: If A is concrete and not positive definite even with the largest jitter.

    Example:
        >>> kpp.linalg.cholesky(np.array([[4.0, 2.0], [2.0, 2.0]]))
        Array([[2., 0.],
               [1., 1.]], dtype=float64)
    """
    matrix = jnp.asarray(matrix)
    check_room(matrix, 1, what)
    return check_factor(_factorize(matrix), matrix, what=what)


def check_room(matrix: Float[Array, "n n"], further: int, what: str) -> None:
    """Raise ValueError if further matrices of the size of one do not fit into memory in addition to it."""
    if not is_concrete(matrix):
        further += 1  # it is not there yet
    elif matrix.size > _LARGE:
        jax.block_until_ready(matrix)  # from now on it takes its memory
    advice = "use fewer points: kpp.features.landmarks chooses them"
    check_matrices(further, matrix.shape[-1], f"the factorization of {what}", advice)


def check_factor(
    factor: Float[Array, "n n"], matrix: Float[AnyArray, "n n"], *, what: str = "the kernel matrix"
) -> Float[Array, "n n"]:
    """Return a Cholesky factor, or raise FactorizationError if it is concrete and not finite.

    Raises:
        FactorizationError: If `factor` is concrete and holds NaN or infinity.
    """
    if is_concrete(factor) and not np.isfinite(np.asarray(factor)).all():
        raise FactorizationError(_explain_failure(np.asarray(matrix), what))
    return factor


def solve_lower(factor: Float[AnyArray, "n n"], b: Float[AnyArray, "n *k"]) -> Float[Array, "n *k"]:
    r"""Return :math:`L^{-1} b` for a lower factor L of shape (n, n) and b of shape (n,) or (n, k)."""
    return jsl.solve_triangular(factor, b, lower=True)


def cho_solve(factor: Float[AnyArray, "n n"], b: Float[AnyArray, "n *k"]) -> Float[Array, "n *k"]:
    r"""Return :math:`(L L^\top)^{-1} b` for a lower factor L of shape (n, n) and b of shape (n,) or (n, k)."""
    return jsl.cho_solve((jnp.asarray(factor), True), jnp.asarray(b))


def cho_inverse(factor: Float[AnyArray, "n n"]) -> Float[Array, "n n"]:
    r"""Return :math:`(L L^\top)^{-1}`, for formulas that need all entries of it (leave-one-out, gradients).

    :math:`M = L^{-1}` and :math:`M^\top M` are formed by blocks, so that the work is in matrix products that skip the
    zeros; at n = 442 this takes under half the time of two triangular solves against the identity.
    """
    factor = jnp.asarray(factor)
    return _gram_lower(invert_lower(factor), _block_size(factor))


def whitener(matrix: Float[AnyArray, "n n"], *, what: str = "the kernel matrix") -> Float[Array, "n n"]:
    r"""Return the inverse :math:`R = L^{-1}` of the lower factor of a symmetric positive definite matrix.

    It whitens: :math:`R A R^\top = I` and :math:`A^{-1} = R^\top R`. With many right-hand sides, products with R take
    much less time than triangular solves.

    Returns:
        R, lower triangular, of shape (n, n). In traced code it is NaN where the factorization failed.

    Raises:
        FactorizationError: If A is concrete and not positive definite even with the largest jitter.
    """
    return invert_lower(cholesky(matrix, what=what))


def whiten(
    matrix: Float[AnyArray, "n n"], rows: Float[AnyArray, "p n"], *, what: str = "the kernel matrix"
) -> tuple[Float[Array, "n n"], Float[Array, "p n"]]:
    r"""Whiten the rows of a matrix B, so that :math:`W W^\top = B A^{-1} B^\top` for :math:`W = B R^\top`.

    The derivative needs products only,

    .. math:: dR = -\Lambda R, \qquad dW = dB\, R^\top - W \Lambda^\top, \qquad \Lambda = \mathrm{low}(R\, dA\, R^\top),

    where low keeps the lower triangle and half of the diagonal (Murray, Differentiation of the Cholesky decomposition,
    2016, equation (8)). Returns the `whitener` R of A, which may fail in the same way, and W.
    """
    matrix = jnp.asarray(matrix)
    inverse, white = _whiten(matrix, jnp.asarray(rows))
    return check_factor(inverse, matrix, what=what), white


def half_log_determinant(factor: Float[AnyArray, "n n"]) -> Float[Array, ""]:
    r"""Return :math:`\tfrac12 \log\det(L L^\top) = \sum_i \log L_{ii}` for a lower factor L of shape (n, n)."""
    return jnp.sum(jnp.log(jnp.diagonal(factor)))


# Compiled, so that concrete matrices take one program per shape and traced code traces each shape once.
@jax.jit
def _add_diagonal(matrix: Array, value: Array) -> Array:
    # Not `at[index, index].add`: a scatter takes several times as long to trace and to compile.
    size = matrix.shape[0]
    return jnp.where(jnp.eye(size, dtype=bool), matrix + jnp.broadcast_to(value, (size,))[None, :], matrix)


@jax.jit
def _factorize(matrix: Array) -> Array:
    factor = jnp.linalg.cholesky(matrix)
    return jax.lax.cond(jnp.all(jnp.isfinite(factor)), lambda: factor, lambda: _factorize_with_jitter(matrix))


@jax.custom_jvp
def _whiten(matrix: Array, rows: Array) -> tuple[Array, Array]:
    inverse = invert_lower(_factorize(matrix))
    # On accelerators, the default precision of float32 is lower.
    return inverse, jnp.matmul(rows, inverse.T, precision="highest")


@_whiten.defjvp
def _whiten_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Any, Any]:
    inverse, white = _whiten(*primals)
    lower, tangent = whitener_tangent(inverse, tangents[0])
    return (inverse, white), (tangent, tangents[1] @ inverse.T - white @ lower.T)


def whitener_tangent(inverse: Array, tangent: Array) -> tuple[Array, Array]:
    r"""Return :math:`\Lambda` and :math:`dR` of `whiten`, for R and :math:`dA`."""
    moved = inverse @ tangent @ inverse.T
    lower = jnp.tril(moved, -1) + 0.5 * jnp.diag(jnp.diagonal(moved))
    return lower, -(lower @ inverse)


def _factorize_with_jitter(matrix: Array) -> Array:
    jitter = max_relative_jitter(matrix.dtype) * jnp.mean(jnp.diagonal(matrix))
    return jnp.linalg.cholesky(add_diagonal(matrix, jitter))  # NaN if this fails too: nothing larger is tried


def _block_size(factor: Array) -> int:
    """Return the size up to which a triangular matrix is not halved."""
    return max(128, -(-factor.shape[0] // 8))  # at most three levels of halves


def invert_lower(factor: Array) -> Array:
    """Invert a lower triangular matrix by halves."""
    return _invert_by_halves(factor, _block_size(factor))


def _invert_by_halves(factor: Array, block: int) -> Array:
    n = factor.shape[0]
    if n <= block:
        return solve_lower(factor, jnp.eye(n, dtype=factor.dtype))
    half = n // 2
    first, last = _invert_by_halves(factor[:half, :half], block), _invert_by_halves(factor[half:, half:], block)
    below = -(last @ (factor[half:, :half] @ first))  # of [[A, 0], [B, C]] it is -C^-1 B A^-1
    return jnp.block([[first, jnp.zeros((half, n - half), factor.dtype)], [below, last]])


def _gram_lower(matrix: Array, block: int) -> Array:
    """Return ``M.T @ M`` for a lower triangular M, by halves."""
    n = matrix.shape[0]
    if n <= block:
        return matrix.T @ matrix
    half = n // 2
    first, below, last = matrix[:half, :half], matrix[half:, :half], matrix[half:, half:]
    corner = below.T @ last
    return jnp.block([[_gram_lower(first, block) + below.T @ below, corner], [corner.T, _gram_lower(last, block)]])


def _explain_failure(matrix: np.ndarray, what: str) -> str:
    if not np.isfinite(matrix).all():
        bad = int((~np.isfinite(matrix)).sum())
        return f"{what} (shape {matrix.shape}) holds {bad} entries that are NaN or infinite"
    eigenvalues = np.linalg.eigvalsh((matrix + matrix.T) / 2)
    low, high = float(eigenvalues[0]), float(eigenvalues[-1])
    condition = np.inf if low == 0 else abs(high / low)
    return (
        f"{what} (shape {matrix.shape}) is not positive definite: eigenvalues from {low:.3g} to {high:.3g}, condition "
        f"number {condition:.3g}, even with a jitter of {max_relative_jitter(matrix.dtype):g} of the mean diagonal; "
        "add noise or regularization, remove duplicated rows, or shorten the lengthscale"
    )
