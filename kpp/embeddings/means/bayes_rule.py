"""Kernel Bayes' rule: the embedding of a posterior, from the embedding of a prior and a sample of the likelihood."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.embeddings.means.conditional import ConditionalMeanEmbedding
from kpp.embeddings.means.embedding import AbstractEmpiricalEmbedding
from kpp.features import AbstractFeatureKernel
from kpp.foundation.validation import as_finite_array, check_same_rows, finite_arrays
from kpp.kernels import RBF, AbstractKernel, parameter
from kpp.kernels.toolkit import check_positive
from kpp.typing import Leaf, Numbers, Points, RngKey


class KernelBayesRule(AbstractEmpiricalEmbedding):
    r"""The embedding of the posterior of X given Y = y, for a prior of X that need not be the law of the sample.

    The likelihood is the conditional distribution of Y given X in a sample of pairs :math:`(x_i, y_i)`, and the prior
    is embedded as :math:`\hat\mu_\pi = \sum_j \gamma_j\, k(u_j, \cdot)`. With the kernel matrices K of the :math:`x_i`
    and L of the :math:`y_i`,

    .. math::

        \hat\mu_{X|y} = \sum_{i=1}^n w_i(y)\, k(x_i, \cdot), \qquad
        w(y) = \Lambda L \bigl((\Lambda L)^2 + \delta I\bigr)^{-1} \Lambda\, l(Y, y), \qquad
        \Lambda = \mathrm{diag}(\lambda), \quad
        \lambda = (K + n \varepsilon I)^{-1} \bigl(\hat\mu_\pi(x_i)\bigr)_i

    The :math:`\lambda_i` are the weights of the pairs in the joint distribution with the given prior; they may be
    negative, so that the regularized matrix is squared. The :math:`w_i` may be negative too, and their sum may differ
    from 1. If l has q features (`kpp.features`), a system of size q is solved, and no matrix of all pairs of
    :math:`y_i` is formed.

    The posterior given one observation is the prior of the next one with `points` as `prior_points` and ``weights(y)``
    as `prior_weights`.

    Args:
        likelihood: The embedding of Y given X, estimated from the pairs. Its `input_kernel` is k, its `kernel` is l and
            its `regularization` is :math:`\varepsilon`, which `select_regularization` chooses.
        prior_points: The m points :math:`u_j`: an array (m, d), or a batch of inputs of k.
        prior_weights: :math:`\gamma`, (m,); by default 1/m each, for a sample of the prior.
        regularization: :math:`\delta`, positive. It is compared with squared eigenvalues of the covariance operator of
            Y and is not multiplied by n.

    Raises:
        ValueError: If the regularization is not positive, there are no points, or the numbers of points and weights
            differ.

    References:
        Fukumizu, Song and Gretton, Kernel Bayes' rule: Bayesian inference with positive definite kernels, 2013:
        the estimator of the posterior from weighted points of the prior and pairs, with the squared regularization.
    """

    likelihood: ConditionalMeanEmbedding
    prior_points: Points
    regularization: Leaf
    prior_weights: Float[Array, " m"]

    def __init__(
        self,
        likelihood: ConditionalMeanEmbedding,
        prior_points: Points,
        regularization: Leaf,
        prior_weights: Numbers | None = None,
    ) -> None:
        self.likelihood = likelihood
        self.prior_points = finite_arrays(prior_points, "prior_points")
        self.prior_weights = _weights(prior_weights, jax.tree.leaves(self.prior_points)[0])
        self.regularization = parameter("regularization")(regularization)

    def __check_init__(self) -> None:
        check_positive(self.regularization, "regularization", infinity_allowed=False)

    @property  # type: ignore[misc]  # Equinox lets a property stand for an AbstractVar
    def kernel(self) -> AbstractKernel:  # type: ignore[override]
        """The kernel k of X."""
        return self.likelihood.input_kernel

    @property  # type: ignore[misc]
    def points(self) -> Points:
        """The :math:`x_i`."""
        return self.likelihood.inputs

    @property
    def inputs(self) -> Points:
        """The :math:`y_i`, values of the condition."""
        return self.likelihood.points

    def pair_weights(self) -> Float[Array, " n"]:
        r"""Return the weights of the pairs in the joint distribution with the given prior, :math:`\lambda`.

        They are also the weights of the :math:`y_i` in the embedding of the distribution of Y under the prior (the
        kernel sum rule).
        """
        return self.likelihood.weights(self.prior_points) @ self.prior_weights

    def weights(self, query: Points | None = None) -> Float[Array, "n p"]:
        """Return the weights w(y) of the points in the posterior, (n, p), given p values of Y."""
        if query is None:
            raise ValueError("`query` must hold values of the condition, one row each, got None")
        kernel, masses = self.likelihood.kernel, self.pair_weights()[:, None]
        if not isinstance(kernel, AbstractFeatureKernel):
            # Masses may be negative: the matrix has no Cholesky factor.
            return self._solve(masses * kernel.gram(self.inputs), masses * kernel(self.inputs, query))
        features = kernel.feature_map(self.inputs)
        return masses * (features @ self._solve(features.T @ (masses * features), kernel.feature_map(query).T))

    def _solve(self, operator: Float[Array, "q q"], target: Float[Array, "q p"]) -> Float[Array, "q p"]:
        r"""Return :math:`A (A^2 + \delta I)^{-1} b`, the real part of :math:`(A + i \sqrt\delta I)^{-1} b`."""
        shift = 1j * jnp.sqrt(self.regularization) * jnp.eye(len(operator), dtype=operator.dtype)
        # A^2 would have the square of the condition number of A.
        return jnp.linalg.solve(operator + shift, target.astype(shift.dtype)).real

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[KernelBayesRule, Any]]:
        x, y = jax.random.normal(rng_key, (6, 2)), jax.random.normal(rng_key, (6, 1)) + 0.3
        likelihood = ConditionalMeanEmbedding(
            kernel=RBF(1.2), input_kernel=RBF(jnp.array([0.8, 1.5])), inputs=x, points=y, regularization=0.01
        )
        yield cls(likelihood, x[:4] + 0.1, 0.01, jnp.array([0.4, 0.3, 0.4, -0.1])), y[:3] - 0.2


def _weights(weights: Numbers | None, points: Array) -> Float[Array, " m"]:
    """Return the weights of the points of a prior, equal ones for None."""
    if points.shape[:1] in ((), (0,)):
        raise ValueError(f"`prior_points` must hold at least one point, got an array of shape {points.shape}")
    if weights is None:
        return jnp.full(len(points), 1.0 / len(points))
    weights = as_finite_array(weights, "prior_weights")
    if weights.ndim != 1:
        raise ValueError(f"`prior_weights` must have shape (m,), one weight per point, got shape {weights.shape}")
    check_same_rows(len(points), len(weights), "prior_points", "prior_weights")
    return weights
