"""Held-out matches of a real data set: general preferences, a utility, both at once, and baselines (GPGP, section 4.3).

    python examples/reproduce/preferences_real.py --items chameleons.csv --matches chameleons_matches.csv
        [--splits 20] [--small] [--output FOLDER]

(Chau, Gonzalez and Sejdinovic, Learning inconsistent preferences with Gaussian processes, 2022, table 1.) The items are
a table with a column ID and features, which are standardized. The matches are a table with columns winner and loser.
The chameleon data are from Stuart-Fox et al. (2006) and are available, for instance, in the R package BradleyTerry2.
Without --items, the script simulates 30 items and 100 matches with cycles.

PAIR-GP sees the features of both items side by side, in both orders, and its probabilities are averaged over both.
Every run splits the matches 70 to 30; a match and its mirror image stay together. Hyperparameters maximize the evidence
times weak priors; penalties of the baselines are cross-validated. The script prints accuracy, log loss and area under
the curve of the probabilities, with their standard deviations over splits; rank-sum and signed-rank tests; the
rankability, the clustering coefficient and the number of cycles of the data; and the coverage of the intervals.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import click
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from numpyro import distributions as dist
from preference_methods import average, on_all_pairs, print_scores, print_tests, scores, side_by_side
from sklearn.model_selection import GridSearchCV, KFold

import kpp
from kpp.kernels import RBF
from kpp.preferences import Matches
from kpp_models import (
    GPGP,
    PGP,
    GPClassification,
    count_cycles,
    duel,
    mean_clustering_coefficient,
    spectral_rankability,
)
from kpp_models.estimators import BradleyTerry, PairwiseLogisticRegression, match_rows

PUBLISHED = (
    "published (chameleons, accuracy): GPGP .78 +- .06, PGP .51 +- .09, PAIRGP .72 +- .08, PAIRLOGREG .71 +- .08"
)
REFERENCE = "GPGP, k + c"
LEVELS = (0.5, 0.9)
PENALTIES = np.geomspace(0.05, 5.0, 9)
INFERENCE = kpp.MAP(progress=False)


def priors(num_features: int) -> tuple[dist.Distribution, dist.Distribution]:
    """Return a wide prior of a variance, and a prior of a lengthscale about sqrt(d)."""
    return dist.HalfNormal(10.0), dist.LogNormal(0.5 * np.log(num_features), 1.0)


def models(num_features: int) -> dict[str, Any]:
    """Return the Gaussian processes of pairs of items, with priors."""
    variance, lengthscale = priors(num_features)
    rbf = variance * RBF(lengthscale)
    return {
        REFERENCE: GPGP(rbf + dist.HalfNormal(10.0)),
        "GPGP, ARD": GPGP(variance * RBF(lengthscale.expand([num_features]).to_event(1))),
        "GPGP, RBF": GPGP(rbf),
        "PGP, RBF": PGP(rbf),
    }


def simulate(seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return 30 items with three features and 100 matches, decided by a utility and by a cycle among the features."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(30, 3))
    first, second = np.array([rng.choice(30, 2, replace=False) for _ in range(100)]).T
    g = 1.5 * (x[first, 0] - x[second, 0]) + 2 * (x[first, 1] * x[second, 2] - x[second, 1] * x[first, 2])
    won = rng.uniform(size=100) < 1 / (1 + np.exp(-g))
    items = pd.DataFrame(x, columns=["strength", "attack", "defence"]).rename_axis("ID").reset_index()
    return items, pd.DataFrame({"winner": np.where(won, first, second), "loser": np.where(won, second, first)})


def read(items: Path | None, matches: Path | None) -> Matches:
    """Read both tables, or simulate them, and standardize the features."""
    table, played = simulate(0) if items is None or matches is None else (pd.read_csv(items), pd.read_csv(matches))
    features = [name for name in table.columns if name != "ID"]
    table[features] = (table[features] - table[features].mean()) / table[features].std(ddof=0)
    return Matches.from_tables(table, played[["winner", "loser"]])


def baselines(train: Matches, matches: Matches) -> dict[str, np.ndarray]:
    """Return probabilities at pairs by Bradley-Terry, a Gaussian process of both items, and logistic regression."""
    known, pairs = match_rows(train), np.asarray(matches.pairs)
    strengths = cross_validated(BradleyTerry(num_items=matches.num_items), penalty=PENALTIES)
    linear = cross_validated(PairwiseLogisticRegression(), C=1 / PENALTIES)
    strengths.fit(known.numbers, known.y, sample_weight=known.sample_weight)
    linear.fit(known.features, known.y, sample_weight=known.sample_weight)
    return {
        "Bradley-Terry": strengths.predict_proba(pairs)[:, 1],
        "PAIR-GP": pair_gp(train, matches),
        "pairwise logistic": linear.predict_proba(np.asarray(matches.points).reshape(len(pairs), -1))[:, 1],
    }


def pair_gp(train: Matches, matches: Matches) -> np.ndarray:
    """Return probabilities at pairs by a Gaussian process of the features of both items, fitted in both orders."""
    rows, y = train.single_matches()
    features, labels = side_by_side(np.asarray(train.points)[rows]), np.concatenate([y, 1 - y])
    variance, lengthscale = priors(2 * train.items.shape[1])
    fit = GPClassification(variance * RBF(lengthscale)).fit(
        jax.random.key(0), features, labels, inference=INFERENCE, num_prior_samples=0
    )
    return average(fit.predict(side_by_side(np.asarray(matches.points)))["probability"].values.squeeze())


def cross_validated(estimator: Any, **grid: Any) -> GridSearchCV:
    """Return an estimator that chooses its penalty by the log loss of five folds."""
    return GridSearchCV(estimator, grid, scoring="neg_log_loss", cv=KFold(5, shuffle=True, random_state=0))


def run(matches: Matches, seed: int, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """Split, fit everything and score it on the held-out matches."""
    train, test = (on_all_pairs(part, matches) for part in matches.split(jax.random.key(seed), 0.7))
    rows, y = test.single_matches()
    found = {}
    for name, model in wanted.items():
        fit = model.fit(jax.random.key(seed), train, inference=INFERENCE, num_prior_samples=0)
        found[name] = fit.predict(matches)["probability"].values.squeeze()
    found = {name: p[rows] for name, p in (found | baselines(train, matches)).items()}
    return [{"run": seed, "method": name, **scores(p, y), "probabilities": p, "y": y} for name, p in found.items()]


def print_graph(matches: Matches) -> None:
    """Print statistics of the graph of the matches about rankings."""
    click.echo(
        f"{matches.num_items} items with {matches.items.shape[1]} features, {matches.num_matches} matches of "
        f"{matches.num_pairs} pairs; SpecR {spectral_rankability(matches.dominance()):.3f}, clustering coefficient "
        f"{mean_clustering_coefficient(matches.adjacency()):.3f}, {count_cycles(matches.adjacency())} cycles of three"
    )


def print_reliability(table: pd.DataFrame, method: str) -> None:
    """Print, for bins of the probability of the predicted winner, how often it won."""
    part = table.loc[table["method"] == method]
    p, y = np.concatenate(list(part["probabilities"])), np.concatenate(list(part["y"]))
    sure, won = np.maximum(p, 1 - p), (p > 0.5) == (y == 1)
    click.echo(f"\nReliability of {method}: mean probability of the predicted winner, how often it won, matches tested")
    for low, high in ((0.5, 0.6), (0.6, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 1.0)):
        inside = (sure >= low) & (sure < high)
        if inside.any():
            click.echo(
                f"{low:>8.1f} to {high:.1f}{sure[inside].mean():>8.3f}{won[inside].mean():>8.3f}{inside.sum():>6}"
            )


def coverage(matches: Matches, model: Any, num_runs: int, inference: Any) -> dict[float, float]:
    """Return the coverage of intervals of P(a beats b), with preferences drawn from the prior at its mode.

    The pairs, the numbers of matches and the split are taken from the data; the held-out pairs are tested.
    """
    fit = model.fit(jax.random.key(0), matches, inference=INFERENCE, num_prior_samples=0)
    gram = np.asarray(fit.function().map_draws(lambda g: g.kernel.gram(matches.points)))[0, 0]
    root = np.linalg.cholesky(gram + 1e-8 * np.mean(np.diag(gram)) * np.eye(len(gram)))
    held: dict[float, list[bool]] = {level: [] for level in LEVELS}
    for seed in range(num_runs):
        rng = np.random.default_rng(seed)
        probability = 1 / (1 + np.exp(-(root @ rng.normal(size=len(root)))))
        observed = rng.uniform(size=len(root)) < 0.7
        trials = np.where(observed, np.asarray(matches.counts), 0).astype(int)
        wins = rng.binomial(trials, probability).astype(float)
        drawn = dataclasses.replace(matches, wins=jnp.asarray(wins), losses=jnp.asarray(trials - wins))
        again = model.fit(jax.random.key(seed), drawn, inference=inference, num_prior_samples=0)
        for level in LEVELS:
            found = duel(again, matches.points[:, 0], matches.points[:, 1], level=level)
            inside = (found["lower"].values <= probability) & (probability <= found["upper"].values)
            held[level] += inside[~observed].tolist()
    return {level: float(np.mean(values)) for level, values in held.items()}


def print_coverage(matches: Matches, wanted: dict[str, Any], num_runs: int) -> None:
    """Print the coverage for a general model and a utility, with hyperparameters at their mode and as draws."""
    click.echo("\nSimulated from a fitted model: coverage of the intervals of P(a beats b) for unseen pairs")
    for name in ("GPGP, RBF", "PGP, RBF"):
        for inference in (INFERENCE, kpp.Laplace(num_samples=200, progress=False)):
            found = coverage(matches, wanted[name], num_runs, inference)
            held = ", ".join(f"{level:.0%} intervals in {share:.1%}" for level, share in found.items())
            click.echo(f"{name}, {type(inference).__name__}: {held}")


@click.command(help=__doc__)
@click.option("--items", type=click.Path(path_type=Path, exists=True), help="A CSV table with ID and features.")
@click.option("--matches", type=click.Path(path_type=Path, exists=True), help="A CSV table with winner and loser.")
@click.option("--splits", default=20, show_default=True)
@click.option("--small", is_flag=True, help="Two splits, and no ARD and no coverage.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for the scores.")
def main(
    items: Path | None, matches: Path | None, splits: int, small: bool, output: Path | None
) -> dict[str, pd.DataFrame]:
    """Run the experiment."""
    jax.config.update("jax_enable_x64", True)
    if (items is None) != (matches is None):
        raise click.UsageError("`--items` and `--matches` must be given together")
    start = time.perf_counter()
    data = read(items, matches)
    print_graph(data)
    wanted = models(data.items.shape[1])
    if small:
        splits, wanted = 2, {name: wanted[name] for name in (REFERENCE, "PGP, RBF")}
    table = pd.DataFrame([row for seed in range(splits) for row in run(data, seed, wanted)])
    print_scores(table, "Held-out matches")
    click.echo(PUBLISHED)
    for metric in ("accuracy", "log loss"):
        print_tests(table, metric, REFERENCE)
    for name in wanted:
        print_reliability(table, name)
    if not small:
        print_coverage(data, wanted, splits)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        table.drop(columns=["probabilities", "y"]).to_csv(output / "preferences_real.csv", index=False)
    click.echo(f"{time.perf_counter() - start:.0f} s")
    return {"scores": table.drop(columns=["probabilities", "y"])}


if __name__ == "__main__":
    main()
