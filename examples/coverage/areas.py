"""Intervals of sub-areas and cells, from averages of areas that cut the cells of a raster."""

from __future__ import annotations

import functools

import geopandas
import jax
import numpy as np
import rioxarray  # noqa: F401  # gives rasters their CRS
import shapely
import xarray as xr
from numpyro import distributions as dist

import kpp
from examples.coverage.simulations import Intervals, Simulation, ninety_percent
from kpp.kernels import RBF
from kpp_areal import area_bags
from kpp_models import BaggGP

jax.config.update("jax_enable_x64", True)

TITLE = "Areas and maps"
RNG = np.random.default_rng(0)
# Of the logarithms of the lengthscale in cells, the variance of the field, and the noise of an average.
LOCATIONS, SPREADS = np.array([1.1, 0.0, -4.0]), np.array([0.3, 0.4, 0.4])
LENGTHSCALE, VARIANCE, NOISE = map(dist.LogNormal, LOCATIONS, SPREADS)
LAPLACE = kpp.Laplace(num_samples=200, progress=False)
WAVES = 300

# 24 districts between uneven lines on 12 x 10 cells, with people. Sub-areas lie in districts and across them.
PEOPLE = RNG.lognormal(0.0, 0.7, size=(10, 12))
RASTER = xr.Dataset({"people": (("y", "x"), PEOPLE)}, {"y": np.arange(10) + 0.5, "x": np.arange(12) + 0.5})
LINES_X, LINES_Y = [0.0, 1.7, 4.2, 6.4, 7.9, 10.3, 12.0], [0.0, 2.3, 4.6, 7.8, 10.0]


def frame(boxes: list[tuple[float, float, float, float]]) -> geopandas.GeoDataFrame:
    """Return boxes (left, bottom, right, top) as areas with a CRS."""
    return geopandas.GeoDataFrame(geometry=[shapely.box(*box) for box in boxes], crs="EPSG:3035")


DISTRICTS = frame(
    [
        (left, low, right, high)
        for left, right in zip(LINES_X[:-1], LINES_X[1:], strict=True)
        for low, high in zip(LINES_Y[:-1], LINES_Y[1:], strict=True)
    ]
)
CELLS = area_bags(DISTRICTS, RASTER.rio.write_crs("EPSG:3035"), weights="people")
WITHIN, ACROSS = (
    [(0.2, 0.3, 1.4, 2.0), (4.3, 4.7, 5.4, 7.5), (8.0, 7.9, 9.1, 9.9)],
    [(3.0, 1.0, 5.5, 3.5), (5.6, 3.6, 9.0, 6.6)],
)
PARTS = frame(WITHIN + ACROSS)
OF_PARTS = area_bags(PARTS, RASTER.rio.write_crs("EPSG:3035"), weights="people").averages
MODEL = BaggGP(CELLS.kernel(RBF(LENGTHSCALE, variance=VARIANCE)), NOISE, noise="per_bag")


def field_of_cells(rng: np.random.Generator, lengthscale: float, variance: float) -> np.ndarray:
    """Draw a function of the Gaussian process at the cells."""
    angles = CELLS.points[["x", "y"]].to_numpy() @ rng.normal(size=(2, WAVES)) / lengthscale
    waves = np.cos(angles + rng.uniform(0.0, 2.0 * np.pi, size=WAVES))
    return waves @ (np.sqrt(2.0 * variance / WAVES) * rng.normal(size=WAVES))


def measure_areas(seed: int, kept: bool) -> dict[str, Intervals]:
    """Observe averages over districts, and ask for the averages of sub-areas and the values at cells."""
    rng = np.random.default_rng(seed)
    lengthscale, variance, noise = np.exp(rng.normal(LOCATIONS, SPREADS))
    field = field_of_cells(rng, lengthscale, variance)
    y = CELLS.averages @ field + (not kept) * np.sqrt(noise) * rng.normal(size=len(DISTRICTS))
    key = jax.random.key(seed)
    fit = MODEL.fit(key, CELLS.bags, y, inference=LAPLACE, num_prior_samples=0)
    drawn = CELLS.draws(key, fit, 400, averages=y if kept else None)
    return {
        "averages of sub-areas": ninety_percent(OF_PARTS @ field, drawn @ OF_PARTS.T),
        "the field at cells": ninety_percent(field, drawn),
    }


COUNTS = BaggGP(CELLS.kernel(RBF(LENGTHSCALE, variance=VARIANCE)), 1.0, mean=1.0, likelihood="poisson")
NUTS = kpp.NUTS(num_warmup=200, num_samples=200, num_chains=1, init="median", progress=False)


def measure_counts(seed: int) -> dict[str, Intervals]:
    """Observe the counts of districts in a log-Gaussian Cox process, and ask for those of cells and of halves."""
    rng = np.random.default_rng(seed)
    lengthscale, variance, _ = np.exp(rng.normal(LOCATIONS, SPREADS))
    field = field_of_cells(rng, lengthscale, variance)
    area, cell = CELLS.shares.nonzero()
    truth = rng.poisson(CELLS.shares.data * np.exp(1.0 + field[cell]))
    totals = np.bincount(area, truth)
    key = jax.random.key(seed)
    data = {"exposure": CELLS.exposure, "inference": NUTS, "num_prior_samples": 0}
    fit = COUNTS.fit(key, CELLS.bags, totals, **data)
    drawn = CELLS.counts(key, np.exp(CELLS.draws(key, fit, 400)), totals).to_numpy()
    x = CELLS.points["x"].to_numpy()[cell]
    west = (x < (np.bincount(area, x) / np.bincount(area))[area]).astype(float)
    halves = np.eye(len(DISTRICTS))[area] * west[:, None]
    cells = np.eye(len(CELLS.points))[cell]
    return {
        "counts of the western halves of districts": ninety_percent(truth @ halves, drawn @ halves),
        "counts of cells": ninety_percent(truth @ cells, drawn @ cells),
    }


LAW = (
    "24 districts that cut 120 cells with people, and a function of the Gaussian process of the coordinates; targets "
    "are its averages over the people of a district, {}. All hyperparameters are from the model's own priors."
)
KEPT = (
    "averages that are kept exactly leave intervals that are too narrow here: the data have no noise, but the model "
    "has some. Without `averages` intervals hold better."
)
SIMULATIONS = {
    name: Simulation(
        about,
        LAW.format(noise),
        len(DISTRICTS),
        functools.partial(measure_areas, kept=kept),
        data_sets=120,
        known=KEPT * kept,
    )
    for name, about, noise, kept in (
        ("sub_areas", "`kpp_areal`: BaggGP by `kpp.Laplace`, draws", "with noise", False),
        ("sub_areas_kept", "The same, draws that keep the averages", "without noise", True),
    )
}
SIMULATIONS["cell_counts"] = Simulation(
    "`kpp_areal`: BaggGP of counts by `kpp.NUTS`, `counts`",
    "24 districts that cut 120 cells with people, and a log-Gaussian Cox process: the count of each piece of a cell is "
    "Poisson given the rate. Targets are the counts of the districts. All hyperparameters are from the model's own "
    "priors.",
    len(DISTRICTS),
    measure_counts,
    data_sets=60,
    known="counts are whole numbers, so that an interval of quantiles with its ends holds more than 90 %.",
)
