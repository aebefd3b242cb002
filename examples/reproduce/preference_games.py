"""Simulated games of the same shape as the real data of Pref-SHAP, with a known truth.

The data of battles, tennis and a shop cannot be part of this project. Each function below returns tables with the
columns of such data, drawn by a rule that is written down here. So an experiment can say whether a method finds the
features that decide, and how well the best possible prediction would do.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
from scipy.special import expit

STRONG_AGAINST = {
    "Normal": (),
    "Fire": ("Grass", "Ice", "Bug", "Steel"),
    "Water": ("Fire", "Ground", "Rock"),
    "Electric": ("Water", "Flying"),
    "Grass": ("Water", "Ground", "Rock"),
    "Ice": ("Grass", "Ground", "Flying", "Dragon"),
    "Fighting": ("Normal", "Ice", "Rock", "Dark", "Steel"),
    "Poison": ("Grass", "Fairy"),
    "Ground": ("Fire", "Electric", "Poison", "Rock", "Steel"),
    "Flying": ("Grass", "Fighting", "Bug"),
    "Psychic": ("Fighting", "Poison"),
    "Bug": ("Grass", "Psychic", "Dark"),
    "Rock": ("Fire", "Ice", "Flying", "Bug"),
    "Ghost": ("Psychic", "Ghost"),
    "Dragon": ("Dragon",),
    "Dark": ("Psychic", "Ghost"),
    "Steel": ("Ice", "Rock", "Fairy"),
    "Fairy": ("Fighting", "Dragon", "Dark"),
}
TYPES = tuple(STRONG_AGAINST)
STATS = ("HP", "Attack", "Defense", "Sp. Atk", "Sp. Def", "Speed")


@dataclasses.dataclass(frozen=True)
class Game:
    """Items, matches between them, and the rule of the game.

    Args:
        items: One row per item, with a column ID and the features.
        matches: One row per match, with columns winner, loser and the contexts.
        log_odds: The true log odds that the winner of each match wins, (N,).
        deciding: The features and contexts that the rule uses, the most important one first.
        irrelevant: Those that it does not use.
        contexts: The columns of `matches` that are contexts.
    """

    items: pd.DataFrame
    matches: pd.DataFrame
    log_odds: np.ndarray
    deciding: tuple[str, ...]
    irrelevant: tuple[str, ...]
    contexts: tuple[str, ...] = ()


def pokemon_game(rng: np.random.Generator, num_items: int = 800, num_matches: int = 40_000) -> Game:
    """Simulate battles that speed decides, unless the speeds are close or the types are unequal.

    A type that is strong against another one gives an advantage, and this relation has cycles: grass, fire, water. The
    two attacks help a little. The log odds are

        0.3 (speed - speed') + 0.02 (attack - attack') + 0.02 (special attack - special attack')
        + 2.5 (number of strong pairs of types - the same of the opponent).

    Args:
        rng: The generator of random numbers.
        num_items: The number of items.
        num_matches: The number of battles.
    """
    items = _pokemon(rng, num_items)
    first, second = draw_pairs(rng, num_items, num_matches)
    stats = items[list(STATS)].to_numpy(float)
    weights = np.array([0, 0.02, 0, 0.02, 0, 0.3])
    chart = np.array([[other in STRONG_AGAINST[kind] for other in TYPES] for kind in TYPES], float)
    has = _has_type(items)
    strong = has @ chart @ has.T
    log_odds = (stats[first] - stats[second]) @ weights + 2.5 * (strong[first, second] - strong[second, first])
    matches, odds = decide(rng, first, second, log_odds)
    deciding = ("Speed", "Type 1", "Type 2", "Sp. Atk", "Attack")
    return Game(items, matches, odds, deciding, ("HP", "Defense", "Sp. Def", "Generation"))


def _pokemon(rng: np.random.Generator, num_items: int) -> pd.DataFrame:
    """Return items whose statistics grow with a common strength, and half of which have a second type."""
    strength = rng.normal(size=(num_items, 1))
    stats = 70 + 15 * strength + 25 * rng.normal(size=(num_items, len(STATS)))
    kinds = np.array([rng.choice(len(TYPES), 2, replace=False) for _ in range(num_items)])
    second = np.where(rng.uniform(size=num_items) < 0.5, np.array(TYPES)[kinds[:, 1]], "none")
    return pd.DataFrame(
        {
            "ID": np.arange(num_items),
            "Type 1": np.array(TYPES)[kinds[:, 0]],
            "Type 2": second,
            **dict(zip(STATS, np.clip(np.round(stats), 5, 250).T, strict=True)),
            "Generation": rng.integers(1, 7, size=num_items),
        }
    )


def _has_type(items: pd.DataFrame) -> np.ndarray:
    """Return which types each item has, (n, 18)."""
    return np.stack([(items[["Type 1", "Type 2"]] == kind).any(axis=1) for kind in TYPES], axis=1).astype(float)


def draw_pairs(rng: np.random.Generator, num_items: int, num_matches: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of two different items for each match."""
    first = rng.integers(num_items, size=num_matches)
    return first, (first + rng.integers(1, num_items, size=num_matches)) % num_items


def decide(
    rng: np.random.Generator, first: np.ndarray, second: np.ndarray, log_odds: np.ndarray
) -> tuple[pd.DataFrame, np.ndarray]:
    """Draw the winners, and return the table of matches and the log odds of the winners."""
    won = rng.uniform(size=len(first)) < expit(log_odds)
    table = pd.DataFrame({"winner": np.where(won, first, second), "loser": np.where(won, second, first)})
    return table, np.where(won, log_odds, -log_odds)
