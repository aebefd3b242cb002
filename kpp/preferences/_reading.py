"""Reading of matches: columns of tables, labels, counts, the canonical order of rows, and different items."""

from __future__ import annotations

import collections
import logging
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from kpp.data.tables import Schema, as_table, check_columns, columns_of_names, is_table, read_points, refuse_missing
from kpp.foundation.validation import as_points, as_targets, check_same_rows, refuse_masked
from kpp.typing import Numbers

_LOGGER = logging.getLogger("kpp")
_SHOWN = 5  # examples in a message
ITEM = "item"  # the feature of items that have only names

Levels = tuple[tuple[str, tuple[Any, ...]], ...]


class AbstractDescribedItems(eqx.Module):
    """Data on items in contexts, both of which are described by columns; `Matches` documents the fields."""

    item_names: tuple[str, ...] = eqx.field(static=True, default=(), kw_only=True)
    feature_names: tuple[str, ...] = eqx.field(static=True, default=(), kw_only=True)
    levels: Levels = eqx.field(static=True, default=(), kw_only=True)
    booleans: tuple[str, ...] = eqx.field(static=True, default=(), kw_only=True)
    context_names: tuple[str, ...] = eqx.field(static=True, default=(), kw_only=True)
    context_levels: Levels = eqx.field(static=True, default=(), kw_only=True)
    context_booleans: tuple[str, ...] = eqx.field(static=True, default=(), kw_only=True)

    @property
    def schema(self) -> Schema:
        """The columns of `items`."""
        return Schema(self.feature_names, dict(self.levels), self.booleans)

    @property
    def context_schema(self) -> Schema:
        """The columns of `contexts`."""
        return Schema(self.context_names, dict(self.context_levels), self.context_booleans)

    def description(self) -> dict[str, Any]:
        """Return the fields of this class by name."""
        return {name: getattr(self, name) for name in AbstractDescribedItems.__dataclass_fields__}


def described_by(schema: Schema) -> dict[str, Any]:
    """Return the fields that describe the columns of items."""
    return {"feature_names": schema.feature_names, "levels": tuple(schema.levels.items()), "booleans": schema.booleans}


def contexts_described_by(schema: Schema) -> dict[str, Any]:
    """Return the fields that describe the columns of contexts."""
    fields = described_by(schema)
    return {f"context_{name.removeprefix('feature_')}": value for name, value in fields.items()}


def numbers_of(values: object, name: str, num_rows: int | None = None) -> np.ndarray:
    """Return numbers of items or rows."""
    refuse_masked(values, name)
    array = np.asarray(values)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
        raise ValueError(
            f"`{name}` must hold numbers of rows, integers (N,), got shape {array.shape} and dtype {array.dtype}"
        )
    if num_rows is not None:
        check_same_rows(num_rows, len(array), "first", name)
    return array.astype(np.int64)


def outcomes(y: object, tie: float | int | None) -> np.ndarray:
    """Return labels as 1 (won), 0 (lost) and 0.5 (tie)."""
    if tie == 1:
        raise ValueError("`tie` must differ from 1, the label of a win, got 1")
    labels = np.asarray(as_targets(y), dtype=float)
    tied = np.zeros(labels.shape, bool) if tie is None else labels == tie
    found = np.unique(labels[~tied])
    if not any(np.isin(found, known).all() for known in ([0.0, 1.0], [-1.0, 1.0])):
        raise ValueError(
            f"`y` must hold the labels 1 and 0, or 1 and -1, got the values {found[:_SHOWN].tolist()}; say what a tie "
            "is labeled with, such as `tie=0.5` beside 0 and 1 or `tie=0` beside -1 and 1"
        )
    return np.where(tied, 0.5, np.maximum(labels, 0.0))


def counts(wins: object, losses: object, ties: object, num_rows: int) -> np.ndarray:
    """Return numbers of wins, losses and ties as the columns of one array."""
    parts = {"wins": wins, "losses": losses, "ties": np.zeros(num_rows) if ties is None else ties}
    columns = []
    for name, part in parts.items():
        column = np.asarray(as_targets(part, name=name), dtype=float)
        check_same_rows(num_rows, len(column), "first", name)
        wrong = np.flatnonzero((column < 0) | (column != np.round(column)))
        if wrong.size:
            raise ValueError(f"`{name}` must count matches, got {column[wrong[0]]:g} in row {wrong[0]}")
        columns.append(column)
    table = np.stack(columns, axis=1)
    empty = np.flatnonzero(table.sum(axis=1) == 0)
    if empty.size:
        raise ValueError(f"`wins`, `losses` and `ties` must count a match in each row, got none in row {empty[0]}")
    return table


