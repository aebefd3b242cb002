"""Intervals of Shapley values of the posterior of a Gaussian process, and of mean absolute contributions."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from scipy.special import expit

import kpp
from examples.coverage.functions import (
    DENSE,
    INDUCING,
    INFERENCES,
    LABELS,
    LAWS,
    MAP_KNOWN,
    NARROW_GP,
    POINTS,
    SHARED,
    TRAINING,
    WIDE_GP,
    WITH_LINE,
    WORDS,
    draw,
)
from examples.coverage.simulations import Intervals, Simulation
from kpp.causal import CausalDAG
from kpp.games import AbstractImputation, Causal, Interventional, Observational
from kpp.inference import AbstractModel
from kpp.kernels import RBF
from kpp.plots import credible_interval
from kpp.plots.attributions.importance import mean_absolute
from kpp_models import GPClassification

TITLE = "Shapley values"
ROWS, BACKGROUND = POINTS[:5], POINTS[5:13]
GRAPH = CausalDAG([("x0", "x1"), ("x0", "x2"), ("x1", "x2")])
MASKS = np.array([[number >> j & 1 for j in range(3)] for number in range(8)], dtype=bool)
ORDERS = list(itertools.permutations(range(3)))
FUNCTION = kpp.RKHSFunction(RBF(1.0), BACKGROUND, np.zeros(len(BACKGROUND)))
MARGINAL, CAUSAL = Interventional(BACKGROUND), Causal(BACKGROUND, GRAPH)


@dataclasses.dataclass(frozen=True)
class Question:
    """What is explained.

    Args:
        game: The value of a coalition.
        orders: The orders in which features join, of which the Shapley value is the mean.
        options: Further options of `kpp.explain`.
        response: From the latent function to what is explained.
    """

    game: AbstractImputation
    orders: list[tuple[int, ...]] = dataclasses.field(default_factory=lambda: ORDERS)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    response: Callable[[np.ndarray], np.ndarray] = np.asarray

    def rows(self) -> np.ndarray:
        """Return the imputed rows of each coalition and point, (8, p, r, 3)."""
        rows = np.asarray(self.game.impute(FUNCTION, ROWS, MASKS))
        return np.broadcast_to(rows, (*self.weights(FUNCTION).shape, 3))

    def weights(self, function: kpp.RKHSFunction) -> np.ndarray:
        """Return the weights of the imputed rows, (8, p, r), of a game that may depend on the function's kernel."""
        return np.asarray(self.game.imputation_weights(function, ROWS, MASKS))

    def truth(self, weights: np.ndarray, latent: np.ndarray) -> np.ndarray:
        """Return the values by their definition, (p, 3), from the latent function at the imputed rows, (8, p, r)."""
        table, values = np.einsum("cpr,cpr->cp", weights, self.response(latent)), np.zeros((len(ROWS), 3))
        for order in self.orders:
            joined = 0
            for j in order:
                values[:, j] += table[joined | 1 << j] - table[joined]
                joined |= 1 << j
        return values / len(self.orders)


QUESTIONS = {"interventional": Question(MARGINAL), "observational": Question(Observational(BACKGROUND, 0.01))}
FIXED_KERNEL = QUESTIONS | {"observational": Question(Observational(BACKGROUND, 0.01, kernel=RBF(1.5)))}
CAUSAL_QUESTIONS = {
    "causal": Question(CAUSAL),
    "asymmetric": Question(MARGINAL, orders=[(0, 1, 2)], options={"order": GRAPH}),
}
PROBABILITY = {"interventional": Question(MARGINAL, options={"scale": "probability"}, response=expit)}


def observe(rng: np.random.Generator, law: str, latent: np.ndarray, noise: float) -> np.ndarray:
    """Draw observations of a function; labels are drawn until they differ."""
    if law != "labels":
        return latent + np.sqrt(noise) * rng.normal(size=len(latent))
    y = np.zeros(len(latent))
    while len(set(y)) == 1:
        y = (rng.uniform(size=len(latent)) < expit(latent)).astype(float)
    return y


def measure_values(
    seed: int, rows: int, law: str, model: AbstractModel, inference: str, questions: dict[str, Question]
) -> dict[str, Intervals]:
    """Draw a function at all points that the games read, fit observations of it, and explain rows."""
    rng, key, found = np.random.default_rng(seed), jax.random.key(seed), {}
    imputed = [question.rows() for question in questions.values()]
    points = np.concatenate([TRAINING[:rows], *(part.reshape(-1, 3) for part in imputed)])
    kernel, latent, noise = draw(rng, law, points)
    y = observe(rng, law, latent[:rows], noise)
    fit = model.fit(key, TRAINING[:rows], y, inference=INFERENCES[inference], num_prior_samples=0)
    ends = rows + np.cumsum([part[..., 0].size for part in imputed])
    for (name, question), part, values in zip(
        questions.items(), imputed, np.split(latent[rows:], ends[:-1] - rows), strict=True
    ):
        weights = question.weights(dataclasses.replace(FUNCTION, kernel=kernel))
        truth = question.truth(weights, values.reshape(part.shape[:-1]))
        options = {"value_function": question.game, "rng_key": key, "progress": False, **question.options}
        explanation = kpp.explain(fit, ROWS, **options)
        found[name] = Intervals(truth, *np.moveaxis(explanation.interval(0.9).values, -1, 0))
        if name == "interventional":
            found |= importance(truth, explanation)
    return found


