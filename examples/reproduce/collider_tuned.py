"""Collider regression with hyperparameters tuned on independent data (appendix F.1 of the paper).

    python examples/reproduce/collider_tuned.py [--seeds 40] [--small]

(Bouabid, Fawkes and Sejdinovic, Returning the favour: when regression benefits from probabilistic causal knowledge,
2023.) The simulation is that of `collider_simulation.py`, with 50 labeled and 100 unlabeled rows. On three other data
sets, each with a validation set of 2000 rows, each method chooses its hyperparameters by the mean squared error: RF its
depth and the sizes of nodes; KRR both lengthscales and its ridge; P-KRR, for this KRR, the ridge of the conditional
mean embedding; and H_P-KRR all four. P-RF has none of its own. The script prints the choices and the test errors.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import click
import jax
import pandas as pd
from collider_methods import Function, Sample, Settings, fitted, print_scores
from collider_simulation import SMALL, Case, Plan, Process, Seed

LENGTHSCALES = tuple(itertools.product((2.0, 4.0, 8.0, 16.0), (1.0, 2.0, 4.0, 8.0)))
REGULARIZATIONS = (1e-4, 1e-3, 1e-2, 1e-1)
CONDITION_RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0)
FORESTS = [
    {"n_estimators": 100, "max_depth": depth, "min_samples_leaf": leaf, "min_samples_split": split}
    for depth, leaf, split in itertools.product((3, 6, 20), (1, 2, 5), (2, 10))
]
START = Settings((8.0, 2.0), 1.0, FORESTS[0])
TUNED_ON = (1_000_000, 1_000_001, 1_000_002)  # seeds
Fit = Callable[[Settings, Sample], Function]


def choose(fit: Fit, candidates: Iterable[Settings], seeds: list[Seed]) -> Settings:
    """Return the candidate with the smallest mean error over the data sets of tuning."""

    def error(settings: Settings) -> float:
        return sum(seed.error(fit(settings, seed.sample(Case())), Case().spouses) for seed in seeds)

    return min(candidates, key=error)


def ridge(projection: str) -> Fit:
    """Return how a kernel ridge regression is fitted."""
    return lambda settings, sample: fitted(settings.collider_ridge(sample, projection), sample)


def varied(settings: Settings, **grid: Iterable[Any]) -> list[Settings]:
    """Return the settings with all combinations of values."""
    combinations = itertools.product(*grid.values())
    return [dataclasses.replace(settings, **dict(zip(grid, values, strict=True))) for values in combinations]


def tune(seeds: list[Seed], small: bool) -> dict[str, Settings]:
    """Return the settings of the forest and of KRR and P-KRR, and those of H_P-KRR."""
    lengthscales, forests = (LENGTHSCALES[:2], FORESTS[:2]) if small else (LENGTHSCALES, FORESTS)
    forest = choose(lambda settings, sample: settings.fit_forest(sample, 0), varied(START, forest=forests), seeds)
    grid = {"lengthscales": lengthscales, "regularization": REGULARIZATIONS[1:2] if small else REGULARIZATIONS}
    krr = choose(ridge("none"), varied(forest, **grid), seeds)
    projected = choose(ridge("function"), varied(krr, ridge=CONDITION_RIDGES), seeds)
    space = choose(ridge("space"), varied(projected, **grid, ridge=CONDITION_RIDGES[1::2]), seeds)
    return {"RF, KRR, P-KRR": projected, "H_P-KRR": space}


@click.command(help=__doc__)
@click.option("--seeds", default=40, show_default=True, help="Data sets of the test.")
@click.option("--small", is_flag=True, help="Two data sets and a small grid.")
def main(seeds: int, small: bool) -> dict[str, pd.DataFrame]:
    """Tune and test."""
    jax.config.update("jax_enable_x64", True)
    process, plan = Process.standardised(), SMALL if small else Plan(num_test=2000)
    chosen = tune([Seed(seed, process, START, plan) for seed in TUNED_ON[: 1 if small else 3]], small)
    for name, settings in chosen.items():
        click.echo(f"{name}: {settings}")
    rows = []
    for number in range(2 if small else seeds):
        seed = Seed(number, process, chosen["RF, KRR, P-KRR"], plan)
        row = seed.scores(Case())
        space = ridge("space")(chosen["H_P-KRR"], seed.sample(Case()))
        rows.append(row | {"H_P-KRR": seed.error(space, Case().spouses)})
    errors = pd.DataFrame(rows)
    print_scores(errors.set_index("seed")[["RF", "P-RF", "KRR", "P-KRR", "H_P-KRR"]], "Test mean squared error")
    return {"errors": errors}


if __name__ == "__main__":
    main()
