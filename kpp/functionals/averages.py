r"""Values of a function at points, and weighted averages of them; partial dependence is one.

Partial dependence is a mean over rows in which some columns are set to values. Under a product kernel the factor of
these columns leaves the mean, and the product of all other factors is the kernel itself between rows in which the
columns have one value,

.. math:: \sum_i w_i\, k\bigl((t, z_i), x\bigr) = k_J(t, x_J)\,
    \sum_i w_i\, \frac{k\bigl((t_0, z_i), (t_0, x_{-J})\bigr)}{k_J(t_0, t_0)},

which takes one kernel matrix for all values t, and no table of factors.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kpp.foundation.validation import as_finite_array, as_points, finite_arrays
from kpp.functionals.functional import AbstractFunctional
from kpp.functions import RKHSFunction
from kpp.kernels import AbstractKernel, AbstractProductKernel, Sum
from kpp.kernels.toolkit import has_product_terms
from kpp.storage.serialization import data_class
from kpp.typing import Numbers, PointFunction, Points


def _points(value: Points) -> Points:
    return finite_arrays(value, "points")


@data_class
class Values(AbstractFunctional):
    r"""The values of a function at points, :math:`f(x_i)`.

    Args:
        points: The q points, an array (q, d) or another batch that kernels accept.

    Example:
        >>> law = posterior.of(kpp.functionals.Values(x[:2]))
        >>> law.mean.round(2), law.variance.round(3)
        (Array([[[0.1 , 0.65]]], dtype=float64), Array([[[0.004, 0.003]]], dtype=float64))
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

    Example:
        >>> posterior.of(kpp.functionals.Average(x)).mean.round(3)
        Array([[[-0.146]]], dtype=float64)
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


class PartialDependence(AbstractFunctional):
    r"""The weighted means :math:`\sum_i w_i f(t, z_i)` for p values t of some columns of rows.

    Args:
        rows: The rows, (m, d).
        columns: The position of the column, or those of c columns.
        values: The values, (p,) of one column or (p, c) of c columns.
        weights: The weights w of the rows, (m,); 1 / m by default.

    Raises:
        ValueError: If the values do not fit the columns, or the weights the rows.
    """

    rows: Float[Array, "m d"]
    columns: Int[Array, " c"]
    values: Float[Array, "p c"]
    weights: Float[Array, " m"]

    def __init__(self, rows: Numbers, columns: Numbers, values: Numbers, weights: Numbers | None = None) -> None:
        self.rows = as_points(rows, "rows")
        self.columns = jnp.atleast_1d(jnp.asarray(columns))
        values = as_finite_array(values, "values")
        self.values = values[:, None] if values.ndim == 1 else values
        size = self.rows.shape[0]
        self.weights = jnp.full(size, 1.0 / size) if weights is None else as_finite_array(weights, "weights")

    def __check_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1:] != self.columns.shape:
            raise ValueError(f"`values` must have shape (p, {len(self.columns)}), got shape {self.values.shape}")
        if self.weights.shape != self.rows.shape[:1]:
            raise ValueError(f"`weights` must have shape {self.rows.shape[:1]}, got shape {self.weights.shape}")

    @property
    def num_values(self) -> int:
        return self.values.shape[0]

    def apply(self, function: PointFunction) -> Float[Array, "p *outputs"]:
        if not (isinstance(function, RKHSFunction) and eqx.is_array(function.points)):
            return self._mean(function)
        sections = self._sections(function.kernel, function.points)
        numbers = jnp.tensordot(sections, function.coefficients, axes=1, precision="highest")
        return numbers + jnp.broadcast_to(function.intercept, numbers.shape) * jnp.sum(self.weights)

    def prior_covariance(
        self, kernel: AbstractKernel, other: AbstractFunctional | None = None
    ) -> Float[Array, "p q_other"]:
        """Return the covariance under the prior.

        A product kernel takes one matrix of the rows, and a kernel of finite rank its features. Any other kernel takes
        a matrix for each pair of values. The parts of a sum are added.
        """
        if other is not None:
            return super().prior_covariance(kernel, other)
        if isinstance(kernel, Sum):
            return jnp.sum(jnp.stack([self.prior_covariance(part) for part in kernel.kernels]), axis=0)
        if kernel.finite_features(self._settings) is not None:
            features = self._mean(kernel.finite_features)
            return jnp.matmul(features, features.T, precision="highest")
        if not has_product_terms(kernel):
            return super().prior_covariance(kernel)
        # XLA computes `_others` once for this and for `_sections` at the same rows, so `moments` need not share it.
        parts = [
            self._factor(term, self._settings) * jnp.dot(self._others(term, self.rows), self.weights)
            for term in kernel.product_terms()
        ]
        return jnp.sum(jnp.stack(parts), axis=0)

    def representer(self, kernel: AbstractKernel) -> PointFunction:
        return lambda x: self._sections(kernel, x).T

    def _sections(self, kernel: AbstractKernel, points: Points) -> Float[Array, "p n"]:
        """Return the means of the kernel between the rows and points."""
        if isinstance(kernel, Sum):
            return jnp.sum(jnp.stack([self._sections(part, points) for part in kernel.kernels]), axis=0)
        features = kernel.finite_features(points)
        if features is not None:
            return jnp.matmul(self._mean(kernel.finite_features), features.T, precision="highest")
        if not (has_product_terms(kernel) and eqx.is_array(points)):
            return self._mean(lambda rows: kernel(rows, points))
        parts = [self._factor(term, points) * self._others(term, points)[None] for term in kernel.product_terms()]
        return jnp.sum(jnp.stack(parts), axis=0)

    def _mean(self, function: PointFunction) -> Float[Array, "p *outputs"]:
        """Return the means of any function, one value after another."""

        def at_value(value: Array) -> Array:
            return jnp.tensordot(self.weights, function(self._at(self.rows, value)), axes=1, precision="highest")

        return jax.lax.map(at_value, self.values)

    def _factor(self, term: AbstractProductKernel, points: Float[Array, "n d"]) -> Float[Array, "p n"]:
        """Return the factor of the columns between their values and points."""
        return jnp.prod(term.factors(self._settings, points)[self.columns], axis=0)

    def _others(self, term: AbstractProductKernel, points: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Return the mean over the rows of the term without the factor of the columns, at points."""
        own = jnp.prod(jax.vmap(lambda x: term.evaluate_factors(x, x)[self.columns])(self._settings), axis=1)
        # The value at which the factor is largest: a factor may be 0 at some values, such as that of a linear kernel.
        value, divisor = self.values[jnp.argmax(own)], jnp.max(own)
        shared = term(self._at(self.rows, value), self._at(points, value))
        return jnp.matmul(self.weights, shared, precision="highest") / jnp.where(divisor > 0, divisor, 1.0)

    @property
    def _settings(self) -> Float[Array, "p d"]:
        """A row with each of the values."""
        return jnp.tile(self.rows[:1], (self.num_values, 1)).at[:, self.columns].set(self.values)

    def _at(self, points: Float[Array, "n d"], value: Float[Array, " c"]) -> Float[Array, "n d"]:
        return points.at[:, self.columns].set(value)
