"""New rows of a structural model, one set for each draw of the posterior."""

from __future__ import annotations

from collections.abc import Mapping
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


def draw_units(
    model: Any, rng_key: RngKey, posterior: object, columns: Mapping[str, Array], num_rows: int, do: Mapping[str, Any]
) -> xr.Dataset:
    """Return `StructuralModel.draw` of new rows, for a table that has been read."""
    draws = _read_draws(model, posterior, columns)
    chains, num_draws = next(iter(draws.values())).shape[:2] if draws else (1, 1)
    actions = {name: _as_action(value, name, model.graph.nodes, num_rows) for name, value in do.items()}
    numbers, shared = jnp.arange(chains * num_draws), (model, check_rng_key(rng_key), dict(columns), num_rows, actions)
    values = unflatten_draws(draw_map(_units_of_draw)(flatten_draws(draws), numbers, shared), (chains, num_draws))
    return xr.Dataset({name: (("chain", "draw", "row"), np.asarray(values[name])) for name in model.graph.nodes})


def _read_draws(model: Any, posterior: object, columns: Mapping[str, Array]) -> dict[str, Array]:
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
    variables = {name: value for name, value in draw.items() if name in model.graph or name in model.hidden}
    parameters = {name: value for name, value in draw.items() if name not in variables}
    seeded = handlers.seed(
        handlers.do(handlers.substitute(model, data=parameters), data=actions), jax.random.fold_in(rng_key, number)
    )
    with jax.numpy_rank_promotion("allow"):  # NumPyro broadcasts arrays of different ranks
        values: dict[str, Array] = seeded(num_rows=num_rows, training=columns | variables)
    return values


def _as_action(value: object, name: str, nodes: tuple[str, ...], num_rows: int) -> Array:
    one_of(name, "do", nodes)
    array = as_finite_array(value, f"do[{name!r}]")
    if array.shape not in ((), (num_rows,)):
        raise ValueError(f"`do[{name!r}]` must be a number or have shape ({num_rows},), got shape {array.shape}")
    return jnp.broadcast_to(array, (num_rows,))
