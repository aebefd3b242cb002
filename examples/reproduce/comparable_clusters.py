"""Methods that find groups of items which can be ranked within but not across groups (GPGP, section 4.2 and figure 3).

    python examples/reproduce/comparable_clusters.py [--runs 20] [--states 2,3] [--fractions 0.1,...] [--small]
        [--output FOLDER]

(Chau, Gonzalez and Sejdinovic, Learning inconsistent preferences with Gaussian processes, 2022.) The players are the
same as in `gpgp_simulation.py`. Matches within a group follow its utility, and matches between groups are decided by a
fair coin. The number of groups is known. GPGP-CLUS clusters the preference matrix of a GPGP, whose lengthscale and
variance are chosen by the evidence. SVD-CLUS clusters the observed outcomes. PR-CLUS clusters only some of them: the
outcomes whose probability under a preferential process (PGP), which ranks all items, differs from one half by more than
.1 (or by more than the median difference, if this is smaller).

The script prints the share of players in the correct group, under the best matching of labels, as mean +- standard
deviation over runs; how often GPGP-CLUS is better and worse than the others; and the number of groups that would be
chosen. The published result is a figure without numbers. Its claims are that GPGP-CLUS is best except for dense graphs,
where SVD-CLUS is equally good, and that PR-CLUS is always poor.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np
import pandas as pd
from gpgp_simulation import Game, candidates, numbers, observe, simulate
from preference_methods import choose_and_predict

from kpp.kernels import RBF
from kpp.preferences import Matches
from kpp_models import (
    PGP,
    choose_num_clusters,
    clustering_accuracy,
    comparable_clusters,
    partial_ranking_clusters,
    svd_clusters,
)

METHODS = ("GPGP-CLUS", "PR-CLUS", "SVD-CLUS")


def mix(rng: np.random.Generator, game: Game) -> Game:
    """Return a game whose matches between states are decided by a fair coin."""
    coin = np.triu(rng.integers(2, size=game.wins.shape), 1).astype(float)
    coin += np.tril(1 - coin.T, -1)
    same = game.states[:, None] == game.states[None, :]
    return Game(game.x, game.states, np.where(same, game.wins, coin))


def run(seed: int, num_states: int, fraction: float, models: dict[str, Any]) -> list[dict[str, Any]]:
    """Simulate, observe, and cluster by all methods."""
    rng = np.random.default_rng([seed, num_states])
    game = mix(rng, simulate(rng, num_states))
    pairs, y = observe(rng, game, fraction)
    matches = Matches.create(game.x, pairs[:, 0], pairs[:, 1], y)
    _, data, _ = PGP(RBF(1.0)).prepare(matches)
    rows, columns = np.triu_indices(len(game.x), 1)
    every = np.stack([game.x[rows], game.x[columns]], axis=1)
    g = np.zeros((len(game.x), len(game.x)))
    g[rows, columns] = np.asarray(choose_and_predict(models["GPGP"], data, every)[1])
    g -= g.T
    probabilities = np.asarray(choose_and_predict(models["PGP"], data, every)[2])
    seen = {(int(i), int(j)): p for i, j, p in zip(rows, columns, probabilities, strict=True)}
    key = jax.random.key(seed)
    by_ranking = np.array([seen[int(i), int(j)] for i, j in np.asarray(matches.pairs)])
    margin = min(0.1, float(np.median(np.abs(by_ranking - 0.5))))
    found = {
        "GPGP-CLUS": comparable_clusters(key, g, num_states),
        "PR-CLUS": partial_ranking_clusters(key, matches, by_ranking, num_states, margin=margin),
        "SVD-CLUS": svd_clusters(key, matches, num_states),
    }
    chosen = choose_num_clusters(key, g, max_num_clusters=5).num_clusters
    keys = {"states": num_states, "fraction": fraction, "run": seed, "chosen": chosen}
    return [
        {**keys, "method": name, "accuracy": clustering_accuracy(labels, game.states)} for name, labels in found.items()
    ]


def print_table(table: pd.DataFrame) -> None:
    """Print shares of players in the right group, how often GPGP-CLUS is better and worse, and the groups chosen."""
    for num_states, part in table.groupby("states"):
        click.echo(f"\nRight group with L = {num_states}: mean +- standard deviation over {part['run'].nunique()} runs")
        click.echo(f"{'pairs seen':>12}" + "".join(f"{name:>18}" for name in METHODS) + "   better/worse than PR, SVD")
        for fraction, rows in part.groupby("fraction"):
            wide = rows.pivot(index="run", columns="method", values="accuracy")
            cells = [f"{wide[name].mean():.3f} +- {wide[name].std(ddof=1):.3f}" for name in METHODS]
            gaps = [wide["GPGP-CLUS"] - wide[name] for name in METHODS[1:]]
            shares = ", ".join(f"{(gap > 0).mean():.2f}/{(gap < 0).mean():.2f}" for gap in gaps)
            click.echo(f"{fraction:>12.0%}" + "".join(f"{cell:>18}" for cell in cells) + f"   {shares}")
        counts = part.drop_duplicates(["fraction", "run"])["chosen"].value_counts().sort_index()
        click.echo("groups chosen: " + ", ".join(f"{number} in {count} runs" for number, count in counts.items()))


@click.command(help=__doc__)
@click.option("--runs", default=20, show_default=True)
@click.option("--states", default="2,3", show_default=True)
@click.option("--fractions", default="0.1,0.2,0.4,0.6,0.8,1.0", show_default=True)
@click.option("--small", is_flag=True, help="Two runs of L = 2 with a fifth of the pairs, and a small grid.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for the table.")
def main(runs: int, states: str, fractions: str, small: bool, output: Path | None) -> dict[str, pd.DataFrame]:
    """Run the simulation."""
    jax.config.update("jax_enable_x64", True)
    start = time.perf_counter()
    if small:
        runs, states, fractions = 2, "2", "0.2"
    models = {name: candidates(name, small) for name in ("GPGP", "PGP")}
    rows = []
    for fraction in numbers(fractions):
        for num_states in numbers(states):
            for seed in range(runs):
                rows += run(seed, int(num_states), fraction, models)
        click.echo(f"{fraction:.0%} of the pairs: {time.perf_counter() - start:.0f} s", err=True)
    table = pd.DataFrame(rows)
    print_table(table)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        table.to_csv(output / "comparable_clusters.csv", index=False)
    click.echo(f"{time.perf_counter() - start:.0f} s")
    return {"accuracy": table}


if __name__ == "__main__":
    main()
