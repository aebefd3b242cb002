"""Cost of the variational conditional mean process against the number of high-resolution pixels.

    python examples/benchmarks/cmp_scale.py --sizes 45x90,90x180,180x360,360x720

A synthetic field on a grid is observed through the means of blocks of 17 x 17 pixels or slightly more. One half of the
blocks provides pixels and covariates (D1); the other half provides an aggregate at its covariates (D2). The field is
recovered on the whole grid. The table has one row per size, each measured in a separate process: seconds for one value
and gradient of the collapsed bound after compilation, seconds to fit (choice of inducing points, compilation and
optimization) and to predict every pixel, and the peak memory of the process.
"""

from __future__ import annotations

import json
import logging
import resource
import subprocess
import sys
import time
from typing import Any

import click
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.infer.util import log_density

import kpp
from kpp.kernels import RBF
from kpp.priors import prior_sites
from kpp_models import CMP

BLOCK = 17  # pixels on the side of a block
COLUMNS = ("pixels", "bags", "inducing", "gradient s", "fit s", "steps", "predict s", "peak MB", "error / sd")


def synthetic(rows: int, columns: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return 5 features of every pixel, the field there, and the block of each."""
    latitude, longitude = np.meshgrid(np.linspace(-1, 1, rows), np.linspace(-2, 2, columns), indexing="ij")
    waves = [np.cos(a * latitude + b * longitude) for a, b in ((2.0, 1.0), (-1.0, 2.0), (3.0, 0.5))]
    fine = [wave + 0.3 * rng.normal(size=wave.shape) for wave in waves]
    field = np.sin(2 * latitude) * np.cos(longitude) + 0.5 * fine[0] - 0.3 * fine[1] * fine[2]
    down, across = max(rows // BLOCK, 1), max(columns // BLOCK, 1)
    block = (np.arange(rows) * down // rows)[:, None] * across + (np.arange(columns) * across // columns)[None, :]
    x = np.stack([latitude, longitude, *fine], axis=-1).reshape(-1, 5)
    return x, field.ravel(), block.ravel()


def block_means(values: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Average columns over blocks."""
    counts = np.bincount(block)
    return np.stack([np.bincount(block, column) / counts for column in values.T], axis=1)


def problem(rows: int, columns: int) -> tuple[kpp.Bags, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return D1 as bags, targets and covariates of D2, all pixels and the field on them."""
    rng = np.random.default_rng(0)
    x, field, block = synthetic(rows, columns, rng)
    covariates, z = block_means(x[:, :3], block), block_means(field[:, None], block)[:, 0]
    order = rng.permutation(len(z))
    first, second = np.sort(order[: len(z) // 2]), np.sort(order[len(z) // 2 :])
    mine = np.isin(block, first)
    bags = kpp.Bags.create(x[mine], block[mine], covariates[first], covariate_bag=first)
    return bags, z[second] + 0.02 * rng.normal(size=len(second)), covariates[second], x, field


def model_with(num_inducing: int, gram_size: int) -> CMP:
    """Return the model: shrinkage, variational, sampled Gram matrix, all hyperparameters with priors."""
    scale = dist.LogNormal(0.0, 1.0)
    return CMP(
        RBF(scale.expand([5]), scale),
        RBF(scale.expand([3])),
        noise_variance=dist.LogNormal(-4.0, 1.0),
        regularization=dist.LogNormal(-7.0, 1.0),
        estimator="shrinkage",
        num_inducing=num_inducing,
        bag_gram="sampled",
        gram_size=gram_size,
    )


def seconds_a_gradient(model: Any, data: dict[str, Any]) -> float:
    """Time the value and the gradient of the bound at the prior medians, compiled."""
    fields = ("kernel", "bag_kernel", "noise_variance", "regularization")
    sites = {name: prior for field in fields for name, prior in prior_sites(field, getattr(model, field)).items()}
    start = {name: jnp.zeros(prior.shape()) for name, prior in sites.items()}

    @jax.jit
    @jax.value_and_grad
    def objective(logs: dict[str, jax.Array], data: dict[str, Any]) -> jax.Array:
        return -log_density(model.numpyro_model, (), data, jax.tree.map(jnp.exp, logs))[0]

    jax.block_until_ready(objective(start, data))
    begin = time.perf_counter()
    jax.block_until_ready(objective(start, data))
    return time.perf_counter() - begin


def measure(rows: int, columns: int, num_inducing: int, gram_size: int, max_steps: int) -> dict[str, Any]:
    """Measure one size in this process."""
    jax.config.update("jax_enable_x64", True)
    bags, z, covariates, x, field = problem(rows, columns)
    model = model_with(min(num_inducing, bags.num_points), gram_size)
    begin = time.perf_counter()
    inference = kpp.MAP(num_restarts=0, max_steps=max_steps, tolerance=0.1)
    fit = model.fit(jax.random.key(0), bags, z, covariates=covariates, inference=inference, num_prior_samples=0)
    fitted = time.perf_counter()
    mean = fit.predict(x)["mean"].values[0, 0]
    predicted = time.perf_counter()
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
    return {
        "pixels": rows * columns,
        "bags": bags.num_bags + len(z),
        "inducing": fit.model.inducing_points.shape[0],
        "fit s": fitted - begin,
        "steps": int(fit.attrs["evaluations"]),
        "predict s": predicted - fitted,
        "peak MB": peak,
        "error / sd": float(np.sqrt(np.mean((mean - field) ** 2)) / field.std()),
        "gradient s": seconds_a_gradient(fit.model, fit.data),
    }


@click.command(help=__doc__.partition("\n")[0])
@click.option("--sizes", default="45x90,90x180,180x360", show_default=True, help="rows x columns of the grids")
@click.option("--inducing", default=800, show_default=True, help="inducing points")
@click.option("--gram-size", default=10, show_default=True, help="sampled points per bag for the Gram matrix")
@click.option("--max-steps", default=40, show_default=True, help="steps of L-BFGS")
@click.option("--one", is_flag=True, hidden=True)
def main(sizes: str, inducing: int, gram_size: int, max_steps: int, one: bool) -> None:
    grids = [tuple(map(int, size.split("x"))) for size in sizes.split(",")]
    if one:
        logging.basicConfig(level=logging.INFO)
        print(json.dumps(measure(*grids[0], inducing, gram_size, max_steps)))
        return
    print("  ".join(f"{name:>10}" for name in COLUMNS), flush=True)
    options = ["--inducing", str(inducing), "--gram-size", str(gram_size), "--max-steps", str(max_steps), "--one"]
    for rows, columns in grids:
        command = [sys.executable, __file__, "--sizes", f"{rows}x{columns}", *options]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        cells = (
            f"{found[name]:>10.2f}" if isinstance(found[name], float) else f"{found[name]:>10}" for name in COLUMNS
        )
        print("  ".join(cells), flush=True)


if __name__ == "__main__":
    main()
