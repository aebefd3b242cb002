r"""Averages of mean responses: of an outcome that is not a number with noise, but a label, a count or a level.

.. math:: g(t) = \sum_i w_i\, h\bigl(f(t, z_i)\bigr), \qquad h(f) = \mathrm{E}[Y \mid f]

g is not Gaussian. Its draws come from joint draws of f at all rows and values of the treatment, and are exact given the
posterior of f, which is Gaussian. Its mean given hyperparameters and weights is an integral of one variable for each
row, which the likelihood has in closed form or by quadrature.

The joint draws are at all pairs of a value of one column and a row. Under a product kernel the prior covariance of the
pairs is a Kronecker product, so that a prior draw takes the roots of two small matrices (Saatçi, 2011). The posterior
draw follows by Matheron's rule for the law of `kpp.GPPosterior`:

.. math:: f - \mu - k(\cdot, X) R\, v, \qquad v = R^\top f(X) + S\, \xi, \qquad S S^\top = I - R^\top K_{XX} R

with f a draw of the prior without its mean and :math:`\xi` standard normal. v is standard normal, so the covariance is
:math:`k - k R R^\top k`, exactly. The draws under other kernels take the covariance matrix of all pairs.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from kpp.functionals import Combination, GPPosterior, Gradient, Values
from kpp.gp import AbstractPointwiseLikelihood
from kpp.gp.toolkit import draw_gaussian, prior_factor
from kpp.kernels import AbstractKernel, AbstractProductKernel, Sum
from kpp.kernels.toolkit import has_product_terms
from kpp.runtime.memory import check_count, check_memory
from kpp.typing import RngKey


class Grid(NamedTuple):
    """Different values of a column times different rows, among them the pairs of interest and the points."""

    values: Float[Array, " l"]
    rows: Float[Array, "m d"]  # no two of them are equal in the other columns
    settings: Int[Array, " t"]  # the positions of the values of interest among the values
    members: Int[Array, " n"]  # the positions of the rows of interest among the rows
    point_values: Int[Array, " p"]  # the positions of the points' values
    point_rows: Int[Array, " p"]  # the positions of the points' other columns


def make_grid(points: Any, rows: Float[np.ndarray, "n d"], column: int, values: Float[np.ndarray, " t"]) -> Grid | None:
    """Return the grid of rows and values of a column; None if every draw of the posterior has points of its own."""
    if np.ndim(points) != 2:
        return None
    every = np.concatenate([rows, np.asarray(points)])
    different, positions = np.unique(np.concatenate([values, every[len(rows) :, column]]), return_inverse=True)
    every[:, column] = 0.0  # rows that differ only in the treatment count once
    others, places = np.unique(every, axis=0, return_inverse=True)
    settings, point_values = np.split(positions, [len(values)])
    members, point_rows = np.split(places, [len(rows)])
    return Grid(*map(jnp.asarray, (different, others, settings, members, point_values, point_rows)))


def at_settings(rows: Float[Array, "n d"], column: int, values: Float[Array, "t *n"]) -> Float[Array, "t n d"]:
    """Return the rows with each of the values in the column, or with a value for each row."""
    return jax.vmap(lambda value: rows.at[:, column].set(value))(values)


def draw_over_grid(
    rng_key: RngKey, posterior: GPPosterior, rows: Array, column: int, values: Array, grid: Grid | None, num_draws: int
) -> Float[Array, "b t n"]:
    """Draw one posterior, without draws of hyperparameters, b times jointly at all rows with t values in one column.

    Without a grid of these rows and values it is drawn by the covariance matrix.
    """
    check_count(num_draws, "num_draws", 2 * len(rows) * len(values))
    shared = posterior.shared
    kernel = shared.mean.kernel
    if grid is None or not has_product_terms(kernel):
        return _draw_by_covariance(rng_key, posterior, at_settings(rows, column, values), num_draws)
    prior_key, noise_key = jax.random.split(rng_key)
    prior = _draw_prior(prior_key, kernel, grid, column, num_draws)
    projected = prior[:, grid.point_values, grid.point_rows] @ shared.root  # R^T f(X) of v
    gram = kernel.gram(shared.mean.points)
    explained = jnp.eye(shared.root.shape[1]) - shared.root.T @ gram @ shared.root
    noise = jax.random.normal(noise_key, projected.shape, projected.dtype) @ root(explained).T  # S xi of v

    def at_value(value: Array, setting: Array) -> Array:
        points = rows.at[:, column].set(value)
        update = (projected + noise) @ shared.whitened(points).T
        return posterior.mean(points)[None] + prior[:, setting, grid.members] - update

    return jnp.swapaxes(jax.lax.map(lambda pair: at_value(*pair), (values, grid.settings)), 0, 1)


def _draw_prior(
    rng_key: RngKey, kernel: AbstractKernel, grid: Grid, column: int, num_draws: int
) -> Float[Array, "b l m"]:
    if isinstance(kernel, Sum):
        keys = jax.random.split(rng_key, len(kernel.kernels))
        parts = zip(keys, kernel.kernels, strict=True)
        return functools.reduce(jnp.add, [_draw_prior(key, part, grid, column, num_draws) for key, part in parts])
    features = kernel.finite_features(at_settings(grid.rows, column, grid.values).reshape(-1, grid.rows.shape[1]))
    shape = num_draws, len(grid.values), len(grid.rows)
    if features is not None:
        loads = jax.random.normal(rng_key, (num_draws, features.shape[1]), features.dtype)
        return (loads @ features.T).reshape(shape)
    total = jnp.zeros(shape)
    terms = kernel.product_terms()
    for key, term in zip(jax.random.split(rng_key, len(terms)), terms, strict=True):
        of_values, of_others = map(prior_factor, _split_factors(term, grid.rows, column, grid.values))
        white = jax.random.normal(key, shape, total.dtype)
        total += jnp.einsum("ij,bjk,lk->bil", of_values, white, of_others, precision="highest")
    return total


def _split_factors(
    term: AbstractProductKernel, rows: Float[Array, "n d"], column: int, values: Float[Array, " t"]
) -> tuple[Float[Array, "t t"], Float[Array, "n n"]]:
    """Split a product kernel at t values of one column and at rows: matrices (t, t), with the scale, and (n, n)."""
    # Without the barrier a program of jaxlib 0.12 reads uninitialized memory where the factor is the constant 1.
    of_others = jax.lax.optimization_barrier(jnp.prod(jnp.delete(term.factors(rows, rows), column, axis=0), axis=0))
    settings = jnp.tile(rows[:1], (len(values), 1)).at[:, column].set(values)
    return term.scale * term.factors(settings, settings)[column], of_others


def _draw_by_covariance(
    rng_key: RngKey, posterior: GPPosterior, points: Float[Array, "t n d"], num_draws: int
) -> Float[Array, "b t n"]:
    every = points.reshape(-1, points.shape[-1])
    what = f"a joint draw at {len(every)} pairs of a treatment and a row under a kernel that is not a product"
    check_memory(3 * len(every) ** 2 * every.dtype.itemsize, what, "give fewer values of the treatment in `at`")
    mean, covariance = posterior.mean(every), posterior.covariance(every, every)
    scale = jnp.mean(posterior.mean.kernel.diagonal(every))
    keys = jax.random.split(rng_key, num_draws)
    draws = jax.vmap(lambda key: draw_gaussian(key, mean, covariance, scale))(keys)
    return draws.reshape(num_draws, *points.shape[:2])


def root(matrix: Float[Array, "*batch r r"]) -> Float[Array, "*batch r r"]:
    """Return roots of positive semi-definite matrices; rounding errors below 0 count as 0."""
    values, vectors = jnp.linalg.eigh((matrix + jnp.swapaxes(matrix, -1, -2)) / 2)  # Cholesky fails if singular
    return vectors * jnp.sqrt(jnp.maximum(values, 0.0))[..., None, :]


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
