r"""Gaussian processes of explanations: one per feature, with a common kernel, observed with noise of known variance.

The noise differs from point to point and from feature to feature: it is the explainer's own uncertainty.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from kpp import linalg
from kpp.foundation.validation import warn_if_float32
from kpp.kernels import AbstractKernel
from kpp.runtime.batching import filled_chunks
from kpp.typing import AnyArray

#: The largest number of entries of the factors of all features, 8 GB.
MAX_ENTRIES = 1e9

_WHAT = "the kernel matrix of the explained points plus their noise"


class ProcessLaw(NamedTuple):
    """The predicted explanations of p points; means and variances are (p, D)."""

    mean: Any
    variance: Any  # of the noise-free explanations
    noiseless_variance: Any  # what would remain if the explanations had been observed without noise
    covariance: Any = None  # of the features, (p, D, D), if they are correlated


class AbstractExplanationProcess(eqx.Module):
    r"""Gaussian processes of the explanations of D features, given those of N points; `kpp_gpec.condition` builds them.

    Args:
        kernel: k, without the factor :math:`s_d^2`.
        points: The points :math:`x_n`, (N, d).
        values: The explanations E, (N, D).
        noise: The variances U, (N, D); zero if the explainer is exact.
        variance: The prior variances :math:`s_d^2`, (D,).
        correlations: The correlations R of the features, (D, D); None for independent features.
    """

    #: The number of inducing points; None without them.
    num_inducing: ClassVar[Any] = None
    #: The number of points that are predicted at a time.
    block_size: ClassVar[int] = 256

    kernel: AbstractKernel
    points: Float[Array, "N d"]
    values: Float[Array, "N D"]
    noise: Float[Array, "N D"]
    variance: Float[Array, " D"]
    correlations: Float[Array, "D D"] | None

    def predict(self, x: ArrayLike) -> ProcessLaw:
        """Predict the explanations of points, by the formula of the class.

        Args:
            x: p points, (p, d).

        Returns:
            The law, of NumPy arrays (p, D), with its covariance (p, D, D) if features are correlated.
        """
        x = np.asarray(x)
        # In blocks of few sizes, so that little is compiled and memory is bounded.
        parts = [jax.tree.map(np.asarray, self.predict_block(rows)) for rows in filled_chunks(x, self.block_size)]
        return jax.tree.map(lambda *arrays: np.concatenate(arrays)[: len(x)], *parts)

    @abstractmethod
    def predict_block(self, x: AnyArray) -> ProcessLaw:
        """Predict the explanations of at most `block_size` points by a compiled program."""


class ExplanationProcess(AbstractExplanationProcess):
    r"""The explanations of D features as independent Gaussian processes, given those of N points.

    .. math::

        f_d \sim \mathrm{GP}(0, s_d^2\, k), \qquad
        E_{nd} = f_d(x_n) + \varepsilon_{nd}, \quad \varepsilon_{nd} \sim N(0, U_{nd})

    At p points, (p, d), `predict` returns a law of NumPy arrays (p, D) with the mean and the variance

    .. math::

        \mu_d = k_* (K + U_d / s_d^2)^{-1} E_{:d}, \qquad
        V_d = s_d^2 \bigl[k_{**} - k_* (K + U_d / s_d^2)^{-1} k_*^\top\bigr]

    and the noiseless variance with U = 0. It is at most :math:`V_d`, and both are at least 0.

    Args:
        kernel, points, values, noise, variance, correlations: As for `AbstractExplanationProcess`.
        noiseless_factor: The Cholesky factor of K, (N, N).
        factors: Cholesky factors of :math:`K + \mathrm{diag}(U_{:d}) / s_d^2`, (D, N, N), or (1, N, N) if all features
            have the same factor.
        coefficients: The solutions with E, (N, D).

    References:
        Rasmussen and Williams, Gaussian processes for machine learning, 2006, section 2.2; Hill et al., 2024, equation
        (2) with :math:`\sigma_d^2 I` read as a diagonal matrix.
    """

    noiseless_factor: Float[Array, "N N"]
    factors: Float[Array, "F N N"]
    coefficients: Float[Array, "N D"]

    @classmethod
    def condition(
        cls, kernel: AbstractKernel, points: ArrayLike, values: ArrayLike, noise: ArrayLike, variance: ArrayLike
    ) -> ExplanationProcess:
        """Condition the processes on explanations; see `kpp_gpec.condition`."""
        warn_if_float32("ExplanationProcess")
        dtype = jnp.result_type(float)
        points, values, noise, variance = (np.asarray(array, dtype) for array in (points, values, noise, variance))
        relative = noise / variance[None, :]
        if np.ptp(relative, axis=1).max() == 0.0:  # one matrix for all features
            relative = relative[:, :1]
        if relative.size * len(relative) > MAX_ENTRIES:
            raise ValueError(
                f"{len(relative)} explained points take {relative.shape[1]} matrices of the square of this number of "
                f"entries, at most {MAX_ENTRIES:g} together; give `num_inducing`"
            )
        # Without noise the matrix is K itself, so that all factors come from one program.
        relative = np.concatenate([relative, np.zeros_like(relative[:, :1])], axis=1)
        points, values, noise, variance = (jnp.asarray(array, dtype) for array in (points, values, noise, variance))
        gram, factors, noiseless, coefficients = _condition(kernel, points, values, relative)
        linalg.check_factor(noiseless, gram, what="the kernel matrix of the explained points")
        for number in np.flatnonzero(~np.isfinite(np.asarray(factors)).all(axis=(1, 2))):
            linalg.check_factor(factors[number], linalg.add_diagonal(gram, relative[:, number]), what=_WHAT)
        return cls(kernel, points, values, noise, variance, None, noiseless, factors, coefficients)

    @eqx.filter_jit
    def predict_block(self, x: AnyArray) -> ProcessLaw:
        x = jnp.asarray(x)
        cross, prior = self.kernel(x, self.points), self.kernel.diagonal(x)

        def left(factor: Array) -> Array:
            return jnp.maximum(prior - jnp.sum(linalg.solve_lower(factor, cross.T) ** 2, axis=0), 0.0)

        variances = jax.vmap(left, out_axes=1)(jnp.concatenate([self.factors, self.noiseless_factor[None]]))
        # Less noise means less variance, also where rounding says otherwise.
        variance, noiseless = variances[:, :-1], jnp.minimum(variances[:, -1:], variances[:, :-1])
        scale = self.variance[None, :]
        return ProcessLaw(cross @ self.coefficients, scale * variance, scale * noiseless)

    def log_evidence(self) -> Float[Array, " D"]:
        r"""Return :math:`\log p(E_{:d})` for each feature."""
        return log_evidence(self.factors, self.values, self.variance)

    def leave_one_out(self) -> tuple[Float[Array, "N D"], Float[Array, "N D"]]:
        """Return means and variances of each explanation, noise included, given those of all other points."""
        return leave_one_out_law(self.factors, self.values, self.variance)


def feature_covariance(variance: Array, correlations: Array) -> Float[Array, "D D"]:
    """Return the prior covariance of the features, :math:`B_{de} = s_d s_e R_{de}`."""
    scale = jnp.sqrt(variance)
    return scale[:, None] * correlations * scale[None, :]


def factorize(gram: Float[Array, "N N"], noise: Float[AnyArray, "N F"]) -> Float[Array, "F N N"]:
    """Return the Cholesky factor of the kernel matrix plus each column of the noise on its diagonal."""
    return jax.vmap(lambda column: linalg.cholesky(linalg.add_diagonal(gram, column)), in_axes=1)(jnp.asarray(noise))


@jax.jit
def log_evidence(
    factors: Float[Array, "F N N"], values: Float[Array, "N D"], variance: Float[Array, " D"]
) -> Float[Array, " D"]:
    r"""Return the log density of the explanations of each feature.

    .. math:: -\tfrac12 E^\top A^{-1} E - \tfrac12 \log\det A - \tfrac N2 \log 2\pi, \qquad A = s^2 L L^\top
    """
    whitened = jax.vmap(linalg.solve_lower, in_axes=(_axis(factors), 1), out_axes=1)(_shared(factors), values)
    determinants = jax.vmap(linalg.half_log_determinant)(factors)
    size = values.shape[0]
    return -0.5 * jnp.sum(whitened**2, axis=0) / variance - determinants - 0.5 * size * jnp.log(2 * jnp.pi * variance)


@jax.jit
def leave_one_out_law(
    factors: Float[Array, "F N N"], values: Float[Array, "N D"], variance: Float[Array, " D"]
) -> tuple[Float[Array, "N D"], Float[Array, "N D"]]:
    r"""Return the mean and variance of each explanation given those of all other points.

    .. math:: \mu_n = E_n - [A^{-1} E]_n / [A^{-1}]_{nn}, \qquad v_n = 1 / [A^{-1}]_{nn}

    The arguments are those of `log_evidence`.

    References:
        Rasmussen and Williams, 2006, equations (5.10) to (5.12).
    """
    precisions = jax.vmap(lambda factor: jnp.diagonal(linalg.cho_inverse(factor)))(factors).T
    return values - _solve(factors, values) / precisions, variance[None, :] / precisions


@eqx.filter_jit
def _condition(
    kernel: AbstractKernel, points: Array, values: Array, relative: AnyArray
) -> tuple[Array, Array, Array, Array]:
    """Return K, its factors with the noise in all columns but the last, the factor with the last, and the solutions."""
    gram = kernel.gram(points)
    factors = factorize(gram, relative)
    return gram, factors[:-1], factors[-1], _solve(factors[:-1], values)


def _solve(factors: Array, values: Array) -> Array:
    return jax.vmap(linalg.cho_solve, in_axes=(_axis(factors), 1), out_axes=1)(_shared(factors), values)


def _axis(factors: Array) -> int | None:
    """Return the axis of the features; None if they share a factor, which `_shared` extracts."""
    return None if factors.shape[0] == 1 else 0


def _shared(factors: Array) -> Array:
    return factors[0] if factors.shape[0] == 1 else factors
