"""Intervals of Shapley values of several outputs, and of the scores of several classes."""

from __future__ import annotations

import functools

import jax
import numpy as np
from numpyro import distributions as dist
from scipy.special import softmax

import kpp
from examples.coverage.functions import INFERENCES, NARROW, NOISE_PRIOR, SHARED, TRAINING, WORDS, draw_function
from examples.coverage.shapley import FUNCTION, ROWS, Question
from examples.coverage.shapley import MARGINAL as GAME
from examples.coverage.simulations import Intervals, Simulation, ninety_percent
from kpp.gp import CoregionalLikelihood, SoftmaxLikelihood
from kpp_models import MultiLatentGP

TITLE = "Several outputs and classes"
MODELS = {
    "values": MultiLatentGP(SHARED, CoregionalLikelihood(dist.Normal(0.0, 1.0).expand([2, 2]), NOISE_PRIOR)),
    "classes": MultiLatentGP(SHARED, SoftmaxLikelihood(classes=(0, 1, 2)), scale=2.0),
}


def measure(seed: int, rows: int, kind: str, inference: str) -> dict[str, Intervals]:
    """Draw functions at all points that the game reads, fit observations of them, and explain rows."""
    rng, key, question = np.random.default_rng(seed), jax.random.key(seed), Question(GAME)
    imputed = question.rows()
    kernel, noise = NARROW.draw(rng)
    points = np.concatenate([TRAINING[:rows], imputed.reshape(-1, 3)])
    if kind == "values":
        latent = draw_function(rng, kernel, points, (2,)).T @ rng.normal(size=(2, 2)).T
        y = latent[:rows] + np.exp(rng.normal(-1.5, 1.0) / 2) * rng.normal(size=(rows, 2))
    else:
        latent = 2.0 * draw_function(rng, kernel, points, (3,)).T
        y = np.zeros(rows)
        while len(set(y)) < 3:
            y = (softmax(latent[:rows], axis=1).cumsum(axis=1) < rng.uniform(size=(rows, 1))).sum(axis=1)
    fit = MODELS[kind].fit(key, TRAINING[:rows], y, inference=INFERENCES[inference], num_prior_samples=0)
    weights = question.weights(FUNCTION)
    truth = np.stack([question.truth(weights, part.reshape(imputed.shape[:-1])) for part in latent[rows:].T], axis=-1)
    explanation = kpp.explain(fit, ROWS, value_function=GAME, rng_key=key, progress=False)
    draws = explanation.values.values.reshape(-1, *truth.shape)
    return {
        "each output": Intervals(truth, *np.moveaxis(explanation.interval(0.9).values, -1, 0)),
        "the first less the second": ninety_percent(truth[..., 0] - truth[..., 1], draws[..., 0] - draws[..., 1]),
    }


def simulation(kind: str, about: str, inference: str, known: str = "") -> Simulation:
    """Return the simulation of a kind of observations by an inference."""
    law = (
        f"three correlated normal features, {about}, all from the model's own priors; five rows are explained over "
        "eight background rows."
    )
    measured = functools.partial(measure, rows=30, kind=kind, inference=inference)
    return Simulation(f"`kpp_models.MultiLatentGP`, {about}, by {WORDS[inference]}", law, 30, measured, 60, known=known)


ABOUT = {
    "values": "two outputs that are mixtures of two functions",
    "classes": "labels of three classes",
}
KNOWN = {
    "outputs_classes_laplace": "a normal approximation at the mode of the scores is wider than their posterior, "
    "because labels bound scores on one side only; prefer `kpp.NUTS`, whose intervals are half as wide."
}
INFERENCES_OF = {"values": ("nuts", "svi"), "classes": ("nuts", "laplace")}
SIMULATIONS = {
    f"outputs_{kind}_{name}": simulation(kind, ABOUT[kind], name, KNOWN.get(f"outputs_{kind}_{name}", ""))
    for kind, names in INFERENCES_OF.items()
    for name in names
}
