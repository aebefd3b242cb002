r"""One regularized linear system, with a dense matrix or with features.

Kernel ridge regression, conditional mean embeddings and their relatives all solve systems with one matrix,

.. math:: C = A + c\,\mathrm{diag}(1 / r),

with a positive semi-definite matrix A (n, n), a ridge c and multiplicities r, the number of times that each row counts.
`DenseRidge` holds the Cholesky factor of C. Where A has q features, :math:`A = \Phi \Phi^\top`, `FeatureRidge` works
with a matrix (q, q) instead and forms no matrix (n, n):

.. math:: C^{-1} \Phi = R \Phi M^{-1}, \qquad M = c I_q + \Phi^\top R \Phi, \quad R = \mathrm{diag}(r).

Both give solutions, exact leave-one-out residuals without refits, and the terms of a Gaussian evidence.
"""

from __future__ import annotations

import abc
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from kpp.linalg.cholesky import add_diagonal, check_room, cho_inverse, cho_solve, cholesky, half_log_determinant
from kpp.typing import AnyArray


@runtime_checkable
class GramMatrix(Protocol):
    """The Gram matrix G of n regression targets in a Hilbert space, such as kernel sections at n points.

    A `FeatureRidge` needs only the diagonal and products, which can be formed without the whole matrix.
    """

    def gram(self) -> Float[Array, "n n"]:
        """Return G."""

    def moments(self, v: Float[Array, "n q"]) -> tuple[Float[Array, " n"], Float[Array, "n q"]]:
        """Return the diagonal of G, and the product G v."""


