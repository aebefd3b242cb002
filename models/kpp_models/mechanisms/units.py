"""Rows of a structural model for each draw of the posterior: new ones, or units under another intervention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array
from numpyro import handlers

from kpp.foundation.validation import as_finite_array, check_rng_key, one_of
from kpp.inference import inspect_sites
from kpp.inference.toolkit import draw_map, flatten_draws, unflatten_draws
from kpp.numpyro_models.toolkit import read_samples
from kpp.typing import RngKey
from kpp_models.mechanisms.noise import check_noise, draw_hidden, respond
from kpp_models.mechanisms.tables import common_length


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
    seeded = handlers.seed(
        handlers.do(handlers.substitute(model, data=parameters), data=actions), jax.random.fold_in(rng_key, number)
    )
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
    return {name: _as_action(value, name, nodes, num_rows) for name, value in do.items()}


def _as_action(value: object, name: str, nodes: tuple[str, ...], num_rows: int) -> Array:
    one_of(name, "do", nodes)
    array = as_finite_array(value, f"do[{name!r}]")
    if array.shape not in ((), (num_rows,)):
        raise ValueError(f"`do[{name!r}]` must be a number or have shape ({num_rows},), got shape {array.shape}")
    return jnp.broadcast_to(array, (num_rows,))
