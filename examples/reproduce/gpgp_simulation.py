"""Prediction of held-out matches, for preferences with and without a ranking (GPGP, section 4.1 and figure 2).

    python examples/reproduce/gpgp_simulation.py [--runs 20] [--states 1,2,5] [--fractions 0.1,...]
        [--methods GPGP,GPGP+c,...] [--small] [--output FOLDER]

(Chau, Gonzalez and Sejdinovic, Learning inconsistent preferences with Gaussian processes, 2022.) Thirty players have a
latent state each and five features, normal about the state. For each unordered pair of states a utility r(x) = sum_j
alpha_j k(x, x_j), with alpha standard normal and k = RBF(1), decides the matches between players of these states: with
one state there is a ranking, with more there is none. A fraction of the 435 pairs is observed, each once, and split 70
to 30. GPGP, PGP and PAIR-GP choose lengthscale and variance on the same grid by the evidence; GPGP+c, the general model
with the kernel k + c, which contains a utility, also chooses c. PAIR-LOGREG and PAIR-GP
use the concatenated features of both items, in both orders, and their probabilities are averaged over the orders.

PAIR-GP has the posterior mode of GPGP with the same hyperparameters: from mirrored labels only the skew-symmetric part
of k(x, u) k(x', u') is learned, which is the kernel of GPGP. They differ in evidence, hence in the hyperparameters
chosen, and in variance.

The script prints the accuracy by number of states and fraction, as mean +- standard deviation over runs, and paired
tests of GPGP against the others with the accuracies of a run averaged over fractions. The published result is a figure
without numbers. Its claims are that PGP and PAIR-LOGREG lose accuracy with more states, and that PGP is better only
with one state and few matches.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np
import pandas as pd
from preference_methods import average, choose_and_predict, grid, scores, side_by_side, stack
from scipy.spatial.distance import cdist
from scipy.stats import wilcoxon
from sklearn.linear_model import LogisticRegression

from kpp.kernels import RBF
from kpp.preferences import Matches
from kpp_models import GPGP, PGP, GPClassification

METHODS = ("GPGP", "PGP", "PAIR-GP", "PAIR-LOGREG")  # the published ones
NUM_PLAYERS, NUM_FEATURES = 30, 5


@dataclasses.dataclass(frozen=True)
class Game:
    """Players with features (n, d) and latent states (n,), and who wins each match, (n, n): 1 if the row does."""

    x: np.ndarray
    states: np.ndarray
    wins: np.ndarray


def simulate(rng: np.random.Generator, num_states: int) -> Game:
    """Draw players, and decide all matches between them."""
    states = rng.integers(num_states, size=NUM_PLAYERS)
    x = (states + 1.0)[:, None] + rng.normal(size=(NUM_PLAYERS, NUM_FEATURES))
    utilities = np.exp(-cdist(x, x, "sqeuclidean") / 2) @ rng.normal(
        size=(NUM_PLAYERS, num_states, num_states)
    ).reshape(NUM_PLAYERS, -1)
    utilities = utilities.reshape(NUM_PLAYERS, num_states, num_states)
    low, high = np.minimum.outer(states, states), np.maximum.outer(states, states)
    players = np.arange(NUM_PLAYERS)
    left, right = utilities[players[:, None], low, high], utilities[players[None, :], low, high]
    return Game(x, states, (left > right).astype(float))


def observe(rng: np.random.Generator, game: Game, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the observed pairs, (m, 2), in a random order, with random order of the players, and the winners."""
    pairs = rng.permutation(np.stack(np.triu_indices(len(game.x), 1), axis=1))
    pairs = rng.permuted(pairs[: round(fraction * len(pairs))], axis=1)
    return pairs, game.wins[pairs[:, 0], pairs[:, 1]]


def candidates(name: str, small: bool = False) -> Any:
    """Return the models of one method, lengthscales from half to 8 and variances of g from 1 to 64."""
    lengthscales = np.geomspace(0.5, 8.0, 3 if small else 9)
    models = {
        "GPGP": lambda lengthscale, variance: GPGP(RBF(lengthscale, variance=np.sqrt(variance))),
        "GPGP+c": lambda lengthscale, variance, c: GPGP(RBF(lengthscale, variance=np.sqrt(variance)) + c),
        "PGP": lambda lengthscale, variance: PGP(RBF(lengthscale, variance=variance)),
        "PAIR-GP": lambda lengthscale, variance: GPClassification(RBF(lengthscale, variance=variance)),
    }
    axes = [lengthscales, [4.0] if small else [1.0, 4.0, 16.0, 64.0]]
    if name == "GPGP+c":
        axes.append([1.0, 8.0, 64.0])
    return stack([models[name](*values) for values in grid(*axes)])


def predict(name: str, train: tuple[np.ndarray, np.ndarray], test: np.ndarray, models: Any) -> np.ndarray:
    """Fit a method to pairs of points (m, 2, d) with labels, and predict at others."""
    pairs, y = train
    if name.startswith("PAIR"):
        rows, labels, asked = side_by_side(pairs), np.concatenate([y, 1 - y]), side_by_side(test)
        if name == "PAIR-LOGREG":
            return average(LogisticRegression().fit(rows, labels).predict_proba(asked)[:, 1])
        _, data, _ = GPClassification(RBF(1.0)).prepare(rows, labels)
        return average(choose_and_predict(models, data, asked)[2])
    count = len(pairs)
    matches = Matches.create(pairs.reshape(2 * count, -1), np.arange(0, 2 * count, 2), np.arange(1, 2 * count, 2), y)
    _, data, _ = PGP(RBF(1.0)).prepare(matches)
    return np.asarray(choose_and_predict(models, data, test)[2])


