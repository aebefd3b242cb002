"""Intervals of Sobol indices and Shapley effects of the variance of a function."""

from __future__ import annotations

import functools
import itertools

import jax
import numpy as np

import kpp
from examples.coverage.functions import INFERENCES, LAWS, NARROW_GP, POINTS, TRAINING, WORDS, draw
from examples.coverage.simulations import NUM_RANKS, Intervals, Simulation, ninety_percent

TITLE = "Sensitivity indices"
BACKGROUND = POINTS[8:13]
# All combinations of the columns, an axis for each feature.
GRID = np.stack(np.meshgrid(*BACKGROUND.T, indexing="ij"), axis=-1)
# Half of the default of 200 for the second inference: the ranks need no more than 99.
NUM_DRAWS = {"laplace": 200, "nuts": 100}
MEASURES = {"first_order": "first-order indices", "total": "total indices", "shapley": "Shapley effects"}


def indices(values: np.ndarray) -> dict[str, np.ndarray]:
    """Return the shares of the variance of values on the grid by their definition, with averages over all orders."""

    def variance(kept: set[int]) -> float:
        return float(values.mean(axis=tuple(axis for axis in range(3) if axis not in kept)).var())

    everyone, shapley = {0, 1, 2}, np.zeros(3)
    for order in itertools.permutations(range(3)):
        for step, player in enumerate(order):
            shapley[player] += (variance(set(order[: step + 1])) - variance(set(order[:step]))) / 6
    first = np.array([variance({j}) for j in range(3)])
    total = variance(everyone) - np.array([variance(everyone - {j}) for j in range(3)])
    return {name: value / values.var() for name, value in zip(MEASURES, (first, total, shapley), strict=True)}


def measure_indices(seed: int, rows: int, law: str, inference: str) -> dict[str, Intervals]:
    """Draw a function at rows and at the grid, fit observations of it, and compute its indices."""
    rng, key = np.random.default_rng(seed), jax.random.key(seed)
    _, values, noise = draw(rng, law, np.concatenate([TRAINING[:rows], GRID.reshape(-1, 3)]))
    truth = indices(values[rows:].reshape(GRID.shape[:-1]))
    y = values[:rows] + np.sqrt(noise) * rng.normal(size=rows)
    fit = NARROW_GP.fit(key, TRAINING[:rows], y, inference=INFERENCES[inference], num_prior_samples=0)
    scores = kpp.sensitivity(fit, BACKGROUND, num_draws=NUM_DRAWS[inference], rng_key=key, progress=False)
    return {words: ranked(truth[name], scores[name].to_numpy()[0]) for name, words in MEASURES.items()}


def ranked(truth: np.ndarray, draws: np.ndarray) -> Intervals:
    """Return the 90 % intervals of draws, of which some at even steps rank the truth."""
    steps = np.linspace(0, len(draws) - 1, NUM_RANKS).round().astype(int)
    return ninety_percent(truth, draws)._replace(draws=draws[steps])


SIMULATIONS = {
    f"sensitivity_{inference}": Simulation(
        f"`kpp.sensitivity` of GPRegression by {WORDS[inference]}, shares, {NUM_DRAWS[inference]} draws",
        f"{LAWS['narrow']}; indices over the columns of five rows.",
        40,
        functools.partial(measure_indices, rows=40, law="narrow", inference=inference),
        150,
    )
    for inference in NUM_DRAWS
}
