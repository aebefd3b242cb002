"""Effective draws a second of a Gaussian-process regression by NUTS: kpp, NumPyro with tinygp, and PyMC.

Run it as `python examples/benchmarks/effective_draws.py [--draws 400] [--only kpp numpyro pymc]`. The model is that of
`make demo`: the diabetes data, 442 rows, and priors on ten lengthscales, the variance and the noise. All draw two
chains on two cores with their defaults of warm-up (NumPyro has none, and gets 500 steps; PyMC takes 1000 by itself).
The time is that of the whole call, with compilation; effective draws are the least of all sites, by ArviZ. Peers that
are not installed are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import time
from collections.abc import Callable

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler

CHAINS, WARMUP = 2, 500
Draws = dict[str, np.ndarray]  # by site, (chain, draw, ...)


def of_kpp(x: np.ndarray, y: np.ndarray, draws: int) -> Draws:
    import kpp
    from kpp.kernels import RBF
    from kpp_models import GPRegression

    kernel = RBF(dist.LogNormal(1.0, 1.0).expand([x.shape[1]]), dist.HalfNormal(1.0))
    nuts = kpp.NUTS(num_samples=draws, num_chains=CHAINS, progress=False)
    model, data, _ = GPRegression(kernel, noise_variance=dist.HalfNormal(1.0)).prepare(x, y)
    return dict(nuts.run(jax.random.key(0), model.numpyro_model, data).samples)


def of_numpyro(x: np.ndarray, y: np.ndarray, draws: int) -> Draws:
    from tinygp import GaussianProcess, kernels, transforms

    def model(x, y):
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(1.0, 1.0).expand([x.shape[1]]).to_event(1))
        variance = numpyro.sample("variance", dist.HalfNormal(1.0))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        shape = kernels.ExpSquared(distance=kernels.L2Distance())
        kernel = variance * transforms.Linear(1.0 / lengthscale, shape)
        numpyro.sample("y", GaussianProcess(kernel, x, diag=noise).numpyro_dist(), obs=y)

    nuts = numpyro.infer.NUTS(model, dense_mass=True)
    mcmc = numpyro.infer.MCMC(
        nuts, num_warmup=WARMUP, num_samples=draws, num_chains=CHAINS, chain_method="sequential", progress_bar=False
    )
    mcmc.run(jax.random.key(0), x, y)
    return {name: np.asarray(value) for name, value in mcmc.get_samples(group_by_chain=True).items()}


def of_pymc(x: np.ndarray, y: np.ndarray, draws: int) -> Draws:
    import pymc

    logging.getLogger("pymc").setLevel(logging.ERROR)
    with pymc.Model():
        lengthscale = pymc.LogNormal("lengthscale", 1.0, 1.0, shape=x.shape[1])
        variance, noise = pymc.HalfNormal("variance", 1.0), pymc.HalfNormal("noise", 1.0)
        process = pymc.gp.Marginal(cov_func=variance * pymc.gp.cov.ExpQuad(x.shape[1], ls=lengthscale))
        process.marginal_likelihood("y", X=x, y=y, sigma=noise**0.5)
        found = pymc.sample(draws=draws, chains=CHAINS, cores=CHAINS, random_seed=0, progressbar=False)
    return {name: found.posterior[name].values for name in ("lengthscale", "variance", "noise")}


def least_effective(draws: Draws) -> tuple[float, float]:
    """Return the least effective number of draws and the largest R-hat of all sites."""
    import xarray as xr
    from arviz import ess, rhat

    sites = xr.Dataset(
        {
            name: (("chain", "draw", *[f"{name}_{axis}" for axis in range(value.ndim - 2)]), np.asarray(value))
            for name, value in draws.items()
        }
    )
    numbers = [np.concatenate([np.ravel(part) for part in f(sites).data_vars.values()]) for f in (ess, rhat)]
    return float(numbers[0].min()), float(numbers[1].max())


METHODS: dict[str, tuple[str, Callable[[np.ndarray, np.ndarray, int], Draws]]] = {
    "kpp": ("kpp_models", of_kpp),
    "numpyro": ("tinygp", of_numpyro),
    "pymc": ("pymc", of_pymc),
}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=400, help="kept draws of a chain")
    parser.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    x, y = load_diabetes(return_X_y=True)
    x, y = StandardScaler().fit_transform(x), (y - y.mean()) / y.std()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {CHAINS} chains of {options.draws} draws")
    print(f"{'':<10} {'seconds':>8} {'least ESS':>10} {'R-hat':>7} {'ESS a second':>13}")
    for name in options.only:
        needs, run = METHODS[name]
        if importlib.util.find_spec(needs) is None:
            print(f"{name:<10} is left out: {needs} is not installed")
            continue
        start = time.perf_counter()
        draws = run(x, y, options.draws)
        seconds = time.perf_counter() - start
        effective, rhat = least_effective(draws)
        print(f"{name:<10} {seconds:8.1f} {effective:10.0f} {rhat:7.3f} {effective / seconds:13.2f}", flush=True)


if __name__ == "__main__":
    main()
