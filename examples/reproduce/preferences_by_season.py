"""Held-out matches season by season, with features that HSIC selects (GPGP, section 4.3, the league of football).

    python examples/reproduce/preferences_by_season.py [--items items.csv --matches matches.csv] [--features 5]
        [--splits 20] [--small] [--output FOLDER]

(Chau, Gonzalez and Sejdinovic, Learning inconsistent preferences with Gaussian processes, 2022, table 1.) The items are
a table with columns ID, season and features, one row per team and season; the matches have columns season, winner and
loser. Without paths, seasons of 32 teams with 18 statistics, of which five matter, are simulated.

Each season is an experiment of its own: a split of its matches 70 to 30, the features selected by backward elimination
with HSIC (Song et al., 2012) on the training matches only, and then the methods of `preferences_real.py`. The published
accuracies for football, 2000 to 2018, are GPGP .59 +- .03, PGP .51 +- .02, PAIR-GP .58 +- .03, PAIR-LOGREG .65 +- .03.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np
import pandas as pd
from preference_games import season_game
from preference_methods import print_scores
from preferences_real import models
from preferences_real import run as run_split

from kpp.embeddings import rank_features
from kpp.kernels import Linear
from kpp.preferences import Matches

METHODS = ("GPGP, RBF", "PGP, RBF")


def seasons(items: pd.DataFrame, matches: pd.DataFrame) -> dict[Any, Matches]:
    """Return the matches of each season, with standardized features."""
    found = {}
    for season, played in matches.groupby("season"):
        table = items[items["season"] == season].drop(columns="season")
        features = [name for name in table.columns if name != "ID"]
        table[features] = (table[features] - table[features].mean()) / table[features].std(ddof=0)
        found[season] = Matches.from_tables(table, played[["winner", "loser"]])
    return found


def select(train: Matches, num_features: int) -> np.ndarray:
    """Return the features that the outcomes of matches depend on most, by the differences of both items."""
    rows, y = train.single_matches()
    points = np.asarray(train.points)[rows]
    return rank_features(points[:, 0] - points[:, 1], 2 * y[:, None] - 1, Linear(1.0))[:num_features]


def run(
    items: pd.DataFrame, matches: pd.DataFrame, num_features: int, splits: int, deciding: tuple[str, ...] = ()
) -> pd.DataFrame:
    """Run the experiment.

    Args:
        items: The items, with columns ID, season and features.
        matches: The matches, with columns season, winner and loser.
        num_features: The number of features to select.
        splits: The number of splits of each season.
        deciding: The features that decide, if they are known.

    Returns:
        One row per season, split and method: the scores, the features selected, and the share that decides.
    """
    rows = []
    for season, every in seasons(items, matches).items():
        for split in range(splits):
            train, _ = every.split(jax.random.key(split), 0.7)  # as `run_split` does
            chosen = select(train, num_features)
            names = tuple(every.feature_names[number] for number in chosen)
            narrow = dataclasses.replace(every, items=every.items[:, chosen], feature_names=names)
            wanted = {name: model for name, model in models(num_features).items() if name in METHODS}
            known = {"season": season, "features": " ".join(names)}
            share = np.mean([name in deciding for name in names]) if deciding else np.nan
            rows += [{**known, **row, "deciding": share} for row in run_split(narrow, split, wanted)]
    return pd.DataFrame(rows).drop(columns=["probabilities", "y"])


@click.command(help=__doc__)
@click.option("--items", type=click.Path(path_type=Path, exists=True), help="A CSV table with ID, season, features.")
@click.option("--matches", type=click.Path(path_type=Path, exists=True), help="A CSV table with season, winner, loser.")
@click.option("--features", default=5, show_default=True, help="How many features to select.")
@click.option("--splits", default=20, show_default=True)
@click.option("--small", is_flag=True, help="One split of two short seasons.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for the scores.")
def main(
    items: Path | None, matches: Path | None, features: int, splits: int, small: bool, output: Path | None
) -> pd.DataFrame:
    """Run the experiment."""
    jax.config.update("jax_enable_x64", True)
    if (items is None) != (matches is None):
        raise click.UsageError("`--items` and `--matches` must be given together")
    if items is not None and matches is not None:
        table = run(pd.read_csv(items), pd.read_csv(matches), features, 1 if small else splits)
    else:
        sizes = {"num_seasons": 2, "num_teams": 12, "num_matches": 60, "num_features": 7} if small else {}
        game = season_game(np.random.default_rng(0), **sizes)
        table = run(game.items, game.matches, features, 1 if small else splits, game.deciding)
    means = table.groupby(["season", "method"], sort=False)[["accuracy", "log loss", "AUC"]].mean().reset_index()
    print_scores(means.rename(columns={"season": "run"}), "Held-out matches, means of seasons")
    if table["deciding"].notna().any():
        click.echo(f"Of the features selected, {table['deciding'].mean():.0%} decide")
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        table.to_csv(output / "preferences_by_season.csv", index=False)
    return table


if __name__ == "__main__":
    main()
