r"""Processes of explanations with correlated features in low rank: inducing points in place of all explained points.

With features :math:`k(x, x') \approx \phi(x)^\top \phi(x')` of m inducing points and the root :math:`B = L L^\top`,
one system of D m equations replaces that of D N. It is a sum of D Kronecker products, so that no matrix with D N rows
is formed.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from kpp import linalg
from kpp.features import Nystrom, landmarks
from kpp.foundation.validation import warn_if_float32
from kpp.kernels import AbstractKernel
from kpp.typing import AnyArray
from kpp_gpec.process.explanation_process import (
    AbstractExplanationProcess,
    ProcessLaw,
    feature_covariance,
    in_blocks_of_points,
)

# The number of points that are predicted at a time.
_BLOCK = 32


class LowRankMultitaskProcess(AbstractExplanationProcess):
    r"""The explanations of D features as one Gaussian process, given those of N points, through m inducing points.

    .. math::

        f_d(x) = \sum_e L_{de}\, \phi(x)^\top w_e + r_d(x), \quad w \sim N(0, I), \qquad
        r_d(x) \sim N\bigl(0, B_{dd}\, (k(x, x) - |\phi(x)|^2)\bigr)

    The remainders r at explained points are independent (FITC), so that variances are not too small between inducing
    points; at a new point their covariance is that of the prior. With all explained points as inducing points the
    process equals `MultitaskProcess`.

    Args:
        kernel, points, values, noise, variance, correlations, noiseless_factor: As for `AbstractExplanationProcess`.
        features: Nyström's approximation of the kernel k with the inducing points.
        root: L, (D, D).
        factor: The Cholesky factor of :math:`I + (L \otimes \Phi)^\top \Lambda^{-1} (L \otimes \Phi)`, (D m, D m), with
            features as the outer index and the variances :math:`\Lambda` of noise and remainders.
        coefficients: The means of the weights w, (D, m).

    References:
        Snelson and Ghahramani, Sparse Gaussian processes using pseudo-inputs, 2006, equations (9) to (14); Bonilla,
        Chai and Williams, Multi-task Gaussian process prediction, 2008, for the prior.
    """

    features: Nystrom
    root: Float[Array, "D D"]
    factor: Float[Array, "Dm Dm"]
    coefficients: Float[Array, "D m"]

    @property
    def num_inducing(self) -> int:
        """The number of inducing points."""
        return int(self.features.landmarks.shape[0])

    @classmethod
    def condition(
        cls,
        kernel: AbstractKernel,
        points: ArrayLike,
        values: ArrayLike,
        noise: ArrayLike,
        variance: ArrayLike,
        correlations: ArrayLike,
        num_inducing: int,
    ) -> LowRankMultitaskProcess:
        """Condition the process on explanations, with inducing points by herding; see `kpp_gpec.condition`."""
        warn_if_float32("LowRankMultitaskProcess")
        if np.asarray(noise, float).min() <= 0:
            raise ValueError(
                "`num_inducing` needs noise of positive variance in every explanation, got 0; give `noise` or "
                "`min_noise_variance`"
            )
        arrays = (jnp.asarray(array, jnp.result_type(float)) for array in (points, values, noise, variance))
        points, values, noise, variance = arrays
        chosen = landmarks(points, num_inducing, kernel=kernel).points
        features, correlations = Nystrom(kernel, chosen), jnp.asarray(correlations, points.dtype)
        prior = feature_covariance(variance, correlations)
        root = linalg.cholesky(prior)
        linalg.check_factor(root, prior, what="the prior covariance of the features")
        gram, matrix, factor, noiseless, coefficients = _condition(features, points, values, noise, root)
        linalg.check_factor(factor, matrix, what="the precision of the weights of the inducing points")
        linalg.check_factor(noiseless, gram, what="the kernel matrix of the explained points")
        data = points, values, noise, variance, correlations, noiseless
        return cls(kernel, *data, features, root, factor, coefficients)

    def predict(self, x: ArrayLike) -> ProcessLaw:
        r"""Predict the explanations of points, with the covariance of the features.

        .. math:: \Sigma = (k_{**} - |\phi_*|^2)\, B + (L \otimes \phi_*)^\top A^{-1} (L \otimes \phi_*)

        with the matrix A that `factor` factorizes. The noiseless variance is that of all explained points.

        Args:
            x: p points, (p, d).

        Returns:
            The law, of NumPy arrays (p, D), its covariance (p, D, D).
        """
        return in_blocks_of_points(lambda rows: _predict(self, rows), x, _BLOCK)

    def log_evidence(self) -> Float[Array, ""]:
        r"""Return :math:`\log p(E)`, of all features together."""
        return _log_evidence(self)


def _precisions(features: Nystrom, phi: Array, points: Array, noise: Array, root: Array) -> Float[Array, "N D"]:
    r"""Return :math:`\Lambda^{-1}`, of noise and remainders."""
    left = jnp.maximum(features.kernel.diagonal(points) - jnp.sum(phi**2, axis=1), 0.0)  # of FITC
    return 1 / (noise + left[:, None] * jnp.sum(root**2, axis=1)[None, :])


@eqx.filter_jit
def _condition(
    features: Nystrom, points: Array, values: Array, noise: Array, root: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """Return K, the precision of the weights, the factors of both, and the means of the weights."""
    phi, gram = features.feature_map(points), features.kernel.gram(points)
    precisions = _precisions(features, phi, points, noise, root)
    size = root.shape[0] * phi.shape[1]

    def add(total: Array, column: tuple[Array, Array]) -> tuple[Array, None]:
        row, precision = column
        return total + jnp.kron(row[:, None] * row[None, :], (phi.T * precision[None, :]) @ phi), None

    matrix, _ = jax.lax.scan(add, jnp.eye(size, dtype=phi.dtype), (root, precisions.T))
    factor = linalg.cholesky(matrix)
    target = (root.T @ (precisions * values).T @ phi).ravel()
    coefficients = linalg.cho_solve(factor, target).reshape(root.shape[0], -1)
    return gram, matrix, factor, linalg.cholesky(gram), coefficients


@eqx.filter_jit
def _predict(process: LowRankMultitaskProcess, x: AnyArray) -> ProcessLaw:
    x = jnp.asarray(x)
    root, phi, prior = process.root, process.features.feature_map(x), process.kernel.diagonal(x)
    covariance = root @ root.T

    def remaining(row: Array) -> Array:
        whitened = linalg.solve_lower(process.factor, jnp.kron(root.T, row[:, None]))
        return whitened.T @ whitened

    rest = jnp.maximum(prior - jnp.sum(phi**2, axis=1), 0.0)
    left = rest[:, None, None] * covariance[None] + jax.lax.map(remaining, phi)
    variance = jnp.diagonal(left, axis1=1, axis2=2)
    noiseless = jnp.minimum(process.noiseless_variance(process.kernel(x, process.points), prior), variance)
    return ProcessLaw((phi @ process.coefficients.T) @ root.T, variance, noiseless, left)


@eqx.filter_jit
def _log_evidence(process: LowRankMultitaskProcess) -> Float[Array, ""]:
    phi, root = process.features.feature_map(process.points), process.root
    precisions = _precisions(process.features, phi, process.points, process.noise, root)
    target = (root.T @ (precisions * process.values).T @ phi).ravel()
    squares = jnp.sum(precisions * process.values**2) - jnp.sum(linalg.solve_lower(process.factor, target) ** 2)
    determinant = linalg.half_log_determinant(process.factor) - 0.5 * jnp.sum(jnp.log(precisions))
    return -0.5 * squares - determinant - 0.5 * process.values.size * jnp.log(2 * jnp.pi)
