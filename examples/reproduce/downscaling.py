"""Mediated downscaling of a field: a coarse field is refined by covariates that were never observed together with it.

    python examples/reproduce/downscaling.py [--small] [--data NPZ] [--output FOLDER] [--seeds N] [--inducing N]
        [--steps N] [--pixels N] [--block N] [--regularization LAMBDA]

(Chau, Bouabid and Sejdinovic, Deconditional downscaling with Gaussian processes, 2021, section 5.2.) A fine grid is cut
into blocks, the bags. For one half of the blocks (D1), the pixels are observed, with latitude, longitude and a cloud
field as covariates. For the other half (D2), the block mean of the temperature is observed. For both halves, the
position and the mean cloud of the block are known. The task is to predict the temperature of every pixel, which is
never observed.

VarCMP uses D1 and D2 directly. The baselines need a target for every bag of D1: Gaussian-process regression of the
targets on position and mean cloud, fitted to D2, predicts them (two-step mediation). All hyperparameters are at their
joint mode (MAP), found with a few pixels of each bag; then the models are conditioned on all pixels. The paper has
noise for single pixels. It is omitted here, because its share of a bag's mean would depend on the number of pixels that
are used.

By default the fields are random. With --data they come from an .npz file with the arrays ttop (a, b) [K], lat (a,), lon
(b,) and pctisccp (a / 3, b / 3) [Pa]: temperature and pressure at the cloud tops, with the pressure repeated 3 x 3. For
each model the script prints the mean and standard deviation over seeds of RMSE, MAE, Spearman's rank correlation and
structural similarity (11 x 11 pixels) of the mean, and the share of pixels in their 95 % intervals. It also prints
p-values of Wilcoxon's signed-rank test between models, time and peak memory. The published numbers are printed for
comparison, but they were measured on other fields.
"""

from __future__ import annotations

import dataclasses
import itertools
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np
import pandas as pd
import xarray as xr
from numpyro import distributions as dist
from scipy.ndimage import gaussian_filter
from scipy.stats import wilcoxon

import kpp
from kpp import plots
from kpp.kernels import RBF, AbstractKernel, Matern32
from kpp.priors import substitute
from kpp_models import CMP, CentroidGP, VBagg, mediate
from kpp_models.aggregates import grids

COORDINATES, CLOUD, TARGET = ("lat", "lon"), "cloud", "temperature"
METRICS = ("rmse", "mae", "spearman", "ssim")
PUBLISHED = pd.DataFrame(
    {"VarGPR": (8.02, 5.55, 0.831, 0.212), "VBagg": (8.25, 5.82, 0.821, 0.182), "VarCMP": (7.40, 5.34, 0.848, 0.212)},
    index=METRICS,
).T
PUBLISHED_SD = pd.DataFrame(
    {"VarGPR": (0.28, 0.17, 0.012, 0.011), "VBagg": (0.15, 0.11, 0.006, 0.004), "VarCMP": (0.25, 0.22, 0.011, 0.013)},
    index=METRICS,
).T


@dataclasses.dataclass(frozen=True)
class Settings:
    """How models are fitted."""

    inducing: int
    steps: int
    pixels: int
    regularization: float


@dataclasses.dataclass(frozen=True)
class Problem:
    """Fields cut into bags, half of them in D1 and half in D2; targets standardized by the targets of D2."""

    fields: xr.Dataset
    cells: grids.GridBags
    first: np.ndarray
    second: np.ndarray
    center: float
    scale: float

    @property
    def bags(self) -> kpp.Bags:
        """The bags of D1."""
        return self.cells.bags.take(self.first)

    @property
    def covariates(self) -> np.ndarray:
        """The covariates of the targets of D2."""
        return np.asarray(self.cells.bags.covariates)[self.second]

    @property
    def targets(self) -> np.ndarray:
        """The targets of D2."""
        return (self.cells.means(self.fields[TARGET])[self.second] - self.center) / self.scale


