"""Rows of a structural model for each draw of the posterior: new ones, or units under another intervention.

A unit says something of its noise and its hidden causes, which give its value at another latent value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Bool, Float
from numpyro import handlers

from kpp import linalg
from kpp.foundation.validation import as_finite_array, check_rng_key, one_of
from kpp.gp import AbstractPointwiseLikelihood, GaussianLikelihood, StudentTLikelihood
from kpp.inference import inspect_sites
from kpp.inference.toolkit import draw_map, flatten_draws, unflatten_draws
from kpp.numpyro_models.toolkit import read_samples
from kpp.typing import RngKey
from kpp_models.mechanisms.tables import common_length

PerUnit = Float[Array, " p"]


def draw_units(
    model: Any, rng_key: RngKey, posterior: object, columns: Mapping[str, Array], num_rows: int, do: Mapping[str, Any]
) -> xr.Dataset:
    """Return `StructuralModel.draw` of new rows, for a table that has been read."""
    actions = _read_actions(do, model.graph.nodes, num_rows)
    return _over_draws(_units_of_draw, model, rng_key, posterior, columns, num_rows, actions)


def counterfactual_units(
    model: Any,
    rng_key: RngKey,
    posterior: object,
    columns: Mapping[str, Array],
    units: Mapping[str, Array],
    do: Mapping[str, Any],
) -> xr.Dataset:
    """Return `StructuralModel.counterfactual`, for tables that have been read."""
    actions = _read_actions(do, model.graph.nodes, common_length(units))
    for node in model.graph.descendants(actions) - set(actions):
        check_noise(model.mechanisms[node].likelihood, node)
    return _over_draws(_counterfactual_of_draw, model, rng_key, posterior, columns, dict(units), actions)


def _over_draws(
    of_draw: Callable, model: Any, rng_key: RngKey, posterior: object, columns: Mapping[str, Array], *rest: Any
) -> xr.Dataset:
    """Return rows for each draw of the posterior, from its sites, its number and the other arguments."""
    draws = read_draws(model, posterior, columns)
    chains, num_draws = next(iter(draws.values())).shape[:2] if draws else (1, 1)
    numbers, shared = jnp.arange(chains * num_draws), (model, check_rng_key(rng_key), dict(columns), *rest)
    values = unflatten_draws(draw_map(of_draw)(flatten_draws(draws), numbers, shared), (chains, num_draws))
    return xr.Dataset({name: (("chain", "draw", "row"), np.asarray(values[name])) for name in model.graph.nodes})


def read_draws(model: Any, posterior: object, columns: Mapping[str, Array]) -> dict[str, Array]:
    """Return the draws of parameters, and of those latent variables which the law of new rows depends on."""
    sites = inspect_sites(model, {"table": dict(columns)})
    variables = {*model.graph.nodes, *model.hidden} - model.training_variables
    needed = {name: site for name, site in sites.items() if site.kind == "latent" and name not in variables}
    draws = read_samples(posterior, needed) if needed else {}
    missing = [name for name in needed if name not in draws]
    if missing:
        raise ValueError(f"`posterior` must hold draws of the sites {list(needed)}, got none of {missing}")
    return draws


def _units_of_draw(draw: dict[str, Array], number: Array, shared: Any) -> dict[str, Array]:
    model, rng_key, columns, num_rows, actions = shared
    parameters, variables = split_draw(model, draw)
    acting = handlers.do(handlers.substitute(model, data=parameters), data=actions)
    seeded = handlers.seed(acting, jax.random.fold_in(rng_key, number))
    with jax.numpy_rank_promotion("allow"):  # NumPyro broadcasts arrays of different ranks
        values: dict[str, Array] = seeded(num_rows=num_rows, training=columns | variables)
    return values


def _counterfactual_of_draw(draw: dict[str, Array], number: Array, shared: Any) -> dict[str, Array]:
    """Return the values of units under an intervention, by abduction, action and prediction."""
    model, rng_key, columns, units, actions = shared
    parameters, variables = split_draw(model, draw)
    key, cause_key, *keys = jax.random.split(jax.random.fold_in(rng_key, number), 2 + 2 * len(model.graph))
    mechanisms = handlers.seed(handlers.substitute(model.draw_mechanisms, data=parameters), key)()
    size, past = common_length(units), columns | variables
    # Counterfactual values extend the draw of the factual ones: both must be values of one function.
    white = {node: jax.random.normal(key, (2 * size,)) for node, key in zip(mechanisms, keys[::2], strict=True)}
    zeros = dict.fromkeys(model.hidden, jnp.zeros(2 * size))  # hidden causes are added afterwards

    def latent(node: str, values: Mapping[str, Array], num_rows: int) -> Array:
        mechanism = mechanisms[node]
        known = model.past(node, past) if mechanism.needs_training and past else None
        causes = model.inputs(node, {name: column[:num_rows] for name, column in {**values, **zeros}.items()}, num_rows)
        return mechanism.latent(causes, white[node][:num_rows], known)

    before = {node: latent(node, units, size) for node in mechanisms}
    causes = draw_hidden(cause_key, mechanisms, list(model.hidden), units, before)
    values = units | actions
    for node, key in zip(mechanisms, keys[1::2], strict=True):
        if node in model.graph.descendants(actions) and node not in actions:
            both = {name: jnp.concatenate([units[name], values[name]]) for name in model.graph.parents(node)}
            pull = sum((mechanisms[node].loadings.get(name, 0.0) * causes[name] for name in causes), jnp.zeros(size))
            after = latent(node, both, 2 * size)[size:]
            values[node] = respond(key, mechanisms[node].likelihood, units[node], before[node] + pull, after + pull)
    return values


def split_draw(model: Any, draw: dict[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the parameters and the variables of a draw."""
    variables = {name: value for name, value in draw.items() if name in model.graph or name in model.hidden}
    return {name: value for name, value in draw.items() if name not in variables}, variables


