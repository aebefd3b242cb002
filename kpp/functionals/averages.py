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
from kpp.storage.serialization import data_class
from kpp.typing import Numbers, PointFunction, Points


def _points(value: Points) -> Points:
    return finite_arrays(value, "points")


@data_class
class Values(AbstractFunctional):
    r"""The values of a function at points, :math:`f(x_i)`.

    Args:
        points: The q points, an array (q, d) or another batch that kernels accept.
    """

    points: Points = eqx.field(converter=_points)

    @property
    def num_values(self) -> int:
        return jax.tree.leaves(self.points)[0].shape[0]

    def apply(self, function: PointFunction) -> Float[Array, "q *outputs"]:
        return function(self.points)

    def representer(self, kernel: AbstractKernel) -> PointFunction:
        return self.adjoint(kernel, jnp.eye(self.num_values))

    def adjoint(self, kernel: AbstractKernel, coefficients: Float[Array, "q *outputs"]) -> RKHSFunction:
        return RKHSFunction(kernel, self.points, coefficients)

    def prior_covariance(
        self, kernel: AbstractKernel, other: AbstractFunctional | None = None
    ) -> Float[Array, "q q_other"]:
        return kernel.gram(self.points) if other is None else super().prior_covariance(kernel, other)


@data_class
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
        self.weights = jnp.atleast_2d(
            jnp.full(size, 1.0 / size) if weights is None else as_finite_array(weights, "weights")
        )

    def __check_init__(self) -> None:
        size = jax.tree.leaves(self.points)[0].shape[0]
        if self.weights.ndim != 2 or self.weights.shape[1] != size:
            raise ValueError(f"`weights` must have shape ({size},) or (q, {size}), got shape {self.weights.shape}")

    @property
    def num_values(self) -> int:
        return self.weights.shape[0]

    def apply(self, function: PointFunction) -> Float[Array, "q *outputs"]:
        return jnp.tensordot(self.weights, function(self.points), axes=1, precision="highest")

    def representer(self, kernel: AbstractKernel) -> PointFunction:
        return self.adjoint(kernel, jnp.eye(self.num_values))

    def adjoint(self, kernel: AbstractKernel, coefficients: Float[Array, "q *outputs"]) -> RKHSFunction:
        return RKHSFunction(kernel, self.points, jnp.tensordot(self.weights.T, coefficients, axes=1))