def simulate(num_rows: int, num_columns: int, seed: int = 0) -> xr.Dataset:
    """Draw a cloud field and a temperature that depends on latitude, cloud and something else, all smooth."""
    rng = np.random.default_rng(seed)

    def smooth(width: float) -> np.ndarray:
        noise = gaussian_filter(rng.normal(size=(num_rows, num_columns)), width, mode=("reflect", "wrap"))
        return noise / noise.std()

    lat, lon = np.linspace(-85.0, 85.0, num_rows), np.linspace(0.0, 360.0, num_columns, endpoint=False)
    cloud = 0.8 * smooth(num_rows / 10) + 0.6 * smooth(2.0)
    temperature = (
        275.0 - 40.0 * np.sin(np.deg2rad(lat))[:, None] ** 2 - 8.0 * np.tanh(cloud) + 3.0 * smooth(num_rows / 8)
    )
    return as_fields(lat, lon, cloud, temperature, "1")


def read(path: Path) -> xr.Dataset:
    """Read the fields of an .npz file; the coarser field is repeated on the finer grid."""
    with np.load(path) as arrays:
        temperature, pressure, lat, lon = (arrays[name].astype(float) for name in ("ttop", "pctisccp", "lat", "lon"))
    times = [fine // coarse for fine, coarse in zip(temperature.shape, pressure.shape, strict=True)]
    return as_fields(lat, lon, np.kron(pressure, np.ones(times)), temperature, "Pa")


def as_fields(lat: np.ndarray, lon: np.ndarray, cloud: np.ndarray, temperature: np.ndarray, units: str) -> xr.Dataset:
    """Give the fields names, coordinates and units."""
    coords = {"lat": ("lat", lat, {"units": "degrees north"}), "lon": ("lon", lon, {"units": "degrees east"})}
    fields = xr.Dataset({CLOUD: (COORDINATES, cloud), TARGET: (COORDINATES, temperature)}, coords)
    fields[CLOUD].attrs["units"], fields[TARGET].attrs["units"] = units, "K"
    return fields


def pose(fields: xr.Dataset, block: int, seed: int) -> Problem:
    """Cut the fields into blocks and share these out at random; rows and columns that fill no block are cut off."""
    kept = {dim: slice(fields.sizes[dim] // block * block) for dim in COORDINATES}
    fields = fields.isel(kept)
    cells = grids.bags_from_grid(fields, blocks=block, variables=[CLOUD], covariates=[CLOUD], standardize=True)
    order = np.random.default_rng(seed).permutation(cells.bags.num_bags)
    half = len(order) // 2
    first, second = np.sort(order[:half]), np.sort(order[half:])
    seen = cells.means(fields[TARGET])[second]
    return Problem(fields, cells, first, second, float(seen.mean()), float(seen.std()))


def kernel() -> AbstractKernel:
    """Return the sum of a Matern kernel of the position and an RBF kernel of the cloud, with priors."""
    lengthscale, variance = dist.LogNormal(np.log(0.5), 0.7), dist.LogNormal(-0.5, 1.0)
    return Matern32(lengthscale.expand([2]), variance).on(COORDINATES) + RBF(lengthscale, variance).on((CLOUD,))


NOISE = dist.LogNormal(-3.0, 1.0)


def fit_cmp(problem: Problem, settings: Settings, seed: int, mediated: Any) -> kpp.Fit:
    """Fit the conditional mean process with inducing points to D1 and D2; it does not need pseudo-targets."""
    model = CMP(
        kernel(),
        kernel(),
        NOISE,
        settings.regularization,
        estimator="shrinkage",
        num_inducing=settings.inducing,
        bag_gram="sampled",
        gram_size=10,
        seed=seed,
    )
    return fit_in_two_steps(model, problem, settings, seed, problem.targets, covariates=problem.covariates)


def fit_vbagg(problem: Problem, settings: Settings, seed: int, mediated: Any) -> kpp.Fit:
    """Fit VBagg to D1 and pseudo-targets."""
    model = VBagg(
        kernel(),
        NOISE,
        noise="per_bag",
        num_inducing=settings.inducing,
        bag_gram="sampled",
        gram_size=10,
        seed=seed,
    )
    return fit_in_two_steps(model, problem, settings, seed, mediated)


def fit_centroids(problem: Problem, settings: Settings, seed: int, mediated: Any) -> kpp.Fit:
    """Fit Gaussian-process regression with inducing points to the mean pixels of D1 and pseudo-targets."""
    count = min(settings.inducing, len(problem.first) // 2)
    model = CentroidGP(kernel(), NOISE, num_inducing=count, seed=seed)
    return model.fit(jax.random.key(seed), problem.bags, mediated, inference=mode(settings), num_prior_samples=0)


MODELS: dict[str, Callable[[Problem, Settings, int, Any], kpp.Fit]] = {
    "VarGPR": fit_centroids,
    "VBagg": fit_vbagg,
    "VarCMP": fit_cmp,
}


def mode(settings: Settings) -> kpp.MAP:
    """Return the search for the joint mode of the hyperparameters, limited by the number of steps."""
    return kpp.MAP(num_restarts=0, max_steps=settings.steps, tolerance=1.0, progress=False)


def pseudo_targets(problem: Problem, settings: Settings, seed: int) -> Any:
    """Predict the targets of D1 from the covariates, with a model fitted to D2."""
    key = jax.random.key(seed)
    return mediate(key, problem.bags, problem.covariates, problem.targets, kernel(), NOISE, mode(settings))


def fit_in_two_steps(
    model: Any, problem: Problem, settings: Settings, seed: int, targets: Any, **options: Any
) -> kpp.Fit:
    """Find the hyperparameters with a few pixels of each bag; condition on all pixels given these."""
    keys = jax.random.split(jax.random.key(seed), 3)
    few = problem.bags.subsample(keys[0], settings.pixels)
    found = model.fit(keys[1], few, targets, inference=mode(settings), num_prior_samples=0, **options)
    values = {name: draws[0, 0] for name, draws in found.draws.items()}
    names = [field.name for field in dataclasses.fields(found.model) if field.name != "likelihood"]
    known = {name: substitute(name, getattr(found.model, name), values) for name in names}
    model = dataclasses.replace(found.model, **known)
    return model.fit(keys[2], problem.bags, targets, inference=mode(settings), num_prior_samples=0, **options)


def run_seed(fields: xr.Dataset, block: int, settings: Settings, seed: int) -> tuple[Problem, dict[str, Any], Any]:
    """Fit all models to one split, and return their maps and scores."""
    problem = pose(fields, block, seed)
    maps, rows, mediated = {}, [], pseudo_targets(problem, settings, seed)
    for name, fit_model in MODELS.items():
        start = time.perf_counter()
        fit = fit_model(problem, settings, seed, mediated)
        fitted = time.perf_counter()
        maps[name] = grids.predict_map(fit, problem.cells.fine, center=problem.center, scale=problem.scale)
        truth = problem.fields[TARGET]
        scores = grids.map_scores(truth, maps[name]["mean"])
        scores["covered"] = float(((maps[name]["lower"] <= truth) & (truth <= maps[name]["upper"])).mean())
        scores["fit_seconds"], scores["map_seconds"] = fitted - start, time.perf_counter() - fitted
        rows.append({"model": name, "seed": seed, **scores})
        click.echo(f"seed {seed} {name:>7}: " + ", ".join(f"{key} {value:.3f}" for key, value in scores.items()))
    return problem, maps, rows


def print_table(scores: pd.DataFrame) -> None:
    """Print our numbers and the published numbers."""
    click.echo("\nOurs (mean +- standard deviation over seeds) | published, on other fields: levels are not comparable")
    click.echo(f"{'':>8}" + "".join(f"{name:>34}" for name in METRICS) + f"{'in 95 % intervals':>20}")
    for name, rows in scores.groupby("model", sort=False):
        cells = [
            f"{rows[m].mean():.3f} +- {rows[m].std(ddof=0):.3f} | {PUBLISHED.loc[name, m]:.3f} +- "
            f"{PUBLISHED_SD.loc[name, m]:.3f}"
            for m in METRICS
        ]
        click.echo(f"{name:>8}" + "".join(f"{cell:>34}" for cell in cells) + f"{rows['covered'].mean():>20.3f}")


def print_tests(scores: pd.DataFrame) -> None:
    """Print two-sided p-values of Wilcoxon's signed-rank test between models over the seeds."""
    count = scores["seed"].nunique()
    if count < 2:
        click.echo("\nOne seed: nothing to test.")
        return
    least = 2.0 ** (1 - count)
    click.echo(f"\nWilcoxon's signed-rank test over {count} seeds, p-values (the smallest possible is {least:.2g})")
    click.echo(f"{'':>18}" + "".join(f"{name:>10}" for name in METRICS))
    for first, second in itertools.combinations(MODELS, 2):
        table = [scores[scores["model"] == name].sort_values("seed") for name in (first, second)]
        values = [wilcoxon(table[0][m].to_numpy(), table[1][m].to_numpy()).pvalue for m in METRICS]
        click.echo(f"{first + ' / ' + second:>18}" + "".join(f"{value:>10.4f}" for value in values))


def draw(problem: Problem, maps: dict[str, xr.Dataset], folder: Path) -> None:
    """Draw the observations, and for each model truth, mean, width of the intervals and error."""
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    cells, fields = problem.cells, problem.fields
    seen = np.isin(cells.cell, problem.first)
    means = cells.means(fields[TARGET])
    means[problem.first] = np.nan
    figure, axes = plt.subplots(1, 3, figsize=(18, 3.6), layout="constrained")
    cloud = cells.fine.to_map(np.where(seen, cells.fine.values(fields[CLOUD]), np.nan), name=CLOUD)
    plots.field(cloud, ax=axes[0], label=fields[CLOUD].units).set_title("cloud of D1")
    plots.field(cells.coarse.to_map(means), ax=axes[1], label="K").set_title("targets of D2")
    plots.field(fields[TARGET], ax=axes[2], label="K").set_title("temperature, not seen")
    figure.savefig(folder / "data.png", dpi=150)
    for name, prediction in maps.items():
        figure = plots.maps(prediction, fields[TARGET])[0].figure
        figure.suptitle(name)
        figure.savefig(folder / f"{name.lower()}.png", dpi=150)
    plt.close("all")


@click.command(help=__doc__.partition("\n")[0])
@click.option("--data", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="An .npz file of fields.")
@click.option("--small", is_flag=True, help="A small random field and few steps, for a quick trial run.")
@click.option("--seeds", type=int, default=10, show_default=True, help="Number of splits.")
@click.option("--inducing", type=int, default=300, show_default=True, help="Inducing points; published: 800.")
@click.option("--steps", type=int, default=100, show_default=True, help="Steps of L-BFGS at most.")
@click.option(
    "--pixels", type=int, default=40, show_default=True, help="Pixels per bag while hyperparameters are found."
)
@click.option("--block", type=int, default=None, help="Pixels per side of a block; 17 with --data, otherwise 8.")
@click.option("--regularization", type=float, default=1e-5, show_default=True, help="Lambda of the CMP.")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), help="A folder for maps and table.")
def main(data, small, seeds, inducing, steps, pixels, block, regularization, output) -> dict[str, pd.DataFrame]:
    jax.config.update("jax_enable_x64", True)
    start = time.perf_counter()
    fields = read(data) if data else simulate(*((24, 48) if small else (96, 192)))
    block = (17 if data else 4 if small else 8) if block is None else block
    settings = Settings(inducing, steps, pixels, regularization)
    if small:
        seeds, settings = min(seeds, 2), Settings(min(inducing, 40), min(steps, 30), min(pixels, 16), regularization)
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        problem, maps, found = run_seed(fields, block, settings, seed)
        rows += found
        if seed == 0:
            click.echo(f"{problem.cells}; {len(problem.first)} in D1, {len(problem.second)} in D2")
            if output is not None:
                draw(problem, maps, output)
    scores = pd.DataFrame(rows)
    print_table(scores)
    print_tests(scores)
    if output is not None:
        scores.to_csv(output / "scores.csv", index=False)
        click.echo(f"\nmaps and scores in {output}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # kB on Linux
    click.echo(f"\n{time.perf_counter() - start:.0f} s, peak memory {peak:.2f} GB")
    return {"scores": scores}


if __name__ == "__main__":
    main()
