"""Coalitions: sets of features, as rows of booleans."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from kpp.typing import AnyArray

#: c coalitions of d features.
Coalitions = Bool[AnyArray, "c d"]

#: The values of c coalitions at p points, (*draws, c, p, *outputs); jaxtyping allows one group of axes of any number.
CoalitionTable = Array

#: p points to explain.
Instances = Float[AnyArray, "p d"]

#: The largest number of features whose coalitions are enumerated; a table of values then has a million rows.
MAX_ENUMERATED = 20


def all_coalitions(num_features: int) -> Bool[np.ndarray, "c d"]:
    """Return all coalitions of d features, in the order of their bit masks.

    Row b holds feature j if and only if bit j of b is set: the first row is empty, the last one full.

    Args:
        num_features: d, from 1 to 20.

    Returns:
        Booleans of shape (2^d, d).

    Raises:
        ValueError: If d is out of range.
    """
    if not 1 <= num_features <= MAX_ENUMERATED:
        raise ValueError(
            f"`num_features` must be from 1 to {MAX_ENUMERATED} to enumerate all coalitions, got {num_features}"
        )
    return (np.arange(2**num_features)[:, None] >> np.arange(num_features)[None, :]) % 2 == 1


def as_coalitions(coalitions: Any, num_features: int) -> Coalitions:
    """Return coalitions unchanged, if they are booleans of shape (c, d)."""
    if not hasattr(coalitions, "dtype"):
        coalitions = np.asarray(coalitions)
    if coalitions.dtype != jnp.bool_ or coalitions.ndim != 2 or coalitions.shape[1] != num_features:
        raise ValueError(
            f"`coalitions` must be booleans of shape (c, {num_features}), got shape {coalitions.shape} and dtype "
            f"{coalitions.dtype}"
        )
    return coalitions


def to_integers(coalitions: Bool[np.ndarray, "c g"]) -> list[int]:
    """Return coalitions (c, g) as c integers, bit j for player j; Python's are exact for any number of players."""
    return [int.from_bytes(row.tobytes(), "little") for row in np.packbits(coalitions, axis=1, bitorder="little")]


def from_integers(integers: Iterable[int], num_players: int) -> Bool[np.ndarray, "c g"]:
    """Return the coalitions, booleans (c, g), that integers from `to_integers` represent."""
    size = -(-num_players // 8)
    packed = np.frombuffer(b"".join(integer.to_bytes(size, "little") for integer in integers), dtype=np.uint8)
    return np.unpackbits(packed.reshape(-1, size), axis=1, count=num_players, bitorder="little").astype(bool)
