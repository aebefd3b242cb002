"""Mediated downscaling of a field: a coarse field is refined by covariates that were never observed together with it.

    python examples/reproduce/downscaling.py [--small] [--data NPZ | --netcdf NAME=FILE ...] [--output FOLDER]
        [--seeds N] [--inducing N] [--steps N] [--pixels N] [--block N] [--regularization LAMBDA]
        [--pixel-noise VARIANCE]

(Chau, Bouabid and Sejdinovic, Deconditional downscaling with Gaussian processes, 2021, section 5.2.) A fine grid is cut
into blocks, the bags. For one half of the blocks (D1), the pixels are observed, with latitude, longitude and other fine
covariates. For the other half (D2), the block mean of the temperature is observed. For both halves, the position and
the block mean of the mediating field, a pressure, are known. The task is to predict the temperature of every pixel,
which is never observed.

VarCMP uses D1 and D2 directly. The baselines need a target for every bag of D1: Gaussian-process regression of the
targets on position and pressure, fitted to D2, predicts them (two-step mediation). All hyperparameters are at their
joint mode (MAP), found with a few pixels of each bag; then the models are conditioned on all pixels. The noise of
single pixels, which the paper has, cannot be learned from block means: --pixel-noise sets its variance, in squared
units of the standardized targets, for the models and their intervals.

By default the fields are random, with a known law: altitude, cloud cover and albedo are fine covariates, and the
pressure depends on the weather that they also depend on, but is none of them. With --data they come from an .npz file
with the arrays ttop (a, b) [K], lat (a,), lon (b,) and pctisccp (a / 3, b / 3) [Pa]: temperature and pressure at the
cloud tops; the pressure, repeated 3 x 3, is also the only fine covariate. With --netcdf they come from files with
one field each, of any resolution, named temperature, pressure, and otherwise as you like; they are averaged over time
and brought to the grid of the temperature.

For each model the script prints the mean and standard deviation over seeds of RMSE, MAE, Spearman's rank correlation
and structural similarity (11 x 11 pixels) of the mean, and the share of pixels in their 95 % intervals. It also prints
p-values of Wilcoxon's signed-rank test between models, `kpp_models.check_mediation` of the first split, time and peak
memory. The published numbers are printed for comparison, but they were measured on other fields.
"""

from __future__ import annotations

import dataclasses
import itertools
import resource
import time
from collections.abc import Callable, Mapping, Sequence
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
from kpp_models import CMP, CentroidGP, VBagg, check_mediation, mediate
from kpp_models.aggregates import grids

COORDINATES, MEDIATOR, TARGET = ("lat", "lon"), "pressure", "temperature"
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
    pixel_noise: float = 0.0


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
    def features(self) -> tuple[str, ...]:
        """The fine covariates besides the position."""
        return tuple(self.fields.attrs["features"])

    @property
    def covariates(self) -> np.ndarray:
        """The covariates of the targets of D2."""
        return np.asarray(self.cells.bags.covariates)[self.second]

    @property
    def targets(self) -> np.ndarray:
        """The targets of D2."""
        return (self.cells.means(self.fields[TARGET])[self.second] - self.center) / self.scale


def simulate(num_rows: int, num_columns: int, seed: int = 0) -> xr.Dataset:
    """Draw weather, three fine covariates, a pressure that mediates, and the temperature; all but the weather are kept.

    The temperature is an additive function of latitude, weather, altitude and albedo, and of something else.
    """
    rng = np.random.default_rng(seed)

    def smooth(width: float) -> np.ndarray:
        noise = gaussian_filter(rng.normal(size=(num_rows, num_columns)), width, mode=("reflect", "wrap"))
        return noise / noise.std()

    lat, lon = np.linspace(-85.0, 85.0, num_rows), np.linspace(0.0, 360.0, num_columns, endpoint=False)
    weather = 0.8 * smooth(num_rows / 10) + 0.6 * smooth(2.0)
    altitude = 1.5 * np.maximum(smooth(num_rows / 15), 0.0)
    cover = 1.0 / (1.0 + np.exp(-2.0 * weather))
    albedo = 0.2 + 0.5 * cover + 0.05 * smooth(1.0)
    pressure = 600.0 - 80.0 * weather - 20.0 * altitude + 20.0 * smooth(1.0)
    temperature = 275.0 - 40.0 * np.sin(np.deg2rad(lat))[:, None] ** 2 - 8.0 * np.tanh(weather) - 4.0 * altitude
    temperature = temperature - 10.0 * albedo + 3.0 * smooth(num_rows / 8)
    units = {"altitude": "km", "cover": "1", "albedo": "1", MEDIATOR: "hPa", TARGET: "K"}
    fields = dict(zip(units, (altitude, cover, albedo, pressure, temperature), strict=True))
    return as_fields(lat, lon, fields, units, ("altitude", "cover", "albedo"))


