"""Does GPEC's uncertainty decrease for simpler boosted trees (GPEC, section 5.3, table 1, tables 5 and 6)?

    python examples/reproduce/gpec_regularisation.py [--data german.csv --data adult.csv] [--splits 8] [--small]
        [--output FOLDER]

(Hill, Masoomi, Torop, Ghimire and Dy, Boundary-aware uncertainty for feature attribution explainers, 2024.) XGBoost is
trained with gamma, the cost of a leaf, at 0, 5 and 10. Rows that were not used for training are explained. For every
method the script prints the mean width of its intervals, four standard deviations, over rows and features, with
standard errors over splits; in how many splits the width decreases strictly from each gamma to the next; and how often
the model predicts only one class, in which case there is no boundary and the width of GPEC counts as 0. Breast cancer
comes with scikit-learn; further tables are CSV files with a target among the columns that `gpec_data.TARGETS` names.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np
import pandas as pd
from gpec_data import Split, Table, boosted_trees, has_xgboost, probability, split, tables
from gpec_methods import SMALL, Case, Effort, compare

GAMMAS = (0.0, 5.0, 10.0)


@dataclass(frozen=True)
class Sizes:
    """The numbers of training rows and of explained rows, and the effort of the methods."""

    train: int = 100
    test: int = 100
    effort: Effort = Effort()


def run(parts: Split, gamma: float, sizes: Sizes, seed: int) -> list[dict[str, Any]]:
    """Train with one gamma, and return the mean width of every method."""
    function = probability(boosted_trees(parts.x, parts.y, gamma))
    case = Case(function, parts.x[: sizes.train], parts.x_test[: sizes.test], sizes.effort, seed, parts.x)
    found = compare(case, ("published, standardized",))
    known = {
        "gamma": gamma,
        "accuracy": np.mean((function(parts.x_test) > 0.5) == parts.y_test),
        "no boundary": not found["GPEC as published"].any(),
    }
    return [{**known, "method": name, "width": values.mean()} for name, values in found.items()]


def measure(table: Table, num_splits: int, sizes: Sizes) -> pd.DataFrame:
    """Return the mean widths of all methods, with all gammas, over splits."""
    rows = []
    for seed in range(num_splits):
        parts = split(table, seed)
        for gamma in GAMMAS:
            rows += [{"data": table.name, "split": seed, **row} for row in run(parts, gamma, sizes, seed)]
    return pd.DataFrame(rows)


def falls(widths_by_gamma: pd.DataFrame) -> int:
    """Return in how many rows the columns decrease strictly."""
    return int((np.diff(widths_by_gamma.to_numpy(), axis=1) < 0).all(axis=1).sum())


def print_table(found: pd.DataFrame) -> None:
    """Print table 1 for one data set."""
    once = found.drop_duplicates(["split", "gamma"]).groupby("gamma")
    splits = found["split"].nunique()
    click.echo(f"\n{found['data'].iloc[0]}, {splits} splits: mean width +- standard error at gamma 0, 5 and 10, and in")
    click.echo("how many splits it decreases strictly")
    for name, part in found.groupby("method", sort=False):
        wide = part.pivot(index="split", columns="gamma", values="width")
        errors = wide.std(ddof=1) / np.sqrt(splits)
        cells = "".join(f"{f'{wide[g].mean():.4f} +- {errors[g]:.4f}':>20}" for g in GAMMAS)
        click.echo(f"{name:>26}{cells}{falls(wide):>5} of {splits}")
    accuracy, single = once["accuracy"].mean(), once["no boundary"].sum()
    click.echo(f"{'accuracy':>26}" + "".join(f"{accuracy[g]:>20.3f}" for g in GAMMAS))
    click.echo(f"{'no boundary in':>26}" + "".join(f"{single[g]:>20d}" for g in GAMMAS))


@click.command(help=__doc__)
@click.option("--data", type=click.Path(path_type=Path, exists=True), multiple=True, help="A table; repeatable.")
@click.option("--splits", default=8, show_default=True)
@click.option("--small", is_flag=True, help="Two splits, 20 training rows, 8 explained ones.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for the widths.")
def main(data: tuple[Path, ...], splits: int, small: bool, output: Path | None) -> dict[str, pd.DataFrame]:
    """Run the experiment."""
    jax.config.update("jax_enable_x64", True)
    if not has_xgboost():
        raise click.ClickException("XGBoost is needed, whose penalty gamma is varied; install it: pip install xgboost")
    start = time.perf_counter()
    sizes = Sizes(20, 8, SMALL) if small else Sizes()
    found = []
    for table in tables(data):
        found.append(measure(table, 2 if small else splits, sizes))
        print_table(found[-1])
    every = pd.concat(found)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        every.to_csv(output / "gpec_regularisation.csv", index=False)
    click.echo(f"{time.perf_counter() - start:.0f} s")
    return {"widths": every}


if __name__ == "__main__":
    main()
