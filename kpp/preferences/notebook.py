"""Matches in notebooks: the counts, and the records of the items with the most matches."""

from __future__ import annotations

from typing import Any

import numpy as np

from kpp.runtime.notebook import Html, panel, table

_SHOWN = 8


def matches_html(matches: Any) -> Html:
    """Return a summary of `kpp.preferences.Matches` as HTML; their arrays must not be traced by JAX."""
    low, high = np.asarray(matches.pairs).T
    wins, losses, ties = (np.asarray(part) for part in (matches.wins, matches.losses, matches.ties))
    records = np.zeros((matches.num_items, 3))
    for items, columns in ((low, (wins, losses, ties)), (high, (losses, wins, ties))):
        np.add.at(records, items, np.stack(columns, axis=1))
    most = np.argsort(-records.sum(axis=1), kind="stable")[:_SHOWN]
    names = matches.item_names or tuple(map(str, range(matches.num_items)))
    rows = [(names[item], *(f"{number:g}" for number in (records[item].sum(), *records[item]))) for item in most]
    left_out = matches.num_items - len(most)
    return panel(
        f"Matches: {matches.num_items} items, {matches.num_pairs} pairs, {float(matches.num_matches):g} matches",
        *_columns("features of items", matches.feature_names),
        *_columns("contexts", matches.context_names),
        table(rows, ("item", "matches", "wins", "losses", "ties")),
        *([f"and {left_out} items with fewer matches"] if left_out else []),
    )


def _columns(title: str, names: tuple[str, ...]) -> list[str]:
    return [f"{title}: {', '.join(names)}"] if names else []
