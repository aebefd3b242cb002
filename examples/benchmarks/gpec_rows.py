"""Processes of explanations of many rows, exact and through inducing points: time, memory, error and intervals.

    python examples/benchmarks/gpec_rows.py [--features 10] [--inducing 500] [ROWS ...]

The explanations are values of functions that are drawn from the prior. Their noise has known variances, which differ
from row to row and from feature to feature. The error is that of the predicted explanations of new rows, over the
standard deviation of the noise. Each case runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time

import click
import jax
import numpy as np

_NEW, _EXACT = 1000, 4000  # the number of new rows, and the largest number of rows for the exact process


def measure(rows: int, num_features: int, num_inducing: int | None) -> tuple[float, ...]:
    """Return seconds, peak memory in MB, the error over the noise's standard deviation, and the share in intervals."""
    jax.config.update("jax_enable_x64", True)
    from kpp.kernels import RBF
    from kpp_gpec import condition

    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows + _NEW, num_features))
    lengthscale = num_features**0.5
    frequencies, phases = rng.normal(size=(num_features, 300)) / lengthscale, rng.uniform(0, 2 * np.pi, 300)
    weights = rng.normal(size=(300, num_features)) * (2 / 300) ** 0.5
    truth = np.cos(x @ frequencies + phases) @ weights
    noise = rng.uniform(0.01, 0.04, size=truth.shape)
    values = truth + np.sqrt(noise) * rng.normal(size=truth.shape)
    start = time.perf_counter()
    process = condition(
        RBF(lengthscale), x[:rows], values[:rows], noise[:rows], np.ones(num_features), None, num_inducing
    )
    law = process.predict(x[rows:])
    seconds = time.perf_counter() - start
    error = abs(law.mean - truth[rows:])
    inside = np.mean(error < 1.645 * np.sqrt(law.variance))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return seconds, peak, float(np.sqrt(np.mean(error**2)) / np.sqrt(noise.mean())), float(inside)


@click.command()
@click.option("--features", default=10, help="The number of features.")
@click.option("--inducing", default=500, help="The number of inducing points.")
@click.argument("rows", nargs=-1, type=int)
def main(features: int, inducing: int, rows: tuple[int, ...]) -> None:
    """Print a table."""
    print("load", os.getloadavg())
    print(f"{'rows':>8} {'process':>10} {'seconds':>8} {'MB':>7} {'error / noise':>13} {'in 90 % intervals':>18}")
    for number in rows or (1000, 4000, 20_000, 100_000):
        for num_inducing in ([None] if number <= _EXACT else []) + [inducing]:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                seconds, peak, error, inside = pool.apply(measure, (number, features, num_inducing))
            name = "exact" if num_inducing is None else str(num_inducing)
            print(f"{number:8} {name:>10} {seconds:8.1f} {peak:7.0f} {error:13.3f} {inside:18.3f}", flush=True)


if __name__ == "__main__":
    main()
