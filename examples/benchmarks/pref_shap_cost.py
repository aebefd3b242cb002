"""Cost of Pref-SHAP by the number of training matches, items, features, and explained matches.

    python examples/benchmarks/pref_shap_cost.py [--quick]

The table has one row per setting and value function: processor seconds with compilation included, elapsed seconds, and
the peak memory of the process minus its memory after all imports. All coalitions are evaluated, with all items as
references. The last column is the cost of a sum over matches for each explained match and coalition, in units of 10^12
operations.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import jax
import numpy as np

import kpp
from kpp.kernels import RBF, GeneralizedPreferential
from kpp_pref_shap import PreferentialItems, PrefShap

# Training matches, items, features, explained matches.
SETTINGS = (
    (40_000, 1000, 7, 1000),
    (10_000, 1000, 7, 1000),
    (40_000, 500, 7, 1000),
    (40_000, 1000, 7, 250),
    (40_000, 500, 5, 1000),
    (40_000, 500, 9, 1000),
)
QUICK = ((400, 30, 4, 20),)
CONDITIONALS = ("observational", "interventional")
HEADER = (
    f"{'game':<15} {'matches':>8} {'items':>6} {'d':>3} {'explained':>9} {'CPU s':>7} {'s':>7} {'memory':>9} "
    f"{'naive':>8}"
)


def peak_memory() -> float:
    """The most memory that this process has held, in MB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def measure(conditional: str, num_matches: int, num_items: int, d: int, explained: int) -> dict[str, Any]:
    """Measure one setting in this process."""
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    items = rng.normal(size=(num_items, d))
    pairs = items[rng.integers(0, num_items, (num_matches, 2))]
    kernel = GeneralizedPreferential(RBF(np.full(d, np.sqrt(d))))
    function = kpp.RKHSFunction(kernel, pairs, rng.normal(size=num_matches))
    x = items[rng.integers(0, num_items, (explained, 2))]
    explainer = PrefShap(PreferentialItems(items, 1e-3, conditional), progress=False)
    before, start, cpu = peak_memory(), time.perf_counter(), time.process_time()
    explanation = explainer.explain(function, x)
    spent, clock = time.process_time() - cpu, time.perf_counter() - start
    assert float(explanation.additivity_error().max()) < 1e-8
    return {"cpu": spent, "clock": clock, "memory": peak_memory() - before}


def report(conditional: str, setting: tuple[int, int, int, int]) -> None:
    """Measure one setting in a separate process and print a row."""
    command = [sys.executable, __file__, "--one", json.dumps([conditional, *setting])]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    num_matches, num_items, d, explained = setting
    # A product with the matrix between matches and references, twice per explained match, for every coalition.
    naive = 2.0**d * num_matches * num_items * explained * 8 / 1e12
    print(
        f"{conditional:<15} {num_matches:8d} {num_items:6d} {d:3d} {explained:9d} {found['cpu']:7.1f} "
        f"{found['clock']:7.1f} {found['memory']:6.0f} MB {naive:8.1f}",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one small setting")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measure(*json.loads(options.one))))
        return
    print(HEADER)
    for setting in QUICK if options.quick else SETTINGS:
        for conditional in CONDITIONALS:
            report(conditional, setting)


if __name__ == "__main__":
    main()
