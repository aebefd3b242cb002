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
    deciding = ("Speed", "Type", "Sp. Atk", "Attack")  # Type is the pair of types, in any order
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


SURFACES = ("Hard", "Clay", "Grass", "Carpet")


def tennis_game(
    rng: np.random.Generator, num_items: int = 400, num_matches: int = 6000, champion_share: float = 0.0
) -> Game:
    """Simulate matches between players of unknown skill, which their features say only a little about.

    With features in units of their standard deviations, s = 1 (or -1 on clay), and a skill u of standard deviation 0.7,
    the log odds are the difference of

        u + 0.8 s height + 0.4 weight - 0.8 birth year - 0.4 (age at the first professional year).

    The hand, the backhand and a roof do not matter. Player 0 is a champion, who has an advantage of 2.5. Its height has
    the opposite effect, so that shorter opponents are dangerous, and it loses 2 on clay and 1 indoors.

    Args:
        rng: The generator of random numbers.
        num_items: The number of players.
        num_matches: The number of matches.
        champion_share: The share of matches in which player 0 takes part; without it there is no champion.
    """
    items, scores, height = _players(rng, num_items)
    first, second = draw_pairs(rng, num_items, num_matches)
    if champion_share:
        first, second = np.minimum(first, second), np.maximum(first, second)
        first[rng.uniform(size=num_matches) < champion_share] = 0
    champion = (first == 0) & (champion_share > 0)
    contexts = pd.DataFrame(
        {
            "surface": rng.choice(SURFACES, size=num_matches, p=[0.4, 0.3, 0.15, 0.15]),
            "conditions": rng.choice(["Outdoor", "Indoor"], size=num_matches, p=[0.7, 0.3]),
        }
    )
    clay, roof = (contexts["surface"] == "Clay").to_numpy(), (contexts["conditions"] == "Indoor").to_numpy()
    log_odds = scores[first] - scores[second] + 0.8 * np.where(clay, -1, 1) * (height[first] - height[second])
    special = 2.5 - 1.6 * (height[first] - height[second]) - 2.0 * clay - 1.0 * roof
    log_odds = log_odds + np.where(champion, special, 0.0)
    matches, odds = decide(rng, first, second, log_odds)
    matches = pd.concat([matches, contexts], axis=1)
    weather = ("conditions",) if champion_share else ()
    deciding = ("height", "birth year", "weight", "turned pro", "surface", *weather)
    irrelevant = ("hand", "backhand", *(() if champion_share else ("conditions",)))
    return Game(items, matches, odds, deciding, irrelevant, ("surface", "conditions"))


def djokovic_game(rng: np.random.Generator, num_items: int = 400, num_matches: int = 6000) -> Game:
    """Simulate the game of tennis with a champion, player 0, in a tenth of the matches."""
    return tennis_game(rng, num_items, num_matches, champion_share=0.1)


