r"""Draws of mean outcomes with a value of the treatment along each edge out of it, by simulation of the mediators.

.. math:: \mathrm{E}\, Y(\pi) = \sum_i w_i \int \mathrm{E}[Y \mid \pi_Y, m, z_i]
    \prod_j p(m_j \mid \pi_j, m_{<j}, z_i)\, dm

For each draw of the hyperparameters the functions are drawn jointly at all rows and settings, so that differences
between settings have the uncertainty of the functions, and share the noise of each row.

Some edges out of a treatment carry its direct effect, others its indirect effect, if both are identified. A nested
counterfactual such as :math:`Y(t, M(t'))` sets the treatment to t along some paths, and to t' along the others. It is
identified only if it is an *edge intervention*: all paths that share their first edge have the same value. A child of
the treatment with paths of both kinds is a *recanting witness* (Avin, Shpitser and Pearl, 2005).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from kpp.causal import CausalDAG, CausalError, NotCoveredError
from kpp.causal.toolkit import as_nodes, causal_nodes, check_effect, check_question, directed_path
from kpp.data.tables import Scales
from kpp.foundation.wording import named
from kpp.functionals import GPPosterior
from kpp.gp import AbstractPointwiseLikelihood, GaussianLikelihood
from kpp.gp.toolkit import draw_gaussian
from kpp.typing import RngKey
from kpp_models.treatments.averaging.responses import mean_response
from kpp_models.treatments.regression import MAX_DRAWS, OutcomeFit, likelihood_of_draws


@dataclasses.dataclass(frozen=True)
class MediationQuestion:
    """The direct effect of a treatment on an outcome, and the one through mediators.

    `features` has for each variable on a causal path, in causal order, what its law depends on: the treatment first,
    then other variables on causal paths, then covariates.
    """

    graph: CausalDAG  # of the measured variables, without latent nodes
    treatment: str
    outcome: str
    indirect: dict[str, bool]  # whether paths that begin with an edge to this child lead through a mediator
    features: dict[str, tuple[str, ...]]

    @classmethod
    def read(
        cls, graph: CausalDAG, treatment: str, mediators: Sequence[str], outcome: str, columns: Collection[str]
    ) -> MediationQuestion:
        """Return the question, if columns identify its answer.

        Raises NotCoveredError if they do not, or not by a regression of each variable, and CausalError if a variable is
        unknown, not measured, or not on a causal path from treatment to outcome.
        """
        treatments, outcomes = check_question(graph, treatment, outcome)
        through = as_nodes(graph, mediators, "mediators")
        missing = (treatments | outcomes | through) - frozenset(columns)
        if missing:
            raise CausalError(f"`data` must have the columns {named(graph.sort(missing))}, they are missing")
        known = graph.hide(graph.observed - frozenset(columns)).project()
        check_effect(known, treatments, outcomes)
        between = causal_nodes(known, treatment=treatments, outcome=outcomes)
        off = through - (between - outcomes)
        if off or not through:
            raise CausalError(
                f"`mediators` must be variables on the causal paths from {treatment!r} to {outcome!r}, "
                f"{named(known.sort(between - outcomes))}, got {named(known.sort(off))}"
            )
        children = known.sort(known.children(treatment) & between)
        indirect = {child: _is_indirect(known, treatment, child, through, outcome) for child in children}
        relevant = known.ancestors(treatments | outcomes)
        order = [node for node in known.topological_order() if node in between]
        features = {node: _features(known, treatment, node, between, relevant) for node in order}
        return cls(known, treatment, outcome, indirect, features)


def _is_indirect(graph: CausalDAG, treatment: str, child: str, mediators: frozenset[str], outcome: str) -> bool:
    """Return whether the paths that begin with an edge lead through a mediator; raise NotCoveredError if some do."""
    if child in mediators:
        return True
    on_paths = graph.descendants(child) & graph.ancestors(outcome) & mediators
    around = directed_path(graph, child, outcome, avoiding=mediators)
    if on_paths and around is not None:
        first = directed_path(graph, child, on_paths)
        raise NotCoveredError(
            f"the direct effect of {treatment!r} on {outcome!r} is not identified: {child!r} is a recanting witness, "
            f"because the paths {treatment} -> {around} and {treatment} -> {first} -> ... -> {outcome} begin with the "
            f"same edge, and only the second leads through `mediators` {named(graph.sort(mediators))}; add {child!r} "
            "to the mediators for the effect through any of them"
        )
    return bool(on_paths)


def _features(
    graph: CausalDAG, treatment: str, node: str, between: frozenset[str], relevant: frozenset[str]
) -> tuple[str, ...]:
    """Return what a variable depends on: its parents, and its district with their parents.

    Raises NotCoveredError if a hidden cause connects it to the treatment or to another variable that the treatment
    affects: then the law of these is not a product of regressions, and for two variables with different values of the
    treatment nothing identifies it (the recanting district of Shpitser, 2013).
    """
    district = next(part for part in graph.districts(relevant) if node in part)
    confounded = district & (between | {treatment}) - {node}
    if confounded:
        raise NotCoveredError(
            f"no regression gives the law of {node!r}: hidden causes connect it to {named(graph.sort(confounded))}, "
            "and none of these may be confounded; measure the common causes and add them to `graph` and `data`"
        )
    found = (district | graph.parents(district)) - {node}
    parts = found & {treatment}, found & between, found - between - {treatment}
    return tuple(name for part in parts for name in graph.sort(part))


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
