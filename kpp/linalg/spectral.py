r"""Positive parts and roots of symmetric matrices, by their eigenvalues."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.typing import AnyArray


def positive_part(matrix: Float[AnyArray, "n n"]) -> Float[Array, "n n"]:
    r"""Replace the negative eigenvalues of a symmetric matrix by 0.

    .. math:: M = U \Lambda U^\top \;\mapsto\; U \Lambda_+ U^\top, \qquad
        dM \mapsto U (F \circ U^\top dM\, U)\, U^\top, \quad
        F_{ij} = \frac{(\lambda_i)_+ - (\lambda_j)_+}{\lambda_i - \lambda_j}

    The derivative is finite for equal eigenvalues too, unlike that of the eigenvectors.

    Returns:
        The nearest positive semi-definite matrix in the Frobenius norm, (n, n).

    References:
        Higham, Computing a nearest symmetric positive semidefinite matrix, 1988, theorem 2.1; for the derivative
        Bhatia, Matrix analysis, 1997, theorem V.3.3 (Daleckii and Krein).
    """
    return _positive_part(jnp.asarray(matrix))


def root_of_full_rank(matrix: Float[AnyArray, "n n"]) -> Float[Array, "n r"]:
    r"""Return F with :math:`M = F F^\top` and orthogonal columns, the longest first.

    Columns that are rounding errors are left out: eigenvalues up to n times the machine precision times the largest.

    Args:
        matrix: M, symmetric and positive semi-definite, (n, n). Its values must be concrete, since they determine the
            number of columns.

    Returns:
        The root, of shape (n, r), where r is the numerical rank of M.
    """
    values, vectors = np.linalg.eigh(np.asarray(matrix))
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = values > len(values) * np.finfo(values.dtype).eps * values[0]  # the threshold of numpy.linalg.matrix_rank
    return jnp.asarray(vectors[:, kept] * np.sqrt(values[kept]))


@jax.custom_jvp
def _positive_part(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    values, vectors = jnp.linalg.eigh(matrix)
    return (vectors * jnp.maximum(values, 0.0)[None, :]) @ vectors.T


@_positive_part.defjvp
def _positive_part_jvp(
    primals: tuple[Float[Array, "n n"]], tangents: tuple[Float[Array, "n n"]]
) -> tuple[Array, Array]:
    values, vectors = jnp.linalg.eigh(primals[0])
    symmetric = (tangents[0] + tangents[0].T) / 2  # `eigh` reads a matrix as symmetric
    inner = _divided_differences(values) * (vectors.T @ symmetric @ vectors)
    return (vectors * jnp.maximum(values, 0.0)[None, :]) @ vectors.T, vectors @ inner @ vectors.T


def _divided_differences(values: Float[Array, " n"]) -> Float[Array, "n n"]:
    """Return (max(a, 0) - max(b, 0)) / (a - b) for all pairs: 1 for two positive values, 0 for two that are not."""
    positive = values > 0
    size = jnp.abs(values)
    gaps = size[:, None] + size[None, :]  # the distance of two values of different signs
    mixed = jnp.where(positive[:, None], size[:, None], size[None, :]) / jnp.where(gaps > 0, gaps, 1.0)
    return jnp.where(positive[:, None] == positive[None, :], positive[:, None].astype(values.dtype), mixed)


def clean_spectrum(matrices: Float[np.ndarray, "*batch g g"]) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues and eigenvectors of symmetric matrices; eigenvalues that are rounding errors are 0."""
    eigenvalues, vectors = np.linalg.eigh((matrices + np.swapaxes(matrices, -1, -2)) / 2.0)
    size = np.abs(eigenvalues)
    rounding = 100 * size.shape[-1] * np.finfo(matrices.dtype).eps * size.max(axis=-1, keepdims=True)
    return np.where(size > rounding, eigenvalues, 0.0), vectors


def symmetric_root(matrices: Float[np.ndarray, "*batch g g"], *, inverse: bool = False) -> np.ndarray:
    """Return the symmetric roots of covariances, or their pseudo-inverses; rounding errors below 0 count as 0."""
    eigenvalues, vectors = clean_spectrum(matrices)
    kept = np.sqrt(np.maximum(eigenvalues, 0.0))
    if inverse:
        kept = np.divide(1.0, kept, out=np.zeros_like(kept), where=kept > 0)
    return (vectors * kept[..., None, :]) @ np.swapaxes(vectors, -1, -2)
