"""Seconds of curves, Sobol indices and importances of a Gaussian process of the diabetes data, cold and warm.

    python examples/benchmarks/inspection_times.py [--laplace]

The process has all 442 rows, and its hyperparameters are at their mode, or 200 draws of them with `--laplace`. Each job
runs in a process of its own that begins with an empty cache of compiled programs, and then once more, "warm". The time
of the fit is not part of it. Run it on a quiet machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import jax
from sklearn.datasets import load_diabetes

import kpp
from kpp_models.estimators import GPRegressor

JOBS: dict[str, Callable] = {
    "curves of ten features, with bands": lambda fit, x, y: [kpp.curve(fit, x, name) for name in x.columns],
    "Sobol indices and Shapley effects": lambda fit, x, y: kpp.sensitivity(fit, x, progress=False),
    "importances (SAGE)": lambda fit, x, y: kpp.importance(fit, x, y, rng_key=jax.random.key(0)),
}


def measure(name: str, laplace: bool) -> None:
    """Do a job twice and print its times."""
    jax.config.update("jax_enable_x64", True)
    x, y = load_diabetes(return_X_y=True, as_frame=True)
    inference = kpp.Laplace(num_samples=200, progress=False) if laplace else kpp.MAP(progress=False)
    fit = GPRegressor(inference=inference, random_state=0).fit((x - x.mean()) / x.std(), y).fit_
    times = []
    for _ in range(2):
        wall, cpu = time.perf_counter(), time.process_time()
        JOBS[name](fit, (x - x.mean()) / x.std(), y)
        times += [time.perf_counter() - wall, time.process_time() - cpu]
    print(f"{name:>35} {times[0]:>7.2f} {times[1]:>7.2f} {times[2]:>7.2f} {times[3]:>7.2f}", flush=True)


def main() -> None:
    """Run each job in its own process."""
    print(f"load {os.getloadavg()[0]:.2f}")
    print(f"{'job':>35} {'cold s':>7} {'CPU s':>7} {'warm s':>7} {'CPU s':>7}", flush=True)
    for name in JOBS:
        with tempfile.TemporaryDirectory() as cache:
            arguments = [sys.executable, __file__, *sys.argv[1:], "--job", name]
            subprocess.run(arguments, check=True, env=os.environ | {"JAX_COMPILATION_CACHE_DIR": cache})


if __name__ == "__main__":
    measure(sys.argv[-1], "--laplace" in sys.argv) if "--job" in sys.argv else main()
