r"""Weighted linear regressions of many points at once: Bayesian ones with their posterior, and ridge regressions.

The Bayesian regression is conjugate. With rows :math:`X = [1, Z]`, weights :math:`\Pi` and an improper prior of the
noise,

.. math::

    y \mid \beta, \sigma^2 \sim N(X \beta, \sigma^2 \Pi^{-1}), \qquad \beta \mid \sigma^2 \sim N(0, \sigma^2 I),
    \qquad p(\sigma^2) \propto 1 / \sigma^2,

the posterior of :math:`\sigma^2` is a scaled inverse chi-squared law with N degrees of freedom, and each coefficient
has a Student law with N degrees of freedom.

References:
    Slack, Hilgard, Singh and Lakkaraju, Reliable post hoc explanations: modeling uncertainty in explainability, 2021,
    eqs. (4) to (7).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.linalg import add_diagonal, cho_solve, cholesky, solve_lower
from kpp.typing import AnyArray


class RegressionPosterior(NamedTuple):
    """The Student laws of weighted regressions."""

    mean: Float[np.ndarray, "p q r"]  # of the intercept and of the coefficients
    squared_scales: Float[np.ndarray, "p q r"]  # s^2 V_jj
    degrees: int  # of freedom, N

    @property
    def variance(self) -> Float[np.ndarray, "p q r"]:
        r"""The variances of the Student laws, :math:`s^2 V_{jj}\, N / (N - 2)`."""
        return self.squared_scales * (self.degrees / (self.degrees - 2))


def bayesian_regression(
    features: Float[AnyArray, "p n g"], weights: Float[AnyArray, "p n"], targets: Float[AnyArray, "p n r"]
) -> RegressionPosterior:
    r"""Regress the targets y (p, n, r) of each point on its features Z (p, n, g), with the prior of the module.

    .. math:: V = (X^\top \Pi X + I)^{-1}, \quad \hat\beta = V X^\top \Pi y, \quad \beta_j \sim t_N(\hat\beta_j, s^2
    V_{jj})

    with :math:`s^2 = ((y - X \hat\beta)^\top \Pi (y - X \hat\beta) + \hat\beta^\top \hat\beta) / N`, N = n of at least
    3, and the diagonal (p, n) of :math:`\Pi` as the weights.
    """
    mean, squared_scales = (np.asarray(array) for array in _bayesian(features, weights, targets))
    return RegressionPosterior(mean, squared_scales, features.shape[1])


@jax.jit
@jax.vmap
def _bayesian(
    features: Float[Array, "n g"], weights: Float[Array, " n"], targets: Float[Array, "n r"]
) -> tuple[Float[Array, "q r"], Float[Array, "q r"]]:
    design = jnp.concatenate([jnp.ones_like(features[:, :1]), features], axis=1)
    weighted = design * weights[:, None]
    factor = cholesky(add_diagonal(_dot(weighted.T, design), 1.0), what="the matrix of a weighted regression")  # V^-1
    mean = cho_solve(factor, _dot(weighted.T, targets))
    residuals = targets - _dot(design, mean)
    squares = jnp.sum(weights[:, None] * residuals**2, axis=0) + jnp.sum(mean**2, axis=0)  # N s^2
    inverse = solve_lower(factor, jnp.eye(design.shape[1], dtype=design.dtype))  # V_jj are its columns' squares
    return mean, jnp.sum(inverse**2, axis=0)[:, None] * (squares / design.shape[0])[None]


@jax.jit
def ridge_regression(
    features: Float[Array, "p n g"], weights: Float[Array, "p n"], targets: Float[Array, "p n r"], penalty: Array
) -> tuple[Float[Array, "p r"], Float[Array, "p g r"]]:
    r"""Regress the targets of each point on its features, with a penalty on the coefficients but not the intercept.

    .. math:: \min_{b, \beta} \sum_i w_i (y_i - b - z_i^\top \beta)^2 + \lambda \|\beta\|^2

    Features z (p, n, g), weights w (p, n), not all 0, and targets y (p, n, r) give the intercepts (p, r) and the
    coefficients (p, g, r).
    """

    def solve(z: Array, w: Array, y: Array) -> tuple[Array, Array]:
        shares = w / jnp.sum(w)  # centers the columns, so that the intercept is not penalized
        center, level = _dot(shares[None], z)[0], _dot(shares[None], y)[0]
        z, y = z - center[None], y - level[None]
        weighted = z * w[:, None]
        matrix = add_diagonal(_dot(weighted.T, z), penalty)
        beta = cho_solve(cholesky(matrix, what="the matrix of a ridge regression"), _dot(weighted.T, y))
        return level - _dot(center[None], beta)[0], beta

    return jax.vmap(solve)(features, weights, targets)


def _dot(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision="highest")
