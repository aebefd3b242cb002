r"""Adjustments: estimation of an intervention from samples of the observed distribution.

An interventional embedding is a regression of sections :math:`k(y_i, \cdot)` on elements :math:`\varphi_i` of a space.
The element :math:`\varphi_i` represents the treatment of sample i together with its covariates or mediators. An
intervention that sets the treatment to x is represented by :math:`\varphi(x)`, an average over covariates or mediators.
Only inner products are needed: among the samples' elements, between them and :math:`\varphi(x)`, and among the elements
of interventions.
"""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp import linalg
from kpp.foundation.validation import check_same_rows, finite_arrays
from kpp.kernels import AbstractKernel, check_non_negative, parameter
from kpp.storage.serialization import data_class
from kpp.typing import Leaf, Points


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


class AbstractAdjustment(eqx.Module):
    r"""A method to estimate an intervention from samples of the observed distribution.

    Subclasses define `gram` and `intervention`. Law: for the samples' elements :math:`\varphi_i` and the treatments'
        elements :math:`\varphi(x)`, the three matrices are the blocks of one positive semi-definite Gram matrix.
    """

    @abc.abstractmethod
    def gram(self, treatment_kernel: AbstractKernel, treatment: Points) -> Float[Array, "n n"]:
        r"""Return :math:`K_\Omega`, the inner products of the samples' elements.

        Args:
            treatment_kernel: The kernel of the treatment.
            treatment: X, the n treatments of the sample.

        Returns:
            The matrix, (n, n).
        """

    @abc.abstractmethod
    def intervention(self, treatment_kernel: AbstractKernel, treatment: Points) -> Intervention:
        """Return the elements of interventions, with the matrix factors that they need.

        Args:
            treatment_kernel: The kernel of the treatment.
            treatment: X, the n treatments of the sample.

        Returns:
            The elements; their methods `cross`, `prior` and `sections` do not factorize again.
        """

    def check_rows(self, num_samples: int) -> None:
        """Raise ValueError if the covariates or mediators do not have as many rows as the treatments."""


@data_class
class NoAdjustment(AbstractAdjustment):
    r"""No adjustment: the conditional distribution of the outcome is the interventional one.

    .. math:: K_\Omega = K_{XX}, \qquad \Phi(x) = k(X, x), \qquad F(x, x') = k(x, x')
    """

    def gram(self, treatment_kernel: AbstractKernel, treatment: Points) -> Float[Array, "n n"]:
        return treatment_kernel.gram(treatment)

    def intervention(self, treatment_kernel: AbstractKernel, treatment: Points) -> Intervention:
        dtype = jax.tree.leaves(treatment)[0].dtype
        return Intervention(
            treatment_kernel, treatment, jnp.ones(num_rows(treatment), dtype=dtype), jnp.ones((), dtype=dtype)
        )


@data_class
class BackDoor(AbstractAdjustment):
    r"""Adjustment for covariates z that block every back-door path from the treatment to the outcome.

    :math:`p(y | do(x)) = \int p(y | x, z)\, p(z)\, dz`: the regression is on (x, z), and its prediction is averaged
    over the sample of z.

    .. math::

        K_\Omega = K_{XX} \odot K_{ZZ}, \qquad \Phi(x) = k(X, x) \odot \tfrac1n K_{ZZ} 1, \qquad
        F(x, x') = k(x, x')\, \tfrac1{n^2} 1^\top K_{ZZ} 1

    A query (p, n, d) holds p policies, each a treatment of every row: :math:`p(y | do(\pi)) = \int p(y | \pi(z), z)\,
    p(z)\, dz`. Then

    .. math:: \Phi_i(\pi) = \tfrac1n \sum_j k(x_i, \pi_j)\, k(z_i, z_j), \qquad
        F(\pi, \pi') = \tfrac1{n^2} \sum_{ij} k(\pi_i, \pi'_j)\, k(z_i, z_j).

    Args:
        kernel: The kernel of the covariates.
        covariates: Z, n rows in the order of the treatments: an array (n, d), or a batch of inputs of `kernel`.

    References:
        Pearl, Causality, 2009, theorem 3.3.2; Singh, Xu and Gretton, Kernel methods for causal functions, 2020; Chau,
        Ton, Gonzalez, Teh and Sejdinovic, BayesIMP, 2021, equation (4). For policies: Muandet, Kanagawa, Saengkyongam
        and Marukatat, Counterfactual mean embeddings, 2021; Martinez-Taboada and Sejdinovic, Bayesian counterfactual
        mean embeddings and off-policy evaluation, 2022.
    """

    kernel: AbstractKernel
    covariates: Points

    def __init__(self, kernel: AbstractKernel, covariates: Points) -> None:
        self.kernel = kernel
        self.covariates = finite_arrays(covariates, "covariates")

    def check_rows(self, num_samples: int) -> None:
        check_same_rows(num_samples, num_rows(self.covariates), "treatment", "covariates")

    def gram(self, treatment_kernel: AbstractKernel, treatment: Points) -> Float[Array, "n n"]:
        self.check_rows(num_rows(treatment))
        return treatment_kernel.gram(treatment) * self.kernel.gram(self.covariates)

    def intervention(self, treatment_kernel: AbstractKernel, treatment: Points) -> Intervention:
        """Return the sections of the kernel, multiplied by means over the covariates."""
        self.check_rows(num_rows(treatment))
        gram = self.kernel.gram(self.covariates)
        means = jnp.mean(gram, axis=1)
        # 1^T K_ZZ 1 / n^2 of F, not the paper's inner product of columns of Phi, which grows with n.
        return Intervention(treatment_kernel, treatment, means, jnp.mean(means), covariates=gram)


