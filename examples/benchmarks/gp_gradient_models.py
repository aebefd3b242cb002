"""Time the log density of the Gaussian-process models with its gradient, each against its own floor.

Run it as `python examples/benchmarks/gp_gradient_models.py [--rows 600] [--repeats 15]`. Each model has an RBF kernel
with priors on ten lengthscales, and a matrix of `--rows` rows: points, pairs of items or bags of three points each. The
floor is what no method avoids that factorizes this matrix: one kernel matrix of all points by a matrix product, potri
of LAPACK once, and potrf once, for Laplace's approximation once more for every step of Newton's method. Times are
minima. BLAS has one thread.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.linalg
from numpyro.infer.util import log_density
from threadpoolctl import threadpool_limits

from kpp import Bags
from kpp.kernels import RBF, GeneralizedPreferential
from kpp.preferences import Matches
from kpp_models import GPGP, BaggGP, GPClassification, GPRegression

NUM_FEATURES, BAG_SIZE = 10, 3
LENGTHSCALE, VARIANCE = float(np.e), 0.7
TOLERANCE = 1e-6  # of Newton's method, which kpp stops at eps^(3/8)
Run = Callable[[], object]
Case = tuple[Run, int, int]  # the density with its gradient, the rows of its kernel matrix, steps of Newton's method


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; matrices of {options.rows} rows")
    print(f"{'model':<18} {'ms':>8} {'floor':>8} {'ratio':>6}  steps of Newton's method")
    with threadpool_limits(1, user_api="blas"):
        for name, (run, points, steps) in cases(options.rows).items():
            taken = fastest(run, options.repeats)
            least = floor(options.rows, points, steps, options.repeats)
            print(
                f"{name:<18} {1e3 * taken:>8.1f} {1e3 * least:>8.1f} {taken / least:>6.2f}  {steps or ''}", flush=True
            )


def cases(rows: int) -> dict[str, Case]:
    """Return the models with the number of points of their kernel matrices and of steps of Newton's method."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, NUM_FEATURES))
    signal = x[:, 0] + np.sin(2 * x[:, 1])
    y, labels = signal + rng.normal(size=rows), (signal + rng.normal(size=rows) > 0).astype(int)
    bags = Bags.create(rng.normal(size=(rows * BAG_SIZE, NUM_FEATURES)), np.repeat(np.arange(rows), BAG_SIZE))
    items, first = x[: rows // 2], np.arange(rows) % (rows // 2)  # each item meets two others, or more
    second = (first + 1 + np.arange(rows) // (rows // 2)) % (rows // 2)
    matches = Matches.create(items, first, second, labels)

    prior = RBF(dist.LogNormal(1.0, 0.5).expand([NUM_FEATURES]), dist.HalfNormal(1.0))
    noise, known = dist.HalfNormal(1.0), RBF(np.full(NUM_FEATURES, LENGTHSCALE), VARIANCE)
    classes, duels = GPClassification(prior).prepare(x, labels), GPGP(prior).prepare(matches)
    wins, trials = np.asarray(duels[1]["y"])[:, 0], np.asarray(duels[1]["trials"])
    games = np.asarray(GeneralizedPreferential(known).gram(duels[1]["x"]))
    return {
        "GPRegression": (run_of(GPRegression(prior, noise).prepare(x, y)), rows, 0),
        "BaggGP": (run_of(BaggGP(prior, noise).prepare(bags, y)), rows * BAG_SIZE, 0),
        "GPClassification": (run_of(classes), rows, newton_steps(np.asarray(known.gram(x)), labels, np.ones(rows))),
        "GPGP": (run_of(duels), rows, newton_steps(games, wins, trials)),
    }


def run_of(prepared: tuple[Any, dict[str, Any], Any]) -> Run:
    """Return a run of the log joint density of a model with its gradient."""
    model, data, _ = prepared
    sites = {"kernel.lengthscale": jnp.full(NUM_FEATURES, LENGTHSCALE), "kernel.variance": jnp.asarray(VARIANCE)}
    if hasattr(model, "noise_variance"):
        sites["noise_variance"] = jnp.asarray(0.5)
    program = jax.jit(jax.value_and_grad(lambda values: log_density(model.numpyro_model, (), data, values)[0]))
    return lambda: jax.block_until_ready(program(sites))


def newton_steps(gram: np.ndarray, wins: np.ndarray, trials: np.ndarray) -> int:
    """Count the steps of Newton's method for the mode under a logit likelihood, without any safeguard."""
    latent = np.zeros(len(gram))
    for step in range(1, 100):
        chance = 1 / (1 + np.exp(-latent))
        weight = trials * chance * (1 - chance)
        target = weight * latent + wins - trials * chance
        new = gram @ np.linalg.solve(np.eye(len(gram)) + weight[:, None] * gram, target)
        change, latent = np.abs(new - latent).max(), new
        if change < TOLERANCE:
            return step
    raise RuntimeError("Newton's method did not converge in 100 steps")


def floor(rows: int, points: int, steps: int, repeats: int) -> float:
    """Return the seconds of the floor."""
    x = jnp.asarray(np.random.default_rng(1).normal(size=(points, NUM_FEATURES)) / LENGTHSCALE)
    gram = jax.jit(exponential)
    matrix = np.asfortranarray(gram(x[:rows]) + np.eye(rows))
    factor = scipy.linalg.lapack.dpotrf(matrix, lower=1)[0]
    parts = [
        fastest(lambda: jax.block_until_ready(gram(x)), repeats),
        fastest(lambda: scipy.linalg.lapack.dpotri(factor, lower=1), repeats),
        (1 + steps) * fastest(lambda: scipy.linalg.lapack.dpotrf(matrix, lower=1), repeats),
    ]
    return sum(parts)


def exponential(x: jax.Array) -> jax.Array:
    """Return the RBF kernel matrix of points in lengthscales by a matrix product."""
    squares = 0.5 * jnp.sum(x**2, axis=1)
    return jnp.exp(jnp.minimum(x @ x.T - squares[:, None] - squares[None], 0.0))


def fastest(run: Run, repeats: int) -> float:
    """Return the shortest time of a run; its first call compiles and does not count."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times[1:])


if __name__ == "__main__":
    main()