def importance(truth: np.ndarray, explanation: kpp.Explanation) -> dict[str, Intervals]:
    """Return the intervals of mean absolute contributions, as the bars of reports and plots have them."""
    truth = abs(truth).mean(axis=0)
    bounds = credible_interval(mean_absolute(explanation.values), 0.9).values
    ineffective = truth < 1e-12
    parts = {"": ~ineffective, " without any effect": ineffective}
    return {
        f"mean absolute contribution{words}": Intervals(truth[part], *bounds[part].T)
        for words, part in parts.items()
        if part.any()
    }


INDUCING_LABELS = GPClassification(SHARED, latent="inducing", num_inducing=30)


def simulation(
    about: str,
    law: str,
    rows: int,
    model: AbstractModel,
    inference: str,
    questions: dict[str, Question] = QUESTIONS,
    known: str = "",
) -> Simulation:
    """Return the simulation of a law, a model and an inference."""
    options: dict[str, Any] = {"rows": rows, "law": law, "model": model, "inference": inference, "questions": questions}
    sentence = f"{LAWS[law]}; five rows are explained over eight background rows."
    measured = functools.partial(measure_values, **options)
    return Simulation(f"{about} by {WORDS[inference]}", sentence, rows, measured, 100, known=known)


KNOWN = {"map": MAP_KNOWN}
LAPLACE = (
    "under wide priors the posterior of the hyperparameters is not normal, and often has several modes, of which the "
    "approximation keeps one (kpp warns); prefer `kpp.NUTS`, whose row holds more."
)
WIDE_KNOWN = {"map": f"{MAP_KNOWN[:-1]}, the latter better under wide priors.", "laplace": LAPLACE}
NO_EFFECT = (
    "the third feature has no effect. The intervals of its contributions hold 0 more often, because the prior draws "
    "them towards 0."
)
STEP = f"functions of an RBF kernel are smooth, so intervals near the step are too narrow. Besides, {NO_EFFECT}"
FIXED_HYPERPARAMETERS = "the hyperparameters are fixed, which the label of the result says."
INDUCED = (
    "the hyperparameters are fixed, and 30 inducing points do not represent functions of short lengthscales: take more "
    "points, or an exact model by `kpp.NUTS` for few rows."
)
PROBABILITIES = (
    "contributions to a probability have no Gaussian law, so their intervals hold the uncertainty of the "
    "hyperparameters only, as the attribute `uncertainty` says; explain the log-odds, the default."
)
REGRESSION, WIDE_REGRESSION = "GPRegression", "GPRegression, wide priors,"
SIMULATIONS = {
    **{
        f"shapley_{name}": simulation(REGRESSION, "narrow", 20, NARROW_GP, name, known=KNOWN.get(name, ""))
        for name in DENSE
    },
    **{
        f"shapley_causal_{name}": simulation(
            REGRESSION, "narrow", 20, NARROW_GP, name, CAUSAL_QUESTIONS, KNOWN.get(name, "")
        )
        for name in DENSE
    },
    **{
        f"shapley_{size}_{name}": simulation(
            f"{WIDE_REGRESSION} {rows} rows,", "wide", rows, WIDE_GP, name, known=WIDE_KNOWN.get(name, "")
        )
        for size, rows in {"wide": 20, "many": 80}.items()
        for name in DENSE
    },
    **{
        f"shapley_line_{name}": simulation("GPRegression with `LinearMean`", "line", 20, WITH_LINE, name)
        for name in ("nuts", "laplace")
    },
    "shapley_natural_gradient": simulation(
        "30 inducing points", "wide", 80, INDUCING, "natural_gradient", known=INDUCED
    ),
    "shapley_sines_few": simulation(
        "GPRegression, sines, 20 rows,", "sines", 20, WIDE_GP, "laplace", FIXED_KERNEL, NO_EFFECT
    ),
    "shapley_sines": simulation(
        "GPRegression, sines, 80 rows,", "sines", 80, WIDE_GP, "laplace", FIXED_KERNEL, NO_EFFECT
    ),
    "shapley_step": simulation("GPRegression, a step,", "step", 80, WIDE_GP, "laplace", FIXED_KERNEL, STEP),
    **{
        f"shapley_labels_{name}": simulation("GPClassification", "labels", 20, LABELS, name, known=KNOWN.get(name, ""))
        for name in DENSE
    },
    "shapley_labels_many": simulation("GPClassification, 80 rows,", "labels", 80, LABELS, "laplace"),
    "shapley_labels_natural_gradient": simulation(
        "GPClassification, 30 inducing points,",
        "labels",
        80,
        INDUCING_LABELS,
        "natural_gradient",
        known=FIXED_HYPERPARAMETERS,
    ),
    "shapley_labels_probability": simulation(
        'GPClassification, `scale="probability"`,', "labels", 80, LABELS, "laplace", PROBABILITY, PROBABILITIES
    ),
}
