"""Rejections of true null hypotheses, and the intervals of regressions that use the independence of a collider.

A test has no interval. Its row counts rejections at the level of 5 %: the interval [0, 0] stands for a rejection, which
it "holds", and [1, 1] for none. So "held" is the level of the test, and "width" and "error" say nothing.
"""

from __future__ import annotations

import functools

import jax
import numpy as np
import pandas as pd
import xarray as xr
from numpyro import distributions as dist
from sklearn.kernel_ridge import KernelRidge

import kpp
from examples.coverage.sampling import Waves
from examples.coverage.simulations import Intervals, Simulation, ninety_percent
from kpp.causal import CausalDAG
from kpp.embeddings import conditional_independence_test, mean_independence_test
from kpp.kernels import RBF
from kpp_models import ColliderRegression
from kpp_models.estimators import ProjectedRegressor

jax.config.update("jax_enable_x64", True)

TITLE = "Tests of independence, and collider regression"
LEVEL = 0.05
ROWS = 100


def draws_of_predictions(predicted: xr.Dataset, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return draws of the mean at new rows and of new observations, (draws, rows), from what a fit predicts."""
    mean, spread, noise_variance = (
        predicted[name].values.reshape(-1, predicted.sizes["instance"])
        for name in ("mean", "latent_variance", "noise_variance")
    )
    repeats = max(10, 2000 // len(mean))
    draws = mean + np.sqrt(spread) * rng.normal(size=(repeats, *mean.shape))
    observed = draws + np.sqrt(noise_variance) * rng.normal(size=draws.shape)
    return draws.reshape(-1, mean.shape[1]), observed.reshape(-1, mean.shape[1])


def rejection(p_value: float) -> Intervals:
    """Return the interval that holds its truth if the test rejects."""
    outcome = 0.0 if p_value <= LEVEL else 1.0
    return Intervals(0.0, outcome, outcome)


def measure_level(seed: int, columns: int) -> dict[str, Intervals]:
    """Test whether two variables are independent that depend on the conditions by the same curve, and else not."""
    rng, key = np.random.default_rng([seed, columns]), jax.random.key(seed)
    z = rng.normal(size=(ROWS, columns))
    u = z.sum(axis=1) / max(1, columns) ** 0.5
    e, f = rng.normal(size=(2, ROWS))
    laws = {"line": (u + e, u + f), "sine": (np.sin(u) + 0.5 * e, np.sin(u) + 0.5 * f)} if columns else {"": (e, f)}
    found, given = {}, z if columns else None
    for law, (x, y) in laws.items():
        test = conditional_independence_test(key, x, y, given)
        found[": ".join(filter(None, ["of the laws", law]))] = rejection(test.p_value)
        mean = mean_independence_test(key, y, x[:, None], given)
        found[": ".join(filter(None, ["of the mean", law]))] = rejection(mean.p_value)
    return found


GRAPH = CausalDAG([("response", "marker"), ("weight", "marker")])
SLOPE, NOISE = 2.0, 0.5


def draw_marker(rng: np.random.Generator, num_rows: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return the features, the response, and its expectation given the features."""
    response, weight, noise = rng.normal(size=(3, num_rows))
    marker = response + SLOPE * weight + NOISE * noise
    features = pd.DataFrame({"marker": marker, "weight": weight})
    return features, response, (marker - SLOPE * weight) / (1 + NOISE**2)


def measure_gain(seed: int) -> dict[str, Intervals]:
    """Estimate how much a projection lowers the mean squared error, which many further rows show."""
    rng = np.random.default_rng(seed)
    (x, y, _), (further, _, _), (test, _, expected) = (draw_marker(rng, n) for n in (ROWS, 300, 5000))
    ridge = KernelRidge(kernel="rbf", gamma=0.2, alpha=0.5)
    model = ProjectedRegressor(ridge, collider=GRAPH, outcome="response", check=False, random_state=0)
    model.fit(x, y, further)
    assert model.gain_ is not None
    plain, projected = (np.mean((expected - one.predict(test)) ** 2) for one in (model.estimator_, model))
    return {"": Intervals(plain - projected, *model.gain_.interval)}


LABELED, UNLABELED, NEW, WAVES = 25, 200, 10, 300
LOGARITHMS, SPREAD = np.array([0.0, 0.0, -1.5]), 0.5
CORRELATION, LENGTHSCALE = 0.6, 1.5
PRIORS = [dist.LogNormal(location, SPREAD) for location in LOGARITHMS]
MODEL = ColliderRegression(
    RBF(PRIORS[0], variance=PRIORS[1]), RBF(LENGTHSCALE), PRIORS[2], 1e-3, children=(0,), spouses=(1,)
)
INFERENCES = {
    "nuts": kpp.NUTS(num_warmup=100, num_samples=100, num_chains=1, progress=False),
    "laplace": kpp.Laplace(num_samples=100, progress=False),
}


def draw_constrained(rng: np.random.Generator, lengthscale: float, variance: float, x: np.ndarray) -> np.ndarray:
    """Return a draw of the model's prior with the exact conditional expectation, by many random waves."""
    slopes = rng.normal(size=(WAVES, 2)) / [lengthscale, LENGTHSCALE]
    waves = Waves(slopes, rng.uniform(0, 2 * np.pi, WAVES))
    mean = np.stack([CORRELATION * x[:, 1], x[:, 1]], axis=1)
    spread = np.diag([1 - CORRELATION**2, 0.0])
    return np.sqrt(2 * variance / WAVES) * (waves(x) - waves.gaussian_mean(mean, spread))


def measure_collider(seed: int, inference: str) -> dict[str, Intervals]:
    """Draw hyperparameters, a function that obeys the constraint, and targets; fit the model of the same prior."""
    rng = np.random.default_rng(seed)
    lengthscale, variance, noise = np.exp(rng.normal(LOGARITHMS, SPREAD))
    x = rng.normal(size=(LABELED + UNLABELED + NEW, 2))
    x[:, 0] = CORRELATION * x[:, 1] + np.sqrt(1 - CORRELATION**2) * x[:, 0]
    function = draw_constrained(rng, lengthscale, variance, x)
    y = function + np.sqrt(noise) * rng.normal(size=len(x))
    fit = MODEL.fit(
        jax.random.key(seed),
        x[:LABELED],
        y[:LABELED],
        unlabeled=x[LABELED:-NEW],
        inference=INFERENCES[inference],
        num_prior_samples=0,
    )
    mean, observed = draws_of_predictions(fit.predict(x[-NEW:]), rng)
    return {"mean": ninety_percent(function[-NEW:], mean), "new observation": ninety_percent(y[-NEW:], observed)}


TESTS = "n normal conditions, and a line or a sine of their sum, to which each variable adds its own normal noise."
CURVES = (
    "these laws are easy ones. A faster wave of the sum of five columns, sin(2 u), is a curve that a hundred rows do "
    "not show: there both tests reject 12 to 15 of 100 true statements. Believe a rejection given many columns only "
    "if p is far below the level."
)
SIMULATIONS = {
    **{
        f"independence_given_{columns}": Simulation(
            f"Tests of a true independence given {columns} columns, the share that rejects",
            TESTS if columns else "two independent normal variables.",
            ROWS,
            functools.partial(measure_level, columns=columns),
            data_sets=400,
            nominal=LEVEL,
            known=CURVES if columns == 5 else "",
        )
        for columns in (0, 1, 2, 5)
    },
    "collider_gain": Simulation(
        "The gain of `ProjectedRegressor`, `gain_`",
        "a response and a weight that are normal and independent, and a marker that is their sum with noise; 300 rows "
        "without labels; a kernel ridge regression.",
        ROWS,
        measure_gain,
        nominal=0.95,
        known="the gain is that of fits to four fifths of the rows, a little less than that of the fit to all.",
    ),
    **{
        f"collider_{inference}": Simulation(
            f"ColliderRegression by `kpp.{words}`",
            "two correlated normal features, a function from the projected Gaussian process and normal noise, with "
            "hyperparameters from the model's own priors; 200 rows without labels; ten new rows.",
            LABELED,
            functools.partial(measure_collider, inference=inference),
        )
        for inference, words in {"nuts": "NUTS", "laplace": "Laplace"}.items()
    },
}
