"""Cost of exact Shapley values by the number of points of the function, of background points and of features.

    python examples/benchmarks/rkhs_shap_cost.py [--quick] [--points 2]

The table has one row per setting, each measured in a separate process: processor seconds for one explained point after
compilation (a first call of more than a minute is not repeated), seconds to compile and run the first time, and the
peak memory of the process minus its memory after all imports. The interventional game uses the cheaper exact method.
The observational game uses all coalitions, with one factorization of an m x m matrix per coalition.
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
from kpp.games import AbstractValueFunction, Interventional, Observational, shapley_values
from kpp.games.toolkit import choose_method
from kpp.kernels import RBF

# The game, points of the function n, background points m, features d.
SETTINGS = (
    *(("interventional", n, n, 10) for n in (500, 1000, 2000, 5000)),
    *(("interventional", n, n, 100) for n in (500, 1000, 2000, 5000)),
    ("interventional", 5000, 100, 100),
    ("interventional", 100, 5000, 100),
    *(("observational", n, n, 6) for n in (250, 500, 1000)),
    *(("observational", 250, 250, d) for d in (4, 8, 10)),
)
QUICK = (("interventional", 300, 200, 10), ("interventional", 300, 200, 40), ("observational", 100, 100, 5))
HEADER = (
    f"{'game':<15} {'n':>5} {'m':>5} {'d':>4}  {'method':<12} {'CPU s / point':>13} {'first call':>11} {'memory':>9}"
)


def peak_memory() -> float:
    """The most memory that this process has held, in MB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def measure(game: str, n: int, m: int, d: int, num_points: int) -> dict[str, Any]:
    """Measure one setting in this process."""
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    function = kpp.RKHSFunction(RBF(np.full(d, np.sqrt(d))), rng.normal(size=(n, d)), rng.normal(size=n))
    background, x = rng.normal(size=(m, d)), rng.normal(size=(num_points, d))
    classes: dict[str, type[AbstractValueFunction]] = {"interventional": Interventional, "observational": Observational}
    value_function = classes[game](background)
    before, start, cpu = peak_memory(), time.perf_counter(), time.process_time()
    jax.block_until_ready(shapley_values(value_function, function, x))
    first, then = time.perf_counter() - start, time.process_time() - cpu
    if first < 60:
        cpu = time.process_time()
        jax.block_until_ready(shapley_values(value_function, function, x))
        then = time.process_time() - cpu
    method = choose_method(value_function, function, num_points, d)
    return {"method": method, "first": first, "then": then / num_points, "memory": peak_memory() - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="three small settings")
    parser.add_argument("--points", type=int, default=2, help="explained points, all at once (default: 2)")
    parser.add_argument("--setting", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.setting:
        game, *sizes = options.setting
        print(json.dumps(measure(game, *map(int, sizes), options.points)))
        return
    print(HEADER, flush=True)
    for game, *sizes in QUICK if options.quick else SETTINGS:
        command = [sys.executable, __file__, "--points", str(options.points), "--setting", game, *map(str, sizes)]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        n, m, d = sizes
        print(
            f"{game:<15} {n:>5} {m:>5} {d:>4}  {found['method']:<12} {found['then']:>13.4f} {found['first']:>9.2f} s "
            f"{found['memory']:>6.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
