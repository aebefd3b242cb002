"""Players of a game: single features, or groups of features that join a coalition together.

The columns of a one-hot encoding, the pixels of a patch or the lags of one series are present or absent together. The
game among such groups is the quotient game: its coalitions are the unions of groups, so every estimator works on it
unchanged once it knows which features a player brings. For a product kernel a player's factor is the product of its
features' factors.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

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


@dataclasses.dataclass(frozen=True)
class Players:
    """The players: disjoint groups of features, in the order of their first features.

    A feature that belongs to no group is absent from every coalition except the full one. `as_players` puts every
    feature into a group; the estimators leave out null players, whose contributions are 0.

    Args:
        names: One name per player, g of them.
        groups: The features of each player, positions from 0 to d - 1.
        num_features: d.
    """

    names: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    num_features: int

    @property
    def num_players(self) -> int:
        """The number of players, g."""
        return len(self.groups)

    @property
    def are_features(self) -> bool:
        """Whether every feature is a player of its own, in order."""
        return self.groups == tuple((j,) for j in range(self.num_features))

    @functools.cached_property
    def membership(self) -> Int[np.ndarray, " d"]:
        """The player that each feature belongs to, -1 for features of no player."""
        membership = np.full(self.num_features, -1)
        for player, group in enumerate(self.groups):
            membership[list(group)] = player
        return membership

    def expand(self, coalitions: Bool[AnyArray, "c g"]) -> Coalitions:
        """Return coalitions of features from coalitions of players.

        Returns:
            Booleans of shape (c, d): the features of the players that are present; in the full coalition all features.
        """
        if self.are_features:
            return coalitions
        full = coalitions.all(axis=1, keepdims=True)
        conditions = (self.membership < 0)[None], full, coalitions[:, np.maximum(self.membership, 0)]
        return np.where(*conditions) if isinstance(coalitions, np.ndarray) else jnp.where(*conditions)

    def multiply(self, factors: Float[Array, "d *rest"]) -> Float[Array, "g *rest"]:
        """Multiply the factors of each player's features."""
        if self.are_features:
            return factors
        sizes = collections.defaultdict(list)
        for player, group in enumerate(self.groups):
            sizes[len(group)].append(player)
        parts = [jnp.prod(factors[np.array([self.groups[k] for k in players])], axis=1) for players in sizes.values()]
        return jnp.concatenate(parts)[np.argsort(np.concatenate(list(sizes.values())))]

    def keep(self, mask: Bool[np.ndarray, " g"]) -> Players:
        """Return the players for which a mask is True; the features of the others belong to no player."""
        kept = np.flatnonzero(mask)
        return Players(tuple(self.names[k] for k in kept), tuple(self.groups[k] for k in kept), self.num_features)


def as_players(groups: object, num_features: int, feature_names: Sequence[str] | None = None) -> Players:
    """Read groups of features.

    Args:
        groups: A mapping from a group's name to its features, by position from 0 or by name; a single feature need not
            be in a list. Features that are not mentioned are players of their own, under their own names. None if all
            are. `Players` are returned unchanged.
        num_features: d.
        feature_names: The d features' names; by default ``x0, x1, ...``.

    Returns:
        The players, in the order of their first features.

    Raises:
        ValueError: If a group is empty, a feature is unknown or in two groups, or two players share a name.
        TypeError: If `groups` is not a mapping.
    """
    names = tuple(feature_names) if feature_names is not None else tuple(f"x{j}" for j in range(num_features))
    if isinstance(groups, Players):
        if groups.num_features != num_features:
            raise ValueError(f"`groups` are of {groups.num_features} features, but `x` has {num_features}")
        return groups
    if groups is None:
        return Players(names, tuple((j,) for j in range(num_features)), num_features)
    if not isinstance(groups, Mapping):
        raise TypeError(f"`groups` must be a mapping from names to features, or None, got {type(groups).__name__}")
    named = {str(name): _positions(str(name), features, names) for name, features in groups.items()}
    counts = collections.Counter(feature for group in named.values() for feature in group)
    repeated = [names[feature] for feature, count in sorted(counts.items()) if count > 1]
    if repeated:
        raise ValueError(f"`groups` must hold each feature at most once, got {repeated} more often")
    single = [(names[j], (j,)) for j in range(num_features) if j not in counts]
    clashes = sorted(name for name, _ in single if name in named)
    if clashes:
        raise ValueError(f"`groups` must not be called like a feature outside of them, got {clashes}")
    ordered = sorted([*named.items(), *single], key=lambda player: min(player[1]))
    return Players(tuple(name for name, _ in ordered), tuple(group for _, group in ordered), num_features)


def _positions(name: str, features: object, feature_names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the positions of a group's features, sorted."""
    members = [features] if isinstance(features, str) or not hasattr(features, "__iter__") else list(features)
    if not members:
        raise ValueError(f"`groups` must hold at least one feature each, got none for {name!r}")
    return tuple(sorted(_position(name, member, feature_names) for member in members))


def _position(name: str, feature: Any, feature_names: tuple[str, ...]) -> int:
    if isinstance(feature, str):
        if feature not in feature_names:
            raise ValueError(
                f"`groups` {name!r} holds the unknown feature {feature!r}; there are {list(feature_names)}"
            )
        return feature_names.index(feature)
    try:
        position = operator.index(feature)
    except TypeError:
        raise ValueError(f"`groups` {name!r} must hold positions or names of features, got {feature!r}") from None
    if not 0 <= position < len(feature_names):
        raise ValueError(f"`groups` {name!r} must hold positions from 0 to {len(feature_names) - 1}, got {position}")
    return position
