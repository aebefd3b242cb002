r"""Pointwise leave-one-out log densities of vectors of dependent observations.

The observations of a Gaussian process are one vector with one density. Leave-one-out comparison of models needs a
density for each observation given all the others, :math:`\log p(y_i \mid y_{-i})`, which these functions return in
closed form. All take batches, such as draws of hyperparameters, on leading axes. `kpp.add_pointwise` uses them for the
posterior of any NumPyro model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp import linalg
from kpp.foundation.arguments import guard_exports
from kpp.foundation.validation import is_concrete, positive
from kpp.gp.laws.gaussian_laws import gaussian_loo_by_factor, student_t_loo_by_factor
from kpp.typing import AnyArray


def gaussian(y: AnyArray, mean: AnyArray | float, covariance: AnyArray) -> Float[Array, "*batch n"]:
    r"""Return the leave-one-out log densities of a Gaussian vector.

    .. math:: \log p(y_i \mid y_{-i}) = \log N\Bigl(y_i;\; y_i - \frac{a_i}{[C^{-1}]_{ii}},\;
        \frac{1}{[C^{-1}]_{ii}}\Bigr), \qquad a = C^{-1} (y - m)

    Args:
        y: The observations, (*batch, n).
        mean: m, a number or (*batch, n).
        covariance: C, with the noise of the observations, (*batch, n, n).

    Returns:
        The log densities, (*batch, n).

    Raises:
        ValueError: If shapes do not match or numbers are not finite.
        kpp.linalg.FactorizationError: If a covariance is not positive definite.

    References:
        Rasmussen and Williams (2006), equations 5.10 to 5.12.
    """
    return _over_batch(gaussian_loo_by_factor, y, mean, covariance, "covariance")


def student_t(
    y: AnyArray, degrees_of_freedom: AnyArray | float, mean: AnyArray | float, scale_matrix: AnyArray
) -> Float[Array, "*batch n"]:
    r"""Return the leave-one-out log densities of a multivariate Student-t vector.

    .. math:: p(y_i \mid y_{-i}) = t_{\nu + n - 1}\Bigl(y_i;\; y_i - \frac{a_i}{P_{ii}},\;
        \frac{\nu + \delta_{-i}}{\nu + n - 1} \frac{1}{P_{ii}}\Bigr), \qquad
        P = \Sigma^{-1}, \quad a = P (y - m), \quad \delta_{-i} = (y - m)^\top a - \frac{a_i^2}{P_{ii}}

    Args:
        y: The observations, (*batch, n).
        degrees_of_freedom: :math:`\nu`, positive, a number or (*batch,).
        mean: m, the location, a number or (*batch, n).
        scale_matrix: :math:`\Sigma`, (*batch, n, n). It is not the covariance, which is :math:`\nu / (\nu - 2)` times
            as large.

    Returns:
        The log densities, (*batch, n).

    Raises:
        ValueError: If shapes do not match or numbers are not finite.
        kpp.linalg.FactorizationError: If a scale matrix is not positive definite.

    References:
        Ding, On the conditional distribution of the multivariate t distribution, 2016, equation (1).
    """
    degrees_of_freedom = positive(jnp.asarray(degrees_of_freedom, dtype=float), "degrees_of_freedom")
    return _over_batch(student_t_loo_by_factor, y, mean, scale_matrix, "scale_matrix", degrees_of_freedom)


def _over_batch(
    density: Callable[..., Array], y: Any, mean: Any, matrix: Any, name: str, *parameters: Array
) -> Float[Array, "*batch n"]:
    """Apply a density of one vector, given by a factor of its matrix, to one member of a batch after the other."""
    y, mean, matrix = (jnp.asarray(value, dtype=float) for value in (y, mean, matrix))
    _check(y, mean, matrix, name)
    residual, num_rows = jnp.subtract(*jnp.broadcast_arrays(y, mean)), y.shape[-1]
    batch = jnp.broadcast_shapes(residual.shape[:-1], matrix.shape[:-2], *(value.shape for value in parameters))
    matrices = matrix.reshape(-1, num_rows, num_rows)
    # The position of the matrix of each member, so that one matrix of many members is not copied.
    numbers = jnp.broadcast_to(jnp.arange(len(matrices)).reshape(matrix.shape[:-2]), batch).ravel()

    def of_one(member: tuple[Array, ...]) -> Array:
        residual, number, *others = member
        return density(residual, linalg.cholesky(matrices[number], what=f"`{name}`"), *others)

    flat = [jnp.broadcast_to(value, batch).ravel() for value in parameters]
    residuals = jnp.broadcast_to(residual, (*batch, num_rows)).reshape(-1, num_rows)
    result = jax.lax.map(of_one, (residuals, numbers, *flat))
    if is_concrete(result):
        failed = np.flatnonzero(np.isnan(np.asarray(result)).any(axis=1))
        for member in failed[:1]:
            linalg.cholesky(matrices[numbers[member]], what=f"`{name}` of member {member} of the batch")
    return result.reshape(*batch, num_rows)


def _check(y: Array, mean: Array, matrix: Array, name: str) -> None:
    if y.ndim < 1 or matrix.shape[-2:] != (y.shape[-1], y.shape[-1]):
        raise ValueError(
            f"`{name}` must have shape (*batch, n, n) for `y` of shape (*batch, n), got {matrix.shape} and {y.shape}"
        )
    for argument, value in (("y", y), ("mean", mean), (name, matrix)):
        if is_concrete(value) and not bool(jnp.isfinite(value).all()):
            raise ValueError(f"`{argument}` must be finite, got NaN or infinite values in shape {value.shape}")
    if is_concrete(matrix) and not bool(jnp.allclose(matrix, jnp.swapaxes(matrix, -1, -2), rtol=1e-6)):
        raise ValueError(f"`{name}` must be symmetric, got a matrix that is not, in shape {matrix.shape}")


guard_exports(globals())
