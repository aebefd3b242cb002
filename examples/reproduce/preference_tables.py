"""Tables of items and matches for models of preferences: columns of numbers, matches with the winner first."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from preference_games import Game, matches_of_sessions

from kpp.preferences import Matches

MERGED = {"Type": ("Type 1", "Type 2")}  # columns of levels whose order does not matter


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns of numbers, standardized, and which of them belong to each feature."""

    values: pd.DataFrame
    groups: dict[str, list[int]]

    @classmethod
    def create(cls, frame: pd.DataFrame) -> Table:
        """Standardize numbers, and write levels as columns of zeros and ones; levels of merged columns are united."""
        parts, groups, start = [], {}, 0
        for name, columns in _features(frame).items():
            part = _numbers(frame[list(columns)])
            parts.append(part)
            groups[name] = list(range(start, start + part.shape[1]))
            start += part.shape[1]
        values = pd.concat(parts, axis=1).astype(float)
        scales = values.std(ddof=0).replace(0.0, 1.0)  # a level that all have
        return cls((values - values.mean()) / scales, groups)


def _features(frame: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    """Return the columns of each feature."""
    merged = {name: columns for name, columns in MERGED.items() if set(columns) <= set(frame)}
    inside = {column for columns in merged.values() for column in columns}
    return merged | {name: (name,) for name in frame if name not in inside}


def _numbers(part: pd.DataFrame) -> pd.DataFrame:
    """Return one column of numbers as it is, and columns of levels as one column of 0 and 1 for each level."""
    if part.shape[1] == 1 and pd.api.types.is_numeric_dtype(part.iloc[:, 0]):
        return part
    stacked = part.melt(ignore_index=False)["value"]
    return pd.get_dummies(stacked).groupby(level=0).max().loc[part.index]


@dataclasses.dataclass(frozen=True)
class Duels:
    """Matches with the winner first: numbers of the items (N, 2), contexts (N, c) or None, true log odds or None."""

    numbers: np.ndarray
    contexts: np.ndarray | None
    log_odds: np.ndarray | None

    def take(self, rows: np.ndarray) -> Duels:
        """Return some of the matches."""
        parts = (self.numbers, self.contexts, self.log_odds)
        return Duels(*(None if part is None else part[rows] for part in parts))

    def matches(self, items: pd.DataFrame) -> Matches:
        """Return the matches in the form that models take."""
        return Matches.create(items, *self.numbers.T, contexts=self.contexts)

    def points(self, items: np.ndarray) -> Any:
        """Return the points of a function of pairs, in contexts if there are any."""
        pairs = items[self.numbers]
        return pairs if self.contexts is None else (pairs, self.contexts)


def read(name: str, items: Path | None, matches: Path | None, views: Path | None) -> Game:
    """Read a game from files; missing text is the level "none", and items without a number are left out."""
    table = pd.read_csv(items)
    text = table.select_dtypes(exclude="number").columns
    table = table.fillna(dict.fromkeys(text, "none")).dropna()
    played = matches_of_sessions(pd.read_csv(views)) if views else pd.read_csv(matches)
    contexts = {"tennis": ("surface", "conditions"), "djokovic": ("surface", "conditions")}.get(name, ())
    if views:
        contexts = tuple(column for column in played if column not in ("winner", "loser"))
    known = played["winner"].isin(table["ID"]) & played["loser"].isin(table["ID"])
    return Game(table, played[known].dropna(subset=list(contexts)), None, (), (), contexts)


def prepare(game: Game) -> tuple[Table, Table | None, Duels]:
    """Return the features of items and of contexts, and the matches."""
    items = Table.create(game.items.set_index("ID").rename_axis(None))
    rows = pd.Series(np.arange(len(game.items)), game.items["ID"])
    numbers = np.stack([rows.loc[game.matches[side]].to_numpy() for side in ("winner", "loser")], axis=1)
    if not game.contexts:
        return items, None, Duels(numbers, None, game.log_odds)
    contexts = Table.create(game.matches[list(game.contexts)].reset_index(drop=True))
    return items, contexts, Duels(numbers, contexts.values.to_numpy(), game.log_odds)
