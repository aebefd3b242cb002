"""The kernel of functions whose expectation given spouses and parents is replaced by that given the parents alone."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.kernels import AbstractKernel, Projected
from kpp.kernels.toolkit import AbstractBatchKernel, Unprojected
from kpp.linalg.toolkit import DenseRidge
from kpp.typing import AnyArray

Section = AnyArray | Unprojected


class Reconditioned(AbstractBatchKernel):
    r"""The kernel of :math:`P' g`, where :math:`P'` projects onto the functions that obey a constraint with parents.

    .. math:: P' g(x) = g(x) - \hat E[g(X) \mid C = c] + \hat E[g(X) \mid X_3 = x_3], \qquad
        \hat E[g(X) \mid x_3] = \sum_j v_j(x_3)\, g(x_{u,j}), \quad
        v(x_3) = (K_0(X_u, X_u) + n' \gamma I)^{-1} k_0(X_u, x_3)

    With exact expectations :math:`E[P' g(X) \mid C]` depends on :math:`X_3` only. At `Unprojected` points the kernel
    means g itself. Time is cubic in the number n' of rows of the sample.
    """

    projected: Projected  # of P g, without landmarks; X_u and gamma are its sample and its regularization
    parent_kernel: AbstractKernel  # k_0, a kernel of all columns that reads the parents

    def __call__(self, x1: Section, x2: Section) -> Float[Array, "n1 n2"]:
        return self._inner(x1, self._weights(x1), x2, self._weights(x2))

    def gram(self, x: Section) -> Float[Array, "n n"]:
        weights = self._weights(x)
        return self._inner(x, weights, x, weights)

    def diagonal(self, x: Section) -> Float[Array, " n"]:
        weights, values = self._weights(x), self.projected.diagonal(x)
        if weights is None:
            return values
        sample = self._sample
        added = 2 * self.projected(sample, x) + self.projected.gram(sample) @ weights  # of 2 Cov(a, b) + Var b
        return values + jnp.sum(weights * added, axis=0)

    @property
    def _sample(self) -> Unprojected:
        return Unprojected(self.projected.points)

    def _weights(self, x: Section) -> Float[Array, "n p"] | None:
        """Return v, or None where nothing is added."""
        if isinstance(x, Unprojected):
            return None
        points = self.projected.points
        ridge = points.shape[0] * self.projected.regularization
        what = "the matrix of the kernel of the parents plus n * regularization * I"
        return DenseRidge.create(self.parent_kernel.gram(points), ridge, what=what).solve(self.parent_kernel(points, x))

    def _inner(self, x1: Section, first: Array | None, x2: Section, second: Array | None) -> Float[Array, "n1 n2"]:
        matrix, sample = self.projected(x1, x2), self._sample
        if second is not None:
            matrix = matrix + self.projected(x1, sample) @ second
        if first is None:
            return matrix
        sections = self.projected(sample, x2)
        if second is not None:
            sections = sections + self.projected.gram(sample) @ second
        return matrix + first.T @ sections  # Cov of P g + v^T g(X_u) at both points
