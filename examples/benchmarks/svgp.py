"""Time one epoch of a sparse variational Gaussian process, and score it on test rows: kpp beside GPyTorch.

Run it as `python examples/benchmarks/svgp.py [--rows 1000000] [--task regression classes] [--precision 32 64]`. Both
libraries get the same rows with ten features, the same inducing points (centers of k-means), minibatches of 1000, an
RBF kernel with ten lengthscales and a variance, and a full covariance of the values at the inducing points. GPyTorch
takes steps of Adam with a learning rate that decreases along a cosine, once for each of some learning rates. kpp takes
natural gradients with its defaults. The score is the mean log density of 10,000 test rows, with its standard error;
"ideal" is the score of the function that made the data. The time is that of the steps, without compilation. GPyTorch is
left out if it is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import time
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import special, stats

import kpp
from kpp.gp import GaussianLikelihood, SoftmaxLikelihood
from kpp.gp.toolkit import k_means_centers
from kpp.kernels import RBF
from kpp_models import GeneralizedGP, MultiLatentGP

NUM_FEATURES, NUM_CLASSES, TEST_ROWS, NOISE, LENGTHSCALE = 10, 10, 10_000, 0.3, 2.7
DRAWS = 30


class Problem(NamedTuple):
    """Rows and targets to fit, rows and targets to score, and the log densities of the latter under the truth."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    ideal: np.ndarray


class Result(NamedTuple):
    """Seconds for all steps, and the log densities of the test rows."""

    seconds: float
    scores: np.ndarray


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--inducing", type=int, default=500)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--task", nargs="+", choices=["regression", "classes"], default=["regression", "classes"])
    parser.add_argument("--precision", nargs="+", type=int, choices=[32, 64], default=[32, 64])
    parser.add_argument("--learning-rates", nargs="+", type=float, default=[0.03, 0.1], help="of GPyTorch")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {options.rows} rows, {options.inducing} points")
    print(f"{'task':<12} {'bits':>4} {'library':<16} {'s an epoch':>10} {'ms a step':>10} {'score':>8} {'error':>7}")
    for task in options.task:
        for bits in options.precision:
            measure(task, bits, options)


def measure(task: str, bits: int, options: argparse.Namespace) -> None:
    """Fit one task in one precision by both libraries, and print a line for each."""
    jax.config.update("jax_enable_x64", bits == 64)
    problem = (regression if task == "regression" else classes)(options.rows, f"float{bits}")
    steps = options.rows // options.batch
    inducing = k_means_centers(problem.x, options.inducing, seed=0).astype(problem.x.dtype)
    results = {"kpp": of_kpp(task, problem, inducing, options.batch, steps)}
    if importlib.util.find_spec("gpytorch"):
        for rate in options.learning_rates:
            results[f"GPyTorch, {rate}"] = of_gpytorch(task, problem, inducing, options.batch, steps, rate)
    results["ideal"] = Result(math.nan, problem.ideal)
    for name, (seconds, scores) in results.items():
        error = scores.std() / math.sqrt(len(scores))
        line = f"{task:<12} {bits:>4} {name:<16} {seconds:>10.1f} {1e3 * seconds / steps:>10.1f}"
        print(f"{line} {scores.mean():>8.4f} {error:>7.4f}", flush=True)


def regression(rows: int, dtype: str) -> Problem:
    """Return noisy values of a smooth function of four of ten features."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(rows + TEST_ROWS, NUM_FEATURES))
    f = np.sin(2 * x[:, 0]) + np.cos(x[:, 1] * x[:, 2]) + 0.5 * x[:, 3]
    y = f + NOISE * rng.normal(size=len(f))
    ideal = stats.norm.logpdf(y, f, NOISE)
    return _split(x.astype(dtype), y.astype(dtype), ideal, rows)


def classes(rows: int, dtype: str) -> Problem:
    """Return labels whose ten logits are smooth functions of the ten features."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, size=(rows + TEST_ROWS, NUM_FEATURES))
    turned = x @ rng.normal(size=(NUM_FEATURES, NUM_CLASSES)) / math.sqrt(NUM_FEATURES)
    f = 3.0 * np.sin(turned + np.arange(NUM_CLASSES))
    labels = np.argmax(f + rng.gumbel(size=f.shape), axis=1)
    ideal = special.log_softmax(f, axis=1)[np.arange(len(f)), labels]
    return _split(x.astype(dtype), labels, ideal, rows)


def _split(x: np.ndarray, y: np.ndarray, ideal: np.ndarray, rows: int) -> Problem:
    return Problem(x[:rows], y[:rows], x[rows:], y[rows:], ideal[rows:])


