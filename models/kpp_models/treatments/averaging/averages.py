r"""The law of a weighted average of a Gaussian process, for several sets of weights of the rows.

.. math:: g = \sum_i w_i\, L_i f, \qquad \mathrm{E}\, g = \sum_i w_i\, L_i m, \qquad
    \mathrm{Cov}(g, g') = \sum_{ij} w_i w_j\, L_i c L_j'^\top

L_i f are the values at row i under settings of the treatment, or the derivative there.

The covariance is a double sum over all rows. For many rows it is that under the law of
`kpp.gp.toolkit.condition_by_inducing`. The part of the inducing points Z takes one matrix (n, m) for each value of the
treatment. The rest is computed at few rows,

.. math:: \mathrm{Var}\, g = \|\phi\|^2 - \|R^\top k_Z\|^2 + \bar w^\top (K - \Phi \Phi^\top)\, \bar w, \qquad
    k_Z = \sum_i w_i\, k(Z, (t, z_i)), \quad \phi = L^{-1} k_Z, \quad L L^\top = k(Z, Z),

where :math:`\bar w` are equal weights of the few rows. The rest is what the inducing points leave out. Few rows
overstate it a little.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kpp.functionals import AbstractFunctional, Average, Combination, FunctionalLaw, GPPosterior, Gradient
from kpp.functionals.toolkit import PartialDependence
from kpp.gp.toolkit import inducing_features
from kpp.typing import RngKey


def row_weights(rng_key: RngKey, shape: tuple[int, ...], mask: Bool[Array, " n"], bootstrap: bool) -> jax.Array:
    r"""Return weights of rows that sum to 1: Dirichlet(1, ..., 1) on the rows of the subgroup, or equal ones."""
    shape = (*shape, len(mask))
    # Independent exponentials over their sum are Dirichlet(1, ..., 1), also within a subgroup.
    numbers = jax.random.exponential(rng_key, shape) if bootstrap else jnp.ones(shape)
    numbers = jnp.where(mask, numbers, 0.0)
    return numbers / jnp.sum(numbers, axis=-1, keepdims=True)


@eqx.filter_jit
def weighted_laws(
    posterior: GPPosterior, functional: Callable[[Array], AbstractFunctional], weights: Float[Array, "*batch b n"]
) -> FunctionalLaw:
    """Return the laws of q averages, means (b, q) and covariances (b, q, q), led by the draws of the posterior.

    Args:
        posterior: The posterior.
        functional: The averages for weights (n,), as an `equinox.Partial`, so that programs are compiled once.
        weights: The b sets of weights for every draw; they share the kernel matrices.
    """

    def of_draw(draw: GPPosterior, loads: Array) -> FunctionalLaw:
        return jax.vmap(lambda shares: draw.of(functional(shares)))(loads)

    return posterior.map_draws(of_draw, weights)


def average_derivative(rows: Float[Array, "n d"], column: int, weights: Float[Array, " n"]) -> Combination:
    """Return the weighted average of the derivatives at rows with respect to one column.

    The derivative of a Gaussian process is Gaussian. JAX differentiates its mean and covariance, without differences.
    """
    return weights[None] @ Gradient(rows, (column,))


def policy_average(
    points: Float[Array, "l n d"], chances: Float[Array, "q l n"], weights: Float[Array, " n"]
) -> Average:
    """Return the averages over rows under q policies, which give l treatments to each row by chance."""
    loads = chances * weights[None, None]
    return Average(points.reshape(-1, points.shape[-1]), loads.reshape(len(chances), -1))


def average_by_inducing(
    draw: GPPosterior,
    rows: Float[Array, "n d"],
    column: int,
    values: Float[Array, " t"],
    weights: Float[Array, "b n"],
    few: Float[Array, "m d"],
) -> tuple[FunctionalLaw, Float[Array, " t"]]:
    """Return the laws of the averages at t values of a column, means (b, t) and covariances (b, t, t).

    The covariances contain the variances that the inducing points leave out, (t,), which are returned, too. They are
    computed at `few`, a sample of the rows.
    """
    shared, mean = draw.shared, draw.mean
    kernel, inducing = shared.mean.kernel, shared.mean.points
    whitener = inducing_features(kernel, inducing, inducing[:1])[0]

    def at_value(value: Array) -> Array:
        return jnp.matmul(weights, mean.kernel(rows.at[:, column].set(value), mean.points), precision="highest")

    sections = jnp.swapaxes(jax.lax.map(at_value, values), 0, 1)  # one matrix (n, m) in memory at a time
    means = sections @ mean.coefficients + mean.intercept  # weights sum to 1
    sections = sections[..., : len(inducing)]  # without a function that was added to the mean
    at_few = PartialDependence(few, column, values)
    explained = at_few.representer(kernel)(inducing).T @ whitener.T
    left_out = at_few.prior_covariance(kernel) - explained @ explained.T
    features, whitened = sections @ whitener.T, sections @ shared.root
    covariance = jnp.matmul(features, jnp.swapaxes(features, 1, 2), precision="highest") + left_out[None]
    covariance -= jnp.matmul(whitened, jnp.swapaxes(whitened, 1, 2), precision="highest")
    return FunctionalLaw(means, covariance), jnp.maximum(jnp.diagonal(left_out), 0.0)


@eqx.filter_jit
def laws_by_inducing(
    rng_key: RngKey,
    posterior: GPPosterior,
    rows: Float[Array, "n d"],
    column: int,
    values: Float[Array, " t"],
    draw_weights: Callable[[RngKey], Float[Array, "b n"]],
    few: Float[Array, "m d"],
) -> tuple[FunctionalLaw, Float[Array, "*batch t"]]:
    """Return `average_by_inducing` for each draw of the posterior; the weights of all draws would fill the memory."""

    def of_draw(draw: GPPosterior, key: RngKey) -> tuple[FunctionalLaw, Array]:
        return average_by_inducing(draw, rows, column, values, draw_weights(key), few)

    return posterior.map_draws(of_draw, jax.random.split(rng_key, posterior.batch_shape))
