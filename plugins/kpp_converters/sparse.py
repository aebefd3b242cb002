"""The posterior of a Gaussian process at inducing points, as other libraries learn it."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular

from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.gp.toolkit import PriorMean, posterior_by_root
from kpp.kernels import AbstractKernel
from kpp.typing import AnyArray


def whiten(
    factor: Float[AnyArray, "w w"], prior: AnyArray | float, mean: Float[AnyArray, " w"], covariance: AnyArray
) -> tuple[Float[np.ndarray, " w"], Float[np.ndarray, "w w"]]:
    """Return mean and covariance of v, given those of f(Z), and its prior mean; see `sparse_posterior`."""
    half = solve_triangular(factor, covariance, lower=True)
    return solve_triangular(factor, mean - prior, lower=True), solve_triangular(factor, half.T, lower=True)


def sparse_posterior(
    kernel: AbstractKernel,
    points: Float[AnyArray, "w d"],
    factor: Float[AnyArray, "w w"],
    mean: Float[AnyArray, " w"],
    covariance: Float[AnyArray, "w w"],
    prior_mean: PriorMean,
) -> GPPosterior:
    r"""Return the posterior of f, given the law of its values at inducing points Z.

    .. math:: f(Z) = m(Z) + L v, \quad v \sim N(\mu, S), \qquad
        \mathrm{Cov}(f(x), f(x')) = k(x, x') - k_Z(x)^\top L^{-\top} (I - S) L^{-1} k_Z(x')

    Args:
        kernel: k.
        points: Z, (w, d).
        factor: L, the lower factor of the covariance matrix of f(Z), (w, w), with its jitter.
        mean: :math:`\mu`, (w,).
        covariance: S, (w, w).
        prior_mean: m, a number or a function of points.

    Returns:
        The posterior.

    Raises:
        ValueError: If a linear combination of f(Z) has a larger variance than under the prior.

    References:
        Hensman, Matthews and Ghahramani, Scalable variational Gaussian process classification, 2015, equation 9.
    """
    lower, spread = np.asarray(factor, dtype=float), np.asarray(covariance, dtype=float)
    values, vectors = np.linalg.eigh(np.eye(len(lower)) - spread)
    if values[0] < -1e-8:
        raise ValueError(
            "the variational distribution has a combination of the values at the inducing points whose variance is "
            f"{1.0 - values[0]:.6g} times that of the prior; no data make a variance larger, so train the model longer"
        )
    explained = solve_triangular(lower, vectors * np.sqrt(np.maximum(values, 0.0)), lower=True, trans="T")
    coefficients = solve_triangular(lower, np.asarray(mean, dtype=float), lower=True, trans="T")
    return posterior_by_root(RKHSFunction(kernel, points, coefficients) + prior_mean, jnp.asarray(explained))
