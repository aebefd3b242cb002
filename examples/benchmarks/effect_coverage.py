"""How often the intervals of kpp_models.causal_effect hold the true effect, in simulations with a confounder.

    python examples/benchmarks/effect_coverage.py [--data-sets 200] [--first 0] [--rows 100] [--only NAME ...]

The simulations are those of effect_simulations.py. The table has a line for each effect, of one value of the treatment
against another, and one for each average derivative: the share of intervals of 90 % that hold the truth, its standard
error, the mean width, the bias and the root mean squared error of the estimate, and the root mean squared error without
adjustment (a linear regression on the treatment only).
"""

from __future__ import annotations

import argparse
import time

import jax
import numpy as np
import pandas as pd
import xarray as xr
from effect_simulations import SIMULATIONS, Simulation

from kpp_models import causal_effect


def measure(simulation: Simulation, seeds: range, num_rows: int) -> pd.DataFrame:
    """Return what happened in each data set: quantity, truth, estimate, low and high end, unadjusted slope."""
    levels, found = simulation.levels, []
    for seed in seeds:
        table = simulation.table(np.random.default_rng(seed), num_rows)
        effect = causal_effect(
            jax.random.key(seed),
            table,
            simulation.graph,
            treatment="t",
            outcome="y",
            at=sorted(levels),
            likelihood=simulation.likelihood,
            derivative=simulation.derivative is not None,
        )
        slope = np.polyfit(table["t"], table["y"], 1)[0]
        contrast = effect.contrast(*levels)
        found.append(("effect", simulation.truth, *estimate(contrast), slope * (levels[0] - levels[1])))
        if simulation.derivative is not None:
            found.append(("derivative", simulation.derivative, *estimate(effect.average_derivative), slope))
    return pd.DataFrame(found, columns=["quantity", "truth", "mean", "low", "high", "slope"])


def estimate(draws: xr.DataArray) -> tuple[float, float, float]:
    """Return mean and interval of 90 %."""
    low, high = draws.quantile([0.05, 0.95]).to_numpy()
    return float(draws.mean()), float(low), float(high)


def summarize(found: pd.DataFrame) -> tuple[float, ...]:
    """Return coverage, its standard error, mean width, bias and both root mean squared errors."""
    covered = ((found["low"] <= found["truth"]) & (found["truth"] <= found["high"])).mean()
    error, unadjusted = found["mean"] - found["truth"], found["slope"] - found["truth"]
    return (
        covered,
        np.sqrt(covered * (1 - covered) / len(found)),
        (found["high"] - found["low"]).mean(),
        error.mean(),
        np.sqrt(np.mean(error**2)),
        np.sqrt(np.mean(unadjusted**2)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-sets", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first seed, for a run in pieces")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--only", nargs="+", choices=list(SIMULATIONS), default=list(SIMULATIONS))
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    columns = ("coverage", "se", "width", "bias", "error", "unadjusted", "seconds")
    print(f"{'case':<24} {'quantity':<10} " + " ".join(f"{name:>10}" for name in columns), flush=True)
    for name in options.only:
        start = time.perf_counter()
        seeds = range(options.first, options.first + options.data_sets)
        found = measure(SIMULATIONS[name], seeds, options.rows)
        seconds = (time.perf_counter() - start) / options.data_sets
        for quantity, part in found.groupby("quantity"):
            numbers = " ".join(f"{number:>10.3f}" for number in (*summarize(part), seconds))
            print(f"{name:<24} {quantity:<10} {numbers}", flush=True)


if __name__ == "__main__":
    main()
