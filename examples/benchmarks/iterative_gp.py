"""Time exact Gaussian-process regression by conjugate gradients: kpp, its dense model, and GPyTorch.

Run it as `python examples/benchmarks/iterative_gp.py [--rows 2000 5000 20000] [--dense 5000] [--fit 5000]`. The rows
have ten features; the kernel is an RBF with ten lengthscales and a variance. A line shows the seconds of one evidence
with its gradient at fixed hyperparameters, without compilation; the difference of the evidence from the dense one, in
nats per row; the relative error of the gradient; and the largest memory of the process so far. Kernel matrices are made
for at most `--dense` rows. For at most `--fit` rows, a further line shows the seconds of a fit by `kpp.MAP` from the
prior medians, and the root mean squared error of its predictions of the function without noise. Where there is a dense
matrix, the last line compares the approximate laws with it: seconds of the estimated leave-one-out log densities, their
mean error and mean absolute error, and the mean and the largest ratio of standard deviations of the posterior to the
exact ones at new rows. GPyTorch is left out if it is not installed. It takes its own defaults, with as many random
vectors as kpp, and a preconditioner of its own default rank, 15, and of that of kpp.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import kpp
from kpp.gp import GaussianLikelihood, GaussianProcessMarginal, IterativeSettings, condition
from kpp.gp.toolkit import IterativeSystem, condition_iteratively, iterative_log_density
from kpp.kernels import RBF
from kpp_models import GPRegression

NUM_FEATURES, TEST_ROWS, NOISE, LENGTHSCALE = 10, 500, 0.3, 2.7
Evidence = Callable[[jax.Array], jax.Array]


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[2000, 5000, 20_000])
    parser.add_argument("--dense", type=int, default=5000, help="the most rows of a kernel matrix")
    parser.add_argument("--fit", type=int, default=5000, help="the most rows of a fit")
    parser.add_argument("--rank", type=int, default=500)
    parser.add_argument("--probes", type=int, default=8)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'rows':>6} {'method':<14} {'seconds':>8} {'per row':>10} {'gradient':>9} {'GB':>5}")
    settings = IterativeSettings(rank=options.rank, num_probes=options.probes)
    for rows in options.rows:
        measure(rows, settings, options)


def measure(rows: int, settings: IterativeSettings, options: argparse.Namespace) -> None:
    """Print the lines of one number of rows."""
    x, y, f = data(rows + TEST_ROWS)
    theta = jnp.log(jnp.array([LENGTHSCALE] * NUM_FEATURES + [1.0, NOISE**2]))
    train = (jnp.asarray(x[:rows]), jnp.asarray(y[:rows]))
    results = {"iterative": timed(iterative(*train, settings), theta)}
    if importlib.util.find_spec("gpytorch"):
        for rank in (15, settings.rank):
            results[f"GPyTorch, {rank}"] = of_gpytorch(*train, settings.num_probes, rank)
    if rows <= options.dense:
        results["dense"] = timed(dense(*train), theta)
    for name, (seconds, value, gradient) in results.items():
        away, slope = " " * 10, " " * 9
        if "dense" in results and name != "dense":
            _, expected, direction = results["dense"]
            away = f"{(value - expected) / rows:>10.1e}"
            slope = f"{np.linalg.norm(gradient - direction) / np.linalg.norm(direction):>9.1e}"
        print(f"{rows:>6} {name:<14} {seconds:>8.1f} {away} {slope} {memory():>5.1f}", flush=True)
    if rows <= options.dense:
        seconds, errors, ratios = laws(x, y, rows, settings)
        print(
            f"{rows:>6} {'leave-one-out':<14} {seconds:>8.1f} error {errors.mean():.1e}, absolute "
            f"{abs(errors).mean():.1e}; standard deviations times {ratios.mean():.3f}, at most {ratios.max():.3f}",
            flush=True,
        )
    if rows <= options.fit:
        seconds, error = fit(x, y, f, rows, settings)
        size = np.sqrt(np.mean(f[rows:] ** 2))
        print(f"{rows:>6} {'MAP fit':<14} {seconds:>8.1f} error {error:.3f}, that of 0 is {size:.3f}", flush=True)


def laws(x: np.ndarray, y: np.ndarray, rows: int, settings: IterativeSettings) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the seconds of leave-one-out, the errors of its log densities, and ratios of standard deviations."""
    kernel, likelihood = _kernel(jnp.log(jnp.array([LENGTHSCALE] * NUM_FEATURES + [1.0]))), GaussianLikelihood
    observed, new = likelihood(jnp.asarray(y[:rows]), NOISE**2), jnp.asarray(x[rows:])
    points = jnp.asarray(x[:rows])
    exact = condition(kernel, points, observed)
    found = condition_iteratively(kernel, points, observed, settings=settings)
    start = time.perf_counter()
    held_out = found.held_out()
    seconds = time.perf_counter() - start
    densities = [observed.marginal_log_density(*law) for law in (held_out, exact.held_out())]
    ratios = jnp.sqrt(found.posterior().variance(new) / exact.moments(new).variance)
    return seconds, np.asarray(densities[0] - densities[1]), np.asarray(ratios)


