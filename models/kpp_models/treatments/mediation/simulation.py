r"""Draws of mean outcomes with a value of the treatment along each edge out of it, by simulation of the mediators.

.. math:: \mathrm{E}\, Y(\pi) = \sum_i w_i \int \mathrm{E}[Y \mid \pi_Y, m, z_i]
    \prod_j p(m_j \mid \pi_j, m_{<j}, z_i)\, dm

For each draw of the hyperparameters the functions are drawn jointly at all rows and settings, so that differences
between settings have the uncertainty of the functions, and share the noise of each row.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from kpp.data.tables import Scales
from kpp.functionals import GPPosterior
from kpp.gp import AbstractPointwiseLikelihood, GaussianLikelihood
from kpp.gp.toolkit import draw_gaussian
from kpp.typing import RngKey
from kpp_models.treatments.averaging.responses import mean_response
from kpp_models.treatments.mediation.edges import MediationQuestion
from kpp_models.treatments.regression import MAX_DRAWS, OutcomeFit, likelihood_of_draws

# The rows of one average: a joint draw takes a matrix of (settings * rows)^2 numbers.
_MAX_ROWS = 200
# The least number of draws: functions and rows are drawn several times for each of few draws of hyperparameters.
_NUM_DRAWS = 200


class Setting(NamedTuple):
    """The value of the treatment along each edge, by child, and variables that are held at values."""

    edges: dict[str, float]
    held: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Regression:
    """The regression of a variable on its features, with draws of the hyperparameters."""

    posterior: GPPosterior
    likelihood: AbstractPointwiseLikelihood
    scales: Scales
    center: float
    width: float

    @classmethod
    def of_fit(cls, found: OutcomeFit) -> Regression:
        """Return the regression of a fit, with few enough draws."""
        kept = found.fit.thin(MAX_DRAWS)[0]
        likelihood = likelihood_of_draws(kept)
        assert likelihood is not None  # the models of `fit_outcome` have one
        return cls(kept.function_posterior(), likelihood, found.scales, found.center, found.width)

    def at_draw(self, position: tuple[int, ...]) -> tuple[GPPosterior, AbstractPointwiseLikelihood]:
        """Return the posterior and the likelihood of one draw."""
        arrays, static = eqx.partition(self.likelihood, eqx.is_array)
        return self.posterior.at_draw(position), eqx.combine(jax.tree.map(lambda a: a[position], arrays), static)


def mean_outcomes(
    rng_key: RngKey,
    question: MediationQuestion,
    regressions: dict[str, Regression],
    covariates: dict[str, np.ndarray],
    num_rows: int,
    settings: Sequence[Setting],
) -> Float[np.ndarray, "chain draw s"]:
    """Return draws of the mean outcome in each setting.

    There is a regression of each variable that the treatment affects; the covariates are the other features by name,
    (n,). Raises FloatingPointError if a covariance matrix cannot be factorized.
    """

    def of_draw(key: RngKey, draws: Any, table: dict[str, Any]) -> Array:
        row_key, key = jax.random.split(key)
        rows, weights = _draw_rows(row_key, num_rows)
        known = {name: column[rows] for name, column in table.items()}
        values: list[dict[str, Array]] = [dict(known) for _ in settings]
        for node in question.features:
            key, latent_key, noise_key = jax.random.split(key, 3)
            laws = [_depends_on(question, node, setting) for setting in settings]
            distinct = [laws.index(law) for law in dict.fromkeys(laws)]
            scale = regressions[node].scales
            designs = [_design(question, scale, node, settings[place], values[place], len(rows)) for place in distinct]
            posterior, likelihood = draws[node]
            points = jnp.concatenate(designs)
            size = jnp.mean(posterior.mean.kernel.diagonal(points))
            latent = draw_gaussian(latent_key, posterior.mean(points), posterior.covariance(points, points), size)
            latent = latent.reshape(len(distinct), -1)
            # One draw of the noise for all settings: it cancels in differences where the function does.
            answer = mean_response if node == question.outcome else _observation(noise_key, len(rows))
            for place, setting in enumerate(settings):
                found = answer(likelihood, latent[distinct.index(laws.index(laws[place]))])
                column = regressions[node].center + regressions[node].width * found
                values[place][node] = jnp.full_like(column, setting.held[node]) if node in setting.held else column
        return jnp.stack([jnp.dot(weights, value[question.outcome]) for value in values])

    run = eqx.filter_jit(of_draw)
    shape = next(iter(regressions.values())).posterior.batch_shape
    repeats = -(-_NUM_DRAWS // math.prod(shape))
    means = np.empty((*shape, repeats, len(settings)))
    for place, key in zip(np.ndindex(*shape), jax.random.split(rng_key, math.prod(shape)), strict=True):
        draws = {node: found.at_draw(place) for node, found in regressions.items()}
        means[place] = [run(each, draws, covariates) for each in jax.random.split(key, repeats)]
    if not np.isfinite(means).all():
        raise FloatingPointError("the draws of the effect are not finite: a covariance matrix cannot be factorized")
    return means.reshape(shape[0], -1, len(settings))


def _depends_on(question: MediationQuestion, node: str, setting: Setting) -> tuple:
    """Return what determines the law of a variable in a setting: settings with equal ones share its values."""
    causes = question.graph.ancestors(node)
    edges = tuple(value for child, value in setting.edges.items() if child in causes)
    return edges, tuple(item for item in setting.held.items() if item[0] in causes)


def _draw_rows(rng_key: RngKey, num_rows: int) -> tuple[Array, Array]:
    """Return rows and their weights: all by the Bayesian bootstrap, or a part drawn by these weights."""
    weight_key, choice_key = jax.random.split(rng_key)
    weights = jax.random.dirichlet(weight_key, jnp.ones(num_rows))
    if num_rows <= _MAX_ROWS:
        return jnp.arange(num_rows), weights
    rows = jax.random.choice(choice_key, num_rows, (_MAX_ROWS,), p=weights)
    return rows, jnp.full(_MAX_ROWS, 1.0 / _MAX_ROWS)


def _design(
    question: MediationQuestion, scales: Scales, node: str, setting: Setting, values: dict[str, Array], num_rows: int
) -> Float[Array, "n d"]:
    """Return the features of a variable in a setting, in the units of its fit."""
    names = scales.schema.feature_names
    columns = [setting.edges[node] if name == question.treatment else values[name] for name in names]
    points = jnp.stack([jnp.broadcast_to(column, (num_rows,)) for column in columns], axis=1)
    return (points - scales.center[None]) / scales.scale[None]


def _observation(rng_key: RngKey, num_rows: int) -> Callable[[AbstractPointwiseLikelihood, Array], Array]:
    """Return a function from latent values to observations, whose noise has spread-out quantiles over the rows."""
    order_key, place_key = jax.random.split(rng_key)
    order = jax.random.permutation(order_key, num_rows)
    quantiles = (order + jax.random.uniform(place_key, (num_rows,))) / num_rows  # one in each of n strata

    def observe(likelihood: AbstractPointwiseLikelihood, latent: Array) -> Array:
        if isinstance(likelihood, GaussianLikelihood):
            return latent + jnp.sqrt(likelihood.noise_variance) * ndtri(quantiles)
        return (quantiles < mean_response(likelihood, latent)).astype(latent.dtype)

    return observe
