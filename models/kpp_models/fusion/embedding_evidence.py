r"""The evidence of a vector-valued regression: columns that share one covariance, as a NumPyro distribution."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import distributions as dist
from numpyro.distributions import constraints

from kpp import linalg
from kpp.gp.toolkit import LOG_TWO_PI
from kpp.runtime.random import standard_normal
from kpp.typing import AnyArray, Numbers


class SharedCovariance(dist.Distribution):
    r"""Independent columns with one covariance, up to an amplitude: a matrix normal distribution.

    .. math:: W \in R^{N \times q}, \qquad w_j \sim N(0,\; s\, C)

    The observations :math:`K_{YY} \sim MN(0, C, s R)` of an embedding are such a matrix in the coordinates of the
    nuclear dominant kernel, :math:`W = K_{YY} L^{-\top}` with :math:`R = L L^\top`; the density of :math:`K_{YY}` is
    that of W times :math:`|R|^{-N/2}`, which does not depend on the hyperparameters. Equal outcomes
    have equal columns, of which one counts.

    Without an amplitude s it has the value that maximizes the density of the observation,
    :math:`\mathrm{tr}(W^\top C^{-1} W) / (N q)`: then `log_prob` is a profile likelihood, and sampling is impossible.

    References:
        Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP: uncertainty quantification for causal data fusion, 2021,
        proposition 2.
    """

    arg_constraints = {"covariance_matrix": constraints.independent(constraints.real, 2)}
    support = constraints.independent(constraints.real, 2)
    pytree_data_fields = ("covariance_matrix", "amplitude")
    pytree_aux_fields = ("num_columns",)

    def __init__(
        self,
        covariance_matrix: Float[AnyArray, "N N"],
        num_columns: int,
        amplitude: Numbers | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.covariance_matrix = jnp.asarray(covariance_matrix)
        self.num_columns = num_columns
        self.amplitude = None if amplitude is None else jnp.asarray(amplitude, dtype=self.covariance_matrix.dtype)
        super().__init__((), (self.covariance_matrix.shape[0], num_columns), validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw matrices (*sample_shape, N, q), or raise NotImplementedError if the amplitude is None."""
        if self.amplitude is None:
            raise NotImplementedError("a fitted `amplitude` is one of observations; give a number to draw from it")
        factor = linalg.cholesky(self.amplitude * self.covariance_matrix, what="the covariance of the embedding")
        return factor @ standard_normal(key, (*sample_shape, *self.event_shape), factor.dtype)

    def log_prob(self, value: Float[AnyArray, "N q"], intermediates: object = None) -> Array:
        """Return the log density of one matrix (N, q)."""
        return _log_density(jnp.asarray(value), self.covariance_matrix, self.amplitude)


def fitted_amplitude(
    coordinates: Float[AnyArray, "N q"], covariance_factor: Float[AnyArray, "N N"]
) -> Float[Array, ""]:
    r"""Return :math:`\mathrm{tr}(W^\top C^{-1} W) / (N q)` for W of shape (N, q) and the Cholesky factor of C."""
    return jnp.mean(linalg.solve_lower(covariance_factor, coordinates) ** 2)


def _log_density(value: Array, covariance: Array, amplitude: Array | None) -> Float[Array, ""]:
    count = value.shape[0] * value.shape[1]
    quadratic, half_determinant = _evidence_terms(value, covariance)
    if amplitude is None:  # at the best amplitude the quadratic form is the number of entries
        return -0.5 * count * (LOG_TWO_PI + jnp.log(quadratic / count) + 1) - value.shape[1] * half_determinant
    normalizer = 0.5 * count * (LOG_TWO_PI + jnp.log(amplitude)) + value.shape[1] * half_determinant
    return -0.5 * quadratic / amplitude - normalizer


@jax.custom_jvp
def _evidence_terms(value: Array, covariance: Array) -> tuple[Float[Array, ""], Float[Array, ""]]:
    r"""Return :math:`\mathrm{tr}(W^\top C^{-1} W)` and :math:`\tfrac12 \log\det C`, with derivatives in closed form."""
    return _terms_and_solution(value, covariance)[0]


@_evidence_terms.defjvp
def _evidence_terms_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    value, covariance = primals
    terms, solution, factor = _terms_and_solution(value, covariance)
    along = 2 * jnp.sum(solution * tangents[0]) - jnp.sum((solution @ solution.T) * tangents[1])  # S = C^-1 W
    return terms, (along, 0.5 * jnp.sum(linalg.cho_inverse(factor) * tangents[1]))  # tr(C^-1 dC) / 2


def _terms_and_solution(value: Array, covariance: Array) -> tuple[tuple[Array, Array], Array, Array]:
    factor = linalg.cholesky(covariance, what="the kernel matrix of the treatments with noise")
    solution = linalg.cho_solve(factor, value)
    return (jnp.sum(value * solution), linalg.half_log_determinant(factor)), solution, factor
