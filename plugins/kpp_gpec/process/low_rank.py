r"""Processes of explanations in low rank: inducing points in place of all explained points.

Kernel features of m inducing points, :math:`k(x, x') \approx \phi(x)^\top \phi(x')`, replace the N points, so that time
and memory are linear in N. Independent features take D systems of m equations. Correlated features, with the root
:math:`B = L L^\top`, take one system of D m equations, a sum of D Kronecker products. The variance that the inducing
points do not explain is that of FITC: remainders at explained points are independent.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

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
)

_WHAT = "the precision of the weights of the inducing points"


class AbstractLowRankProcess(AbstractExplanationProcess):
    r"""The explanations of D features given those of N points, through m inducing points.

    .. math::

        f_d(x) = \sum_e L_{de}\, \phi(x)^\top w_e + r_d(x), \quad w \sim N(0, I), \qquad
        r_d(x) \sim N\bigl(0, B_{dd}\, (k(x, x) - |\phi(x)|^2)\bigr)

    At a new point the covariance of the remainders r is that of the prior. The noiseless variance is the variance given
    the exact explanations of the inducing points, at least that given those of all points.

    Args:
        kernel, points, values, noise, variance, correlations: As for `AbstractExplanationProcess`.
        features: Nyström's approximation of the kernel k with the inducing points.
        root: L, (D, D).

    References:
        Snelson and Ghahramani, Sparse Gaussian processes using pseudo-inputs, 2006, equations (9) to (14).
    """

    features: Nystrom
    root: Float[Array, "D D"]

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
        correlations: ArrayLike | None,
        num_inducing: int,
    ) -> AbstractLowRankProcess:
        """Condition the process on explanations, with inducing points by herding; see `kpp_gpec.condition`."""
        warn_if_float32(cls.__name__)
        if np.asarray(noise, float).min() <= 0:
            raise ValueError(
                "`num_inducing` needs noise of positive variance in every explanation, got 0; give `noise` or "
                "`min_noise_variance`"
            )
        arrays = (jnp.asarray(array, jnp.result_type(float)) for array in (points, values, noise, variance))
        points, values, noise, variance = arrays
        features = Nystrom(kernel, landmarks(points, num_inducing, kernel=kernel, rng_key=jax.random.key(0)).points)
        if correlations is None:
            root = jnp.diag(jnp.sqrt(variance))
        else:
            correlations = jnp.asarray(correlations, points.dtype)
            prior = feature_covariance(variance, correlations)
            root = linalg.cholesky(prior)
            linalg.check_factor(root, prior, what="the prior covariance of the features")
        solved = cls._solve(features, points, values, noise, root)
        data = points, values, noise, variance, correlations
        return cls(kernel, *data, features, root, *solved)  # type: ignore[call-arg]  # final classes have both fields

    @classmethod
    @abstractmethod
    def _solve(cls, features: Nystrom, points: Array, values: Array, noise: Array, root: Array) -> tuple[Array, Array]:
        """Return the last two fields, factors and means of the weights."""


class LowRankProcess(AbstractLowRankProcess):
    r"""Independent features: D systems of m equations.

    At p points, (p, d), `predict` returns a law of NumPy arrays (p, D) with the variance

    .. math:: V_d = s_d^2\, \bigl(k_{**} - |\phi_*|^2 + \phi_*^\top A_d^{-1} \phi_*\bigr)

    Args:
        kernel, points, values, noise, variance, correlations, features, root: As for `AbstractLowRankProcess`.
        factors: The Cholesky factors of :math:`A_d = I + s_d^2 \Phi^\top \Lambda_d^{-1} \Phi`, (D, m, m), with the
            variances :math:`\Lambda_d` of noise and remainders.
        coefficients: The means of the weights w, (D, m).
    """

    factors: Float[Array, "D m m"]
    coefficients: Float[Array, "D m"]

    @classmethod
    def _solve(cls, features: Nystrom, points: Array, values: Array, noise: Array, root: Array) -> tuple[Array, Array]:
        scales = jnp.diagonal(root)[:, None, None]
        columns = values.T[..., None], noise.T[..., None], scales
        matrices, factors, coefficients = jax.lax.map(lambda column: _condition(features, points, *column), columns)
        for matrix, factor in zip(matrices, factors, strict=True):
            linalg.check_factor(factor, matrix, what=_WHAT)
        return factors, coefficients[:, 0]

    @eqx.filter_jit
    def predict_block(self, x: AnyArray) -> ProcessLaw:
        phi, rest = _map(self.features, jnp.asarray(x))
        known = jax.lax.map(lambda factor: jnp.sum(linalg.solve_lower(factor, phi.T) ** 2, axis=0), self.factors)
        scale, noiseless = self.variance[None, :], rest[:, None] * self.variance[None, :]
        return ProcessLaw((phi @ self.coefficients.T) * jnp.sqrt(scale), noiseless + known.T * scale, noiseless)


class LowRankMultitaskProcess(AbstractLowRankProcess):
    r"""Features that vary together: one system of D m equations.

    With all explained points as inducing points the process equals `MultitaskProcess`. At p points, (p, d), `predict`
    returns a law of NumPy arrays (p, D) with the covariance (p, D, D) of the features,

    .. math:: \Sigma = (k_{**} - |\phi_*|^2)\, B + (L \otimes \phi_*)^\top A^{-1} (L \otimes \phi_*)

    with the matrix A that `factor` factorizes.

    Args:
        kernel, points, values, noise, variance, correlations, features, root: As for `AbstractLowRankProcess`.
        factor: The Cholesky factor of :math:`I + (L \otimes \Phi)^\top \Lambda^{-1} (L \otimes \Phi)`, (D m, D m), with
            features as the outer index and the variances :math:`\Lambda` of noise and remainders.
        coefficients: The means of the weights w, (D, m).

    References:
        Bonilla, Chai and Williams, Multi-task Gaussian process prediction, 2008, for the prior.
    """

    block_size: ClassVar[int] = 32

    factor: Float[Array, "Dm Dm"]
    coefficients: Float[Array, "D m"]

    @classmethod
    def _solve(cls, features: Nystrom, points: Array, values: Array, noise: Array, root: Array) -> tuple[Array, Array]:
        matrix, factor, coefficients = _condition(features, points, values, noise, root)
        linalg.check_factor(factor, matrix, what=_WHAT)
        return factor, coefficients

    @eqx.filter_jit
    def predict_block(self, x: AnyArray) -> ProcessLaw:
        phi, rest = _map(self.features, jnp.asarray(x))
        covariance = self.root @ self.root.T

        def remaining(row: Array) -> Array:
            whitened = linalg.solve_lower(self.factor, jnp.kron(self.root.T, row[:, None]))
            return whitened.T @ whitened

        left = rest[:, None, None] * covariance[None] + jax.lax.map(remaining, phi)
        noiseless = rest[:, None] * jnp.diagonal(covariance)[None, :]
        mean = (phi @ self.coefficients.T) @ self.root.T
        return ProcessLaw(mean, jnp.diagonal(left, axis1=1, axis2=2), noiseless, left)

    def log_evidence(self) -> Float[Array, ""]:
        r"""Return :math:`\log p(E)`, of all features together."""
        return _log_evidence(self)


def _map(features: Nystrom, x: Array) -> tuple[Float[Array, "p m"], Float[Array, " p"]]:
    """Return the kernel features of points, and the share of the prior variance that they leave out."""
    phi = features.feature_map(x)
    return phi, jnp.maximum(features.kernel.diagonal(x) - jnp.sum(phi**2, axis=1), 0.0)


def _weigh(
    features: Nystrom, points: Array, values: Array, noise: Array, root: Array
) -> tuple[Float[Array, "N m"], Float[Array, "N D"], Float[Array, " Dm"]]:
    r"""Return :math:`\Phi`, :math:`\Lambda^{-1}` of noise and remainders, and the weighted sums of the explanations."""
    phi, left = _map(features, points)
    precisions = 1 / (noise + left[:, None] * jnp.sum(root**2, axis=1)[None, :])  # of FITC
    return phi, precisions, (root.T @ (precisions * values).T @ phi).ravel()


@eqx.filter_jit
def _condition(
    features: Nystrom, points: Array, values: Array, noise: Array, root: Array
) -> tuple[Array, Array, Array]:
    """Return the precision of the weights, its factor, and the means of the weights."""
    phi, precisions, target = _weigh(features, points, values, noise, root)
    size = root.shape[0] * phi.shape[1]

    def add(total: Array, column: tuple[Array, Array]) -> tuple[Array, None]:
        row, precision = column
        return total + jnp.kron(row[:, None] * row[None, :], (phi.T * precision[None, :]) @ phi), None

    matrix, _ = jax.lax.scan(add, jnp.eye(size, dtype=phi.dtype), (root, precisions.T))
    factor = linalg.cholesky(matrix)
    return matrix, factor, linalg.cho_solve(factor, target).reshape(root.shape[0], -1)


@eqx.filter_jit
def _log_evidence(process: LowRankMultitaskProcess) -> Float[Array, ""]:
    _, precisions, target = _weigh(process.features, process.points, process.values, process.noise, process.root)
    squares = jnp.sum(precisions * process.values**2) - jnp.sum(linalg.solve_lower(process.factor, target) ** 2)
    determinant = linalg.half_log_determinant(process.factor) - 0.5 * jnp.sum(jnp.log(precisions))
    return -0.5 * squares - determinant - 0.5 * process.values.size * jnp.log(2 * jnp.pi)
