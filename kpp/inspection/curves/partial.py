r"""Partial dependence as a linear functional, the mean of a function over rows in which one feature is set to values.

Under a product kernel the factor of the feature leaves the average over the rows, and the product of all other factors
is the kernel itself between rows in which the feature has one value,

.. math:: \frac1m \sum_i k\bigl((t, z_i), x\bigr) = k_j(t, x_j)\,
    \frac1m \sum_i \frac{k\bigl((t_0, z_i), (t_0, x_{-j})\bigr)}{k_j(t_0, t_0)},

which takes one kernel matrix for all values t, and no table of factors.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kpp.functionals import AbstractFunctional
from kpp.functions import RKHSFunction
from kpp.games.toolkit import has_product_terms
from kpp.kernels import AbstractKernel, AbstractProductKernel
from kpp.typing import PointFunction


class PartialDependence(AbstractFunctional):
    r"""The means :math:`\frac1m \sum_i f(t, z_i)` for p values t of a feature.

    Args:
        rows: The rows, (m, d).
        column: The position of the feature.
        values: The values t, (p,).
    """

    rows: Float[Array, "m d"]
    column: Int[Array, ""]
    values: Float[Array, " p"]

    @property
    def num_values(self) -> int:
        """The number of values of the feature."""
        return self.values.shape[0]

    def apply(self, function: PointFunction) -> Float[Array, "p *outputs"]:
        """Return the means of a function."""
        if not (isinstance(function, RKHSFunction) and eqx.is_array(function.points)):
            return jax.lax.map(lambda value: jnp.mean(function(self._at(self.rows, value)), axis=0), self.values)
        sections = self._mean_sections(function.kernel, function.points)
        numbers = jnp.tensordot(sections, function.coefficients, axes=1, precision="highest")
        return numbers + jnp.broadcast_to(function.intercept, numbers.shape)

    def prior_covariance(
        self, kernel: AbstractKernel, other: AbstractFunctional | None = None
    ) -> Float[Array, "p q_other"]:
        """Return the covariance under the prior; under a product kernel it takes one matrix of the rows."""
        if other is not None:
            return super().prior_covariance(kernel, other)
        if has_product_terms(kernel):
            parts = [
                self._factor(term, self._settings) * jnp.mean(self._absent(term, self.rows))
                for term in kernel.product_terms()
            ]
            return jnp.sum(jnp.stack(parts), axis=0)
        every = jax.vmap(lambda value: self._at(self.rows, value))(self.values).reshape(-1, self.rows.shape[1])
        return self._mean_sections(kernel, every).reshape(self.num_values, self.num_values, -1).mean(axis=2)

    def _mean_sections(self, kernel: AbstractKernel, points: Float[Array, "n d"]) -> Float[Array, "p n"]:
        """Return the means of the kernel between the rows and points."""
        if not has_product_terms(kernel):
            return jax.lax.map(lambda value: jnp.mean(kernel(self._at(self.rows, value), points), axis=0), self.values)
        parts = [
            self._factor(term, points) * jnp.mean(self._absent(term, points), axis=0, keepdims=True)
            for term in kernel.product_terms()
        ]
        return jnp.sum(jnp.stack(parts), axis=0)

    def _factor(self, term: AbstractProductKernel, points: Float[Array, "n d"]) -> Float[Array, "p n"]:
        """Return the factor of the feature between its values and points."""
        return term.factors(self._settings, points)[self.column]

    def _absent(self, term: AbstractProductKernel, points: Float[Array, "n d"]) -> Float[Array, "m n"]:
        """Return the term without the factor of the feature, between the rows and points."""
        own = jnp.diagonal(term.factors(self._settings, self._settings)[self.column])
        # The value at which the factor is largest: a factor may be 0 at some values, such as that of a linear kernel.
        value, divisor = self.values[jnp.argmax(own)], jnp.max(own)
        shared = term(self._at(self.rows, value), self._at(points, value))
        return shared / jnp.where(divisor > 0, divisor, 1.0)

    @property
    def _settings(self) -> Float[Array, "p d"]:
        """A row with each of the values."""
        return self._at(jnp.tile(self.rows[:1], (self.num_values, 1)), self.values)

    def _at(self, points: Float[Array, "n d"], value: Float[Array, "*n"]) -> Float[Array, "n d"]:
        return points.at[:, self.column].set(value)
