"""Recover a field of a million pixels from block means by minibatches of blocks, with a Gaussian likelihood.

    python examples/benchmarks/aggregate_minibatches.py [--rows 1000] [--block 10] [--inducing 200] [--steps 600]
        [--compare]

The field is a smooth function of position and of two fine covariates. `VBagg` sees the mean of every block of pixels.
A step of `kpp.NaturalGradient` reads the pixels of 100 blocks only, so that neither time nor memory of a step depends
on the size of the field. Hyperparameters are learned together with the law of the field at the inducing points. With
--compare, a part of the field of at most 100,000 pixels is fitted in this way and without minibatches, which needs the
covariance matrix of all blocks. The table has the error over all pixels in units of the field's standard deviation,
seconds (with compilation), and the peak memory of the process so far.
"""

from __future__ import annotations

import resource
import time
from typing import Any

import click
import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import xarray as xr

import kpp
from kpp.kernels import RBF
from kpp_models import VBagg
from kpp_models.aggregates import grids

BAGS_PER_STEP = 100
MOST_PIXELS_AT_ONCE = 100_000
VARIABLES = ("cloud", "height", "field")


def simulate(rows: int, columns: int, seed: int = 0) -> xr.Dataset:
    """Draw a field on a grid of a fixed resolution, and two fine covariates."""
    rng = np.random.default_rng(seed)
    lat, lon = np.arange(rows) / 250.0, np.arange(columns) / 250.0
    first, second = np.meshgrid(lat, lon, indexing="ij")
    cloud, height = (np.cos(a * first + b * second) + 0.3 * rng.normal(size=first.shape) for a, b in ((9, 4), (-5, 8)))
    field = np.sin(2 * first) * np.cos(second) + 0.5 * cloud - 0.3 * np.tanh(height)
    dims = ("lat", "lon")
    return xr.Dataset(
        {"cloud": (dims, cloud), "height": (dims, height), "field": (dims, field)}, {"lat": lat, "lon": lon}
    )


def model(num_inducing: int, minibatch: int | None) -> VBagg:
    """Return VBagg with an additive kernel, whose hyperparameters have priors."""
    scale, variance = dist.LogNormal(0.0, 0.7), dist.LogNormal(-0.5, 1.0)
    kernel = RBF(scale.expand([2]), variance).on(("lat", "lon")) + RBF(scale, variance).on(("cloud",))
    kernel = kernel + RBF(scale, variance).on(("height",))
    options: dict[str, Any] = {"noise": "per_bag", "bag_gram": "sampled", "gram_size": 5}
    return VBagg(kernel, dist.LogNormal(-6.0, 1.0), num_inducing=num_inducing, minibatch=minibatch, **options)


def fit_and_score(
    name: str, fields: xr.Dataset, block: int, num_inducing: int, minibatch: int | None, inference: Any
) -> dict[str, Any]:
    """Fit the block means, predict every pixel, and return a row of the table."""
    cells = grids.bags_from_grid(fields, blocks=block, variables=["cloud", "height"], standardize=True)
    means = cells.means(fields["field"])
    center, scale = float(means.mean()), float(means.std())
    start = time.perf_counter()
    fit = model(num_inducing, minibatch).fit(
        jax.random.key(0), cells.bags, (means - center) / scale, inference=inference, num_prior_samples=0
    )
    fitted = time.perf_counter()
    maps = grids.predict_map(fit, cells.fine, center=center, scale=scale, progress=False)
    truth = fields["field"]
    return {
        "model": name,
        "pixels": truth.size,
        "bags": cells.bags.num_bags,
        "error / sd": float(np.sqrt(np.mean((maps["mean"] - truth) ** 2)) / truth.std()),
        "fit s": fitted - start,
        "predict s": time.perf_counter() - fitted,
        "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,  # kB on Linux
    }


def run(rows: int, block: int, num_inducing: int, steps: int, compare: bool = False) -> pd.DataFrame:
    """Return the table: by minibatches on the whole field; with `compare`, both ways on a part of it."""
    natural = kpp.NaturalGradient(num_steps=steps, num_samples=4, progress=False)
    found = [fit_and_score("minibatches", simulate(rows, rows), block, num_inducing, BAGS_PER_STEP, natural)]
    if compare:
        few = min(rows, int(MOST_PIXELS_AT_ONCE**0.5)) // block * block
        mode = kpp.MAP(num_restarts=0, max_steps=60, tolerance=1.0, progress=False)
        part = simulate(few, few)
        found.append(fit_and_score("minibatches", part, block, num_inducing, BAGS_PER_STEP, natural))
        found.append(fit_and_score("all bags at once", part, block, num_inducing, None, mode))
    return pd.DataFrame(found)


@click.command(help=__doc__.partition("\n")[0])
@click.option("--rows", type=int, default=1000, show_default=True, help="Rows and columns of the grid.")
@click.option("--block", type=int, default=10, show_default=True, help="Pixels per side of a block.")
@click.option("--inducing", type=int, default=200, show_default=True, help="Inducing points.")
@click.option("--steps", type=int, default=600, show_default=True, help="Steps of the natural gradient.")
@click.option("--compare", is_flag=True, help="Fit a part of the field both ways, too.")
def main(rows: int, block: int, inducing: int, steps: int, compare: bool) -> None:
    jax.config.update("jax_enable_x64", True)
    click.echo(run(rows, block, inducing, steps, compare).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
