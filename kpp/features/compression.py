"""Approximation of functions of an RKHS by functions on fewer points."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp import linalg
from kpp.foundation.validation import is_concrete
from kpp.functions import RKHSFunction
from kpp.typing import Points

_BATCH = 256  # rows of a kernel matrix that are computed at a time, which bounds the memory


class Compressed(NamedTuple):
    """A function on landmarks that approximates another function.

    Attributes:
        function: The function on the landmarks.
        error: The distance between the two functions in the norm of the RKHS, with draws first and outputs last.
        norm: The norm of the approximated function without its intercept, of the same shape as `error`.
    """

    function: RKHSFunction
    error: Float[Array, "..."]
    norm: Float[Array, "..."]


def compress(function: RKHSFunction, landmarks: Points) -> Compressed:
    r"""Project a function onto the span of kernel sections at landmarks.

    .. math::

        g = \sum_j \beta_j\, k(\cdot, z_j) + b, \qquad \beta = K_{ZZ}^{-1} (f(Z) - b), \qquad
        \|f - g\|^2 = \alpha^\top K \alpha - (f(Z) - b)^\top K_{ZZ}^{-1} (f(Z) - b)

    No function on these landmarks is nearer in the norm of the RKHS, and at every x
    :math:`|f(x) - g(x)| \le \|f - g\| \sqrt{k(x, x)}`. The two agree at the landmarks, and everywhere if all points of
    f are landmarks.

    Args:
        function: The function f, possibly with draws.
        landmarks: The m landmarks, (m, d), or another batch of points that the kernel accepts.

    Returns:
        The function g, its distance from f, and the norm of f. A distance below 1e-8 of the norm is a rounding error.

    Raises:
        kpp.linalg.FactorizationError: If the kernel matrix of the landmarks is singular.
    """
    landmarks, spanned = jax.tree.map(jnp.asarray, landmarks), function.spanned
    coefficients, error, norm = _project(spanned, landmarks)
    if is_concrete(coefficients) and not bool(jnp.isfinite(coefficients).all()):
        raise linalg.FactorizationError(
            "the kernel matrix of `landmarks` is numerically singular; remove duplicated rows, or take fewer landmarks"
        )
    projected = RKHSFunction(spanned.kernel, landmarks, coefficients, spanned.intercept, spanned.batch_shape)
    return Compressed(function.with_spanned(projected), error, norm)


@eqx.filter_jit
def _project(function: RKHSFunction, landmarks: Points) -> tuple[Array, Array, Array]:
    """Return the coefficients of the projection, its distance, and the norm."""

    def of_one_draw(f: RKHSFunction) -> tuple[Array, Array, Array]:
        values = f.kernel(landmarks, f.points) @ f.coefficients
        factor = linalg.cholesky(f.kernel.gram(landmarks))
        half = linalg.solve_lower(factor, values)
        squared_norm = _squared_norm(f)
        # Pythagoras: a projection is orthogonal.
        squared_error = jnp.maximum(squared_norm - jnp.sum(jnp.square(half), axis=0), 0.0)
        return linalg.cho_solve(factor, values), jnp.sqrt(squared_error), jnp.sqrt(squared_norm)

    return function.map_draws(of_one_draw)


def _squared_norm(f: RKHSFunction) -> Float[Array, "..."]:
    """Return the squared norm of a function without its intercept, row by row."""

    def value(point: Points) -> Array:
        return f.kernel(jax.tree.map(lambda leaf: leaf[None], point), f.points)[0] @ f.coefficients

    values = jax.lax.map(value, f.points, batch_size=_BATCH)
    return jnp.maximum(jnp.sum(values * f.coefficients, axis=0), 0.0)
