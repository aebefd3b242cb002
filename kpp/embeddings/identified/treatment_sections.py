"""The elements that represent interventions on a treatment, as sections of the treatment's kernel."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp import linalg
from kpp.kernels import AbstractKernel
from kpp.typing import Points


class Intervention(eqx.Module):
    r"""The elements of interventions, as sections of the treatment's kernel.

    .. math::

        \langle \varphi_i, \varphi(x) \rangle = a_i\, \bigl(M w(x)\bigr)_i, \qquad
        \langle \varphi(x), \varphi(x') \rangle = b\, w(x)^\top M w(x'), \qquad w(x) = (K + c I)^{-1} k(X, x)

    for the front door. The other adjustments have :math:`w(x) = k(X, x)` and M = I in the first equation, and k(x, x')
    instead of the quadratic form in the second. `AbstractAdjustment.intervention` builds it once, so that matrix
    factors are shared.

    Args:
        treatment_kernel: k.
        treatment: X, n rows.
        rows: a, (n,).
        level: b, a scalar.
        gram: M, the mediators' kernel matrix (n, n); None without mediators.
        factor: The Cholesky factor of :math:`K + c I`, (n, n); None without mediators.
    """

    treatment_kernel: AbstractKernel
    treatment: Points
    rows: Float[Array, " n"]
    level: Float[Array, ""]
    gram: Float[Array, "n n"] | None = None
    factor: Float[Array, "n n"] | None = None

    def cross(self, query: Points) -> Float[Array, "n p"]:
        r"""Return :math:`\Phi`, the inner products of the samples' elements with the elements of p treatments.

        Args:
            query: The p treatments, with the columns of the sample's treatments.
        """
        weights = self._weights(query)
        return self.rows[:, None] * (weights if self.gram is None else self.gram @ weights)

    def prior(self, query: Points, other: Points) -> Float[Array, "p other_p"]:
        """Return F, the inner products of the elements of p treatments with the elements of p' treatments.

        Args:
            query: The p treatments.
            other: The p' treatments.
        """
        if self.gram is None:
            return self.level * self.treatment_kernel(query, other)
        return self.level * (self._weights(query).T @ self.gram @ self._weights(other))

    def sections(self) -> tuple[Float[Array, "n n"], Float[Array, ""], Float[Array, "n n"]]:
        r"""Return the same inner products as matrices on sections of the treatment's kernel.

        .. math:: \Phi = S\, k(X, x), \qquad F = f_0\, k(x, x') + k(x, X)\, F_1\, k(X, x')

        Returns:
            S (n, n), :math:`f_0`, a scalar, and :math:`F_1` (n, n).
        """
        if self.gram is None or self.factor is None:
            return jnp.diag(self.rows), self.level, jnp.zeros((self.rows.shape[0],) * 2, dtype=self.rows.dtype)
        solved = linalg.cho_solve(self.factor, self.gram)
        inner = self.level * linalg.cho_solve(self.factor, solved.T)
        return self.rows[:, None] * solved.T, jnp.zeros_like(self.level), (inner + inner.T) / 2

    def _weights(self, query: Points) -> Float[Array, "n p"]:
        sections = self.treatment_kernel(self.treatment, query)
        return sections if self.factor is None else linalg.cho_solve(self.factor, sections)
