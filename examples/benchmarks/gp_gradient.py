"""Time the value and gradient of the marginal likelihood of a Gaussian process: kpp, its floor, and peers.

Run it as `python examples/benchmarks/gp_gradient.py [--sizes 442 1000 2000]`. All use an RBF kernel with one
lengthscale per feature on normal numbers with ten features. The floor is what no method that factorizes the kernel
matrix avoids: LAPACK's potrf and potri, and one kernel matrix by a matrix product. Peers are NumPyro's
MultivariateNormal, and tinygp, GPyTorch and GPJax where they are installed. Each number is the minimum of several runs,
in which all alternate; BLAS has one thread.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from scipy.linalg import lapack
from threadpoolctl import threadpool_limits

from kpp.kernels import RBF
from kpp_models import GaussianProcessMarginal

NUM_FEATURES = 10
Run = Callable[[], Any]


def of_kpp(lengthscale, noise_variance, x, y):
    return GaussianProcessMarginal(0.0, RBF(lengthscale).gram(x), noise_variance).log_prob(y)


def of_numpyro(lengthscale, noise_variance, x, y):
    covariance = RBF(lengthscale).gram(x) + noise_variance * jnp.eye(len(y))
    return dist.MultivariateNormal(0.0, covariance_matrix=covariance).log_prob(y)


def of_tinygp(lengthscale, noise_variance, x, y):
    import tinygp

    kernel = tinygp.transforms.Linear(
        1.0 / lengthscale, tinygp.kernels.ExpSquared(distance=tinygp.kernels.L2Distance())
    )
    return tinygp.GaussianProcess(kernel, x, diag=noise_variance).log_probability(y)


def of_gpjax(lengthscale, noise_variance, x, y):
    import gpjax

    prior = gpjax.gps.Prior(
        mean_function=gpjax.mean_functions.Zero(), kernel=gpjax.kernels.RBF(lengthscale=lengthscale)
    )
    likelihood = gpjax.likelihoods.Gaussian(obs_stddev=jnp.sqrt(noise_variance))
    return gpjax.objectives.conjugate_mll(prior * likelihood, gpjax.Dataset(X=x, y=y[:, None]))


def run_gpytorch(lengthscale: np.ndarray, noise_variance: float, x: np.ndarray, y: np.ndarray) -> Run:
    """Return a run of GPyTorch's exact marginal likelihood by Cholesky factorization, with its gradient."""
    import gpytorch
    import torch

    torch.set_num_threads(1)

    class Model(gpytorch.models.ExactGP):
        def __init__(self, rows: Any, targets: Any, likelihood: Any) -> None:
            super().__init__(rows, targets, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.RBFKernel(ard_num_dims=NUM_FEATURES)

        def forward(self, rows: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(rows), self.covar_module(rows))

    rows, targets = torch.tensor(x), torch.tensor(y)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(rows, targets, likelihood).double()
    model.covar_module.lengthscale, likelihood.noise = torch.tensor(lengthscale), noise_variance
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def run() -> float:
        model.zero_grad()
        with gpytorch.settings.fast_computations(False, False, False):
            value = objective(model(rows), targets)
        value.backward()
        return float(value) * len(y)

    return run


def jax_runs(arguments: tuple[Any, ...]) -> dict[str, Run]:
    """Return runs of value and gradient of kpp and of the peers that use JAX."""
    functions = {"kpp": of_kpp, "NumPyro's MultivariateNormal": of_numpyro}
    functions |= {name: f for name, f in (("tinygp", of_tinygp), ("gpjax", of_gpjax)) if importlib.util.find_spec(name)}
    runs = {}
    for name, f in functions.items():
        program = jax.jit(jax.value_and_grad(f, (0, 1)))
        runs[name] = lambda program=program: float(jax.block_until_ready(program(*arguments))[0])
    return runs


def floors(lengthscale: np.ndarray, noise_variance: float, x: np.ndarray) -> dict[str, Run]:
    """Return runs of the parts of the floor."""

    @jax.jit
    def gram(scaled: jax.Array) -> jax.Array:
        squares = 0.5 * jnp.sum(scaled**2, axis=1)
        return jnp.exp(jnp.minimum(scaled @ scaled.T - squares[:, None] - squares[None], 0.0))

    scaled = jnp.asarray(x / lengthscale)
    matrix = np.asarray(gram(scaled)) + noise_variance * np.eye(len(x))
    factor = lapack.dpotrf(matrix.T, lower=1)[0]
    return {
        "potrf": lambda: lapack.dpotrf(matrix.T, lower=1),
        "potri": lambda: lapack.dpotri(factor, lower=1),
        "Gram": lambda: jax.block_until_ready(gram(scaled)),
    }


def fastest(runs: dict[str, Run], rounds: int) -> dict[str, float]:
    """Return the shortest time of each run in seconds; runs alternate."""
    times = dict.fromkeys(runs, np.inf)
    for _ in range(rounds + 1):  # the first round compiles
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[442, 1000, 2000])
    jax.config.update("jax_enable_x64", True)
    print("load of the machine:", *(f"{load:.1f}" for load in os.getloadavg()))
    for size in parser.parse_args().sizes:
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(size, NUM_FEATURES)), rng.normal(size=size)
        lengthscale, noise_variance = np.full(NUM_FEATURES, 3.0), 0.5
        runs = jax_runs((jnp.asarray(lengthscale), jnp.asarray(noise_variance), jnp.asarray(x), jnp.asarray(y)))
        if importlib.util.find_spec("gpytorch"):
            runs["GPyTorch"] = run_gpytorch(lengthscale, noise_variance, x, y)
        parts = floors(lengthscale, noise_variance, x)
        values = {name: run() for name, run in runs.items()}
        with threadpool_limits(1, user_api="blas"):
            times = fastest(runs | parts, rounds=15 if size < 1000 else 5)
        floor = sum(times[name] for name in parts)
        print(f"n = {size}: floor {1e3 * floor:.1f} ms, of it", *(f"{name} {1e3 * times[name]:.1f}" for name in parts))
        for name, value in values.items():
            ratio = times[name] / times["kpp"]
            print(
                f"  {name:30} {1e3 * times[name]:8.1f} ms {times[name] / floor:6.2f} floors {ratio:6.2f} times kpp; "
                f"value {value:.10g}"
            )


if __name__ == "__main__":
    main()
