r"""Kernel ridge regression of elements of an RKHS: the linear systems, dense or by features, in one place.

A conditional embedding regresses elements :math:`g_i` of an RKHS on inputs :math:`y_i`. All that it needs is the matrix

.. math:: C = L + c\,\mathrm{diag}(1 / r), \qquad L = l(Y, Y),

with a ridge c and multiplicities r, the number of times that each input counts. Where l has q features,
:math:`L = \Phi \Phi^\top`, everything follows from a matrix (q, q) instead, and no matrix (n, n) is formed:

.. math:: C^{-1} \Phi = R \Phi M^{-1}, \qquad M = c I_q + \Phi^\top R \Phi, \quad R = \mathrm{diag}(r).
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp import linalg
from kpp.bags import Bags
from kpp.features import AbstractFeatureKernel
from kpp.kernels import AbstractKernel

__all__ = ["AbstractOutputs", "AbstractRidge", "BagOutputs", "DenseRidge", "FeatureRidge", "PointOutputs"]

_WHAT = "the regularized kernel matrix of the inputs"
_BATCH = 512  # rows of a Gram matrix that are worked on at once


class AbstractOutputs(eqx.Module):
    """The elements that are regressed, known by their Gram matrix G."""

    @abc.abstractmethod
    def gram(self) -> Float[Array, "n n"]:
        """Return G, the inner products of the elements."""

    @abc.abstractmethod
    def moments(self, v: Float[Array, "n q"]) -> tuple[Float[Array, " n"], Float[Array, "n q"]]:
        """Return the diagonal of G, and G v."""


class PointOutputs(AbstractOutputs):
    """Sections of a kernel at n points."""

    kernel: AbstractKernel
    points: Any

    def gram(self) -> Float[Array, "n n"]:
        """Return the kernel matrix of the points."""
        return self.kernel.gram(self.points)

    def moments(self, v: Float[Array, "n q"]) -> tuple[Float[Array, " n"], Float[Array, "n q"]]:
        """Return diagonal and product of the kernel matrix, of which some rows are held at a time."""
        diagonal = self.kernel.diagonal(self.points)
        if isinstance(self.kernel, AbstractFeatureKernel):
            return diagonal, self.kernel.combine_sections(self.points, self.points, v)

        def row(point: Any) -> Array:
            return self.kernel(jax.tree.map(lambda leaf: leaf[None], point), self.points)[0] @ v

        return diagonal, jax.lax.map(row, self.points, batch_size=_BATCH)


class BagOutputs(AbstractOutputs):
    """Means of kernel sections over bags."""

    kernel: AbstractKernel
    bags: Bags

    def gram(self) -> Float[Array, "n n"]:
        """Return the inner products of the means."""
        return self.bags.gram(self.kernel)

    def moments(self, v: Float[Array, "n q"]) -> tuple[Float[Array, " n"], Float[Array, "n q"]]:
        """Return diagonal and product of the matrix."""
        gram = self.gram()
        return jnp.diagonal(gram), gram @ v


class AbstractRidge(eqx.Module):
    """The matrix C, factorised."""

    @abc.abstractmethod
    def solve(self, b: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
        """Return :math:`C^{-1} b`."""

    @abc.abstractmethod
    def leave_one_out(self, outputs: AbstractOutputs) -> Float[Array, " n"]:
        r"""Return the squared residual of each output, predicted from the others.

        .. math:: \frac{(A G A)_{ii}}{A_{ii}^2}, \qquad A = C^{-1}
        """

    @abc.abstractmethod
    def evidence_terms(self, outputs: AbstractOutputs) -> tuple[Float[Array, ""], Float[Array, ""]]:
        r"""Return :math:`\log\det C` and :math:`\mathrm{tr}(C^{-1} G)`."""


class DenseRidge(AbstractRidge):
    """C as a matrix (n, n), by its Cholesky factor."""

    factor: Float[Array, "n n"]

    @classmethod
    def create(cls, gram: Float[Array, "n n"], value: Any, multiplicity: Any = None) -> DenseRidge:
        """Factorise C.

        Args:
            gram: L, (n, n).
            value: The ridge c, at least 0.
            multiplicity: r, (n,), or None for once each.

        Returns:
            The system.

        Raises:
            kpp.linalg.FactorizationError: If C is concrete and not positive definite.
        """
        matrix = linalg.add_diagonal(gram, value if multiplicity is None else value / multiplicity)
        return cls(linalg.cholesky(matrix, what=_WHAT))

    def solve(self, b: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
        """Solve with the factor."""
        return linalg.cho_solve(self.factor, b)

    def inverse(self) -> Float[Array, "n n"]:
        """Return A, of which leaving out needs all entries."""
        return linalg.cho_inverse(self.factor)

    def leave_one_out(self, outputs: AbstractOutputs) -> Float[Array, " n"]:
        """Form all entries of A."""
        inverse = self.inverse()
        residuals = inverse / jnp.diagonal(inverse)[:, None]
        return jnp.sum((residuals @ outputs.gram()) * residuals, axis=1)

    def evidence_terms(self, outputs: AbstractOutputs) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Take both from the Cholesky factor."""
        trace = jnp.trace(linalg.cho_solve(self.factor, outputs.gram()))
        return 2 * linalg.half_log_determinant(self.factor), trace


