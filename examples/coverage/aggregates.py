"""Intervals of models of aggregates: fields, fine maps, sub-areas, aggregates and counts."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import xarray as xr
from numpyro import distributions as dist

import kpp
from examples.coverage.simulations import Intervals, Simulation, ninety_percent
from kpp.kernels import RBF
from kpp_models import CMP, BaggGP, aggregate_posterior
from kpp_models.aggregates import grids

jax.config.update("jax_enable_x64", True)

TITLE = "Aggregates, fine maps and counts"
RNG = np.random.default_rng(0)
# Of the logarithms of the lengthscale, the variance, the noise of a target, and the variance of places.
LOCATIONS, SPREADS = np.array([-0.3, 0.0, -3.0, -1.5]), np.array([0.4, 0.4, 0.4, 0.7])
LENGTHSCALE, VARIANCE, NOISE, AROUND = map(dist.LogNormal, LOCATIONS, SPREADS)
KERNEL = RBF(LENGTHSCALE, variance=VARIANCE)
LAPLACE = kpp.Laplace(num_samples=200, progress=False)
# Of 44 chains with 150 steps of warm-up one diverged in all draws, which kpp warns about.
NUTS = kpp.NUTS(num_warmup=400, num_samples=200, num_chains=1, progress=False)

# Bags of 2 to 20 points around their heights. Aggregates are asked for, and observed, at other heights, too.
SIZES, WITHIN = RNG.permutation(np.tile([2, 5, 10, 20], 5)), 0.3
HEIGHTS = np.linspace(-2.0, 2.0, len(SIZES))
POINTS = np.repeat(HEIGHTS, SIZES) + WITHIN * RNG.normal(size=SIZES.sum())
BAGS = kpp.Bags.create(POINTS[:, None], np.repeat(np.arange(len(SIZES)), SIZES), HEIGHTS[:, None])
ELSEWHERE, NEW = RNG.uniform(-2.0, 2.0, size=25), RNG.uniform(-2.0, 2.0, size=10)
PLACES = np.linspace(-2.0, 2.0, 12)
GRID = grids.grid_points(xr.DataArray(PLACES, dims="place", name="height"), coordinates=False)
AREA = np.linspace(0.2, 0.8, 12)
WAVES = 300

FIELD_ONLY = BaggGP(KERNEL, NOISE, noise="per_bag")
PER_POINT = BaggGP(KERNEL, AROUND)
ESTIMATED = BaggGP(KERNEL, NOISE, noise="per_bag", high_resolution_variance=AROUND)
COUNTS = BaggGP(KERNEL, 1.0, mean=dist.Normal(1.0, 0.5), likelihood="poisson")

OPERATOR = (
    "the operator that is estimated from the bags counts as known, so that intervals of the field and of new "
    "aggregates are too narrow, and `aggregate_posterior` says so in its attributes; a prior on `operator_variance` "
    "counts its uncertainty."
)
ONE_SCALE = (
    "one scale stands for the uncertainty of the operator at all heights, so that intervals of new aggregates are a "
    "little too wide."
)
FEW_BAGS = (
    "20 bags say little about the hyperparameters, so that `kpp.Laplace` is a little too narrow for the field; "
    "`kpp.NUTS` makes no such approximation."
)
PLACES_VARY = (
    "values vary around the field, and this model has the field only: the attribute `interval_of` of the map says so; "
    "a prior on `high_resolution_variance`, or noise per point, estimates the variation if bags have different sizes."
)
WHOLE_NUMBERS = (
    "a count is a whole number, and the ends of its interval are so, too; an interval that leaves out at most 5 % on "
    "either side holds more than 90 %, the more, the smaller the counts are."
)


class Field:
    """A function of a Gaussian process, as a sum of waves, whose means under normal laws have a closed form."""

    def __init__(self, rng: np.random.Generator, lengthscale: float, variance: float) -> None:
        self.frequencies = rng.normal(size=WAVES) / lengthscale
        self.phases = rng.uniform(0.0, 2.0 * np.pi, size=WAVES)
        self.weights = np.sqrt(2.0 * variance / WAVES) * rng.normal(size=WAVES)

    def mean(self, center: np.ndarray, deviation: float = 0.0) -> np.ndarray:
        """Return the means of the field under normal laws; its values at a deviation of 0."""
        waves = np.cos(np.multiply.outer(center, self.frequencies) + self.phases)
        found: np.ndarray = waves @ (self.weights * np.exp(-0.5 * (deviation * self.frequencies) ** 2))
        return found


def mixture(predicted: xr.Dataset, rng: np.random.Generator) -> np.ndarray:
    """Draw 10 values for each draw of the hyperparameters, whose predictions are normal."""
    mean, variance = (predicted[name].values for name in ("mean", "latent_variance"))
    drawn = mean + np.sqrt(variance) * rng.normal(size=(10, *mean.shape))
    return drawn.reshape(-1, mean.shape[-1])


def measure_aggregates(seed: int, operator_variance: Any) -> dict[str, Intervals]:
    """Observe conditional means of a field at other heights than those of the bags."""
    rng = np.random.default_rng(seed)
    lengthscale, variance, noise, _ = np.exp(rng.normal(LOCATIONS, SPREADS))
    field = Field(rng, lengthscale, variance)
    y, again = field.mean(ELSEWHERE, WITHIN) + np.sqrt(noise) * rng.normal(size=(2, len(ELSEWHERE)))
    model = CMP(KERNEL, RBF(0.3, variance=10.0), NOISE, regularization=0.01, operator_variance=operator_variance)
    options = {"covariates": ELSEWHERE[:, None], "inference": LAPLACE, "num_prior_samples": 0}
    fit = model.fit(jax.random.key(seed), BAGS, y, **options)
    drawn = fit.idata["posterior_predictive"]["y"].values
    return {
        "the field": ninety_percent(field.mean(PLACES), mixture(fit.predict(PLACES[:, None]), rng)),
        "new aggregates": ninety_percent(field.mean(NEW, WITHIN), mixture(aggregate_posterior(fit, NEW[:, None]), rng)),
        "new observations of aggregates": ninety_percent(again, drawn.reshape(-1, len(again))),
    }


def measure_map(seed: int, model: BaggGP, varies: bool, noisy: bool) -> dict[str, Intervals]:
    """Observe the means of values at places, and ask for the values at other places and in a sub-area."""
    rng = np.random.default_rng(seed)
    lengthscale, variance, noise, around = np.exp(rng.normal(LOCATIONS, SPREADS))
    field = Field(rng, lengthscale, variance)

    def values(places: np.ndarray) -> np.ndarray:
        return field.mean(places) + varies * np.sqrt(around) * rng.normal(size=len(places))

    y = np.asarray(BAGS.means(values(POINTS))) + noisy * np.sqrt(noise) * rng.normal(size=len(SIZES))
    key = jax.random.key(seed)
    fit = model.fit(key, BAGS, y, inference=LAPLACE, num_prior_samples=0)
    options = {"probability": 0.9, "progress": False}
    places, smooth = (grids.predict_map(fit, GRID, noise=noise, **options) for noise in (True, False))
    area = fit.sample_predictive(key, AREA[:, None], 400).values.mean(axis=1)
    return {
        "the field": Intervals(field.mean(PLACES), smooth["lower"], smooth["upper"]),
        "values at places": Intervals(values(PLACES), places["lower"], places["upper"]),
        "the mean of a sub-area": ninety_percent(values(AREA).mean(), area),
    }


def measure_counts(seed: int) -> dict[str, Intervals]:
    """Observe counts in bags whose rates are the exponentials of means of a field."""
    rng = np.random.default_rng(seed)
    lengthscale, variance, *_ = np.exp(rng.normal(LOCATIONS, SPREADS))
    field, base = Field(rng, lengthscale, variance), rng.normal(1.0, 0.5)
    y, again = rng.poisson(np.exp(base + np.asarray(BAGS.means(field.mean(POINTS)))), size=(2, len(SIZES)))
    fit = COUNTS.fit(jax.random.key(seed), BAGS, y, inference=NUTS, num_prior_samples=0)
    drawn = fit.idata["posterior_predictive"]["y"].values.reshape(-1, len(SIZES))
    return {
        "the logarithms of rates at places": ninety_percent(
            base + field.mean(PLACES), mixture(fit.predict(PLACES[:, None]), rng)
        ),
        "new counts": ninety_percent(again, drawn),
    }


LAW = (
    "20 bags of 2 to 20 points with one feature, and a function of the Gaussian process; {}. All hyperparameters are "
    "from the model's own priors."
)
CONDITIONAL = LAW.format("targets are conditional means at 25 other heights than those of the bags, with noise")
SIMULATIONS = {
    name: Simulation(
        about, CONDITIONAL, len(ELSEWHERE), functools.partial(measure_aggregates, operator_variance=prior), known=known
    )
    for name, about, prior, known in (
        ("aggregates", "CMP by `kpp.Laplace`", 0.0, OPERATOR),
        (
            "aggregates_operator",
            "CMP, prior on `operator_variance`, by `kpp.Laplace`",
            dist.LogNormal(-2.0, 1.0),
            ONE_SCALE,
        ),
    )
}
VARIES = "values at places vary around it, and targets are their means{}"
SIMULATIONS |= {
    name: Simulation(
        f"{about}, by `kpp.Laplace`",
        LAW.format(law),
        len(SIZES),
        functools.partial(measure_map, model=model, varies=varies, noisy=noisy),
        known=known,
    )
    for name, about, law, model, varies, noisy, known in (
        (
            "fine_map_smooth",
            '`BaggGP(noise="per_bag")`',
            "targets are its means over bags, with noise",
            FIELD_ONLY,
            False,
            True,
            FEW_BAGS,
        ),
        (
            "fine_map_estimated",
            "BaggGP, prior on `high_resolution_variance`",
            VARIES.format(", with noise"),
            ESTIMATED,
            True,
            True,
            "",
        ),
        ("fine_map_per_point", "BaggGP, noise per point", VARIES.format(""), PER_POINT, True, False, FEW_BAGS),
        (
            "fine_map_field_only",
            '`BaggGP(noise="per_bag")` of values that vary',
            VARIES.format(", with noise"),
            FIELD_ONLY,
            True,
            True,
            PLACES_VARY,
        ),
    )
}
SIMULATIONS["counts"] = Simulation(
    "BaggGP of counts by `kpp.NUTS`",
    LAW.format("counts have the rates exp(base + mean of the function over the bag)"),
    len(SIZES),
    measure_counts,
    data_sets=60,
    known=WHOLE_NUMBERS,
)