def data(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return points, noisy values of a smooth function of four of ten features, and its values without noise."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(rows, NUM_FEATURES))
    f = np.sin(2 * x[:, 0]) + np.cos(x[:, 1] * x[:, 2]) + 0.5 * x[:, 3]
    return x, f + NOISE * rng.normal(size=rows), f


def _kernel(theta: jax.Array) -> RBF:
    return RBF(jnp.exp(theta[:NUM_FEATURES]), jnp.exp(theta[NUM_FEATURES]))


def iterative(x: jax.Array, y: jax.Array, settings: IterativeSettings) -> Evidence:
    """Return the evidence by conjugate gradients, a function of the logarithms of all parameters."""

    def value(theta: jax.Array) -> jax.Array:
        system = IterativeSystem.create(_kernel(theta), x, jnp.exp(theta[-1]), settings)
        return iterative_log_density(system, y)

    return value


def dense(x: jax.Array, y: jax.Array) -> Evidence:
    """Return the evidence by a Cholesky factor."""
    return lambda theta: GaussianProcessMarginal(0.0, _kernel(theta).gram(x), jnp.exp(theta[-1])).log_prob(y)


def timed(value: Evidence, theta: jax.Array) -> tuple[float, float, np.ndarray]:
    """Return the seconds of a value with its gradient, and both."""
    compiled = jax.jit(jax.value_and_grad(value)).lower(theta).compile()
    start = time.perf_counter()
    found, gradient = jax.block_until_ready(compiled(theta))
    return time.perf_counter() - start, float(found), np.asarray(gradient)


def fit(x: np.ndarray, y: np.ndarray, f: np.ndarray, rows: int, settings: IterativeSettings) -> tuple[float, float]:
    """Return the seconds of a fit with compilation, and the error of its predictions."""
    kernel = RBF(dist.LogNormal(1.0, 1.0).expand([NUM_FEATURES]), dist.LogNormal(0.0, 1.0))
    model = GPRegression(kernel, dist.LogNormal(-2.0, 1.0), latent="iterative", iterative=settings)
    start = time.perf_counter()
    inference = kpp.MAP(num_restarts=0, progress=False)
    found = model.fit(jax.random.key(0), x[:rows], y[:rows], inference=inference, num_prior_samples=0)
    seconds = time.perf_counter() - start
    predicted = found.function()(jnp.asarray(x[rows:])).squeeze()
    return seconds, float(np.sqrt(np.mean((predicted - f[rows:]) ** 2)))


def of_gpytorch(
    x: jax.Array, y: jax.Array, num_probes: int, rank: int, max_cholesky_size: int = 1
) -> tuple[float, float, np.ndarray]:
    """Return the same from GPyTorch, by conjugate gradients for more rows than `max_cholesky_size`."""
    import gpytorch
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(os.cpu_count() or 1)
    points, targets = torch.tensor(np.asarray(x)), torch.tensor(np.asarray(y))
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(points.dtype)
    model = _gpytorch_model(points, targets, likelihood).to(points.dtype)
    model.covar_module.base_kernel.lengthscale = LENGTHSCALE
    model.covar_module.outputscale = 1.0
    likelihood.noise = NOISE**2
    model.train(), likelihood.train()
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    parameters = [
        model.covar_module.base_kernel.raw_lengthscale,
        model.covar_module.raw_outputscale,
        likelihood.noise_covar.raw_noise,
    ]
    start = time.perf_counter()
    with (
        gpytorch.settings.max_cholesky_size(max_cholesky_size),
        gpytorch.settings.num_trace_samples(num_probes),
        gpytorch.settings.max_preconditioner_size(rank),
    ):
        value = evidence(model(points), targets) * len(points)
        raw = torch.autograd.grad(value, parameters)
        raw[-1].item()  # waits for a GPU
    seconds = time.perf_counter() - start
    # GPyTorch's parameters are softplus functions of the raw ones; the gradient is for their logarithms.
    gradients = [
        (gradient * parameter.detach().exp().log1p() / torch.sigmoid(parameter.detach())).ravel()
        for gradient, parameter in zip(raw, parameters, strict=True)
    ]
    return seconds, value.item(), torch.cat(gradients).cpu().numpy()


def _gpytorch_model(x: Any, y: Any, likelihood: Any) -> Any:
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=NUM_FEATURES))

        def forward(self, points: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(points), self.covar_module(points))

    return Model()


def memory() -> float:
    """Return the largest memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    main()
