"""Regressions on the conditions of a test of independence: the matrices that map features to their residuals."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp import linalg
from kpp.linalg.pivoted import pivoted_cholesky
from kpp.typing import AnyArray

#: The lengthscales tried, in units of those of the median heuristic.
LENGTHSCALES = (0.5, 1.0, 2.0)

_GRID = np.logspace(-7, 0, 15)  # the regularizations tried, in units of the mean of the kernel's diagonal
_MAX_FEATURES = 100  # the rank of the kernel matrices of X and Y
_MAX_RANK = 300  # the rank of the kernel matrices of Z in the regressions
_ROUNDING = 1e-10  # the eigenvalues that count as 0, in units of the mean of the kernel's diagonal


class IndependenceTest(NamedTuple):
    """The result of `conditional_independence_test`; also of `mean_independence_test`, in other units.

    Attributes:
        statistic: The statistic less the mean of its draws, in units of their standard deviation.
        p_value: The fraction of statistics, the statistic of the data included, that are at least as large as that of
            the data.
        num_permutations: The number of permutations of the rows, or of draws of signs.
        num_rows: The number of rows that the test used.
    """

    statistic: float
    p_value: float
    num_permutations: int
    num_rows: int


def is_constant(points: AnyArray) -> bool:
    """Return whether all rows are the same."""
    known = np.asarray(points)
    return bool((known == known[:1]).all())


def rank_p_value(statistics: Float[np.ndarray, " draws_and_1"]) -> tuple[float, float]:
    """Return the p-value of the first statistic among all, and the difference that is only rounding."""
    # Equal statistics must count as equal despite rounding.
    rounding = 1e3 * np.finfo(statistics.dtype).eps * max(abs(statistics))
    return float(np.mean(np.append(statistics[1:] >= statistics[0] - rounding, True))), rounding


def regressions_on(grams: Float[Array, "kernels n n"]) -> Callable[[Float[Array, "n q"]], Float[Array, "n n"]]:
    """Return a function from features to the matrix of their residuals, given kernel matrices of the conditions."""
    spectra = jax.lax.map(_spectrum, grams)
    return lambda features: _residual_maker(features, spectra, grams[-1])


def centered_features(gram: Float[Array, "n n"]) -> Float[Array, "n q"]:
    """Return centered features with the products of a kernel matrix, up to a matrix of low rank."""
    return centered(pivoted_cholesky(gram, min(_MAX_FEATURES, gram.shape[0])))


def _spectrum(gram: Float[Array, "n n"]) -> tuple[Float[Array, " r"], Float[Array, "n r"]]:
    """Return eigenvalues and eigenvectors of a root of low rank of a kernel matrix."""
    root = pivoted_cholesky(gram, min(_MAX_RANK, gram.shape[0]))
    products = root.T @ root
    # LAPACK is ten times slower with eigenvalues that are 0 up to rounding.
    lift = _ROUNDING * jnp.mean(jnp.diagonal(gram))
    values, rotation = jnp.linalg.eigh(linalg.add_diagonal(products, lift))
    values = jnp.maximum(values - lift, 0.0)
    scale = jnp.where(values > lift, 1 / jnp.sqrt(jnp.maximum(values, lift)), 0.0)
    return jnp.where(values > lift, values, 0.0), (root @ rotation) * scale[None]


def _residual_maker(
    features: Float[Array, "n q"], spectra: tuple[Array, Array], wide: Float[Array, "n n"]
) -> Float[Array, "n n"]:
    r"""Return the matrix A of a regression on Z: it maps the features to their residuals, less the mean.

    A first regression, with the kernel and the regularization that have the lowest leave-one-out error, gives fitted
    features f(z). The second may also use the kernel :math:`\exp(-2\, \|f(z) - f(z')\|^2 / s^2)` times the widest
    kernel of Z, where :math:`s^2` is the median of the squared distances.
    """
    losses = jax.lax.map(lambda spectrum: _left_out(features, *spectrum), spectra)
    best = jnp.argmin(jnp.mean(losses, axis=2))
    kernel, ridge = jnp.unravel_index(best, losses.shape[:2])
    values, vectors = spectra[0][kernel], spectra[1][kernel]
    fitted = _smoothed(vectors, _shrinkage(values)[ridge]) @ features
    refined = _spectrum(_gram_of_fitted(fitted) * wide)
    spectra = jax.tree.map(lambda known, new: jnp.concatenate([known, new[None]]), spectra, refined)
    losses = jnp.concatenate([losses, _left_out(features, *refined)[None]])
    kernel, ridge = _least_regularized(losses)
    values, vectors = spectra[0][kernel], spectra[1][kernel]
    smoothed = _smoothed(vectors, _shrinkage(values)[ridge])
    return centered(centered(jnp.eye(len(features)) - smoothed).T)


def _shrinkage(values: Float[Array, " r"]) -> Float[Array, "ridges r"]:
    r"""Return the eigenvalues of :math:`Z (Z + c I)^{-1}` for each ridge c of the grid."""
    ridges = jnp.sum(values) * jnp.asarray(_GRID, values.dtype)
    return values[None] / (values[None] + ridges[:, None])


def _smoothed(vectors: Float[Array, "n r"], shrinkage: Float[Array, " r"]) -> Float[Array, "n n"]:
    return (vectors * shrinkage[None]) @ vectors.T


def _left_out(
    features: Float[Array, "n q"], values: Float[Array, " r"], vectors: Float[Array, "n r"]
) -> Float[Array, "ridges n"]:
    r"""Return the leave-one-out errors :math:`\|(A \Phi)_i\|^2 / A_{ii}^2` of each row, for each ridge."""
    rotated = vectors.T @ features

    def errors(shrinkage: Array) -> Array:
        half = vectors * shrinkage[None]
        left = 1 - jnp.sum(half * vectors, axis=1)  # one minus the leverages
        return jnp.sum((features - half @ rotated) ** 2, axis=1) / left**2

    return jax.lax.map(errors, _shrinkage(values))


def _least_regularized(losses: Float[Array, "kernels ridges n"]) -> tuple[Array, Array]:
    """Return the kernel of the lowest mean loss, and its least ridge within one standard error of that loss."""
    means = jnp.mean(losses, axis=2)
    kernel, ridge = jnp.unravel_index(jnp.argmin(means), means.shape)
    excess = losses[kernel] - losses[kernel, ridge][None]
    errors = jnp.std(excess, axis=1) / losses.shape[2] ** 0.5
    return kernel, jnp.argmax(jnp.mean(excess, axis=1) <= errors)


def _gram_of_fitted(fitted: Float[Array, "n q"]) -> Float[Array, "n n"]:
    norms = jnp.sum(fitted**2, axis=1)
    distances = jnp.maximum(norms[:, None] + norms[None] - 2 * fitted @ fitted.T, 0.0)
    upper = distances[jnp.triu_indices(fitted.shape[0], 1)]
    scale = jnp.median(upper)
    # Half of the pairs may coincide.
    scale = jnp.where(scale > 0, scale, jnp.maximum(jnp.max(upper), jnp.finfo(fitted.dtype).tiny))
    return jnp.exp(-2 * distances / scale)


def centered(values: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Return columns less their means."""
    return values - jnp.mean(values, axis=0, keepdims=True)
