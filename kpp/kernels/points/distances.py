r"""Squared distances between points, and functions of them that are smooth where points coincide.

Values are sums of squared differences for up to 32 features. Memory stays at (n, n): up to 8 features are summed in one
fused loop (on JAX 0.10 only one), and more are added one after another. For more than 32 features values come from a
matrix product of centered points, :math:`|a|^2 + |b|^2 - 2 a^\top b` at precision HIGHEST, clipped at 0. The product
is three times as fast at 100 features. At 10 to 30 features it would save half the time, which is little compared to a
factorization, and it has an error (1000 points, CPU). The error is up to :math:`10\, \epsilon R^2`, R being the largest
distance from the center in lengthscales: in float64 the error of a kernel value is 1e-13 for R = 10, 1e-11 for R = 100
and 1e-9 for R = 1000. Up to 32 features R may be any number. Squared distances that overflow are infinite, and kernel
values are then 0.

Derivatives always come from matrix products: reverse mode through the (n, n, d) differences took 20 to 90 times as long
(1000 points, 10 to 60 features, CPU).

Matern12 is not smooth in the squared distance: the root turns an error of 1e-16 into one of 1e-8, and its derivative
amplifies the error without bound. Matern12 therefore uses `exact`, which computes values and derivatives from
differences; derivatives take two to four times as long as by matrix products.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.foundation.validation import is_concrete
from kpp.typing import AnyArray

# Up to this number of features, values are computed from differences.
_MAX_FEATURES_BY_DIFFERENCE = 32
# Up to this number the fused loop is as fast as one loop per feature, and it compiles in a third of the time. JAX 0.10
# takes ten to twenty times as long for it from two features on.
_MAX_FEATURES_AT_ONCE = 8 if jax.__version_info__ >= (0, 11) else 1


def squared_distances(
    x1: Float[Array, "n1 d"],
    x2: Float[Array, "n2 d"],
    lengthscale: Float[AnyArray, " d"] | None = None,
    *,
    exact: bool = False,
) -> Float[Array, "n1 n2"]:
    """Return the squared Euclidean distances of all pairs of n1 and n2 points, (n1, n2), at least 0.

    Each feature is measured in its lengthscale, by default 1. The module's docstring describes the method; with `exact`
    both values and derivatives come from differences, for any number of features. Values of more than 32 features,
    which come from a product, raise ValueError if they overflow; traced arrays are trusted.
    """
    scale = np.ones(x1.shape[1], x1.dtype) if lengthscale is None else lengthscale
    if exact:
        return _feature_by_feature(x1, x2, 1 / scale)
    if x1.shape[1] <= _MAX_FEATURES_BY_DIFFERENCE:
        return _by_difference(x1, x2, scale)
    centered = _centered(x1, x2, scale)
    for points in centered:
        _refuse_overflow(points)
    return _by_product(*centered)


def gram_distances(
    x: Float[Array, "n d"], lengthscale: Float[AnyArray, " d"] | None = None, *, exact: bool = False
) -> Float[Array, "n n"]:
    """Return the squared Euclidean distances of points with each other, exactly 0 on the diagonal."""
    squared = squared_distances(x, x, lengthscale, exact=exact)
    return jnp.where(jnp.eye(x.shape[0], dtype=bool), jnp.zeros_like(squared), squared)


def _refuse_overflow(points: Float[Array, "n d"]) -> None:
    """Raise ValueError if squared norms of known points overflow: the distance of two such points would be NaN."""
    if not is_concrete(points):
        return
    largest, limit = np.max(np.abs(np.asarray(points)), initial=0), float(jnp.finfo(points.dtype).max)
    if not largest < np.sqrt(limit / (4 * points.shape[1])):
        raise ValueError(
            f"the points must not be farther than {np.sqrt(limit):.0e} lengthscales from their center, where squared "
            f"distances overflow {points.dtype}; got {largest:.3g}; give a larger `lengthscale`, or rescale the points"
        )


def _centered(
    x1: Float[Array, "n1 d"], x2: Float[Array, "n2 d"], scale: Float[AnyArray, " d"]
) -> tuple[Float[Array, "n1 d"], Float[Array, "n2 d"]]:
    """Return points in lengthscales, minus their common center: rounding errors would grow with the distance of it."""
    center = jax.lax.stop_gradient(jnp.mean(x2, axis=0, keepdims=True))
    return (x1 - center) / scale[None, :], (x2 - center) / scale[None, :]


# The difference is taken before the division by the lengthscale: far from the origin the quotients are rounded so much
# that their difference would be wrong.
def _feature_by_feature(
    x1: Float[Array, "n1 d"], x2: Float[Array, "n2 d"], inverse: Float[AnyArray, " d"]
) -> Float[Array, "n1 n2"]:
    zeros = jnp.zeros((x1.shape[0], x2.shape[0]), dtype=x1.dtype)
    return jax.lax.scan(_add_feature, zeros, (x1.T, x2.T, jnp.asarray(inverse)))[0]


# Defined at module level: a function that is created in a call would be compiled again at every call outside `jit`.
@jax.checkpoint  # reverse mode computes the differences again, which saves the memory of one matrix per feature
def _add_feature(total: Array, columns: tuple[Array, Array, Array]) -> tuple[Array, None]:
    return total + jnp.square((columns[0][:, None] - columns[1][None, :]) * columns[2]), None


def _matmul(a: Float[Array, "n1 d"], b: Float[Array, "n2 d"]) -> Float[Array, "n1 n2"]:
    return jnp.matmul(a, b.T, precision=jax.lax.Precision.HIGHEST)


@jax.jit  # without it, a call outside `jit` would write all differences to memory
def _by_differences(
    x1: Float[Array, "n1 d"], x2: Float[Array, "n2 d"], scale: Float[Array, " d"]
) -> Float[Array, "n1 n2"]:
    if x1.shape[1] > _MAX_FEATURES_AT_ONCE:
        return _feature_by_feature(x1, x2, 1 / scale)
    return jnp.sum(jnp.square((x1.T[:, :, None] - x2.T[:, None, :]) * (1 / scale)[:, None, None]), axis=0)


@jax.custom_jvp
def _by_difference(
    x1: Float[Array, "n1 d"], x2: Float[Array, "n2 d"], scale: Float[AnyArray, " d"]
) -> Float[Array, "n1 n2"]:
    return _by_differences(x1, x2, scale)


@jax.custom_jvp
def _by_product(a: Float[Array, "n1 d"], b: Float[Array, "n2 d"]) -> Float[Array, "n1 n2"]:
    norms = jnp.sum(a * a, axis=1)[:, None] + jnp.sum(b * b, axis=1)[None, :]
    return jnp.maximum(norms - 2 * _matmul(a, b), 0)


def _derivative(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> Float[Array, "n1 n2"]:
    """Return 2 (a_i - b_j).(da_i - db_j), the derivative of the squared distance without any clipping."""
    (a, b), (da, db) = primals, tangents
    norms = jnp.sum(a * da, axis=1)[:, None] + jnp.sum(b * db, axis=1)[None, :]
    return 2 * (norms - _matmul(da, b) - _matmul(a, db))


@_by_difference.defjvp
def _by_difference_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    # The center has derivative 0, as has the distance if all points are shifted.
    return _by_difference(*primals), _derivative(*jax.jvp(_centered, primals, tangents))


@_by_product.defjvp
def _by_product_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    return _by_product(*primals), _derivative(primals, tangents)


@jax.custom_jvp
def matern_12(t: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Return :math:`e^{-\sqrt t}`.

    Its derivative is infinite at t = 0. It is defined as 0 there and wherever the root of t is only a rounding error.
    """
    return jnp.exp(-_root(t))