def _players(rng: np.random.Generator, num_items: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return players, the part of the log odds that no context changes, and the height in standard deviations."""
    height, birth, age = rng.normal(size=(3, num_items))
    weight = 0.6 * height + 0.8 * rng.normal(size=num_items)
    skill = 0.7 * rng.normal(size=num_items)
    years = np.round(1981 + 8 * birth)
    items = pd.DataFrame(
        {
            "ID": np.arange(num_items),
            "birth year": years,
            "weight": np.round(80 + 7 * weight),
            "height": np.round(185 + 7 * height),
            "turned pro": years + np.round(18.5 + 1.5 * age),
            "hand": rng.choice(["right", "left"], size=num_items, p=[0.87, 0.13]),
            "backhand": rng.choice(["one", "two"], size=num_items),
        }
    )
    return items, skill + 0.4 * weight - 0.8 * birth - 0.4 * age, height


COLORS = ("black", "white", "blue", "red", "green", "beige", "pink", "grey")
GARMENTS = ("Cosmetics", "Dress", "Trousers", "Shirt", "Shoes", "Jacket", "Skirt", "Socks", "Hat", "Bag")
ASSORTMENTS = ("Jersey Basic", "Sport", "Denim", "Tailoring", "Knitwear", "Swimwear")


def website_game(rng: np.random.Generator, num_items: int = 400, num_sessions: int = 2500, num_shown: int = 4) -> Game:
    """Simulate sessions of a shop in which a visitor clicks one of the items shown.

    A visitor chooses by the logit model with utility

        1.5 [cosmetics] + 1.2 [Jersey Basic] + 1.2 a [Sport],

    a being the year of birth, from -1.5 to 1.5: young visitors like sport, old ones avoid it. Color and gender do not
    matter. The clicked item beats every other item shown.

    Args:
        rng: The generator of random numbers.
        num_items: The number of items.
        num_sessions: The number of sessions.
        num_shown: The number of items shown in a session.
    """
    items = pd.DataFrame(
        {
            "ID": np.arange(num_items),
            "color": rng.choice(COLORS, size=num_items),
            "garment": rng.choice(GARMENTS, size=num_items),
            "assortment": rng.choice(ASSORTMENTS, size=num_items),
        }
    )
    shown = np.array([rng.choice(num_items, num_shown, replace=False) for _ in range(num_sessions)])
    age = rng.integers(-3, 4, size=num_sessions) / 2
    fixed = 1.5 * (items["garment"] == "Cosmetics") + 1.2 * (items["assortment"] == "Jersey Basic")
    sport = 1.2 * (items["assortment"] == "Sport").to_numpy()
    utility = fixed.to_numpy()[shown] + age[:, None] * sport[shown]
    chosen = np.argmax(utility + rng.gumbel(size=shown.shape), axis=1)
    views = pd.DataFrame({"session": np.repeat(np.arange(num_sessions), num_shown), "ID": shown.ravel()})
    views["clicked"] = (np.tile(np.arange(num_shown), num_sessions) == np.repeat(chosen, num_shown)).astype(int)
    views["year of birth"] = np.repeat(1980 + 12 * age, num_shown)
    genders = rng.choice(["female", "male", "unspecified", "unknown"], size=num_sessions, p=[0.6, 0.2, 0.1, 0.1])
    views["gender"] = np.repeat(genders, num_shown)
    views["utility"] = utility.ravel()
    matches = matches_of_sessions(views)
    odds = (matches.pop("utility") - matches.pop("utility of loser")).to_numpy()
    deciding = ("garment", "assortment", "year of birth")
    return Game(items, matches, odds, deciding, ("color", "gender"), ("year of birth", "gender"))


def matches_of_sessions(views: pd.DataFrame) -> pd.DataFrame:
    """Return a match for each clicked and each other item of a session, with the context in the other columns."""
    clicked, other = (views[views["clicked"] == value] for value in (1, 0))
    found = clicked.merge(other, on="session", suffixes=("", " of loser"))
    found = found.rename(columns={"ID": "winner", "ID of loser": "loser"})
    context = [name for name in views if name not in ("session", "ID", "clicked", "utility")]
    used = ["winner", "loser", *context, *(name for name in found if name.startswith("utility"))]
    return found[used].sort_values(["winner", "loser"]).reset_index(drop=True)


def season_game(
    rng: np.random.Generator, num_seasons: int = 5, num_teams: int = 32, num_matches: int = 256, num_features: int = 18
) -> Game:
    """Simulate seasons of a league, with statistics of the teams in each season of which five matter.

    The log odds are the difference of 0.7 (x0 + x1 + x2), plus 0.7 (x3 x4' - x4 x3'), which is not a utility.

    Args:
        rng: The generator of random numbers.
        num_seasons: The number of seasons; items and matches have a column season.
        num_teams: The number of teams.
        num_matches: The number of matches of each season.
        num_features: The number of statistics, standard normal.
    """
    items, matches, odds = [], [], []
    names = [f"x{number}" for number in range(num_features)]
    for season in range(num_seasons):
        x = rng.normal(size=(num_teams, num_features))
        first, second = draw_pairs(rng, num_teams, num_matches)
        gap, cycle = x[first] - x[second], x[first, 3] * x[second, 4] - x[first, 4] * x[second, 3]
        played, log_odds = decide(rng, first, second, 0.7 * gap[:, :3].sum(axis=1) + 0.7 * cycle)
        items.append(pd.DataFrame(x, columns=names).assign(ID=np.arange(num_teams), season=season))
        matches.append(played.assign(season=season))
        odds.append(log_odds)
    return Game(pd.concat(items), pd.concat(matches), np.concatenate(odds), tuple(names[:5]), tuple(names[5:]))


GAMES = {"pokemon": pokemon_game, "tennis": tennis_game, "djokovic": djokovic_game, "website": website_game}
