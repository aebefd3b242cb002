"""How often the intervals of kpp.causal_effect hold the true effect, in two simulations.

    python examples/benchmarks/effect_coverage.py [--data-sets 200] [--rows 100]

Both have a confounder of treatment and outcome. "linear": a treatment of two levels with the effect 2 + z / 2, on
average 2. "nonlinear": a dose with the effect of the sine. The table has the share of intervals of 90 % that hold the
true effect, its standard error, the mean width, and the root mean squared errors of the estimate and of the slope
without adjustment (a linear regression on the treatment only).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import jax
import numpy as np
import pandas as pd

import kpp
from kpp.causal import CausalDAG

GRAPH = CausalDAG([("z", "t"), ("z", "y"), ("t", "y")])
Simulation = Callable[[np.random.Generator, int], pd.DataFrame]


def linear(rng: np.random.Generator, num_rows: int) -> pd.DataFrame:
    """Return a table with a treatment of two levels; its effect is 2."""
    z = rng.normal(size=num_rows)
    t = (rng.uniform(size=num_rows) < 1 / (1 + np.exp(-z))).astype(float)
    return pd.DataFrame({"z": z, "t": t, "y": 2 * t + z + 0.5 * t * z + 0.5 * rng.normal(size=num_rows)})


def nonlinear(rng: np.random.Generator, num_rows: int) -> pd.DataFrame:
    """Return a table with a dose; the effect of 1 against -1 is 2 sin 1."""
    z = rng.normal(size=num_rows)
    t = 0.7 * z + rng.normal(size=num_rows)
    return pd.DataFrame({"z": z, "t": t, "y": np.sin(t) + z**2 / 2 + z + 0.3 * rng.normal(size=num_rows)})


CASES: dict[str, tuple[Simulation, tuple[float, float], float]] = {
    "linear": (linear, (1.0, 0.0), 2.0),
    "nonlinear": (nonlinear, (1.0, -1.0), 2 * np.sin(1.0)),
}


def measure(name: str, num_sets: int, num_rows: int) -> tuple[float, float, float, float]:
    """Return coverage, mean width, and both root mean squared errors."""
    simulate, levels, truth = CASES[name]
    covered, widths, errors, naive = [], [], [], []
    for seed in range(num_sets):
        table = simulate(np.random.default_rng(seed), num_rows)
        key = jax.random.key(seed)
        effect = kpp.causal_effect(key, table, GRAPH, treatment="t", outcome="y", at=sorted(levels))
        contrast = effect.contrast(*levels)
        low, high = contrast.quantile([0.05, 0.95]).to_numpy()
        covered.append(low <= truth <= high)
        widths.append(high - low)
        errors.append(float(contrast.mean()) - truth)
        slope = np.polyfit(table["t"], table["y"], 1)[0]
        naive.append(slope * (levels[0] - levels[1]) - truth)
    return (
        float(np.mean(covered)),
        float(np.mean(widths)),
        *(float(np.sqrt(np.mean(np.square(e)))) for e in (errors, naive)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-sets", type=int, default=200)
    parser.add_argument("--rows", type=int, default=100)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(
        f"{'case':<10} {'coverage':>9} {'se':>6} {'width':>7} {'error':>7} {'unadjusted':>11} {'seconds':>8}",
        flush=True,
    )
    for name in CASES:
        start = time.perf_counter()
        coverage, width, error, naive = measure(name, options.data_sets, options.rows)
        se = np.sqrt(coverage * (1 - coverage) / options.data_sets)
        seconds = time.perf_counter() - start
        print(
            f"{name:<10} {coverage:>9.3f} {se:>6.3f} {width:>7.3f} {error:>7.3f} {naive:>11.3f} {seconds:>8.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