@data_class
class FrontDoor(AbstractAdjustment):
    r"""Adjustment by mediators z that transmit the whole effect of the treatment and share no hidden cause with it.

    :math:`p(y | do(x)) = \int p(z | x) \int p(y | x', z)\, p(x')\, dx'\, dz`: the regression is on (x, z), the
    treatment is averaged over its sample, and z is replaced by its conditional mean embedding given x.

    .. math::

        K_\Omega = K_{XX} \odot K_{ZZ}, \qquad \Phi(x) = \tfrac1n K_{XX} 1 \odot K_{ZZ} w(x), \qquad
        F(x, x') = \tfrac1{n^2} 1^\top K_{XX} 1\; w(x)^\top K_{ZZ}\, w(x'), \qquad
        w(x) = (K_{XX} + n \lambda I)^{-1} k(X, x)

    Args:
        kernel: The kernel of the mediators.
        mediators: Z, n rows in the order of the treatments: an array (n, d), or a batch of inputs of `kernel`.
        regularization: :math:`\lambda` of the mediators' embedding, at least 0; it is multiplied by n.

    References:
        Pearl, Causality, 2009, theorem 3.3.4; Singh, Xu and Gretton, Kernel methods for causal functions, 2020; Chau,
        Ton, Gonzalez, Teh and Sejdinovic, BayesIMP, 2021, equation (5).
    """

    kernel: AbstractKernel
    mediators: Points
    regularization: Leaf

    def __init__(self, kernel: AbstractKernel, mediators: Points, regularization: Leaf) -> None:
        self.kernel = kernel
        self.mediators = finite_arrays(mediators, "mediators")
        self.regularization = parameter("regularization")(regularization)

    def __check_init__(self) -> None:
        check_non_negative(self.regularization, "regularization")

    def check_rows(self, num_samples: int) -> None:
        check_same_rows(num_samples, num_rows(self.mediators), "treatment", "mediators")

    def gram(self, treatment_kernel: AbstractKernel, treatment: Points) -> Float[Array, "n n"]:
        self.check_rows(num_rows(treatment))
        return treatment_kernel.gram(treatment) * self.kernel.gram(self.mediators)

    def intervention(self, treatment_kernel: AbstractKernel, treatment: Points) -> Intervention:
        """Return the mediators' conditional embeddings, multiplied by means over the treatments."""
        self.check_rows(num_rows(treatment))
        gram = treatment_kernel.gram(treatment)
        means = jnp.mean(gram, axis=1)
        ridge = linalg.add_diagonal(gram, gram.shape[0] * self.regularization)
        factor = linalg.cholesky(ridge, what="the regularized kernel matrix of the treatments")
        return Intervention(
            treatment_kernel, treatment, means, jnp.mean(means), self.kernel.gram(self.mediators), factor
        )


def num_rows(batch: Points) -> int:
    """Return the number of rows of a batch of points."""
    return jax.tree.leaves(batch)[0].shape[0]


def check_samples(treatment: Points, points: Points, adjustment: AbstractAdjustment) -> None:
    """Check that the sample is not empty, and that outcomes and adjusting variables have as many rows as treatments."""
    if not isinstance(adjustment, AbstractAdjustment):
        raise TypeError(
            "`adjustment` must be NoAdjustment(), BackDoor(kernel, covariates) or FrontDoor(kernel, mediators, "
            f"regularization), got {type(adjustment).__name__}"
        )
    for leaf in jax.tree.leaves((treatment, points)):
        if leaf.shape[:1] in ((), (0,)):
            raise ValueError(f"`treatment` and `points` must hold at least one row, got an array of shape {leaf.shape}")
        check_same_rows(num_rows(treatment), leaf.shape[0], "treatment", "points")
    adjustment.check_rows(num_rows(treatment))