def of_kpp(task: str, problem: Problem, inducing: np.ndarray, batch: int, steps: int) -> Result:
    """Fit by natural gradients. The first call compiles, the second is timed."""
    kernel: Any = RBF(dist.LogNormal(1.0, 1.0).expand([NUM_FEATURES]), dist.LogNormal(0.0, 1.0))
    given: dict[str, Any] = {"latent": "inducing", "inducing_points": inducing, "minibatch": batch}
    model: Any = MultiLatentGP(kernel, SoftmaxLikelihood(NUM_CLASSES), **given)
    if task == "regression":
        model = GeneralizedGP(kernel, GaussianLikelihood(noise_variance=dist.LogNormal(-1.0, 1.0)), **given)
    model, data, _ = model.prepare(problem.x, problem.y)
    inference = kpp.NaturalGradient(num_steps=steps, num_samples=DRAWS, progress=False)
    inference.run(jax.random.key(0), model.numpyro_model, data)
    start = time.perf_counter()
    found = inference.run(jax.random.key(0), model.numpyro_model, data)
    seconds = time.perf_counter() - start
    densities = [
        _log_density_of_kpp(task, model, data, {name: value[0, draw] for name, value in found.samples.items()}, problem)
        for draw in range(DRAWS)
    ]
    return Result(seconds, special.logsumexp(np.stack(densities), axis=0) - math.log(DRAWS))


def _log_density_of_kpp(task: str, model: Any, data: Any, sample: Any, problem: Problem) -> np.ndarray:
    predicted = model.predictive(sample, data, jnp.asarray(problem.x_test))
    if task == "classes":
        return np.log(np.asarray(predicted["class_probability"]))[np.arange(TEST_ROWS), problem.y_test]
    spread = np.sqrt(predicted["latent_variance"] + predicted["noise_variance"])
    return stats.norm.logpdf(problem.y_test, np.asarray(predicted["mean"]), spread)


def of_gpytorch(
    task: str, problem: Problem, inducing: np.ndarray, batch: int, steps: int, learning_rate: float
) -> Result:
    """Fit by Adam, all parameters together."""
    import gpytorch
    import torch

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(os.cpu_count() or 1)
    x, y = torch.tensor(problem.x), torch.tensor(problem.y)
    model, likelihood = _gpytorch_model(task, torch.tensor(inducing))
    parameters = [*model.parameters(), *likelihood.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=learning_rate / 100)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(x))
    model.train(), likelihood.train()
    start = time.perf_counter()
    order = torch.randperm(len(x))
    for step in range(steps):
        rows = order[step * batch : (step + 1) * batch]
        optimizer.zero_grad()
        loss = -bound(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        schedule.step()
    loss.item()  # waits for a GPU
    seconds = time.perf_counter() - start
    model.eval(), likelihood.eval()
    with torch.no_grad():
        latent = model(torch.tensor(problem.x_test))
        if task == "classes":
            with gpytorch.settings.num_likelihood_samples(200):
                probability = likelihood(latent).probs.mean(0).cpu().numpy()
            return Result(seconds, np.log(probability[np.arange(TEST_ROWS), problem.y_test]))
        law = likelihood(latent)
        return Result(seconds, stats.norm.logpdf(problem.y_test, law.mean.cpu().numpy(), law.stddev.cpu().numpy()))


def _gpytorch_model(task: str, inducing: Any) -> tuple[Any, Any]:
    """Return GPyTorch's model of the same problem, its kernel shared by all classes, and the likelihood."""
    import gpytorch
    import torch

    batch = torch.Size([NUM_CLASSES]) if task == "classes" else torch.Size([])

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            law = gpytorch.variational.CholeskyVariationalDistribution(len(inducing), batch_shape=batch)
            strategy = gpytorch.variational.VariationalStrategy(self, inducing, law, learn_inducing_locations=False)
            if task == "classes":
                strategy = gpytorch.variational.IndependentMultitaskVariationalStrategy(strategy, NUM_CLASSES)
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ZeroMean(batch_shape=batch)
            kernel = gpytorch.kernels.RBFKernel(ard_num_dims=NUM_FEATURES)
            kernel.lengthscale = LENGTHSCALE
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, x: Any) -> Any:
            covariance = self.covar_module(x)
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), covariance)

    likelihood = (
        gpytorch.likelihoods.SoftmaxLikelihood(num_classes=NUM_CLASSES, mixing_weights=False)
        if task == "classes"
        else gpytorch.likelihoods.GaussianLikelihood()
    )
    return Model().to(inducing.dtype), likelihood.to(inducing.dtype)


if __name__ == "__main__":
    main()