def _read_actions(do: Mapping[str, Any], nodes: tuple[str, ...], num_rows: int) -> dict[str, Array]:
    actions = {}
    for name, value in do.items():
        one_of(name, "do", nodes)
        array = as_finite_array(value, f"do[{name!r}]")
        if array.shape not in ((), (num_rows,)):
            raise ValueError(f"`do[{name!r}]` must be a number or have shape ({num_rows},), got shape {array.shape}")
        actions[name] = jnp.broadcast_to(array, (num_rows,))
    return actions


# Candidates for hidden causes of labels and counts, whose weights are bounded by the likelihood.
_NUM_CANDIDATES = 256
# Quantiles stay below 1 by more than the rounding error of a sum of probabilities.
_HIGHEST = 1.0 - 1e-12


def check_noise(likelihood: AbstractPointwiseLikelihood, node: str) -> None:
    """Raise ValueError if an observation is neither a latent value plus noise nor a whole number."""
    if not isinstance(likelihood, (GaussianLikelihood, StudentTLikelihood)) and not likelihood.support.is_discrete:
        raise ValueError(
            f"`do` must not affect {node!r}: a counterfactual needs Gaussian or Student-t noise, labels, levels or "
            f"counts, got {type(likelihood).__name__}"
        )


def draw_hidden(
    rng_key: RngKey,
    mechanisms: Mapping[str, Any],
    causes: list[str],
    units: Mapping[str, Array],
    latent: Mapping[str, Array],
) -> dict[str, PerUnit]:
    r"""Draw the hidden causes of p units given all their variables.

    .. math:: u = u_0 + L^\top (L L^\top + D)^{-1} (r - L u_0 - e_0), \qquad u_0 \sim N(0, I),\; e_0 \sim N(0, D)

    r are the residuals of the variables with Gaussian noise, of variances D, and L their loadings. Candidates of this
    law are weighted by the likelihood of other variables. `latent` holds the latent values of each node without hidden
    causes, (p,).
    """
    if not causes:
        return {}
    nodes = [node for node, mechanism in mechanisms.items() if mechanism.loadings]
    exact = [node for node in nodes if isinstance(mechanisms[node].likelihood, GaussianLikelihood)]
    others = [node for node in nodes if node not in exact]
    size, draws = len(units[nodes[0]]), _NUM_CANDIDATES if others else 1
    prior_key, noise_key, choice_key = jax.random.split(rng_key, 3)
    candidates = jax.random.normal(prior_key, (draws, len(causes), size))
    if exact:
        loadings = jnp.stack([_row(mechanisms[node].loadings, causes) for node in exact])
        variances = jnp.stack([jnp.asarray(mechanisms[node].likelihood.noise_variance) for node in exact])
        residuals = jnp.stack([units[node] - latent[node] for node in exact])
        white = jax.random.normal(noise_key, (draws, *residuals.shape))
        factor = linalg.cholesky(loadings @ loadings.T + jnp.diag(variances), what="the covariance of the residuals")

        def given_residuals(prior: Array, white: Array) -> Array:
            gap = residuals - loadings @ prior - jnp.sqrt(variances)[:, None] * white  # r - L u_0 - e_0
            return prior + loadings.T @ linalg.cho_solve(factor, gap)

        candidates = jax.lax.map(lambda pair: given_residuals(*pair), (candidates, white))
    weights = jnp.zeros((draws, size))
    for node in others:
        density = mechanisms[node].likelihood.observe(units[node]).log_density
        pulls = jnp.einsum("k,mkp->mp", _row(mechanisms[node].loadings, causes), candidates)
        weights += jax.lax.map(density, latent[node][None] + pulls)
    chosen = jax.random.categorical(choice_key, weights, axis=0)
    return {cause: candidates[chosen, place, jnp.arange(size)] for place, cause in enumerate(causes)}


