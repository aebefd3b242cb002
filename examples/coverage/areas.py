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


def measure_areas(seed: int, kept: bool) -> dict[str, Intervals]:
    """Observe averages over districts, and ask for the averages of sub-areas and the values at cells."""
    rng = np.random.default_rng(seed)
    lengthscale, variance, noise = np.exp(rng.normal(LOCATIONS, SPREADS))
    angles = CELLS.points[["x", "y"]].to_numpy() @ rng.normal(size=(2, WAVES)) / lengthscale
    waves = np.cos(angles + rng.uniform(0.0, 2.0 * np.pi, size=WAVES))
    field = waves @ (np.sqrt(2.0 * variance / WAVES) * rng.normal(size=WAVES))
    y = CELLS.averages @ field + (not kept) * np.sqrt(noise) * rng.normal(size=len(DISTRICTS))
    key = jax.random.key(seed)
    fit = MODEL.fit(key, CELLS.bags, y, inference=LAPLACE, num_prior_samples=0)
    drawn = CELLS.draws(key, fit, 400, averages=y if kept else None)
    return {
        "averages of sub-areas": ninety_percent(OF_PARTS @ field, drawn @ OF_PARTS.T),
        "the field at cells": ninety_percent(field, drawn),
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
