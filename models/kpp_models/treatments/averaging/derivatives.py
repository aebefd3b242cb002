r"""The average derivative of a regression with respect to one column.

.. math:: \theta = \sum_i w_i\, \partial_t f(t_i, z_i), \qquad
    \mathrm{Var}\, \theta = \sum_{ij} w_i w_j\, \partial_t \partial_{t'} c\bigl((t_i, z_i), (t_j, z_j)\bigr)

The derivative of a Gaussian process is Gaussian, with the derivatives of its mean and covariance. JAX computes them
from the kernel, without differences.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kpp.functionals import Combination, GPPosterior, Gradient, Values
from kpp.gp import AbstractPointwiseLikelihood
from kpp.typing import RngKey
from kpp_models.treatments.averaging.joint_draws import root
from kpp_models.treatments.averaging.responses import mean_response


def average_derivative(rows: Float[Array, "n d"], column: int, weights: Float[Array, " n"]) -> Combination:
    """Return the weighted average of the derivatives at rows with respect to one column."""
    return weights[None] @ Gradient(rows, (column,))


@eqx.filter_jit
def average_response_derivatives(
    rng_key: RngKey,
    posterior: GPPosterior,
    likelihood: AbstractPointwiseLikelihood,
    rows: Float[Array, "n d"],
    column: int,
    weights: Float[Array, "*batch b n"],
) -> Float[Array, "*batch b"]:
    r"""Draw the average derivative of the mean response, :math:`\sum_i w_i\, h'(f_i)\, \partial_t f_i`, (b,).

    The values of f and its derivatives at all rows are drawn jointly, once for each of b sets of weights and each draw
    of the hyperparameters, which posterior and likelihood share.
    """
    arrays, static = eqx.partition(likelihood, eqx.is_array)
    keys = jax.random.split(rng_key, posterior.batch_shape)

    values_and_slopes = Combination((Values(rows), Gradient(rows, (column,))))

    def of_draw(draw: GPPosterior, law: PyTree, loads: Array, key: RngKey) -> Array:
        known, joint = eqx.combine(law, static), draw.of(values_and_slopes)
        white = jax.random.normal(key, (len(loads), len(joint.mean)), joint.mean.dtype)
        both = joint.mean[None] + white @ root(joint.covariance).T
        values, slopes = both[:, : len(rows)], both[:, len(rows) :]

        def of_one(pair: tuple[Array, Array]) -> Array:
            return jax.jvp(lambda f: mean_response(known, f), (pair[0],), (pair[1],))[1]  # h'(f) df/dt

        return jnp.sum(loads * jax.lax.map(of_one, (values, slopes)), axis=-1)

    return posterior.map_draws(of_draw, arrays, weights, keys)