def run(seed: int, num_states: int, fraction: float, models: dict[str, Any]) -> list[dict[str, Any]]:
    """Simulate and score once; the players of a run are the same for all fractions."""
    game = simulate(np.random.default_rng([seed, num_states]), num_states)
    pairs, y = observe(np.random.default_rng([seed, num_states, 1]), game, fraction)
    size, points = round(0.7 * len(pairs)), game.x[pairs]
    keys = {"states": num_states, "fraction": fraction, "run": seed}
    return [
        {
            **keys,
            "method": name,
            **scores(predict(name, (points[:size], y[:size]), points[size:], models[name]), y[size:]),
        }
        for name in models
    ]


def print_accuracies(table: pd.DataFrame) -> None:
    """Print accuracies by states, fraction and method."""
    for num_states, part in table.groupby("states"):
        click.echo(f"\nAccuracy with L = {num_states}: mean +- standard deviation over {part['run'].nunique()} runs")
        methods = part["method"].unique()
        click.echo(f"{'pairs seen':>12}" + "".join(f"{name:>16}" for name in methods))
        for fraction, rows in part.groupby("fraction"):
            by = rows.groupby("method")["accuracy"]
            cells = [f"{by.mean()[name]:.3f} +- {by.std(ddof=1)[name]:.3f}" for name in methods]
            click.echo(f"{fraction:>12.0%}" + "".join(f"{cell:>16}" for cell in cells))


def print_paired(table: pd.DataFrame) -> None:
    """Print the gain of GPGP over the others, averaged over fractions, with one-sided signed-rank tests over runs."""
    click.echo(
        "\nAccuracy of GPGP minus the accuracy of each method, over all fractions: mean +- standard error, and p that"
    )
    click.echo("GPGP is not better, by the paired signed-rank test over runs")
    for num_states, part in table.groupby("states"):
        wide = part.pivot_table(index="run", columns="method", values="accuracy")
        for name in wide.columns.drop("GPGP"):
            gap = wide["GPGP"] - wide[name]
            p = wilcoxon(gap, alternative="greater").pvalue if (gap != 0).any() else 1.0
            error = gap.std(ddof=1) / np.sqrt(len(gap))
            click.echo(f"  L = {num_states}{name:>14}{gap.mean():>9.3f} +- {error:.3f}{p:>10.1e}")


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw accuracy against the fraction of observed pairs, one panel per number of states."""
    import matplotlib.pyplot as plt

    counts = sorted(table["states"].unique())
    figure, axes = plt.subplots(1, len(counts), figsize=(4 * len(counts), 3.5), squeeze=False, sharey=True)
    for axis, num_states in zip(axes[0], counts, strict=True):
        for name in table["method"].unique():
            rows = table.loc[(table["states"] == num_states) & (table["method"] == name)]
            by = rows.groupby("fraction")["accuracy"]
            axis.errorbar(by.mean().index, by.mean(), by.std(ddof=1), label=name, capsize=2)
        axis.set(title=f"L = {num_states}", xlabel="fraction of pairs seen")
    axes[0, 0].set_ylabel("accuracy")
    axes[0, 0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def numbers(text: str) -> list[float]:
    """Read numbers that are separated by commas."""
    return [float(part) for part in text.split(",")]


@click.command(help=__doc__)
@click.option("--runs", default=20, show_default=True)
@click.option("--states", default="1,2,5", show_default=True)
@click.option("--fractions", default="0.1,0.2,0.4,0.6,0.8,1.0", show_default=True)
@click.option("--methods", default=",".join(METHODS), show_default=True, help="GPGP and others, also GPGP+c.")
@click.option("--small", is_flag=True, help="Three runs of L = 1 and 5 with a fifth of the pairs, and a small grid.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for scores and figure.")
def main(
    runs: int, states: str, fractions: str, methods: str, small: bool, output: Path | None
) -> dict[str, pd.DataFrame]:
    """Run the simulation."""
    jax.config.update("jax_enable_x64", True)
    start = time.perf_counter()
    if small:
        runs, states, fractions = 3, "1,5", "0.2"
    models = {name: None if name == "PAIR-LOGREG" else candidates(name, small) for name in methods.split(",")}
    rows = []
    for fraction in numbers(fractions):
        for num_states in numbers(states):
            for seed in range(runs):
                rows += run(seed, int(num_states), fraction, models)
        click.echo(f"{fraction:.0%} of the pairs: {time.perf_counter() - start:.0f} s", err=True)
    table = pd.DataFrame(rows)
    print_accuracies(table)
    print_paired(table)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        table.to_csv(output / "gpgp_simulation.csv", index=False)
        draw(table, output / "gpgp_simulation.png")
    click.echo(f"{time.perf_counter() - start:.0f} s")
    return {"accuracy": table}


if __name__ == "__main__":
    main()
