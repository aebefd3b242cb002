"""The record in an explanation of how it was made."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kpp import registry
from kpp.causal import CausalDAG, CausalOrder
from kpp.games import AbstractValueFunction, ShapleyEstimate
from kpp.typing import RngKey


def describe_value_function(value_function: AbstractValueFunction) -> dict[str, Any]:
    """Return the registered or class name of a value function, its simple options, and how many points it holds.

    The points are its background and, if it has any, its landmarks.
    """
    cls = type(value_function)
    registered = cls in registry.value_functions().values()
    record: dict[str, Any] = {
        "value_function": registry.name_of("value_functions", cls) if registered else cls.__name__
    }
    for field in dataclasses.fields(value_function):
        value = getattr(value_function, field.name)
        if field.name == "background":
            record["background_size"] = np.shape(value)[0]
        elif field.name == "landmarks" and value is not None:
            record["landmarks"] = np.shape(value)[0]
        elif isinstance(value, (str, bool, int, float)):
            record[field.name] = value
        elif isinstance(value, (np.ndarray, jax.Array)) and np.ndim(value) == 0:
            record[field.name] = np.asarray(value).item()
        elif isinstance(value, (CausalDAG, CausalOrder)):
            record[field.name] = str(value)
        elif dataclasses.is_dataclass(value):
            record[field.name] = type(value).__name__
    return record


def describe_estimate(estimate: ShapleyEstimate, rng_key: RngKey | None) -> dict[str, Any]:
    """Return how values were computed, and the numbers of the random key if coalitions were sampled.

    A requested tolerance is recorded with whether it was reached.
    """
    record: dict[str, Any] = {"method": estimate.method, "exact": estimate.exact}
    if estimate.num_nodes is not None:
        record["nodes"] = estimate.num_nodes
    if estimate.num_coalitions is not None:
        record["coalitions"] = estimate.num_coalitions
    if estimate.tolerance is not None:
        record |= {"tolerance": estimate.tolerance, "tolerance_reached": estimate.tolerance_reached}
    if not estimate.exact and rng_key is not None:
        record["rng_key"] = describe_key(rng_key)
    return record


def describe_key(rng_key: RngKey) -> list[int]:
    """Return the numbers of a random key."""
    is_typed = jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(rng_key) if is_typed else rng_key).tolist()
