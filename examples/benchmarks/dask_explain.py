"""Explaining many rows by Dask on one and on two processes: time, memory, and what 10^9 rows would take.

    python examples/benchmarks/dask_explain.py [--rows 250000 500000 1000000] [--features 10] [--landmarks 500]

A function of 500 landmarks is explained (interventional game, 10 features) into a Zarr store. The table has one row per
number of rows and of processes: seconds after a first run that compiles, rows per second, and the largest peak memory
of a process that works. The seconds should be proportional to the rows. The second table is arithmetic, not measured:
rows over the measured rows per second and process, for more rows and cores.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import dask.array as da
import jax
import numpy as np
from distributed import Client, LocalCluster

import kpp
from kpp.kernels import RBF
from kpp_study import explain_to_store

CORES = (2, 16, 128, 1024)


def peak_memory() -> float:
    """The most memory that this process has held, in MB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def make_rows(block: np.ndarray, num_features: int) -> np.ndarray:
    """Rows of standard normal numbers; `block` holds the seed of each block of rows."""
    return np.random.default_rng(int(block[0, 0])).normal(size=(len(block), num_features))


def table(num_rows: int, options: argparse.Namespace) -> da.Array:
    """A table that no process holds as a whole."""
    seeds = da.arange(num_rows, chunks=options.rows_per_block)[:, None]
    chunks = (seeds.chunks[0], (options.features,))
    return seeds.map_blocks(make_rows, options.features, chunks=chunks, dtype=float, meta=np.zeros((0, 0)))


def measure(num_rows: int, workers: int, options: argparse.Namespace) -> tuple[float, float]:
    """The seconds to explain rows with warm workers, and the largest peak memory of a worker in MB."""
    rng = np.random.default_rng(0)
    d = options.features
    kernel = RBF(np.full(d, np.sqrt(d)))
    function = kpp.RKHSFunction(kernel, rng.normal(size=(options.landmarks, d)), rng.normal(size=options.landmarks))
    background = rng.normal(size=(options.background, d))
    settings = {"background": background, "rows_per_block": options.rows_per_block, "show_progress": False}
    cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0", env={"NPROC": "1"})
    with tempfile.TemporaryDirectory() as folder, cluster, Client(cluster) as client:
        warm = options.rows_per_block * 4 * workers
        explain_to_store(function, table(warm, options), Path(folder) / "warm.zarr", **settings)
        start = time.perf_counter()
        explain_to_store(function, table(num_rows, options), Path(folder) / "out.zarr", **settings)
        seconds = time.perf_counter() - start
        memory = max(client.run(peak_memory).values())
    return seconds, memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[250_000, 500_000, 1_000_000], help="in rising order")
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--landmarks", type=int, default=500, help="points of the function")
    parser.add_argument("--background", type=int, default=100, help="points of the interventional game")
    parser.add_argument("--rows-per-block", type=int, default=4096)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"{'rows':>10} {'processes':>9} {'seconds':>9} {'rows / s':>9} {'peak memory':>12}", flush=True)
    seconds = {}
    for workers in (1, 2):
        for rows in options.rows:
            seconds[rows, workers], memory = measure(rows, workers, options)
            speed = rows / seconds[rows, workers]
            print(f"{rows:>10} {workers:>9} {seconds[rows, workers]:>9.1f} {speed:>9.0f} {memory:>9.0f} MB", flush=True)
    most = options.rows[-1]
    print(f"one process over two: {seconds[most, 1] / seconds[most, 2]:.2f}")
    speed = most / seconds[most, 2] / 2
    print(f"\nOn paper, at {speed:.0f} rows per second and core (measured on two processes): hours")
    print(f"{'rows':>10} " + " ".join(f"{cores:>6} cores" for cores in CORES))
    for power in range(6, 10):
        hours = [10**power / speed / cores / 3600 for cores in CORES]
        print(f"{'10^' + str(power):>10} " + " ".join(f"{hour:>12.3g}" for hour in hours), flush=True)


if __name__ == "__main__":
    main()
