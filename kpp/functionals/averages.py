"""Values of a function at points, and weighted averages of them."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.foundation.validation import as_finite_array, finite_arrays
from kpp.functionals.functional import AbstractFunctional
from kpp.functions import RKHSFunction
from kpp.kernels import AbstractKernel
from kpp.typing import Numbers, PointFunction, Points


def _points(value: Points) -> Points:
    return finite_arrays(value, "points")


def _weights(value: Numbers) -> Array:
    return as_finite_array(value, "weights")


class Values(AbstractFunctional):
    r"""The values of a function at points, :math:`f(x_i)`.

    Args:
        points: The q points, an array (q, d) or another batch that kernels accept.
    """

    points: Points = eqx.field(converter=_points)

    @property
    def num_values(self) -> int:
        """The number of points."""
        return jax.tree.leaves(self.points)[0].shape[0]

    def apply(self, function: PointFunction) -> Float[Array, "q *outputs"]:
        """Return the values of a function."""
        return function(self.points)

    def representer(self, kernel: AbstractKernel) -> PointFunction:
        """Return the kernel's sections at the points, an `RKHSFunction`."""
        return RKHSFunction(kernel, self.points, jnp.eye(self.num_values))

    def prior_covariance(
        self, kernel: AbstractKernel, other: AbstractFunctional | None = None
    ) -> Float[Array, "q q_other"]:
        """Return the covariance under the prior; with itself it is a kernel matrix."""
        return kernel.gram(self.points) if other is None else super().prior_covariance(kernel, other)


class Average(AbstractFunctional):
    r"""Weighted sums of the values of a function at points, :math:`\sum_i w_{oi} f(x_i)`.

    Partial dependence, average effects, means of bags, quadrature rules, and inputs that are known up to a distribution
    are averages.

    Args:
        points: The m points, an array (m, d) or another batch that kernels accept.
        weights: The weights, (m,) for one number or (q, m) for q of them; 1 / m by default, the mean.

    Raises:
        ValueError: If the weights do not fit the points.
    """

    points: Points = eqx.field(converter=_points)
    weights: Float[Array, "q m"]

    def __init__(self, points: Points, weights: Numbers | None = None) -> None:
        self.points = points
        size = jax.tree.leaves(points)[0].shape[0]
        self.weights = jnp.atleast_2d(jnp.full(size, 1.0 / size) if weights is None else _weights(weights))

    def __check_init__(self) -> None:
        size = jax.tree.leaves(self.points)[0].shape[0]
        if self.weights.ndim != 2 or self.weights.shape[1] != size:
            raise ValueError(f"`weights` must have shape ({size},) or (q, {size}), got shape {self.weights.shape}")

    @property
    def num_values(self) -> int:
        """The number of weighted sums."""
        return self.weights.shape[0]

    def apply(self, function: PointFunction) -> Float[Array, "q *outputs"]:
        """Return the weighted sums of the values of a function."""
        return jnp.tensordot(self.weights, function(self.points), axes=1, precision="highest")

    def representer(self, kernel: AbstractKernel) -> PointFunction:
        """Return the weighted sums of kernel sections, an `RKHSFunction`."""
        return RKHSFunction(kernel, self.points, self.weights.T)
