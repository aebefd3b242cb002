"""The columns that an explanation shows for groups of features that form one player each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from kpp.data.tables import Schema
from kpp.games.toolkit import Players
from kpp.typing import AnyArray


def freeze_groups(groups: Any) -> tuple[tuple[str, tuple[Any, ...]], ...] | None:
    """Return groups as pairs of a name and members, which an explainer can keep as a static field.

    Args:
        groups: A mapping from the name of a player to names or positions of features, such pairs already, or None.

    Returns:
        The pairs, which can be compared and written into a spec; None if `groups` is None.

    Raises:
        TypeError: If `groups` is neither a mapping nor pairs.
    """
    if groups is None:
        return None
    try:
        pairs = [(str(name), members) for name, members in (groups.items() if isinstance(groups, Mapping) else groups)]
        return tuple(
            (name, (members,) if isinstance(members, (str, int)) else tuple(members)) for name, members in pairs
        )
    except (TypeError, ValueError):
        raise TypeError(
            "`groups` must map the name of each group to names or positions of features, such as {'size': [0, 1]}, "
            f"got {groups!r}"
        ) from None


class GroupedPoints(NamedTuple):
    """Points in the form of `Explanation.create`, with one column per group of features.

    Attributes:
        data: One column per player, (p, g): the values of a single feature, the codes of the levels of one-hot columns,
            and NaN for any other group, which does not have a single value.
        schema: The names of the players; the levels of a player of one-hot columns are the names of the columns.
        groups: The columns of each player that has several, or one under another name.
    """

    data: Float[np.ndarray, "p g"]
    schema: Schema
    groups: dict[str, list[str]]


def group_points(
    x: Float[AnyArray, "p d"], players: Players, schema: Schema, others: Sequence[Any] = ()
) -> GroupedPoints:
    """Arrange points by players.

    Args:
        x: The points, (p, d).
        players: The players, from `kpp.games.as_players`.
        schema: The names of the features and the levels of categorical ones.
        others: Further points, (n, d) each, such as the background: a group counts as one-hot if each row of them and
            of `x` has a single 1 in its columns, and otherwise zeros.

    Returns:
        The columns of the players, their names, and the columns of each player.
    """
    x, others = np.asarray(x), [np.asarray(points) for points in others]
    columns: list[np.ndarray] = []
    levels: dict[str, tuple[Any, ...]] = {}
    groups: dict[str, list[str]] = {}
    for name, members in zip(players.names, players.groups, strict=True):
        features = [schema.feature_names[j] for j in members]
        if features != [name]:
            groups[name] = features
        column, known = _column(x, others, list(members), features, schema)
        columns.append(column)
        levels |= {name: known} if known else {}
    return GroupedPoints(np.stack(columns, axis=1).astype(float), Schema(players.names, levels), groups)


def _column(
    x: np.ndarray, others: Sequence[np.ndarray], members: list[int], features: list[str], schema: Schema
) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Return the values of a player, and the levels that their codes stand for, if any."""
    if len(members) == 1:
        return x[:, members[0]], tuple(schema.levels.get(features[0], ()))
    if all(_is_one_hot(points[:, members]) for points in (x, *others)):
        return np.argmax(x[:, members], axis=1).astype(float), tuple(features)
    return np.full(len(x), np.nan), ()


def _is_one_hot(columns: np.ndarray) -> bool:
    return bool(np.isin(columns, (0.0, 1.0)).all() and (columns.sum(axis=1) == 1.0).all())
