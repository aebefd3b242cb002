"""Time the three largest jobs on a GPU, or on the CPU where there is none: kpp beside GPyTorch.

Run it as `python examples/benchmarks/on_gpu.py [--quick] [--precision 64 32] [--limit 100]`. With its defaults it
should take less than 8 minutes on one GPU; `--quick` has sizes that a CPU computes in seconds. The jobs, in double
and in single precision:

* exact: the evidence of a Gaussian process of 20,000 rows with its gradient, by a Cholesky factor and by conjugate
  gradients. The score is the evidence per row.
* sparse: one epoch of a sparse variational Gaussian process on a million rows, as in `svgp.py`. The score is the mean
  log density of test rows.
* explained: exact Shapley values of a million rows under a function of 500 points and 100 background rows, in blocks.
  It stops after `--limit` seconds, and then says how many rows it has explained. The score is the largest difference
  between the sum of the values and the prediction.

The last column has the largest memory on the device so far, in GB, where JAX knows it. GPyTorch is left out if it is
not installed. Matrix products of single precision are computed in full; by default JAX takes NVIDIA's shorter format,
whose fractions have 10 bits.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

import iterative_gp
import jax
import jax.numpy as jnp
import numpy as np
import svgp

import kpp
from kpp.gp import IterativeSettings
from kpp.gp.toolkit import k_means_centers
from kpp.kernels import RBF


class Sizes(NamedTuple):
    """The sizes of the jobs."""

    exact_rows: int
    rank: int
    sparse_rows: int
    inducing: int
    batch: int
    explained_rows: int
    block: int
    points: int
    background: int


FULL = Sizes(20_000, 500, 1_000_000, 500, 1000, 1_000_000, 20_000, 500, 100)
QUICK = Sizes(200, 20, 1_000, 20, 200, 200, 100, 20, 5)
PROBES, RATE = 8, 0.1  # random vectors of the log determinant; the learning rate of GPyTorch


class Line(NamedTuple):
    """What was measured of one job."""

    job: str
    bits: int
    method: str
    seconds: float
    score: float


def main(arguments: list[str] | None = None) -> list[Line]:
    """Measure, print and return the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="sizes for a CPU")
    parser.add_argument("--precision", nargs="+", type=int, choices=[32, 64], default=[64, 32])
    parser.add_argument("--limit", type=float, default=100.0, help="seconds for the explanations in each precision")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else FULL
    use_gpu_in_torch()
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}, load {os.getloadavg()[0]:.1f}; {sizes}")
    print(f"{'job':<10} {'bits':>4} {'method':<28} {'seconds':>8} {'score':>10} {'GB':>5}")
    lines = []
    for bits in options.precision:
        with jax.enable_x64(bits == 64), jax.default_matmul_precision("highest"):
            for job in (exact(bits, sizes), sparse(bits, sizes), explained(bits, sizes, options.limit)):
                for line in job:
                    text = f"{line.job:<10} {line.bits:>4} {line.method:<28} {line.seconds:>8.2f} {line.score:>10.3g}"
                    print(f"{text} {peak_memory():>5.1f}", flush=True)
                    lines.append(line)
    return lines


def use_gpu_in_torch() -> None:
    """Make PyTorch create its arrays on the GPU, if both exist."""
    if importlib.util.find_spec("torch"):
        import torch

        if torch.cuda.is_available():
            torch.set_default_device("cuda")


def peak_memory() -> float:
    """Return the largest memory on the device so far, in GB, or NaN if JAX does not know it."""
    return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", float("nan")) / 1e9


def exact(bits: int, sizes: Sizes) -> Iterator[Line]:
    """Time the evidence with its gradient at fixed hyperparameters, without compilation."""
    n = sizes.exact_rows
    x, y, _ = iterative_gp.data(n)
    train = (jnp.asarray(x), jnp.asarray(y))
    start = [iterative_gp.LENGTHSCALE] * iterative_gp.NUM_FEATURES + [1.0, iterative_gp.NOISE**2]
    theta = jnp.log(jnp.array(start))
    settings = IterativeSettings(rank=sizes.rank, num_probes=PROBES)
    for name, evidence in {
        "kpp, Cholesky": iterative_gp.dense(*train),
        "kpp, conjugate gradients": iterative_gp.iterative(*train, settings),
    }.items():
        seconds, value, _ = iterative_gp.timed(evidence, theta)
        yield Line("exact", bits, name, seconds, value / n)
    if importlib.util.find_spec("gpytorch"):
        for name, largest in {"GPyTorch, Cholesky": n, "GPyTorch, conjugate gradients": 1}.items():
            seconds, value, _ = iterative_gp.of_gpytorch(*train, PROBES, sizes.rank, max_cholesky_size=largest)
            yield Line("exact", bits, name, seconds, value / n)


def sparse(bits: int, sizes: Sizes) -> Iterator[Line]:
    """Time the steps of one epoch, without compilation."""
    problem = svgp.regression(sizes.sparse_rows, f"float{bits}")
    steps = sizes.sparse_rows // sizes.batch
    inducing = k_means_centers(problem.x[:20_000], sizes.inducing, seed=0).astype(problem.x.dtype)
    result = svgp.of_kpp("regression", problem, inducing, sizes.batch, steps)
    yield Line("sparse", bits, "kpp, natural gradients", result.seconds, result.scores.mean())
    if importlib.util.find_spec("gpytorch"):
        result = svgp.of_gpytorch("regression", problem, inducing, sizes.batch, steps, RATE)
        yield Line("sparse", bits, f"GPyTorch, Adam, {RATE}", result.seconds, result.scores.mean())
    yield Line("sparse", bits, "the true function", float("nan"), problem.ideal.mean())


def explained(bits: int, sizes: Sizes, limit: float) -> Iterator[Line]:
    """Time the Shapley values of all rows, in blocks; the first block is explained twice, because it compiles."""
    x, _, _ = iterative_gp.data(sizes.explained_rows)
    rng = np.random.default_rng(1)
    points = rng.uniform(-2, 2, size=(sizes.points, iterative_gp.NUM_FEATURES))
    kernel = RBF(jnp.full(iterative_gp.NUM_FEATURES, iterative_gp.LENGTHSCALE))
    function = kpp.RKHSFunction(kernel, jnp.asarray(points), jnp.asarray(rng.normal(size=sizes.points)))

    def gap(rows: np.ndarray) -> float:
        found = kpp.explain(function, rows, background=points[: sizes.background], progress=False)
        total = found.values.sum("feature") + found.base_values
        return float(np.abs(np.ravel(total) - np.ravel(function(jnp.asarray(rows)))).max())

    gap(x[: sizes.block])
    largest, done, start = 0.0, 0, time.perf_counter()
    while done < sizes.explained_rows and time.perf_counter() - start < limit:
        largest = max(largest, gap(x[done : done + sizes.block]))
        done += sizes.block
    yield Line("explained", bits, f"kpp, {done} rows", time.perf_counter() - start, largest)


if __name__ == "__main__":
    main()
