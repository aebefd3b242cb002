"""Time a Gaussian-process regression whose kernel has few features, beside the same model by its kernel matrix.

Run it as `python examples/benchmarks/finite_rank.py [--rows 1000 2000 10000 100000] [--landmarks 200]`. The kernel is
Nyström's, of an RBF with priors on ten lengthscales. Each number is the shorter time of two calls of the compiled log
density with its gradient. The kernel matrix is left out above 4000 rows.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.infer.util import log_density

from kpp.features import Nystrom
from kpp.gp import GaussianProcessMarginal
from kpp.kernels import RBF
from kpp_models import GPRegression

NUM_FEATURES, LENGTHSCALE, NOISE, MOST_ROWS = 10, 3.0, 0.1, 4000
Density = Callable[[jax.Array], jax.Array]


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 2000, 10_000, 100_000])
    parser.add_argument("--landmarks", type=int, default=200)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {options.landmarks} landmarks")
    print(f"{'rows':>8} {'features, s':>12} {'matrix, s':>10} {'difference':>11}")
    for rows in options.rows:
        by_features, by_matrix = densities(rows, options.landmarks)
        value, seconds = timed(by_features)
        line = f"{rows:>8} {seconds:>12.3f}"
        if rows <= MOST_ROWS:
            expected, longer = timed(by_matrix)
            line += f" {longer:>10.3f} {abs(value - expected) / abs(expected):>11.1e}"
        print(line, flush=True)


def densities(rows: int, num_landmarks: int) -> tuple[Density, Density]:
    """Return the log density of the model as a function of the lengthscales, by features and by the matrix."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, NUM_FEATURES))
    y = x[:, 0] + np.sin(x[:, 1]) + 0.3 * rng.normal(size=rows)
    prior = dist.LogNormal(1.0, 0.5).expand([NUM_FEATURES])
    model, data, _ = GPRegression(Nystrom(RBF(prior), x[:num_landmarks]), NOISE).prepare(x, y)

    def by_features(lengthscale: jax.Array) -> jax.Array:
        return log_density(model.numpyro_model, (), data, {"kernel.kernel.lengthscale": lengthscale})[0]

    def by_matrix(lengthscale: jax.Array) -> jax.Array:
        gram = Nystrom(RBF(lengthscale), x[:num_landmarks]).gram(x)
        return GaussianProcessMarginal(0.0, gram, NOISE).log_prob(jnp.asarray(y)) + prior.log_prob(lengthscale).sum()

    return by_features, by_matrix


def timed(density: Density) -> tuple[float, float]:
    """Return the value, and the seconds of value and gradient together without compilation."""
    program, at = jax.jit(jax.value_and_grad(density)), jnp.full(NUM_FEATURES, LENGTHSCALE)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        value, _ = jax.block_until_ready(program(at))
        times.append(time.perf_counter() - start)
    return float(value), min(times[1:])


if __name__ == "__main__":
    main()
