"""The change of an outcome between two tables, divided among the mechanisms of a structural model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpyro import handlers

from kpp.explanations import Explanation
from kpp.foundation.validation import check_rng_key, count, one_of
from kpp.games import all_coalitions, shapley_values_from_table
from kpp.inference.toolkit import draw_map, flatten_draws, unflatten_draws
from kpp.runtime.memory import check_count
from kpp.typing import RngKey
from kpp_models.mechanisms.tables import read_units
from kpp_models.mechanisms.units import read_draws, split_draw

# All 2^g coalitions are simulated for each draw of the posterior.
_MAX_PLAYERS = 12


def change_between(
    model: Any, rng_key: RngKey, periods: dict[str, Any], outcome: str, statistic: Callable[[Array], Any], num_rows: int
) -> Explanation:
    """Return `StructuralModel.attribute_change`, for two periods by the names of their arguments."""
    graph = model.graph
    one_of(outcome, "outcome", graph.nodes)
    check_count(count(num_rows, "num_rows"), "num_rows", len(graph))
    relevant = graph.ancestors(outcome) | {outcome}
    players = [graph.sort(district & relevant) for district in graph.districts() if district & relevant]
    if len(players) > _MAX_PLAYERS:
        raise ValueError(f"`outcome` must depend on at most {_MAX_PLAYERS} mechanisms, got {len(players)}")
    (first, before), (second, after) = (_read_period(model, period, name) for name, period in periods.items())
    shape, other = (next(iter(draws.values())).shape[:2] if draws else (1, 1) for draws in (first, second))
    if shape != other:
        raise ValueError(f"`second` must have as many chains and draws as `first`, {shape}, got {other}")
    chains, num_draws = shape
    coalitions = jnp.asarray(all_coalitions(len(players)))
    player = {node: number for number, group in enumerate(players) for node in group}
    shared = (model, check_rng_key(rng_key), flatten_draws(second), (before, after), coalitions, player)
    numbers, arguments = jnp.arange(chains * num_draws), (*shared, outcome, statistic, num_rows)
    values = draw_map(_values_of_draw)(flatten_draws(first), numbers, arguments)
    table = np.asarray(unflatten_draws(values, (chains, num_draws)))  # (chain, draw, coalition)
    parts = np.asarray(shapley_values_from_table(np.moveaxis(table, -1, 0)))
    names = [", ".join(group) for group in players]
    return Explanation.create(
        np.moveaxis(parts, 0, -1)[..., None, :],
        table[..., :1],
        table[..., -1:],
        np.full((1, len(names)), np.nan),
        feature_names=names,
        instance_names=[outcome],
        draws=True,
        groups=dict(zip(names, players, strict=True)),
        attrs={"observed_change": float(statistic(after[outcome]) - statistic(before[outcome]))},
    )


def _read_period(model: Any, period: Any, argument: str) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the draws of the posterior of a period, and its table."""
    if not isinstance(period, tuple) or len(period) != 2:
        raise TypeError(f"`{argument}` must be a pair (posterior, table), got {type(period).__name__}")
    columns = read_units(period[1], {}, model.graph.nodes, argument)
    return read_draws(model, period[0], columns), columns


def _values_of_draw(draw: dict[str, Array], number: Array, shared: Any) -> Float[Array, " c"]:
    """Return the statistic of the outcome for each coalition, whose mechanisms are those of the second period."""
    model, rng_key, others, tables, coalitions, player, outcome, statistic, num_rows = shared
    order = [node for node in model.graph.topological_order() if node in player]
    key, *keys = jax.random.split(jax.random.fold_in(rng_key, number), 1 + len(order) + len(model.hidden))
    # The same random numbers for all coalitions and both periods, so that they cancel in the differences.
    key_of = dict(zip((*order, *model.hidden), keys, strict=True))
    periods = []
    for table, sites in zip(tables, (draw, jax.tree.map(lambda values: values[number], others)), strict=True):
        parameters, variables = split_draw(model, sites)
        mechanisms = handlers.seed(handlers.substitute(model.draw_mechanisms, data=parameters), key)()
        periods.append((mechanisms, table | variables))

    def value(coalition: Bool[Array, " g"]) -> Float[Array, ""]:
        rows = {cause: jax.random.normal(key_of[cause], (num_rows,)) for cause in model.hidden}
        for node in order:
            causes, drawn = model.inputs(node, rows, num_rows), []
            for mechanisms, known in periods:
                past = model.past(node, known) if mechanisms[node].needs_training else None
                drawn.append(mechanisms[node].law(causes, past).sample(key_of[node]))
            rows[node] = jnp.where(coalition[player[node]], drawn[1], drawn[0])
        return jnp.asarray(statistic(rows[outcome]), float)

    with jax.numpy_rank_promotion("allow"):  # NumPyro broadcasts arrays of different ranks
        return jax.lax.map(value, coalitions)
