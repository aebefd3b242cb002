"""What the covariates leave unexplained of bags and of targets, in the published experiments with two-step mediation.

    python examples/reproduce/mediation_shares.py [--data NPZ] [--rolls 20] [--splits 6] [--small]

(Chau, Bouabid and Sejdinovic, Deconditional downscaling with Gaussian processes, 2021, tables 1 and 2.) The shares of
`kpp_models.check_mediation` for the Swiss rolls of `swiss_roll.py` with indirect matching, and for the splits of the
fields of `downscaling.py`: those of the file `--data`, and the simulated ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import downscaling
import jax
import pandas as pd
from downscaling_operator import guess, shares
from swiss_roll import make_roll

from kpp_models import MediationCheck, check_mediation


def row(problem: str, number: int, check: MediationCheck) -> dict[str, Any]:
    """Return the shares of one data set."""
    click.echo(f"{problem}, {number}: operator {check.operator:.3f}, regression {check.regression:.3f}")
    return {"problem": problem, "run": number, **check._asdict()}


def of_roll(number: int, points: int, slices: int) -> MediationCheck:
    """Return the shares of one roll; of each bag 50 points are enough."""
    bags, aggregates, covariates = make_roll(number, points, slices).training("indirect")
    return check_mediation(bags.subsample(jax.random.key(number), 50), covariates, aggregates)


def of_splits(problem: str, fields: Any, block: int, splits: int) -> list[dict[str, Any]]:
    """Return the shares of the splits of a field."""
    posed = [downscaling.pose(fields, block, seed) for seed in range(splits)]
    return [row(problem, seed, shares(part, guess(part))) for seed, part in enumerate(posed)]


@click.command(help=__doc__)
@click.option("--data", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="An .npz file of fields.")
@click.option("--rolls", default=20, show_default=True, help="Swiss rolls, from the tenth.")
@click.option("--splits", default=6, show_default=True, help="Splits of each field.")
@click.option("--small", is_flag=True, help="One small roll and one split of a small field.")
def main(data: Path | None, rolls: int, splits: int, small: bool) -> dict[str, pd.DataFrame]:
    """Print the shares of all data sets."""
    jax.config.update("jax_enable_x64", True)
    if small:
        rows = [row("Swiss roll", 10, of_roll(10, 150, 6))]
        return {"shares": pd.DataFrame(rows + of_splits("simulated field", downscaling.simulate(24, 48), 4, 1))}
    rows = [row("Swiss roll", number, of_roll(number, 5000, 50)) for number in range(10, 10 + rolls)]
    if data is not None:
        rows += of_splits("cloud-top temperature", downscaling.read(data), 17, splits)
    rows += of_splits("simulated field", downscaling.simulate(96, 192), 8, splits)
    return {"shares": pd.DataFrame(rows)}


if __name__ == "__main__":
    main()
