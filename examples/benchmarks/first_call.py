"""The time of the first explanation in a new process: `python examples/benchmarks/first_call.py [--repeats 3]`.

A script explains one row of the diabetes data exactly: a kernel ridge model of scikit-learn, all 442 rows as the
background. It is run with an empty cache of compiled programs and then with a full one. The times begin with the
import of kpp, which includes JAX; scikit-learn and the fitted model are there before. The last row of the table is
shap's KernelExplainer, where it is installed. Each number is the median of the repeats.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

FIT = """
import time, warnings
from sklearn.datasets import load_diabetes
from sklearn.kernel_ridge import KernelRidge
from sklearn.preprocessing import StandardScaler

x, y = load_diabetes(return_X_y=True)
x = StandardScaler().fit_transform(x)
ridge = KernelRidge(kernel="rbf", gamma=0.1).fit(x, y - y.mean())
warnings.simplefilter("ignore")
start = time.perf_counter()
"""
KPP = """
import jax, kpp
jax.config.update("jax_enable_x64", True)
kpp.enable_compile_cache({cache!r})
imported = time.perf_counter()
kpp.explain(ridge, x[:1], value_function={game!r}, background=x).values
"""
SHAP = """
import logging, shap
logging.getLogger("shap").setLevel(logging.ERROR)
imported = time.perf_counter()
shap.KernelExplainer(ridge.predict, x).shap_values(x[:1], silent=True)
"""
PRINT = "print(time.perf_counter() - start, time.perf_counter() - imported)"


def seconds(script: str) -> tuple[float, float]:
    """Return how long the script takes in a new process, with the imports and without them."""
    command = [sys.executable, "-c", FIT + script + PRINT]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(printed[0]), float(printed[1])


def describe(name: str, runs: list[tuple[float, float]]) -> str:
    """Return a line of the table."""
    total, call = (statistics.median(column) for column in zip(*runs, strict=True))
    return f"{name:<34} {total:10.2f} {call:10.2f}"


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = range(parser.parse_args().repeats)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'seconds':<34} {'in all':>10} {'the call':>10}")
    for game in ("interventional", "observational"):
        with tempfile.TemporaryDirectory() as folder:
            scripts = [KPP.format(cache=str(Path(folder) / str(repeat)), game=game) for repeat in repeats]
            seconds(scripts[0].replace(folder, str(Path(folder) / "first")))  # writes bytecode
            print(describe(f"{game}, empty cache", [seconds(script) for script in scripts]), flush=True)
            print(describe(f"{game}, full cache", [seconds(script) for script in scripts]), flush=True)
    if importlib.util.find_spec("shap") is not None:
        print(describe("KernelExplainer (sampled)", [seconds(SHAP) for _ in repeats]))


if __name__ == "__main__":
    main()