def refuse_impossible(numbers: np.ndarray, num_items: int) -> None:
    """Raise ValueError if items do not exist, or are matched with themselves."""
    for column, name in zip(numbers.T, ("first", "second"), strict=True):
        wrong = np.flatnonzero((column < 0) | (column >= num_items))
        if wrong.size:
            raise ValueError(
                f"`{name}` must hold numbers from 0 to {num_items - 1}, rows of `items`, got {column[wrong[0]]} in row "
                f"{wrong[0]}"
            )
    selves = np.flatnonzero(numbers[:, 0] == numbers[:, 1])
    if selves.size:
        raise ValueError(
            f"`first` and `second` must be different items, got {selves.size} matches of an item with itself, first "
            f"in row {selves[0]}"
        )


def consolidate(
    numbers: np.ndarray, counts: np.ndarray, contexts: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Write each pair with the lower number first, sum the counts of equal pairs and contexts, and sort the rows."""
    swapped = numbers[:, 0] > numbers[:, 1]
    pairs = np.sort(numbers, axis=1)
    counts = np.where(swapped[:, None], counts[:, [1, 0, 2]], counts)
    keys = pairs
    if contexts is not None:
        contexts = contexts + 0.0  # turns -0. into 0., which would count as a different context
        code = np.unique(contexts, axis=0, return_inverse=True)[1].ravel()
        keys = np.column_stack([pairs, code])
    _, kept, row = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    totals = np.stack([np.bincount(row.ravel(), column, minlength=len(kept)) for column in counts.T], axis=1)
    return pairs[kept], totals, None if contexts is None else contexts[kept]


def item_table(items: Any, item: str, features: Sequence[str] | None) -> tuple[Any, list[Any]]:
    """Return the features of the items, and the items' names."""
    items = as_table(items, "items")
    if not is_table(items):
        if features is not None:
            raise ValueError("`features` names columns of a data frame of items, but `items` is an array")
        points = as_points(items, "items")
        return points, list(range(len(points)))
    names = labels(items, item, "items").tolist()
    twice = sorted({str(name) for name, number in collections.Counter(names).items() if number > 1})
    if twice:
        raise ValueError(f"`items` must name each item once in column {item!r}, got {twice[:_SHOWN]} more often")
    chosen = [column for column in items.columns if column != item] if features is None else list(features)
    table = columns(items, chosen, "items")
    if table is not None and features is None:
        unique = columns_of_names(table, read_points(table, "items")[1])
        if unique:
            _LOGGER.warning(
                "the text columns %s of `items` have another level in each of %d rows, as names have; they are left "
                "out; name them in `features` to keep them",
                unique,
                len(names),
            )
            table = columns(items, [column for column in chosen if column not in unique], "items")
    if table is None:
        raise ValueError(f"`items` must have columns that describe the items beside {item!r}, got none")
    return table, names


def read_items(
    points: np.ndarray, schema: Schema, contexts: object, num_rows: int, name: str
) -> tuple[dict[str, Any], np.ndarray | None]:
    """Return the fields of matches and rankings on items and contexts, and the contexts, one for each row, or None.

    There must be as many contexts as an argument called `name` has rows.
    """
    names = tuple(map(str, range(len(points))))
    fields = {"items": jnp.asarray(points, float), "item_names": names, **described_by(schema)}
    if contexts is None:
        return fields, None
    table, columns = read_points(contexts, "contexts")
    check_same_rows(num_rows, len(table), name, "contexts")
    return fields | {"contexts": jnp.asarray(table, float), **contexts_described_by(columns)}, table


def users_of(matches: Any, users: Any, user: str, contexts: Sequence[str]) -> Any:
    """Return the features of the user of each match, a table with one row per match."""
    if contexts:
        raise ValueError(f"`contexts` must be left out where `users` describe the contexts, got {list(contexts)}")
    table, names = item_table(users, user, None)
    rows = look_up(matches, user, names, "matches")
    return table.iloc[rows] if hasattr(table, "iloc") else table[rows]


def side(table: Any, prefix: str) -> Any:
    """Return the features of one side of the matches, by names without the prefix."""
    import pandas as pd

    if prefix in set(table.columns):
        return pd.DataFrame({ITEM: labels(table, prefix, "matches").astype(str)})
    names = [str(column) for column in table.columns if str(column).startswith(prefix)]
    if not names:
        raise ValueError(
            f"`matches` has neither a column {prefix!r} nor columns that begin with it; it has "
            f"{[str(column) for column in table.columns]}"
        )
    return pd.DataFrame({name.removeprefix(prefix): np.asarray(table[name]) for name in names})


def read_sides(winners: Any, losers: Any) -> tuple[np.ndarray, Schema]:
    """Return the features of all winners, then of all losers, and their schema."""
    import pandas as pd

    features, others = list(winners.columns), list(losers.columns)
    if sorted(features) != sorted(others):
        raise ValueError(f"`winner` and `loser` must have the same features in `matches`, got {features} and {others}")
    names = [ITEM] if features == [ITEM] else []
    return read_points(pd.concat([winners, losers[features]], ignore_index=True), "matches", categorical=names)


def look_up(table: Any, column: str, names: list[Any], name: str) -> np.ndarray:
    """Return the item numbers of the names in a column."""
    position = {label: number for number, label in enumerate(names)}
    found = labels(table, column, name).tolist()
    unknown = sorted({str(label) for label in found if label not in position})
    if unknown:
        raise ValueError(
            f"`{name}` names {len(unknown)} items in column {column!r} that `items` has not: {unknown[:_SHOWN]}"
        )
    return np.array([position[label] for label in found], dtype=np.int64)


def labels(table: Any, column: str, name: str) -> np.ndarray:
    """Return a column of labels; missing labels are an error."""
    selected = columns(table, [column], name)
    refuse_missing(selected, [column], name)
    return np.asarray(selected[column])


def flags(table: Any, column: str, name: str) -> np.ndarray:
    """Return a column of ones and zeros."""
    values = labels(table, column, name)
    found = set(values.tolist())
    if not found <= {0, 1}:
        shown = sorted(map(str, found))[:_SHOWN]
        raise ValueError(f"`{name}` must hold 1 and 0 in column {column!r}, got {shown}")
    return values.astype(float)


def columns(table: Any, chosen: Sequence[str], name: str) -> Any:
    """Return some columns of a data frame, or None if none are chosen."""
    if not is_table(table):
        raise ValueError(f"`{name}` must be a data frame, got {type(table).__name__}")
    check_columns(table.columns, chosen, name)
    return table[list(chosen)] if chosen else None


def comparisons(session: np.ndarray, item: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each comparison within a session the clicked item, the item only viewed, and a row of the session."""
    codes = np.unique(session, return_inverse=True)[1].ravel()
    order = np.argsort(codes, kind="stable")
    found = []
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        clicked = np.unique(item[rows][chosen[rows]])
        viewed = np.setdiff1d(item[rows], clicked)
        found += [(first, second, rows[0]) for first in clicked for second in viewed]
    if not found:
        raise ValueError("`views` must have a session in which some items were clicked and others not, got none")
    first, second, row = np.array(found, dtype=np.int64).T
    return first, second, row


def constant_contexts(
    table: Any, chosen: Sequence[str], name: str, group: np.ndarray, what: str
) -> tuple[np.ndarray | None, dict[str, Any]]:
    """Return the context of each row of a table, and the fields that describe the contexts; without columns, neither.

    `group` holds the label of the session or ranking of each row, within which contexts are constant; `what` is the
    word for such a group.
    """
    selected = columns(table, chosen, name)
    if selected is None:
        return None, {}
    contexts, schema = read_points(selected, name)
    _, first, code = np.unique(group, return_index=True, return_inverse=True)
    changed = np.argwhere(contexts != contexts[first[code.ravel()]])
    if len(changed):
        row, column = changed[0]
        raise ValueError(
            f"`{name}` must describe each {what} by one context, got another in column "
            f"{schema.feature_names[column]!r} of {what} {group[row]!r}, row {row}"
        )
    return contexts, contexts_described_by(schema)


def distinct_items(points: Numbers) -> tuple[Float[np.ndarray, "n d"], Int[np.ndarray, "m 2"]]:
    """Return the different items in pairs. Not traceable by JAX.

    Args:
        points: m pairs, (m, 2, d).

    Returns:
        The n different items in lexicographic order, (n, d), and their numbers in each pair, (m, 2).

    Raises:
        ValueError: If `points` does not have this shape.
    """
    array = np.asarray(points)
    if array.ndim != 3 or array.shape[1] != 2:
        raise ValueError(f"`points` must hold pairs of items, an array (m, 2, d), got shape {array.shape}")
    items, numbers = np.unique(array.reshape(-1, array.shape[2]), axis=0, return_inverse=True)
    return items, numbers.reshape(-1, 2)


def distinct_contexts(contexts: Numbers) -> tuple[Float[np.ndarray, "c f"], Int[np.ndarray, " m"]]:
    """Return the different contexts of matches. Not traceable by JAX.

    Args:
        contexts: The context of each of m pairs, (m, f).

    Returns:
        The c different contexts in lexicographic order, (c, f), and the number of the context of each pair, (m,).
    """
    array = np.asarray(as_points(contexts, "contexts")) + 0.0  # turns -0. into 0.
    distinct, numbers = np.unique(array, axis=0, return_inverse=True)
    return distinct, numbers.reshape(-1)
