"""Time and error of `kpp_models.causal_effect` with many rows, by inducing points.

    python examples/benchmarks/effect_many_rows.py [--rows 100000] [--inducing 100] [--law "nonlinear, two levels"]

It prints wall-clock and CPU seconds with the compilation, and the truth, mean, standard deviation and 90 % interval of
the contrast, with the standard deviation of what the inducing points leave out.
"""

from __future__ import annotations

import time

import click
import jax
import numpy as np

from examples.benchmarks.effect_simulations import SIMULATIONS
from kpp_models import causal_effect

jax.config.update("jax_enable_x64", True)


@click.command(help=__doc__)
@click.option("--rows", default=100_000)
@click.option("--inducing", default=100)
@click.option("--law", default="nonlinear, two levels", type=click.Choice(list(SIMULATIONS)))
def main(rows: int, inducing: int, law: str) -> None:
    """Estimate one effect."""
    known = SIMULATIONS[law]
    table = known.table(np.random.default_rng(0), rows)
    wall, cpu = time.perf_counter(), time.process_time()
    effect = causal_effect(
        jax.random.key(0),
        table,
        known.graph,
        treatment="t",
        outcome="y",
        at=sorted(known.levels),
        num_inducing=inducing,
    )
    draws = effect.contrast(*known.levels).to_numpy().ravel()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    low, high = np.quantile(draws, [0.05, 0.95])
    left_out = float(np.sqrt(effect.dataset["variance_parts"].isel(part=-1).max()))
    click.echo(f"{rows} rows, {inducing} inducing points: {wall:.0f} s wall, {cpu:.0f} s CPU")
    click.echo(f"truth {known.truth:.4f}  mean {draws.mean():.4f}  sd {draws.std():.4f}  {low:.4f} to {high:.4f}")
    click.echo(f"sd of what the inducing points leave out of one mean: {left_out:.5f}")


if __name__ == "__main__":
    main()
