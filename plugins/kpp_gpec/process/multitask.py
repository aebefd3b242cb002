r"""Processes of explanations with correlated features: a prior covariance of features times one of points."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from kpp import linalg
from kpp.foundation.validation import warn_if_float32
from kpp.kernels import AbstractKernel
from kpp.typing import AnyArray
from kpp_gpec.process.explanation_process import (
    AbstractExplanationProcess,
    ExplanationProcess,
    ProcessLaw,
    feature_covariance,
)
from kpp_gpec.process.low_rank import LowRankMultitaskProcess, LowRankProcess

#: The largest size of the factor, which has the square of this number of entries.
MAX_SIZE = 8000

# The share of the identity in estimated correlations, which keeps them invertible.
_SHRINKAGE = 1e-6


class MultitaskProcess(AbstractExplanationProcess):
    r"""The explanations of D features as one Gaussian process, given those of N points.

    .. math::

        \mathrm{Cov}[f_d(x), f_e(x')] = B_{de}\, k(x, x'), \qquad
        E_{nd} = f_d(x_n) + \varepsilon_{nd}, \quad \varepsilon_{nd} \sim N(0, U_{nd})

    with :math:`B_{de} = s_d s_e R_{de}`. At p points, (p, d), `predict` returns a law of NumPy arrays (p, D) with the
    covariance (p, D, D) of the features,

    .. math:: \Sigma = k_{**} B - (B \otimes k_*) (B \otimes K + \mathrm{diag}(U))^{-1} (B \otimes k_*)^\top

    Without noise it would be :math:`(k_{**} - k_* K^{-1} k_*^\top) B`: then features give no information about each
    other.

    Args:
        kernel, points, values, noise, variance, correlations: As for `AbstractExplanationProcess`.
        noiseless_factor: The Cholesky factor of K, (N, N).
        factor: The Cholesky factor of :math:`B \otimes K + \mathrm{diag}(U)`, (D N, D N), with features as the outer
            index.
        coefficients: The solution with E, (D, N).

    References:
        Hill et al., 2024, appendix C.4; Alvarez, Rosasco and Lawrence, Kernels for vector-valued functions, 2012.
    """

    block_size: ClassVar[int] = 32

    correlations: Float[Array, "D D"]
    noiseless_factor: Float[Array, "N N"]
    factor: Float[Array, "DN DN"]
    coefficients: Float[Array, "D N"]

    @property
    def covariance(self) -> Float[Array, "D D"]:
        """The prior covariance of the features, B."""
        return feature_covariance(self.variance, self.correlations)

    @eqx.filter_jit
    def predict_block(self, x: AnyArray) -> ProcessLaw:
        x = jnp.asarray(x)
        cross, prior = self.kernel(x, self.points), self.kernel.diagonal(x)
        covariance = self.covariance
        mean = (cross @ self.coefficients.T) @ covariance

        def explained(row: Array) -> Float[Array, "D D"]:
            whitened = linalg.solve_lower(self.factor, jnp.kron(covariance, row[:, None]))
            return whitened.T @ whitened

        left = prior[:, None, None] * covariance[None] - jax.vmap(explained)(cross)
        variance = jnp.maximum(jnp.diagonal(left, axis1=1, axis2=2), 0.0)
        unit = prior - jnp.sum(linalg.solve_lower(self.noiseless_factor, cross.T) ** 2, axis=0)
        noiseless = jnp.clip(unit[:, None] * self.variance[None, :], 0.0, variance)
        return ProcessLaw(mean, variance, noiseless, left)

    def log_evidence(self) -> Float[Array, ""]:
        r"""Return :math:`\log p(E)`, of all features together."""
        target = self.values.T.ravel()
        whitened = linalg.solve_lower(self.factor, target)
        constant = 0.5 * target.size * jnp.log(2 * jnp.pi)
        return -0.5 * jnp.sum(whitened**2) - linalg.half_log_determinant(self.factor) - constant


def condition(
    kernel: AbstractKernel,
    points: ArrayLike,
    values: ArrayLike,
    noise: ArrayLike,
    variance: ArrayLike,
    correlations: ArrayLike | None = None,
    num_inducing: int | None = None,
) -> AbstractExplanationProcess:
    """Condition processes on explanations: one per feature, or with correlations one for all features.

    Args:
        kernel: The kernel, without priors.
        points: (N, d).
        values: (N, D).
        noise: (N, D), at least 0.
        variance: (D,), positive.
        correlations: (D, D), or None for independent features.
        num_inducing: The number of inducing points, or None for the exact process. There are at most as many as points.

    Raises:
        ValueError: If correlations are given and the points, or inducing points, times the features are more than
            `MAX_SIZE`, if independent features take more than `MAX_ENTRIES` numbers, or if there are inducing points
            and a noise variance is 0.
        FactorizationError: If a matrix cannot be factorized even with the largest jitter of `kpp.linalg`.
    """
    num_points, num_features = np.shape(values)
    used = num_points if num_inducing is None else min(num_inducing, num_points)
    if correlations is None:
        if num_inducing is not None:
            return LowRankProcess.condition(kernel, points, values, noise, variance, None, used)
        return ExplanationProcess.condition(kernel, points, values, noise, variance)
    if used * num_features > MAX_SIZE:
        raise ValueError(
            f"features that vary together take a matrix of (points * features)^2 entries, at most {MAX_SIZE}^2, got "
            f"{used} points with {num_features} features; give a `num_inducing` of at most {MAX_SIZE // num_features}"
        )
    if num_inducing is not None:
        return LowRankMultitaskProcess.condition(kernel, points, values, noise, variance, correlations, used)
    warn_if_float32("MultitaskProcess")
    arrays = (jnp.asarray(array, jnp.result_type(float)) for array in (points, values, noise, variance, correlations))
    points, values, noise, variance, correlations = arrays
    gram, matrix, factor, noiseless, coefficients = _condition(kernel, points, values, noise, variance, correlations)
    linalg.check_factor(factor, matrix, what="the covariance matrix of all explanations")
    linalg.check_factor(noiseless, gram, what="the kernel matrix of the explained points")
    return MultitaskProcess(kernel, points, values, noise, variance, correlations, noiseless, factor, coefficients)


def estimate_correlations(values: Float[AnyArray, "N D"]) -> Float[np.ndarray, "D D"]:
    r"""Return the correlations of the features' explanations E around their prior mean, zero.

    .. math:: R_{de} = \frac{\sum_n E_{nd} E_{ne}}{\sqrt{\sum_n E_{nd}^2\, \sum_n E_{ne}^2}}

    They are shrunk by a millionth towards the identity; those of a feature that is always 0 are 0.
    """
    values = np.asarray(values, dtype=float)
    lengths = np.linalg.norm(values, axis=0)
    scaled = values / np.where(lengths > 0, lengths, 1.0)
    correlations = (1.0 - _SHRINKAGE) * scaled.T @ scaled  # around the prior mean 0, so not those of `np.corrcoef`
    np.fill_diagonal(correlations, 1.0)
    return correlations


@eqx.filter_jit
def _condition(
    kernel: AbstractKernel, points: Array, values: Array, noise: Array, variance: Array, correlations: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """Return K, the covariance of all explanations, the factors of the latter and of K, and the solution."""
    gram = kernel.gram(points)
    prior = jnp.kron(feature_covariance(variance, correlations), gram)
    matrix = linalg.add_diagonal(prior, noise.T.ravel())
    factor = linalg.cholesky(matrix)
    coefficients = linalg.cho_solve(factor, values.T.ravel()).reshape(values.shape[::-1])
    return gram, matrix, factor, linalg.cholesky(gram), coefficients