class FeatureRidge(AbstractRidge):
    """C by features, at most as many as inputs."""

    features: Float[Array, "n q"]
    value: Float[Array, ""]
    multiplicity: Float[Array, " n"]
    factor: Float[Array, "q q"]

    @classmethod
    def create(cls, features: Float[Array, "n q"], value: Any, multiplicity: Any = None) -> FeatureRidge:
        r"""Factorise M.

        Args:
            features: :math:`\Phi`, (n, q).
            value: The ridge c, at least 0.
            multiplicity: r, (n,), or None for once each.

        Returns:
            The system.

        Raises:
            kpp.linalg.FactorizationError: If M is concrete and not positive definite.
        """
        value = jnp.asarray(value, dtype=features.dtype)
        ones = jnp.ones(features.shape[0], dtype=features.dtype)
        multiplicity = ones if multiplicity is None else multiplicity.astype(features.dtype)
        matrix = linalg.add_diagonal(features.T @ (multiplicity[:, None] * features), value)
        return cls(features, value, multiplicity, linalg.cholesky(matrix, what=_WHAT))

    def weights(self, features: Float[Array, "p q"]) -> Float[Array, "n p"]:
        r"""Return :math:`C^{-1} l(Y, y) = R \Phi M^{-1} \phi(y)` from :math:`\phi(y)`, one row a query."""
        return self._weighted() @ linalg.cho_solve(self.factor, features.T)

    def solve(self, b: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
        """Use Woodbury's identity."""
        explained = self.features @ linalg.cho_solve(self.factor, self._weighted().T @ b)
        multiplicity = self.multiplicity.reshape(-1, *(1,) * (b.ndim - 1))
        return multiplicity * (b - explained) / self.value

    def leave_one_out(self, outputs: AbstractOutputs) -> Float[Array, " n"]:
        r"""Use that row i of A is :math:`e_i - s_i^\top \Phi^\top R` up to a factor, with :math:`s_i = M^{-1} \phi_i`.

        What the subtractions round off is divided by :math:`(c A_{ii} / r_i)^2`, at least :math:`(c / (c + r_i l(y_i,
        y_i)))^2`.
        """
        sections = linalg.cho_solve(self.factor, self.features.T).T
        diagonal, product = outputs.moments(self._weighted())
        leverage = self.multiplicity * jnp.sum(sections * self.features, axis=1)
        explained = jnp.sum(sections * (sections @ (self._weighted().T @ product)), axis=1)
        squares = diagonal - 2 * jnp.sum(sections * product, axis=1) + explained
        return jnp.maximum(squares, 0.0) / (1 - leverage) ** 2

    def evidence_terms(self, outputs: AbstractOutputs) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Use the matrix determinant lemma and Woodbury's identity."""
        n, q = self.features.shape
        determinant = 2 * linalg.half_log_determinant(self.factor) + (n - q) * jnp.log(self.value)
        diagonal, product = outputs.moments(self._weighted())
        explained = jnp.trace(linalg.cho_solve(self.factor, self._weighted().T @ product))
        trace = (jnp.dot(self.multiplicity, diagonal) - explained) / self.value
        return determinant - jnp.sum(jnp.log(self.multiplicity)), trace

    def _weighted(self) -> Float[Array, "n q"]:
        return self.multiplicity[:, None] * self.features
