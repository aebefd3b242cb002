"""The elements that represent interventions on a treatment, as sections of the treatment's kernel."""

from __future__ import annotations

import equinox as eqx
import jax
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

    Without mediators an intervention may be a policy, which sets the treatment of row j to :math:`t_j`:

    .. math::

        \langle \varphi_i, \varphi(\pi) \rangle = \tfrac1n \textstyle\sum_j k(x_i, t_j)\, C_{ij}, \qquad
        \langle \varphi(\pi), \varphi(\pi') \rangle = \tfrac1{n^2} \textstyle\sum_{ij} k(t_i, t'_j)\, C_{ij}.

    Treatments are an array (p, d), and policies an array (p, n, d): they have one more axis than X.

    Args:
        treatment_kernel: k.
        treatment: X, n rows.
        rows: a, (n,).
        level: b, a scalar.
        gram: M, the mediators' kernel matrix (n, n); None without mediators.
        factor: The Cholesky factor of :math:`K + c I`, (n, n); None without mediators.
        covariates: C, the covariates' kernel matrix (n, n); None for ones.
    """

    treatment_kernel: AbstractKernel
    treatment: Points
    rows: Float[Array, " n"]
    level: Float[Array, ""]
    gram: Float[Array, "n n"] | None = None
    factor: Float[Array, "n n"] | None = None
    covariates: Float[Array, "n n"] | None = None

    def cross(self, query: Points) -> Float[Array, "n p"]:
        r"""Return :math:`\Phi`, the inner products of the samples' elements with those of p treatments or policies.

        Args:
            query: The p treatments, with the columns of the sample's treatments, or p policies.

        Raises:
            ValueError: If there are policies and mediators, or not one treatment for each row of the covariates.
        """
        if self._has_policies(query):
            return jax.lax.map(lambda own: self._average(self.treatment, own, axis=1), query).T
        weights = self._weights(query)
        return self.rows[:, None] * (weights if self.gram is None else self.gram @ weights)

    def prior(self, query: Points, other: Points) -> Float[Array, "p other_p"]:
        """Return F, the inner products of the elements of p treatments or policies with those of p' others.

        Args:
            query: The p treatments or policies.
            other: The p' treatments or policies.
        """
        if self._has_policies(query):
            return jax.lax.map(lambda own: jax.lax.map(lambda second: self._average(own, second), other), query)
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

    def _has_policies(self, query: Points) -> bool:
        given, known = jax.tree.leaves(query)[0], jax.tree.leaves(self.treatment)[0]
        if given.ndim == known.ndim:
            return False
        if self.gram is not None or given.ndim != known.ndim + 1:
            raise ValueError(
                f"`query` must hold treatments of {known.ndim} axes, or policies of {known.ndim + 1} axes without "
                f"mediators (front door), got shape {given.shape}"
            )
        if given.shape[2:] != known.shape[1:] or (self.covariates is not None and given.shape[1] != len(known)):
            raise ValueError(
                f"`query` must hold policies of shape {known.shape}, one after the other, got {given.shape}"
            )
        return True

    def _average(self, first: Points, second: Points, axis: int | None = None) -> Array:
        sections = self.treatment_kernel(first, second)
        return jnp.mean(sections if self.covariates is None else sections * self.covariates, axis=axis)

    def _weights(self, query: Points) -> Float[Array, "n p"]:
        sections = self.treatment_kernel(self.treatment, query)
        return sections if self.factor is None else linalg.cho_solve(self.factor, sections)
