"""Time what users of a Gaussian process wait for, on an idle machine and beside another busy process.

Run it as `python examples/benchmarks/gp_jobs.py [--only NAME ...] [--repeats 3] [--busy] [--rows 2000]`. The regression
is that of `make demo`: the diabetes data, 442 rows, ten lengthscales with priors, a few steps of NUTS and 600 draws of
Laplace's approximation. The classification has `--rows` rows of normal numbers with ten features, 50 draws of Laplace's
approximation of the hyperparameters, and Laplace's approximation of the latent values inside; it is fitted once. Every
other job is called once to compile, then the median of its times counts. With `--busy` each job is repeated while
another process keeps one core busy; the last column is how many times as long it takes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import jax
import numpy as np
import numpyro.distributions as dist
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler

import kpp
from kpp.kernels import RBF
from kpp_models import GPClassification, GPRegression

Job = Callable[[], object]
NUM_FEATURES = 10


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", help="names of jobs, or their first words")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--busy", action="store_true", help="also beside a process that keeps a core busy")
    parser.add_argument("--rows", type=int, default=2000, help="rows of the classification; 0 leaves it out")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, JAX {jax.__version__}")
    print(f"{'':<42} {'idle':>8} {'busy':>8} {'ratio':>6}")
    jobs = regression_jobs() | (classification_jobs(options.rows) if options.rows else {})
    for name, job in jobs.items():
        if options.only is None or any(name.startswith(wanted) for wanted in options.only):
            print(measure(name, job, options.repeats, options.busy), flush=True)


def regression_jobs() -> dict[str, Job]:
    """Return the jobs of the regression, by name."""
    x, y = load_diabetes(return_X_y=True)
    x, y = StandardScaler().fit_transform(x), (y - y.mean()) / y.std()
    model = GPRegression(kernel(), noise_variance=dist.HalfNormal(1.0))

    def fit(inference: kpp.AbstractInference) -> kpp.Fit:
        return model.fit(jax.random.key(0), x, y, inference=inference, num_prior_samples=0)

    short = {"num_samples": 30, "num_warmup": 10, "progress": False}
    laplace = fit(kpp.Laplace(num_samples=600, progress=False))
    return {
        "NUTS, one chain of 40 steps": lambda: fit(kpp.NUTS(num_chains=1, **short)),
        "NUTS, two chains of 40 steps": lambda: fit(kpp.NUTS(num_chains=2, **short)),
        "MAP": lambda: fit(kpp.MAP(progress=False)),
        "Laplace, 600 draws": lambda: fit(kpp.Laplace(num_samples=600, progress=False)),
        "predict 442 rows, 600 draws": lambda: laplace.predict(x),
        "explain 5 rows, 600 draws": lambda: kpp.explain(laplace, x[:5], progress=False),
    }


def classification_jobs(num_rows: int) -> dict[str, Job]:
    """Return the jobs of the classification, by name."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, NUM_FEATURES))
    labels = (x[:, 0] + np.sin(2 * x[:, 1]) + 0.5 * rng.normal(size=num_rows) > 0).astype(int)
    fits: list[kpp.Fit] = []

    def fit() -> None:
        inference = kpp.Laplace(num_samples=50, num_restarts=0, progress=False)
        fits.append(GPClassification(kernel()).fit(jax.random.key(0), x, labels, inference=inference))

    return {
        f"classification of {num_rows} rows, 50 draws": fit,
        "classification, predict 500 rows": lambda: (fits or [fit()]) and fits[-1].predict(x[:500]),
    }


def kernel() -> RBF:
    """Return the kernel with its priors."""
    return RBF(dist.LogNormal(1.0, 1.0).expand([NUM_FEATURES]), dist.HalfNormal(1.0))


def measure(name: str, job: Job, repeats: int, busy: bool) -> str:
    """Return a line of the table; a job that takes more than a minute is not repeated."""
    first = seconds(job)
    idle = first if first > 60 else statistics.median(seconds(job) for _ in range(repeats))
    line = f"{name:<42} {idle:>7.2f}s"
    if not busy or first > 60:
        return line
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        beside = statistics.median(seconds(job) for _ in range(repeats))
        other.kill()
    return f"{line} {beside:>7.2f}s {beside / idle:>6.2f}"


def seconds(job: Job) -> float:
    """Return how long a job takes."""
    start = time.perf_counter()
    jax.block_until_ready(job())
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
