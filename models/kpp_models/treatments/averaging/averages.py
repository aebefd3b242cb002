r"""The law of a weighted average of a Gaussian process, for several sets of weights of the rows.

.. math:: g = \sum_i w_i\, L_i f, \qquad \mathrm{E}\, g = \sum_i w_i\, L_i m, \qquad
    \mathrm{Cov}(g, g') = \sum_{ij} w_i w_j\, L_i c L_j'^\top

L_i f are the values at row i under settings of the treatment, or the derivative there.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kpp.functionals import AbstractFunctional, Average, FunctionalLaw, GPPosterior
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


def policy_average(
    points: Float[Array, "l n d"], chances: Float[Array, "q l n"], weights: Float[Array, " n"]
) -> Average:
    """Return the averages over rows under q policies, which give l treatments to each row by chance."""
    loads = chances * weights[None, None]
    return Average(points.reshape(-1, points.shape[-1]), loads.reshape(len(chances), -1))