class AbstractRidge(eqx.Module):
    """The factorized system with the matrix C."""

    @abc.abstractmethod
    def solve(self, b: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
        """Return :math:`C^{-1} b`."""

    @abc.abstractmethod
    def log_determinant(self) -> Float[Array, ""]:
        r"""Return :math:`\log\det C`."""

    @abc.abstractmethod
    def trace(self, elements: GramMatrix) -> Float[Array, ""]:
        r"""Return :math:`\mathrm{tr}(C^{-1} G)`."""

    @abc.abstractmethod
    def leave_one_out(self, values: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
        r"""Return the residual of each row's value, predicted by the ridge regression on all other rows.

        .. math:: v_i - \hat v^{(-i)}_i = \frac{(C^{-1} v)_i}{(C^{-1})_{ii}}
        """

    @abc.abstractmethod
    def leave_one_out_norms(self, elements: GramMatrix) -> Float[Array, " n"]:
        r"""Return the squared norm of the leave-one-out residual of each element of a Hilbert space.

        .. math:: \frac{(C^{-1} G C^{-1})_{ii}}{(C^{-1})_{ii}^2}
        """


class DenseRidge(AbstractRidge):
    """The system with a dense matrix, by its Cholesky factor. Build it with `create`.

    Args:
        factor: The lower Cholesky factor of C, (n, n).
        ridge: c / r, one number or (n,).
    """

    factor: Float[Array, "n n"]
    ridge: Float[Array, "..."]

    @classmethod
    def create(
        cls,
        matrix: Float[AnyArray, "n n"],
        ridge: ArrayLike,
        multiplicity: Float[AnyArray, " n"] | None = None,
        *,
        what: str = "the regularized kernel matrix",
    ) -> DenseRidge:
        """Factorize C.

        Args:
            matrix: A, symmetric and positive semi-definite, (n, n).
            ridge: c, at least 0.
            multiplicity: r, (n,); None if each row counts once.
            what: What C is, for the message.

        Raises:
            kpp.linalg.FactorizationError: If C is concrete and not positive definite.
        """
        matrix = jnp.asarray(matrix)
        check_room(matrix, 2, what)
        added = jnp.asarray(ridge if multiplicity is None else ridge / multiplicity, dtype=matrix.dtype)
        # LAPACK reads columns first: XLA passes the rows of the transpose on unchanged, instead of copying the matrix
        # with long strides. The matrix is symmetric, so nothing else changes.
        return cls(cholesky(add_diagonal(matrix.T, added), what=what), added)

    def solve(self, b: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
        return cho_solve(self.factor, b)

    def inverse(self) -> Float[Array, "n n"]:
        """Return :math:`C^{-1}`, for formulas that need all entries of it."""
        return cho_inverse(self.factor)

    def smoother(self) -> Float[Array, "n n"]:
        r"""Return :math:`C^{-1} A = I - C^{-1} \mathrm{diag}(c / r)`, which saves the product with A."""
        ridge = jnp.broadcast_to(self.ridge, self.factor.shape[:1])
        return add_diagonal(-self.inverse() * ridge[None, :], 1.0)

    def log_determinant(self) -> Float[Array, ""]:
        return 2 * half_log_determinant(self.factor)

    def trace(self, elements: GramMatrix) -> Float[Array, ""]:
        return jnp.trace(self.solve(elements.gram()))

    def leave_one_out(self, values: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
        inverse = self.inverse()
        return inverse @ values / _column(jnp.diagonal(inverse), values)  # Rasmussen and Williams (2006), equation 5.12

    def leave_one_out_norms(self, elements: GramMatrix) -> Float[Array, " n"]:
        inverse = self.inverse()
        residuals = inverse / jnp.diagonal(inverse)[:, None]
        return jnp.sum((residuals @ elements.gram()) * residuals, axis=1)


class FeatureRidge(AbstractRidge):
    """The system whose matrix A is a product of features, of which there are at most as many as rows.

    Build it with `create`.

    Args:
        features: The features, (n, q).
        ridge: c, one positive number.
        multiplicity: r, (n,).
        factor: The lower Cholesky factor of M, (q, q).
    """

    features: Float[Array, "n q"]
    ridge: Float[Array, ""]
    multiplicity: Float[Array, " n"]
    factor: Float[Array, "q q"]

    @classmethod
    def create(
        cls,
        features: Float[AnyArray, "n q"],
        ridge: ArrayLike,
        multiplicity: Float[AnyArray, " n"] | None = None,
        *,
        what: str = "the regularized matrix of the features",
    ) -> FeatureRidge:
        r"""Factorize M.

        Args:
            features: :math:`\Phi`, (n, q).
            ridge: c, at least 0; solutions and determinants need a positive one.
            multiplicity: r, (n,); None if each row counts once.
            what: What M is, for the message.

        Raises:
            kpp.linalg.FactorizationError: If M is concrete and not positive definite.
        """
        features = jnp.asarray(features)
        ridge = jnp.asarray(ridge, dtype=features.dtype)
        rows = jnp.ones(features.shape[0]) if multiplicity is None else jnp.asarray(multiplicity)
        rows = rows.astype(features.dtype)
        matrix = add_diagonal(features.T @ (rows[:, None] * features), ridge)
        return cls(features, ridge, rows, cholesky(matrix, what=what))

    def coordinates(self, features: Float[Array, "p q"]) -> Float[Array, "q p"]:
        r"""Return :math:`M^{-1} \phi(y)` for p points with features :math:`\phi(y)`, one row per point."""
        return cho_solve(self.factor, features.T)

    def weights(self, features: Float[Array, "p q"]) -> Float[Array, "n p"]:
        r"""Return :math:`C^{-1} \Phi \phi(y) = R \Phi M^{-1} \phi(y)`, the weights of the rows at p points."""
        return self._weighted() @ self.coordinates(features)

    def solve(self, b: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
        return _column(self.multiplicity, b) * self._residuals(b) / self.ridge  # Woodbury's identity

    def log_determinant(self) -> Float[Array, ""]:
        n, q = self.features.shape
        # The matrix determinant lemma.
        determinant = 2 * half_log_determinant(self.factor) + (n - q) * jnp.log(self.ridge)
        return determinant - jnp.sum(jnp.log(self.multiplicity))

    def trace(self, elements: GramMatrix) -> Float[Array, ""]:
        diagonal, product = elements.moments(self._weighted())
        explained = jnp.trace(cho_solve(self.factor, self._weighted().T @ product))  # Woodbury's identity
        return (jnp.dot(self.multiplicity, diagonal) - explained) / self.ridge

    def leverages(self) -> Float[Array, " n"]:
        r"""Return :math:`r_i\, \phi_i^\top M^{-1} \phi_i`, the weight of each row in the fit at the row itself."""
        return self.multiplicity * jnp.sum(self.coordinates(self.features).T * self.features, axis=1)

    def leave_one_out(self, values: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
        # These are c / r_i times the entries of C^-1 v and times the diagonal of C^-1.
        return self._residuals(values) / _column(1 - self.leverages(), values)

    def leave_one_out_norms(self, elements: GramMatrix) -> Float[Array, " n"]:
        r"""Form the rows of :math:`C^{-1}` from the features.

        Up to a factor, row i is :math:`e_i - s_i^\top \Phi^\top R` with :math:`s_i = M^{-1} \phi_i`. The rounding
        errors of the subtractions are divided by :math:`(c\,(C^{-1})_{ii} / r_i)^2`, which is at least
        :math:`(c / (c + r_i A_{ii}))^2`.
        """
        sections = self.coordinates(self.features).T
        diagonal, product = elements.moments(self._weighted())
        explained = jnp.sum(sections * (sections @ (self._weighted().T @ product)), axis=1)
        squares = diagonal - 2 * jnp.sum(sections * product, axis=1) + explained
        leverages = self.multiplicity * jnp.sum(sections * self.features, axis=1)
        return jnp.maximum(squares, 0.0) / (1 - leverages) ** 2  # rounding may make a square negative

    def _weighted(self) -> Float[Array, "n q"]:
        return self.multiplicity[:, None] * self.features

    def _residuals(self, values: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
        """Return the values less the fit to all rows."""
        return values - self.features @ cho_solve(self.factor, self._weighted().T @ values)


def _column(vector: Float[Array, " n"], like: Float[Array, "n *k"]) -> Float[Array, "n *ones"]:
    """Return a vector with trailing axes, so that it is broadcast over the columns of another array."""
    return vector.reshape(-1, *(1,) * (like.ndim - 1))
