"""Seconds of Gaussian-process regression on time: quasiseparable beside the kernel matrix, and growth to 10^6 rows.

`python -m examples.benchmarks.time_series` prints for each number of rows the seconds of one evidence with its gradient
and of one prediction with variances at as many times, after compilation; for 3,000 rows also those of the exact model.
`--nuts ROWS` fits by NUTS and prints the seconds of the chains.
"""

from __future__ import annotations

import argparse
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.infer.util import log_density

import kpp
from kpp.features import HilbertSpace
from kpp.kernels import AbstractKernel, Matern32, Periodic
from kpp_models import GPRegression

PRIOR = dist.LogNormal(0.0, 1.0)


def trend() -> AbstractKernel:
    """One Matern component: a state of 2 numbers."""
    return Matern32(dist.LogNormal(1.0, 1.0), variance=PRIOR)


def seasonal() -> AbstractKernel:
    """A trend and a season that changes slowly: a state of 12 numbers."""
    return trend() + Matern32(100.0, variance=PRIOR) * HilbertSpace(Periodic(1.0, period=7.0), 3)


def series(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Irregular times, ten in a unit, and noisy values of a slow and a weekly oscillation."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0, rows / 10, rows))
    return times[:, None], np.sin(times / 5) + 0.5 * np.sin(2 * np.pi * times / 7) + 0.3 * rng.normal(size=rows)


def seconds(kernel: AbstractKernel, latent: str, rows: int) -> tuple[float, float]:
    """CPU seconds of one evidence with its gradient, and of one prediction."""
    model, data, _ = GPRegression(kernel, noise_variance=PRIOR, latent=latent).prepare(*series(rows))
    sites = kpp.priors.prior_sites("kernel", model.kernel)
    values = {name: jnp.asarray(1.0) for name in sites} | {"noise_variance": jnp.asarray(0.1)}

    @jax.jit
    def evidence(sample: dict[str, jax.Array], data: dict[str, jax.Array]) -> jax.Array:
        return jax.value_and_grad(lambda sample: log_density(model.numpyro_model, (), data, sample)[0])(sample)

    @jax.jit
    def predict(sample: dict[str, jax.Array], data: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
        return model.predictive(sample, data, x)

    queries = data["x"] + 0.01
    results = []
    for call in (lambda: evidence(values, data), lambda: predict(values, data, queries)):
        jax.block_until_ready(call())
        start = time.process_time()
        jax.block_until_ready(call())
        results.append(time.process_time() - start)
    return results[0], results[1]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nuts", type=int, help="fit this number of rows by NUTS instead")
    parser.add_argument("--seasonal", action="store_true", help="with a season in the kernel")
    parser.add_argument("--most", type=int, default=1_000_000, help="the largest number of rows")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    kernel = seasonal() if arguments.seasonal else trend()
    print(f"load {os.getloadavg()[0]:.1f}")
    if arguments.nuts:
        start, started = time.process_time(), time.time()
        model = GPRegression(kernel, noise_variance=PRIOR, latent="quasiseparable")
        inference = kpp.NUTS(num_warmup=200, num_samples=200, num_chains=1)
        fit = model.fit(jax.random.key(0), *series(arguments.nuts), inference=inference, num_prior_samples=0)
        print(f"NUTS {arguments.nuts} rows: {time.process_time() - start:.0f} CPU s, {time.time() - started:.0f} s")
        print({name: (float(draws.mean()), float(draws.std())) for name, draws in fit.draws.items()})
        return
    print(f"{'rows':>8} {'latent':>15} {'gradient':>9} {'predict':>9}  (CPU seconds)")
    for rows in (3_000, 10_000, 100_000, 1_000_000):
        for latent in ("exact", "quasiseparable") if rows == 3_000 else ("quasiseparable",):
            if rows <= arguments.most:
                gradient, predicted = seconds(kernel, latent, rows)
                print(f"{rows:>8} {latent:>15} {gradient:>9.3f} {predicted:>9.3f}", flush=True)


if __name__ == "__main__":
    main()
