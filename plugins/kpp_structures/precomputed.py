"""A kernel whose values are given as a matrix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kpp.foundation.validation import is_concrete
from kpp.kernels import AbstractKernel, check_non_negative, parameter, scalar
from kpp.kernels.toolkit import AbstractBatchKernel, check_matrices, example_points, point_rows
from kpp.priors import is_prior
from kpp.typing import Leaf, Points, RngKey


def _gram_matrix(value: Any) -> Any:
    """Return a symmetric positive semi-definite matrix, or raise ValueError if it is not one up to rounding."""
    if is_prior(value):
        raise TypeError(f"`matrix` must be numbers, got a {type(value).__name__}; priors belong to `variance`")
    matrix: Any = point_rows("matrix")(value)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"`matrix` must have shape (m, m), the kernel of m points, got shape {matrix.shape}")
    if not is_concrete(matrix):
        return matrix
    known = np.asarray(matrix, dtype=float)
    allowed = float(jnp.finfo(matrix.dtype).eps) ** 0.5 * np.abs(known).max()
    if (gap := np.abs(known - known.T).max()) > allowed:
        raise ValueError(f"`matrix` must be symmetric, but entries (i, j) and (j, i) differ by up to {gap:.3g}")
    known = (known + known.T) / 2
    if (lowest := np.linalg.eigvalsh(known)[0]) < -allowed:
        raise ValueError(
            f"`matrix` must be positive semi-definite, but its lowest eigenvalue is {lowest:.3g}; if its kernel allows "
            "negative eigenvalues, set them to 0"
        )
    return jnp.asarray(known, matrix.dtype)


class Precomputed(AbstractBatchKernel):
    r"""A kernel whose values are known, for example from a library of graph kernels or of string kernels.

    .. math:: k(i, j) = \sigma^2 G_{ij}

    Points are row numbers of G: one column of integers, counted from 0. G holds all points, those of the training data
    and those for predictions, because it says nothing of others. In a table with further columns use `on`:
    ``Precomputed(matrix).on("molecule") * RBF().on("dose")``. The numbers must not be standardized.

    Args:
        matrix: G, (m, m), symmetric and positive semi-definite, each up to the square root of the machine precision
            times the largest entry; the kernel keeps the mean of G and its transpose.
        variance: :math:`\sigma^2`: a number of at least 0, or a prior.

    Raises:
        ValueError: If `matrix` is not such a matrix or not finite; on evaluation, if a point is not a row number.
        TypeError: If `matrix` is a prior.

    Example:
        >>> from kpp_structures import Precomputed
        >>> kernel = Precomputed(np.array([[1.0, 0.2], [0.2, 1.0]]))
        >>> kernel(np.array([[0]]), np.array([[0], [1]]))
        Array([[1. , 0.2]], dtype=float64)
    """

    #: Row numbers that G does not have are refused, and give NaN in traced code.
    everywhere: ClassVar[bool] = False

    matrix: Float[Array, "m m"] = eqx.field(converter=_gram_matrix)
    variance: Leaf = eqx.field(converter=parameter("variance"), default=1.0)

    def __check_init__(self) -> None:
        check_non_negative(self.variance, "variance")

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        return self._values(self._rows(x1)[:, None], self._rows(x2)[None, :])

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return self._values(self._rows(x), self._rows(x))

    def split_scale(self) -> tuple[Leaf, AbstractKernel]:
        variance = scalar(self.variance, "variance")
        return variance, eqx.tree_at(lambda kernel: kernel.variance, self, jnp.ones_like(variance))

    def _values(self, first: Array, second: Array) -> Array:
        return scalar(self.variance, "variance") * self.matrix.at[first, second].get(mode="fill", fill_value=jnp.nan)

    def _rows(self, x: Array) -> Int[Array, " n"]:
        """Return the row numbers of points; those that do not exist become m."""
        size = self.matrix.shape[0]
        if (num_columns := check_matrices(self, x, x)) != 1:
            raise ValueError(
                f"Precomputed takes points `x` of shape (n, 1), row numbers of `matrix`, got {num_columns} columns; "
                "`on` selects one of several"
            )
        exists = (x[:, 0] >= 0) & (x[:, 0] < size) & (x[:, 0] == jnp.floor(x[:, 0]))
        if is_concrete(exists) and not exists.all():
            raise ValueError(
                f"points `x` must be row numbers of `matrix`, integers from 0 to {size - 1}, got {x[~exists][0, 0]}"
            )
        return jnp.where(exists, x[:, 0], jnp.full_like(x[:, 0], size)).astype(int)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        features = example_points(rng_key, 2, 7)
        yield cls(features @ features.T, variance=1.3), jnp.array([[4.0], [0.0], [6.0], [1.0], [2.0]])
