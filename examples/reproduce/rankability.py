"""How close matches are to a ranking: SpecR and the mean clustering coefficient (tables 6.1, 7.3 and E.1).

    python examples/reproduce/rankability.py [--game ITEMS MATCHES ...] [--seeds 5] [--small]

(Thesis of Chau, 2023, chapters 6 and 7.) For tables of items (with a column ID) and matches (winner and loser), and for
the simulated game of clusters, the script prints the numbers of items, of pairs that met and of cycles of three; SpecR,
which is 1 for a complete ranking and 0 without matches; and C_avg, the mean clustering coefficient of the graph of
matches. Many pairs that never met make SpecR small, also in a game with a ranking.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from pref_shap_synthetic import cluster_game

from kpp.preferences import Matches
from kpp_models import count_cycles, mean_clustering_coefficient, spectral_rankability


def statistics(matches: Matches) -> dict[str, Any]:
    """Return the size of the graph of matches, and its three measures."""
    return {
        "items": matches.num_items,
        "pairs": matches.num_pairs,
        "SpecR": spectral_rankability(matches.dominance()),
        "C_avg": mean_clustering_coefficient(matches.adjacency()),
        "cycles": int(count_cycles(matches.adjacency())),
    }


@click.command(help=__doc__)
@click.option("--game", "games", type=(Path, Path), multiple=True, help="Tables of items and of matches.")
@click.option("--seeds", default=5, show_default=True, help="Of the simulated game.")
@click.option("--small", is_flag=True, help="One small simulated game.")
def main(games: tuple[tuple[Path, Path], ...], seeds: int, small: bool) -> dict[str, pd.DataFrame]:
    """Measure all games."""
    rows = []
    for items, matches in games:
        played = pd.read_csv(matches)[["winner", "loser"]]
        rows.append({"game": items.stem, "seed": 0, **statistics(Matches.from_tables(pd.read_csv(items), played))})
    for seed in range(1 if small else seeds):
        game = cluster_game(np.random.default_rng(seed), *((90, 1200) if small else (1000, 40_000)))
        rows.append({"game": "clusters", "seed": seed, **statistics(game)})
    table = pd.DataFrame(rows)
    click.echo(table.groupby("game", sort=False).mean().drop(columns="seed").to_string(float_format="%.3f"))
    return {"graphs": table}


if __name__ == "__main__":
    main()