def _row(loadings: Mapping[str, Any], causes: list[str]) -> Float[Array, " k"]:
    return jnp.stack([jnp.asarray(loadings.get(cause, 0.0), float) for cause in causes])


def respond(
    rng_key: RngKey, likelihood: AbstractPointwiseLikelihood, observed: PerUnit, before: PerUnit, after: PerUnit
) -> PerUnit:
    """Return the values of units at the latent values `after`, with the noise that they have at those of `before`.

    With noise that is added, the residuals are kept; of labels, levels and counts the quantiles, which are drawn.
    """
    if isinstance(likelihood, (GaussianLikelihood, StudentTLikelihood)):
        return observed + after - before
    level, below = _climb(likelihood, before, lambda level, _: level < observed)
    mass = jnp.exp(likelihood.observe(level).log_density(before))
    quantile = jnp.minimum(below + jax.random.uniform(rng_key, below.shape) * mass, _HIGHEST)
    return _climb(likelihood, after, lambda _, total: total <= quantile)[0]


def _climb(
    likelihood: AbstractPointwiseLikelihood, latent: PerUnit, goes_on: Callable[[Array, Array], Bool[Array, " p"]]
) -> tuple[PerUnit, PerUnit]:
    """Count up from 0 while a condition on k and P(Y <= k) holds; return k and P(Y < k)."""

    def at_most(state: tuple[Array, Array]) -> Array:
        return state[1] + jnp.exp(likelihood.observe(state[0]).log_density(latent))

    def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
        total = at_most(state)
        higher = goes_on(state[0], total)
        return jnp.where(higher, state[0] + 1.0, state[0]), jnp.where(higher, total, state[1])

    start = jnp.zeros_like(latent), jnp.zeros_like(latent)
    return jax.lax.while_loop(lambda state: jnp.any(goes_on(state[0], at_most(state))), step, start)
