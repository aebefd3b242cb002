"""Intervals of predictions: of the mean at new rows, and of new observations."""

from __future__ import annotations

import functools

import jax
import numpy as np
import xarray as xr
from numpyro import distributions as dist

import kpp
from examples.coverage.simulations import Intervals, Simulation, ninety_percent
from kpp.kernels import RBF
from kpp_models import GPRegression

jax.config.update("jax_enable_x64", True)

TITLE = "Predictions"
X = np.random.default_rng(0).normal(size=(30, 2))
TRAINING = 20
LOGARITHMS, SPREAD = np.array([0.3, 0.0, -1.5]), 0.5
INFERENCES = {
    "nuts": kpp.NUTS(num_warmup=150, num_samples=200, num_chains=1, progress=False),
    "laplace": kpp.Laplace(num_samples=200, progress=False),
    "map": kpp.MAP(progress=False),
}
MAP = "the hyperparameters are fixed at one value, so intervals are too narrow; `kpp.Laplace` and `kpp.NUTS` draw them."


def draws_of_predictions(predicted: xr.Dataset, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return draws of the mean at new rows and of new observations, (draws, rows), from what a fit predicts."""
    mean, spread, noise_variance = (
        predicted[name].values.reshape(-1, predicted.sizes["instance"])
        for name in ("mean", "latent_variance", "noise_variance")
    )
    # Ten values of each draw, or 2000 of the only draw of MAP.
    repeats = max(10, 2000 // len(mean))
    draws = mean + np.sqrt(spread) * rng.normal(size=(repeats, *mean.shape))
    observed = draws + np.sqrt(noise_variance) * rng.normal(size=draws.shape)
    return draws.reshape(-1, mean.shape[1]), observed.reshape(-1, mean.shape[1])


def measure_regression(seed: int, inference: str) -> dict[str, Intervals]:
    """Draw hyperparameters, a function and targets, and fit a Gaussian process with the same prior."""
    rng = np.random.default_rng(seed)
    lengthscale, variance, noise = np.exp(rng.normal(LOGARITHMS, SPREAD))
    gram = np.asarray(RBF(lengthscale, variance=variance)(X, X)) + 1e-8 * np.eye(len(X))
    function = np.linalg.cholesky(gram) @ rng.normal(size=len(X))
    y = function + np.sqrt(noise) * rng.normal(size=len(X))
    priors = [dist.LogNormal(location, SPREAD) for location in LOGARITHMS]
    model = GPRegression(RBF(priors[0], variance=priors[1]), noise_variance=priors[2])
    fit = model.fit(
        jax.random.key(seed), X[:TRAINING], y[:TRAINING], inference=INFERENCES[inference], num_prior_samples=0
    )
    mean, observed = draws_of_predictions(fit.predict(X[TRAINING:]), rng)
    return {
        "mean": ninety_percent(function[TRAINING:], mean),
        "new observation": ninety_percent(y[TRAINING:], observed),
    }


SIMULATIONS = {
    f"prediction_{inference}": Simulation(
        f"GPRegression by `kpp.{words}`",
        "two normal features, a function from the Gaussian process and normal noise, with hyperparameters from the "
        "model's own priors; ten new rows.",
        TRAINING,
        functools.partial(measure_regression, inference=inference),
        known=MAP if inference == "map" else "",
    )
    for inference, words in {"nuts": "NUTS", "laplace": "Laplace", "map": "MAP"}.items()
}
