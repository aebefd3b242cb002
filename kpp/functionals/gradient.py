r"""Derivatives of a function with respect to features.

The derivative of a Gaussian process is Gaussian, with the derivatives of its mean and covariance. JAX computes them
from the kernel, without differences.

References:
    Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 9.4.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.foundation.validation import as_points, is_concrete
from kpp.functionals.functional import AbstractFunctional
from kpp.functionals.sections import DirectedPoints, WithDerivatives
from kpp.functions import RKHSFunction
from kpp.kernels import AbstractKernel
from kpp.storage.serialization import data_class
from kpp.typing import Numbers, PointFunction

# A step in units of the spread of a feature, and the largest error of a variance that rounding makes, in units of it.
_STEP = 1e-3
_ROUNDING = 1e-9


@data_class
class Gradient(AbstractFunctional):
    r"""The derivatives :math:`\partial_j f(x_i)` at points, those of the first point before those of the second.

    Args:
        points: The p points, (p, d).
        features: The positions of the features j; all by default. There are q = p times their number of derivatives.

    Raises:
        ValueError: If a position is not one of a feature.

    Example:
        >>> posterior.of(kpp.functionals.Gradient(x[:1])).mean.round(2)
        Array([[[1.  , 0.24]]], dtype=float64)
    """

    points: Float[Array, "p d"]
    features: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, points: Numbers, features: Sequence[int] | None = None) -> None:
        self.points = as_points(points, "points")
        every = range(self.points.shape[1])
        self.features = tuple(every if features is None else map(operator.index, features))

    def __check_init__(self) -> None:
        dim = self.points.shape[1]
        wrong = [feature for feature in self.features if not 0 <= feature < dim]
        if wrong or not self.features:
            raise ValueError(f"`features` must hold positions from 0 to {dim - 1}, got {wrong or self.features}")

    @property
    def num_values(self) -> int:
        return self.points.shape[0] * len(self.features)

    def apply(self, function: PointFunction) -> Float[Array, "q *outputs"]:
        """Return the derivatives of a function that maps each point on its own."""

        def along(direction: Array) -> Array:
            return jax.jvp(function, (self.points,), (jnp.broadcast_to(direction, self.points.shape),))[1]

        slopes = jax.vmap(along, out_axes=1)(self._directions)
        return slopes.reshape(-1, *slopes.shape[2:])

    def adjoint(self, kernel: AbstractKernel, coefficients: Float[Array, "q *outputs"]) -> RKHSFunction:
        points = jnp.repeat(self.points, len(self.features), axis=0)
        directions = jnp.tile(self._directions, (self.points.shape[0], 1))
        return RKHSFunction(WithDerivatives(kernel), DirectedPoints(points, directions), coefficients)

    def check_space(self, function: RKHSFunction) -> None:
        """Raise ValueError if the kernel has a kink where two points coincide: its functions have no derivatives.

        The variance of a difference quotient tends to the second derivative of the kernel if there is one, and to
        infinity if there is none. Traced functions are not checked.
        """
        if not all(map(is_concrete, jax.tree.leaves((self, function)))):
            return
        steps = _STEP * jnp.where(self.points.std(axis=0) > 0, self.points.std(axis=0), 1.0)
        for feature in self.features:
            if _has_kink(function, self.points[0], steps[feature], feature):
                raise ValueError(
                    f"a derivative needs a kernel whose functions have derivatives, got "
                    f"{type(function.kernel).__name__} with a kink where two points coincide; use RBF, Matern32 or "
                    "Matern52"
                )

    @property
    def _directions(self) -> Float[Array, "k d"]:
        return jnp.eye(self.points.shape[1], dtype=self.points.dtype)[jnp.asarray(self.features)]


def _has_kink(function: RKHSFunction, point: Array, step: Array, feature: int) -> bool:
    two = jnp.stack([point, point.at[feature].add(step)])
    gram, slopes = _near_one_point(function, two, feature)
    variances = gram[..., 0, 0] + gram[..., 1, 1] - 2 * gram[..., 0, 1]  # of a smooth kernel near slope * step^2
    return bool(jnp.any(variances > 2 * jnp.abs(slopes[..., 0, 0]) * step**2 + _ROUNDING * gram[..., 0, 0]))


@eqx.filter_jit
def _near_one_point(function: RKHSFunction, two: Float[Array, "2 d"], feature: int) -> tuple[Array, Array]:
    """Return the kernel matrices between two points, and their second derivatives, for all draws."""
    slope = Gradient(two, (feature,))

    return function.map_draws(lambda draw: (draw.kernel.gram(two), slope.prior_covariance(draw.kernel)))