@matern_12.defjvp
def _matern_12_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (t,), (dt,) = primals, tangents
    value = matern_12(t)
    positive = t > jnp.finfo(t.dtype).eps ** 2
    root = jnp.sqrt(jnp.where(positive, t, jnp.ones_like(t)))
    return value, jnp.where(positive, -value / (2 * root), jnp.zeros_like(t)) * dt


def _root(t: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the root of t, with the derivative 0 where the root is only a rounding error.

    The rules for derivatives do not need this. But JAX 0.10 forgets them in second derivatives of a loop.
    """
    rounding = t <= jnp.finfo(t.dtype).eps ** 2  # false for NaN
    return jnp.where(rounding, jnp.zeros_like(t), jnp.sqrt(jnp.where(rounding, jnp.ones_like(t), t)))


def _at_most_finite(t: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return t, the largest number in place of infinity, whose product with 0 would be NaN."""
    return jnp.minimum(t, jnp.finfo(t.dtype).max)


@jax.custom_jvp
def matern_32(t: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Return :math:`(1 + \sqrt t) e^{-\sqrt t}`, whose derivative :math:`-\tfrac12 e^{-\sqrt t}` is finite."""
    root = _root(_at_most_finite(t))
    return (1 + root) * jnp.exp(-root)


@matern_32.defjvp
def _matern_32_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (t,), (dt,) = primals, tangents
    return matern_32(t), -0.5 * matern_12(t) * dt


@jax.custom_jvp
def matern_52(t: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Return :math:`(1 + \sqrt t + t / 3) e^{-\sqrt t}`, whose derivative is minus a sixth of `matern_32`."""
    t = _at_most_finite(t)
    root = _root(t)
    return (1 + root + t / 3) * jnp.exp(-root)


@matern_52.defjvp
def _matern_52_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (t,), (dt,) = primals, tangents
    return matern_52(t), -(1 / 6) * matern_32(t) * dt
