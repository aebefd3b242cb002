r"""Averages of mean responses: of an outcome that is not a number with noise, but a label, a count or a level.

.. math:: g(t) = \sum_i w_i\, h\bigl(f(t, z_i)\bigr), \qquad h(f) = \mathrm{E}[Y \mid f]

g is not Gaussian. Its draws come from joint draws of f at all rows and values of the treatment, and are exact given the
posterior of f, which is Gaussian. Its mean given hyperparameters and weights is an integral of one variable for each
row, which the likelihood has in closed form or by quadrature.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kpp.functionals import Combination, GPPosterior, Gradient, Values
from kpp.gp import AbstractPointwiseLikelihood
from kpp.typing import RngKey
from kpp_models.treatments.averaging.joint_draws import Grid, at_settings, draw_over_grid, root


@eqx.filter_jit
def average_responses(
    rng_key: RngKey,
    posterior: GPPosterior,
    likelihood: AbstractPointwiseLikelihood,
    rows: Float[Array, "n d"],
    column: int,
    values: Float[Array, "t *n"],
    weights: Float[Array, "*batch b n"],
    grid: Grid | None,
    chances: Float[Array, "q t n"] | None = None,
) -> tuple[Float[Array, "*batch b q"], Float[Array, "*batch b q"]]:
    """Draw the averages of the mean response over rows (n, d) in which one column is set to a value.

    The likelihood of new observations and the posterior of f have the same draws of the hyperparameters. There are b
    sets of weights of the rows for every draw, and `grid` is that of rows and values (see `make_grid`). Returns one
    draw of the averages for each set of weights, (b, t), and their expectations given the hyperparameters and the
    weights, (b, t), led by the draws of the posterior. With the chances of t treatments of each row under q policies
    both are (b, q).
    """
    arrays, static = eqx.partition(likelihood, eqx.is_array)
    keys = jax.random.split(rng_key, posterior.batch_shape)
    points = at_settings(rows, column, values)
    pattern, further = ("tn,bn->bt", []) if chances is None else ("tn,bn,qtn->bq", [chances])

    def of_draw(draw: GPPosterior, law: PyTree, loads: Array, key: RngKey) -> tuple[Array, Array]:
        known = eqx.combine(law, static)
        responses = _responses(known, draw_over_grid(key, draw, rows, column, values, grid, len(loads)))
        expected = jax.lax.map(lambda x: known.response_mean(draw.mean(x), draw.variance(x)), points)
        curves = jnp.einsum("b" + pattern, responses, loads, *further, precision="highest")
        return curves, jnp.einsum(pattern, expected, loads, *further, precision="highest")

    return posterior.map_draws(of_draw, arrays, weights, keys)


@eqx.filter_jit
def draw_responses(
    rng_key: RngKey,
    posterior: GPPosterior,
    likelihood: AbstractPointwiseLikelihood | None,
    rows: Float[Array, "n d"],
    column: int,
    values: Float[Array, " t"],
    grid: Grid | None,
    num_draws: int,
) -> Float[Array, "*batch b t n"]:
    """Draw the mean responses of rows themselves, b times for each draw of the posterior; see `average_responses`."""
    arrays, static = eqx.partition(likelihood, eqx.is_array)
    keys = jax.random.split(rng_key, posterior.batch_shape)

    def of_draw(draw: GPPosterior, law: PyTree, key: RngKey) -> Array:
        latent = draw_over_grid(key, draw, rows, column, values, grid, num_draws)
        return latent if mean_is_latent(likelihood) else _responses(eqx.combine(law, static), latent)

    return posterior.map_draws(of_draw, arrays, keys)


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


def _responses(likelihood: AbstractPointwiseLikelihood, latent: Float[Array, "b t n"]) -> Float[Array, "b t n"]:
    found = jax.lax.map(lambda f: mean_response(likelihood, f), latent.reshape(-1, latent.shape[-1]))
    return found.reshape(latent.shape)


def mean_is_latent(likelihood: object) -> bool:
    """Return whether the mean of an observation is the latent value, as it is for numbers with noise around it."""
    if not isinstance(likelihood, AbstractPointwiseLikelihood):
        return True
    return type(likelihood).response_mean is AbstractPointwiseLikelihood.response_mean


def mean_response(likelihood: AbstractPointwiseLikelihood, latent: Float[Array, " n"]) -> Float[Array, " n"]:
    """Return the means of new observations given their latent values, (n,)."""
    return likelihood.response_mean(latent, jnp.zeros_like(latent))
