r"""The law of averages of a Gaussian process over weighted rows in which one column is set to a value.

.. math:: g(t) = \sum_i w_i\, f(t, z_i), \qquad \mathrm{E}\, g(t) = \sum_i w_i\, m(t, z_i), \qquad
    \mathrm{Cov}\bigl(g(t), g(t')\bigr) = \sum_{ij} w_i w_j\, c\bigl((t, z_i), (t', z_j)\bigr)
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.functionals import AbstractFunctional, FunctionalLaw, GPPosterior
from kpp.games.toolkit import has_product_terms
from kpp.kernels import AbstractKernel, AbstractProductKernel, Sum
from kpp.typing import PointFunction


class SettingAverages(AbstractFunctional):
    r"""Averages g(t) of a function over rows in which one column is set to t values.

    Args:
        rows: The rows, (n, d).
        column: The position of the column.
        values: The values, (t,).
        weights: The weights of the rows, (n,).
    """

    rows: Float[Array, "n d"]
    column: int = eqx.field(static=True)
    values: Float[Array, " t"]
    weights: Float[Array, " n"]

    @property
    def num_values(self) -> int:
        """The number of values of the column."""
        return self.values.shape[0]

    def apply(self, function: PointFunction) -> Float[Array, "t *outputs"]:
        """Return the averages of a function, one value of the column after another."""

        def at_value(value: Array) -> Array:
            return jnp.tensordot(self.weights, function(self.rows.at[:, self.column].set(value)), axes=1)

        return jax.lax.map(at_value, self.values)

    def prior_covariance(self, kernel: AbstractKernel, other: AbstractFunctional | None = None) -> Float[Array, "t q"]:
        """Return the covariance under the prior.

        A kernel with product terms takes a matrix of the rows for each term, and one of finite rank its features at the
        rows; any other kernel takes a kernel matrix for each pair of values. The parts of a sum are added.
        """
        if other is not None:
            return super().prior_covariance(kernel, other)
        if isinstance(kernel, Sum):
            return jnp.sum(jnp.stack([self.prior_covariance(part) for part in kernel.kernels]), axis=0)
        every = jnp.concatenate([self.rows.at[:, self.column].set(value) for value in self.values])
        features = kernel.finite_features(every)
        if features is not None:
            averages = self.weights @ features.reshape(len(self.values), len(self.rows), -1)
            return jnp.matmul(averages, averages.T, precision="highest")
        if has_product_terms(kernel):
            return jnp.sum(jnp.stack([self._product_covariance(term) for term in kernel.product_terms()]), axis=0)
        return self.apply(lambda x: self.apply(lambda z: kernel(z, x)).T)

    def _product_covariance(self, term: AbstractProductKernel) -> Float[Array, "t t"]:
        """Return the covariance under a product term: the factor of the values times an average over pairs of rows."""
        of_values, of_others = split_factors(term, self.rows, self.column, self.values)
        return of_values * jnp.dot(self.weights @ of_others, self.weights, precision="highest")


@eqx.filter_jit
def average_laws(
    posterior: GPPosterior,
    rows: Float[Array, "n d"],
    column: int,
    values: Float[Array, " t"],
    weights: Float[Array, "*batch b n"],
) -> FunctionalLaw:
    """Return the laws of averages over rows, means (b, t) and covariances (b, t, t), led by the draws of the posterior.

    One column is set to t values, and there are b sets of weights of the rows for every draw, which share the kernel
    matrices.
    """

    def of_draw(draw: GPPosterior, loads: Array) -> FunctionalLaw:
        return jax.vmap(lambda shares: draw.of(SettingAverages(rows, column, values, shares)))(loads)

    return posterior.map_draws(of_draw, weights)


def split_factors(
    term: AbstractProductKernel, rows: Float[Array, "n d"], column: int, values: Float[Array, " t"]
) -> tuple[Float[Array, "t t"], Float[Array, "n n"]]:
    """Split a product kernel at t values of one column and at rows: matrices (t, t), with the scale, and (n, n)."""
    # Without the barrier a program of jaxlib 0.12 reads uninitialized memory where the factor is the constant 1.
    of_others = jax.lax.optimization_barrier(jnp.prod(jnp.delete(term.factors(rows, rows), column, axis=0), axis=0))
    settings = jnp.tile(rows[:1], (len(values), 1)).at[:, column].set(values)
    return term.scale * term.factors(settings, settings)[column], of_others