def read(path: Path) -> xr.Dataset:
    """Read the fields of an .npz file; the coarser field is repeated on the finer grid."""
    with np.load(path) as arrays:
        temperature, pressure, lat, lon = (arrays[name].astype(float) for name in ("ttop", "pctisccp", "lat", "lon"))
    times = [fine // coarse for fine, coarse in zip(temperature.shape, pressure.shape, strict=True)]
    fields = {MEDIATOR: np.kron(pressure, np.ones(times)), TARGET: temperature}
    return as_fields(lat, lon, fields, {MEDIATOR: "Pa", TARGET: "K"}, (MEDIATOR,))


def read_netcdf(files: Mapping[str, Path]) -> xr.Dataset:
    """Read one field per file, average over time, and bring all to the grid of the temperature."""
    if not {MEDIATOR, TARGET} <= set(files):
        raise click.UsageError(f"--netcdf must name a {TARGET} and a {MEDIATOR}, got {sorted(files)}")
    opened = {}
    for name, path in files.items():
        with xr.open_dataset(path) as dataset:
            averaged = dataset.mean("time", keep_attrs=True) if "time" in dataset.dims else dataset
            opened[name] = averaged.load()
    fields = grids.collocate(opened, opened[TARGET], method="nearest")
    features = [name for name in files if name not in (MEDIATOR, TARGET)] or [MEDIATOR]
    return fields.assign_attrs(features=features)


def as_fields(
    lat: np.ndarray,
    lon: np.ndarray,
    fields: Mapping[str, np.ndarray],
    units: Mapping[str, str],
    features: Sequence[str],
) -> xr.Dataset:
    """Give the fields names, coordinates and units, and say which are fine covariates."""
    coords = {"lat": ("lat", lat, {"units": "degrees north"}), "lon": ("lon", lon, {"units": "degrees east"})}
    variables = {name: (COORDINATES, values, {"units": units[name]}) for name, values in fields.items()}
    return xr.Dataset(variables, coords, {"features": list(features)})


def pose(fields: xr.Dataset, block: int, seed: int) -> Problem:
    """Cut the fields into blocks and share these out at random; rows and columns that fill no block are cut off."""
    kept = {dim: slice(fields.sizes[dim] // block * block) for dim in COORDINATES}
    fields = fields.isel(kept)
    features = fields.attrs["features"]
    cells = grids.bags_from_grid(fields, blocks=block, variables=features, covariates=[MEDIATOR], standardize=True)
    order = np.random.default_rng(seed).permutation(cells.bags.num_bags)
    half = len(order) // 2
    first, second = np.sort(order[:half]), np.sort(order[half:])
    seen = cells.means(fields[TARGET])[second]
    return Problem(fields, cells, first, second, float(seen.mean()), float(seen.std()))


def kernel(variables: Sequence[str]) -> AbstractKernel:
    """Return the sum of a Matern kernel of the position and an RBF kernel of other variables, with priors."""
    lengthscale, variance = dist.LogNormal(np.log(0.5), 0.7), dist.LogNormal(-0.5, 1.0)
    position = Matern32(lengthscale.expand([2]), variance).on(COORDINATES)
    return position + RBF(lengthscale.expand([len(variables)]), variance).on(tuple(variables))


NOISE = dist.LogNormal(-3.0, 1.0)


def fit_cmp(problem: Problem, settings: Settings, seed: int, mediated: Any) -> kpp.Fit:
    """Fit the conditional mean process with inducing points to D1 and D2; it does not need pseudo-targets."""
    model = CMP(
        kernel(problem.features),
        kernel((MEDIATOR,)),
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
        kernel(problem.features),
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
    model = CentroidGP(kernel(problem.features), NOISE, num_inducing=count, seed=seed)
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
    return mediate(key, problem.bags, problem.covariates, problem.targets, kernel((MEDIATOR,)), NOISE, mode(settings))


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
    model = dataclasses.replace(found.model, **known | {"high_resolution_variance": settings.pixel_noise})
    return model.fit(keys[2], problem.bags, targets, inference=mode(settings), num_prior_samples=0, **options)


def run_seed(fields: xr.Dataset, block: int, settings: Settings, seed: int) -> tuple[Problem, dict[str, Any], Any]:
    """Fit all models to one split, and return their maps and scores."""
    problem = pose(fields, block, seed)
    maps, rows, mediated = {}, [], pseudo_targets(problem, settings, seed)
    for name, fit_model in MODELS.items():
        start = time.perf_counter()
        fit = fit_model(problem, settings, seed, mediated)
        fitted = time.perf_counter()
        options = {"center": problem.center, "scale": problem.scale, "noise": settings.pixel_noise > 0.0}
        maps[name] = grids.predict_map(fit, problem.cells.fine, **options)
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
    name = problem.features[-1]
    shown = cells.fine.to_map(np.where(seen, cells.fine.values(fields[name]), np.nan), name=name)
    plots.field(shown, ax=axes[0], label=fields[name].attrs.get("units", "")).set_title(f"{name} of D1")
    plots.field(cells.coarse.to_map(means), ax=axes[1], label="K").set_title("targets of D2")
    plots.field(fields[TARGET], ax=axes[2], label="K").set_title("temperature, not seen")
    figure.savefig(folder / "data.png", dpi=150)
    for name, prediction in maps.items():
        figure = plots.maps(prediction, fields[TARGET])[0].figure
        figure.suptitle(name)
        figure.savefig(folder / f"{name.lower()}.png", dpi=150)
    plt.close("all")


def print_check(problem: Problem) -> None:
    """Print how much position and pressure leave unexplained of the bags and of the targets."""
    few = problem.bags.subsample(jax.random.key(0), 10)
    field = Matern32(0.5).on(COORDINATES) + RBF(1.0).on(problem.features)
    candidates = [
        Matern32(near, variance).on(COORDINATES) + RBF(long).on((MEDIATOR,))
        for near, long, variance in itertools.product((0.3, 1.0, 3.0), (0.5, 1.0, 3.0), (0.3, 1.0, 3.0))
    ]
    check = check_mediation(few, problem.covariates, problem.targets, field, candidates)
    click.echo(
        f"Position and {MEDIATOR} leave {check.operator:.1%} of the bags' embeddings and {check.regression:.1%} of the "
        "targets unexplained"
    )


def run(fields: xr.Dataset, block: int, settings: Settings, seeds: int, output: Path | None = None) -> pd.DataFrame:
    """Return the scores, one row per split and model; write the maps of the first split to a folder."""
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        problem, maps, found = run_seed(fields, block, settings, seed)
        rows += found
        if seed == 0:
            click.echo(f"{problem.cells}; {len(problem.first)} in D1, {len(problem.second)} in D2")
            print_check(problem)
            if output is not None:
                draw(problem, maps, output)
    return pd.DataFrame(rows)


def chosen_fields(data: Path | None, netcdf: Sequence[str], small: bool) -> xr.Dataset:
    """Return the fields of a file, of several files, or random ones."""
    if data is not None:
        return read(data)
    if netcdf:
        return read_netcdf({name: Path(path) for name, _, path in (pair.partition("=") for pair in netcdf)})
    return simulate(24, 48) if small else simulate(96, 192)


@click.command(help=__doc__.partition("\n")[0])
@click.option("--data", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="An .npz file of fields.")
@click.option("--netcdf", multiple=True, metavar="NAME=FILE", help="A file with one field; repeat for each field.")
@click.option("--small", is_flag=True, help="A small random field and few steps, for a quick trial run.")
@click.option("--seeds", type=int, default=10, show_default=True, help="Number of splits.")
@click.option("--inducing", type=int, default=400, show_default=True, help="Inducing points; published: 800.")
@click.option("--steps", type=int, default=60, show_default=True, help="Steps of L-BFGS at most.")
@click.option(
    "--pixels", type=int, default=20, show_default=True, help="Pixels per bag while hyperparameters are found."
)
@click.option("--block", type=int, default=None, help="Pixels per side of a block; 17 for files, otherwise 8.")
@click.option("--regularization", type=float, default=1e-5, show_default=True, help="Lambda of the CMP.")
@click.option("--pixel-noise", type=float, default=0.0, show_default=True, help="Variance of the noise of pixels.")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), help="A folder for maps and table.")
def main(
    data, netcdf, small, seeds, inducing, steps, pixels, block, regularization, pixel_noise, output
) -> dict[str, pd.DataFrame]:
    jax.config.update("jax_enable_x64", True)
    start = time.perf_counter()
    fields = chosen_fields(data, netcdf, small)
    block = (17 if data or netcdf else 4 if small else 8) if block is None else block
    if small:
        seeds, inducing, steps, pixels = min(seeds, 2), min(inducing, 40), min(steps, 30), min(pixels, 16)
    settings = Settings(inducing, steps, pixels, regularization, pixel_noise)
    scores = run(fields, block, settings, seeds, output)
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
