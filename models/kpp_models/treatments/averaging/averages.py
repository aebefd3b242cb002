r"""The law of averages of a Gaussian process over weighted rows in which one column is set to a value.

.. math:: g(t) = \sum_i w_i\, f(t, z_i), \qquad \mathrm{E}\, g(t) = \sum_i w_i\, m(t, z_i), \qquad
    \mathrm{Cov}\bigl(g(t), g(t')\bigr) = \sum_{ij} w_i w_j\, c\bigl((t, z_i), (t', z_j)\bigr)
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.games.toolkit import has_product_terms
from kpp.kernels import AbstractKernel, AbstractProductKernel, Sum


@eqx.filter_jit
def average_laws(
    posterior: GPPosterior,
    rows: Float[Array, "n d"],
    column: int,
    values: Float[Array, " t"],
    weights: Float[Array, "*batch b n"],
) -> tuple[Float[Array, "*batch b t"], Float[Array, "*batch b t t"]]:
    """Return means (b, t) and covariances (b, t, t) of averages over rows, exactly, led by the draws of the posterior.

    One column is set to t values, and there are b sets of weights of the rows for every draw. The covariance under a
    kernel with product terms takes a matrix of the rows for each term, and that of a kernel of finite rank its features
    at the rows; any other kernel takes a kernel matrix for each pair of values. The parts of a sum are added.
    """

    def of_draw(mean: RKHSFunction, root: Array, loads: Array) -> tuple[Array, Array]:
        draw = GPPosterior(mean, root)

        def at_value(value: Array) -> tuple[Array, Array]:
            points = rows.at[:, column].set(value)
            return loads @ mean(points), loads @ draw.whitened(points)

        means, reduced = jax.lax.map(at_value, values)
        prior = _prior_covariance(mean.kernel, rows, column, values, loads)
        reduction = jnp.einsum("tbr,sbr->bts", reduced, reduced, precision="highest")
        return means.T, prior - reduction

    return posterior.mean.map_draws(of_draw, posterior.root, weights)


def _prior_covariance(
    kernel: AbstractKernel, rows: Array, column: int, values: Array, weights: Array
) -> Float[Array, "b t t"]:
    if isinstance(kernel, Sum):
        parts = [_prior_covariance(part, rows, column, values, weights) for part in kernel.kernels]
        return jnp.sum(jnp.stack(parts), axis=0)
    every = jnp.concatenate([rows.at[:, column].set(value) for value in values])
    features = kernel.finite_features(every)
    if features is not None:
        averages = weights @ features.reshape(len(values), len(rows), -1)
        return jnp.einsum("tbq,sbq->bts", averages, averages, precision="highest")
    if has_product_terms(kernel):
        terms = kernel.product_terms()
        return jnp.sum(jnp.stack([_product_covariance(term, rows, column, values, weights) for term in terms]), axis=0)

    def at_value(value: Array) -> Array:
        sections = weights @ kernel(rows.at[:, column].set(value), every)
        return jnp.einsum("btn,bn->bt", sections.reshape(len(weights), len(values), -1), weights, precision="highest")

    return jnp.swapaxes(jax.lax.map(at_value, values), 0, 1)


def _product_covariance(term: AbstractProductKernel, rows: Array, column: int, values: Array, weights: Array) -> Array:
    """Return the covariance under one product term: the factor of the values times an average over pairs of rows."""
    of_values, of_others = split_factors(term, rows, column, values)
    average = jnp.einsum("bn,bn->b", weights @ of_others, weights, precision="highest")
    return average[:, None, None] * of_values[None]


def split_factors(
    term: AbstractProductKernel, rows: Float[Array, "n d"], column: int, values: Float[Array, " t"]
) -> tuple[Float[Array, "t t"], Float[Array, "n n"]]:
    """Split a product kernel at t values of one column and at rows: matrices (t, t), with the scale, and (n, n)."""
    # Without the barrier a program of jaxlib 0.12 reads uninitialized memory where the factor is the constant 1.
    of_others = jax.lax.optimization_barrier(jnp.prod(jnp.delete(term.factors(rows, rows), column, axis=0), axis=0))
    settings = jnp.tile(rows[:1], (len(values), 1)).at[:, column].set(values)
    return term.scale * term.factors(settings, settings)[column], of_others
