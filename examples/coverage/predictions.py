"""Intervals of predictions: of the function at new rows, in the unit of the observations, and of new observations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from scipy.special import expit, softmax

import kpp
from examples.coverage.functions import (
    DENSE,
    INDUCING,
    INFERENCES,
    KERNEL,
    LABELS,
    LAWS,
    MAP_KNOWN,
    NARROW,
    NARROW_GP,
    NOISE_PRIOR,
    POINTS,
    SHARED,
    TRAINING,
    WIDE_GP,
    WORDS,
    draw,
    draw_function,
)
from examples.coverage.simulations import Intervals, Simulation, ninety_percent
from kpp.features import RandomFourier
from kpp.gp import OrdinalLikelihood, PoissonLikelihood, SoftmaxLikelihood
from kpp.inference import AbstractInference, AbstractModel
from kpp.kernels import RBF
from kpp_models import GeneralizedGP, GPClassification, GPRegression, KernelRidge, MultiLatentGP
from kpp_models.estimators import GPRegressor

TITLE = "Predictions"
NEW, DRAWS = POINTS[:10], 1000
CUTPOINTS = np.array([-0.7, 0.7])

Fitter = Callable[[int, np.ndarray, np.ndarray], kpp.Fit]


def fit_model(seed: int, x: np.ndarray, y: np.ndarray, model: AbstractModel, inference: AbstractInference) -> kpp.Fit:
    """Fit a model."""
    return model.fit(jax.random.key(seed), x, y, inference=inference, num_prior_samples=0)


def fit_regressor(seed: int, x: np.ndarray, y: np.ndarray) -> kpp.Fit:
    """Fit `GPRegressor` with its defaults."""
    return GPRegressor(random_state=seed).fit(x, y).fit_


def fit_ridge(seed: int, x: np.ndarray, y: np.ndarray) -> kpp.Fit:
    """Fit `KernelRidge` with the lengthscale and the regularization that leave-one-out chooses."""
    grid = {"regularization": np.logspace(-4, 0, 5), "kernel.lengthscale": [0.5, 1.0, 2.0]}
    return fit_model(seed, x, y, RIDGE.select(x, y, grid=grid).model, INFERENCES["map"])


def draw_latent(fit: kpp.Fit, rng: np.random.Generator) -> np.ndarray:
    """Draw the latent functions at each new row, (draws, rows) or (draws, rows, functions)."""
    predicted = fit.predict(NEW)
    center, variance = (predicted[name].values for name in ("mean", "latent_variance"))
    shape = center.shape[2:]
    center, variance = center.reshape(-1, *shape), variance.reshape(-1, *shape)
    repeats = -(-2 * DRAWS // len(center))
    return (center + np.sqrt(variance) * rng.normal(size=(repeats, *center.shape))).reshape(-1, *shape)


def new_observations(fit: kpp.Fit, seed: int) -> np.ndarray:
    """Draw observations of the new rows, (draws, rows)."""
    return fit.sample_predictive(jax.random.key(seed), NEW, DRAWS).values


def measure_numbers(seed: int, rows: int, law: str, fitter: Fitter) -> dict[str, Intervals]:
    """Fit numbers with normal noise; return the intervals of the function, if there are any, and of observations."""
    rng = np.random.default_rng(seed)
    _, function, noise = draw(rng, law, np.concatenate([NEW, TRAINING[:rows]]))
    y = function + np.sqrt(noise) * rng.normal(size=len(function))
    fit = fitter(seed, TRAINING[:rows], y[len(NEW) :])
    found = {"new observation": ninety_percent(y[: len(NEW)], new_observations(fit, seed))}
    if isinstance(fit.model, KernelRidge):
        return found
    return {"mean": ninety_percent(function[: len(NEW)], draw_latent(fit, rng))} | found


class Observed(NamedTuple):
    """Observations of latent functions that are not numbers with noise.

    Args:
        quantity: The name of what `response` returns.
        response: From values of the latent functions, (..., points, functions), to the quantity.
        draw: Draws observations given the quantity.
        model: The model with this law.
        num_functions: The number of latent functions.
        mean: Their prior mean.
    """

    quantity: str
    response: Callable[[np.ndarray], np.ndarray]
    draw: Callable[[np.random.Generator, np.ndarray], np.ndarray]
    model: AbstractModel
    num_functions: int = 1
    mean: float = 0.0


def measure_observed(seed: int, rows: int, observed: Observed, inference: str) -> dict[str, Intervals]:
    """Fit labels, classes, counts or levels; return the intervals of their probabilities or rates, and of counts."""
    rng = np.random.default_rng(seed)
    kernel, _ = NARROW.draw(rng)
    latent = draw_function(rng, kernel, np.concatenate([NEW, TRAINING[:rows]]), (observed.num_functions,))
    truth = observed.response(observed.mean + latent.T)
    y = observed.draw(rng, truth)
    while len(set(y[len(NEW) :])) == 1:  # labels must differ
        y = observed.draw(rng, truth)
    fit = fit_model(seed, TRAINING[:rows], y[len(NEW) :], observed.model, INFERENCES[inference])
    draws = draw_latent(fit, rng)
    draws = observed.response(draws.reshape(len(draws), len(NEW), -1))
    found = {observed.quantity: ninety_percent(truth[: len(NEW)], draws)}
    if observed.quantity == "rate":
        found["new count"] = ninety_percent(y[: len(NEW)], new_observations(fit, seed))
    return found


def draw_category(rng: np.random.Generator, probability: np.ndarray) -> np.ndarray:
    """Draw a category for each row of probabilities, (rows, categories)."""
    return (probability.cumsum(axis=1)[:, :-1] < rng.uniform(size=(len(probability), 1))).sum(axis=1)


def level_probabilities(latent: np.ndarray) -> np.ndarray:
    """Return the probabilities of three levels."""
    return np.diff(expit(CUTPOINTS - latent), prepend=0.0, append=1.0)


RIDGE = KernelRidge(RBF(1.0), regularization=0.01)
FEATURES = GPRegression(RandomFourier.approximate(jax.random.key(0), KERNEL, 60, 3), NOISE_PRIOR)
LABEL = Observed(
    "probability",
    lambda latent: expit(latent[..., 0]),
    lambda rng, probability: (rng.uniform(size=len(probability)) < probability).astype(int),
    LABELS,
)
CLASSES = Observed(
    "probability of each class",
    lambda latent: softmax(latent, axis=-1),
    draw_category,
    MultiLatentGP(SHARED, SoftmaxLikelihood(classes=(0, 1, 2))),
    num_functions=3,
)
COUNTS = Observed(
    "rate",
    lambda latent: np.exp(latent[..., 0]),
    lambda rng, rate: rng.poisson(rate),
    GeneralizedGP(SHARED, PoissonLikelihood(), mean=1.0),
    mean=1.0,
)
LEVELS = Observed(
    "probability of each level",
    level_probabilities,
    draw_category,
    GeneralizedGP(SHARED, OrdinalLikelihood(first_cutpoint=CUTPOINTS[0], gaps=np.diff(CUTPOINTS))),
)

NEW_ROWS = "ten new rows are predicted."


def by(model: AbstractModel, inference: str) -> Fitter:
    """Return the fit of a model by an inference."""
    return functools.partial(fit_model, model=model, inference=INFERENCES[inference])


def of_numbers(about: str, law: str, rows: int, fitter: Fitter, known: str = "") -> Simulation:
    """Return the simulation of a law of numbers."""
    measured = functools.partial(measure_numbers, rows=rows, law=law, fitter=fitter)
    return Simulation(about, f"{LAWS[law]}; {NEW_ROWS}", rows, measured, known=known)


def of_dense(about: str, law: str, model: AbstractModel, inference: str) -> Simulation:
    """Return the simulation of 20 rows of numbers."""
    known = MAP_KNOWN if inference == "map" else ""
    return of_numbers(f"{about} by {WORDS[inference]}", law, 20, by(model, inference), known)


def of_observed(about: str, what: str, observed: Observed, inference: str, known: str = "") -> Simulation:
    """Return the simulation of observations that are not numbers with noise."""
    law = LAWS["labels"].replace("labels whose log-odds come", what)
    measured = functools.partial(measure_observed, rows=80, observed=observed, inference=inference)
    return Simulation(f"{about} by {WORDS[inference]}", f"{law}; {NEW_ROWS}", 80, measured, known=known)


LAPLACE = by(WIDE_GP, "laplace")
STEP = (
    "functions of an RBF kernel are smooth, so intervals of the mean near the step are too narrow; the noise "
    "variance is estimated to be larger, so those of new observations hold."
)
RANK = (
    "functions of short lengthscales need more inducing points or random features: with 80 rows, take the exact model."
)
COUNTED = (
    "intervals of counts end at whole numbers, so they hold at least their nominal share, and more of small counts."
)
REGRESSOR = "its default is `kpp.MAP`, which fixes the hyperparameters at one value; give `inference=kpp.Laplace()`."
SIMULATIONS = {
    **{f"prediction_{name}": of_dense("GPRegression", "narrow", NARROW_GP, name) for name in DENSE},
    **{f"prediction_wide_{name}": of_dense("GPRegression, wide priors,", "wide", WIDE_GP, name) for name in DENSE},
    "prediction_many": of_numbers("GPRegression, wide priors, 80 rows, by `kpp.Laplace`", "wide", 80, LAPLACE),
    "prediction_sines": of_numbers("GPRegression by `kpp.Laplace`, smooth function", "sines", 80, LAPLACE),
    "prediction_step": of_numbers("GPRegression by `kpp.Laplace`, step", "step", 80, LAPLACE, STEP),
    "prediction_regressor": of_numbers("`GPRegressor` with its defaults", "sines", 80, fit_regressor, REGRESSOR),
    "prediction_ridge": of_numbers("`KernelRidge` with `select`", "sines", 80, fit_ridge),
    "prediction_svi": of_numbers("30 inducing points by `kpp.SVI`", "wide", 80, by(INDUCING, "svi"), RANK),
    "prediction_natural_gradient": of_numbers(
        "30 inducing points by `kpp.NaturalGradient`", "wide", 80, by(INDUCING, "natural_gradient"), RANK
    ),
    "prediction_features": of_numbers(
        "120 random Fourier features by `kpp.Laplace`", "wide", 80, by(FEATURES, "laplace"), RANK
    ),
    "prediction_labels_laplace": of_observed("GPClassification", "labels whose log-odds come", LABEL, "laplace"),
    "prediction_labels_nuts": of_observed(
        'GPClassification, `latent="sample"`,',
        "labels whose log-odds come",
        LABEL._replace(model=GPClassification(SHARED, latent="sample")),
        "nuts",
    ),
    "prediction_classes": of_observed("Three classes", "labels of three classes whose scores come", CLASSES, "nuts"),
    "prediction_counts": of_observed("Counts", "counts whose log-rates minus 1 come", COUNTS, "laplace", COUNTED),
    "prediction_levels": of_observed("Levels", "three levels in an order whose latent values come", LEVELS, "laplace"),
}
