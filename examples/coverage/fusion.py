"""Intervals of effects from two data sets, and of the objective during a Bayesian optimization."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist
from scipy.special import logsumexp

import kpp
from examples.coverage.simulations import Intervals, Simulation, ninety_percent
from kpp.kernels import RBF, Constant
from kpp_models import (
    IMP,
    AbstractEffectModel,
    BayesIME,
    BayesIMP,
    CausalLink,
    InterventionData,
    contrast,
    off_policy_value,
)
from kpp_optimization import (
    AbstractObjectivePrior,
    Discrepancy,
    FitPrior,
    KernelPrior,
    LearningPrior,
    RefittedPrior,
    optimize,
    pseudo_evidence,
)

jax.config.update("jax_enable_x64", True)

TITLE = "Effects from two data sets, and Bayesian optimization"
ROWS = 60
PRIOR, NOISE = dist.LogNormal(0.0, 1.0), dist.LogNormal(-3.0, 1.5)


def model(kind: type[AbstractEffectModel], width: float | None = None) -> AbstractEffectModel:
    """Return a model with priors on all hyperparameters that can have one."""
    link = CausalLink(RBF(PRIOR), None, NOISE, adjustment="backdoor", adjusting_kernel=RBF(PRIOR), width=width)
    return kind(link, noise_variance=NOISE, amplitude=PRIOR)


INFERENCES = {
    "MAP": kpp.MAP(num_restarts=0, progress=False),
    "Laplace": kpp.Laplace(num_samples=100, num_restarts=0, progress=False),
}
TREATMENTS = np.linspace(-2.0, 2.0, 9)[:, None]


def measure_fusion(seed: int, model: AbstractEffectModel, inference: str) -> dict[str, Intervals]:
    """Estimate an effect through a mediator: D1 holds treatment, confounder and mediator, D2 mediator and target."""
    rng = np.random.default_rng(seed)
    shift, slope = rng.uniform(-1.0, 1.0, 2)
    z = rng.normal(size=(ROWS, 1))
    x = 0.7 * z + rng.normal(size=(ROWS, 1))
    y = np.sin(x + shift) - 0.5 * z + 0.2 * rng.normal(size=(ROWS, 1))
    mediators = rng.uniform(-2.0, 2.0, size=(40, 1))
    t = mediators[:, 0] ** 2 + slope * mediators[:, 0] + 0.2 * rng.normal(size=40)
    middle = np.sin(TREATMENTS[:, 0] + shift)
    truth = middle**2 + 0.5**2 + 0.2**2 + slope * middle
    data, center, unit = InterventionData.create(x, y, adjusting=z), t.mean(), t.std()
    fit = model.fit(
        jax.random.key(seed),
        data,
        (t - center) / unit,
        mediators=mediators,
        inference=INFERENCES[inference],
        num_prior_samples=0,
    )
    found = contrast(fit, TREATMENTS[-1:], TREATMENTS[:1])
    mean, variance = (found[name].to_numpy().ravel() for name in ("mean", "latent_variance"))
    effects = fit.sample_predictive(jax.random.key(seed), TREATMENTS, 1000)
    differences = mean + np.sqrt(variance) * rng.normal(size=(4000 // len(mean), len(mean)))
    return {
        "mean target": ninety_percent(truth, center + unit * effects.to_numpy()),
        "contrast of the outermost treatments": ninety_percent(truth[-1] - truth[0], unit * differences.ravel()),
    }


def measure_policies(seed: int) -> dict[str, Intervals]:
    """Estimate the values of policies that depend on a confounder, through a mediator, and their differences."""
    rng = np.random.default_rng(seed)
    shift, slope = rng.uniform(-1.0, 1.0, 2)

    def draw(size: int) -> tuple[np.ndarray, np.ndarray]:
        z = rng.normal(size=(size, 1))
        return z, 0.7 * z + rng.normal(size=(size, 1))

    def mediator(x: np.ndarray, z: np.ndarray) -> np.ndarray:
        return np.sin(x + shift) - 0.5 * z + 0.2 * rng.normal(size=x.shape)

    def policies(x: np.ndarray, z: np.ndarray) -> dict[str, np.ndarray]:
        return {
            "observed": x,
            "less": x - 0.5,
            "rule": np.where(z > 0, -0.5, x),
            "chance": np.stack([x - 0.5, x + 0.5]),
        }

    z, x = draw(ROWS)
    mediators = rng.uniform(-2.0, 2.0, size=(40, 1))
    t = mediators[:, 0] ** 2 + slope * mediators[:, 0] + 0.2 * rng.normal(size=40)
    center, unit = t.mean(), t.std()
    fit = model(BayesIMP, 3.0).fit(
        jax.random.key(seed),
        InterventionData.create(x, mediator(x, z), adjusting=z),
        (t - center) / unit,
        mediators=mediators,
        inference=INFERENCES["MAP"],
        num_prior_samples=0,
    )
    many_z, many_x = draw(200_000)
    truth = []
    for policy in policies(many_x, many_z).values():
        middle = mediator(policy, many_z)
        truth.append(np.mean(middle**2 + slope * middle))
    intervals = {}
    for name, reference in (("value of a policy", None), ("gain over the observed treatments", "observed")):
        found = off_policy_value(fit, policies(x, z), reference=reference).isel(chain=0, draw=0)
        mean, half = found["mean"].to_numpy(), 1.645 * np.sqrt(found["latent_variance"].to_numpy())
        start = 0 if reference is None else 1
        true = (np.array(truth) - (center if reference is None else truth[0]))[start:] / unit
        intervals[name] = Intervals(true, (mean - half)[start:], (mean + half)[start:])
    return intervals


CANDIDATES = np.linspace(-3.0, 3.0, 61)[:, None]
LENGTHSCALES = (0.3, 1.0, 3.0)


class Task(NamedTuple):
    """An objective at the candidates, and a prior for the search of its minimum."""

    objective: np.ndarray
    prior: AbstractObjectivePrior


def other_data(rng: np.random.Generator, learning: bool) -> Task:
    """Return an effect through a mediator, with a prior from other data, or one that learns with the queries."""
    shift, slope = rng.uniform(-np.pi, np.pi), rng.uniform(-1.0, 1.0)
    x = rng.normal(0.0, 1.5, (ROWS, 1))
    data = InterventionData.create(x, np.sin(x + shift) + 0.1 * rng.normal(size=(ROWS, 1)))
    mediators = rng.uniform(-2.0, 2.0, (40, 1))
    t = mediators[:, 0] ** 2 + slope * mediators[:, 0] + 0.1 * rng.normal(size=40)
    middle = np.sin(CANDIDATES[:, 0] + shift)
    objective = middle**2 + 0.01 + slope * middle
    lengthscales = LENGTHSCALES if learning else LENGTHSCALES[1:2]
    fits = [
        BayesIMP(CausalLink(RBF(0.8), RBF(lengthscale), noise_variance=0.02), noise_variance=0.01).fit(
            jax.random.key(0), data, t, mediators=mediators, inference=INFERENCES["MAP"], num_prior_samples=0
        )
        for lengthscale in lengthscales
    ]
    if not learning:
        return Task(objective, FitPrior(fits[0]))
    evidence = np.array([pseudo_evidence(fit) for fit in fits])
    prior = LearningPrior(
        [*(FitPrior(fit) for fit in fits), KernelPrior(Constant(t.var()), t.mean())],
        Discrepancy(t.std() * np.array([0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0])),
        log_weights=[*(np.log(0.9) + evidence - logsumexp(evidence)), np.log(0.1)],
    )
    return Task(objective, prior)


def no_data(rng: np.random.Generator, learning: bool) -> Task:
    """Return a draw from a Gaussian process of unknown lengthscale, with a prior that knows the queries only."""
    gram = np.asarray(RBF(np.exp(rng.uniform(np.log(0.3), np.log(3.0)))).gram(CANDIDATES))
    objective = np.linalg.cholesky(gram + 1e-9 * np.eye(len(gram))) @ rng.normal(size=len(gram))
    if learning:
        return Task(objective, LearningPrior([KernelPrior(Constant(1.0))], Discrepancy([0.3, 1.0, 3.0])))
    return Task(objective, RefittedPrior(np.geomspace(0.2, 3.0, 8)))


def measure_search(seed: int, task: Callable[..., Task], learning: bool) -> dict[str, Intervals]:
    """Search for the minimum, and return the intervals of the objective at candidates that were not queried."""
    objective, prior = task(np.random.default_rng(seed), learning)
    found = {}
    for queries in (3, 8):
        search = optimize(
            jax.random.key(seed),
            lambda point: objective[np.argmin(np.abs(CANDIDATES[:, 0] - point[0]))],
            CANDIDATES,
            prior,
            num_queries=queries,
        )
        new = np.setdiff1d(np.arange(len(CANDIDATES)), search.queries["candidate"])
        low, high = search.belief.interval(0.9)
        found[f"objective after {queries} queries"] = Intervals(objective[new], low[new], high[new])
    return found


FIXED = "the hyperparameters have one value, fixed or at their mode, so intervals are too narrow; use `LearningPrior`."
NARROW = (
    "functions of the mediator are assumed to vanish outside the `width` of the link. Its default, 1.5 root mean "
    "squares of the mediators, is too small here: effects are pulled to the mean target. Pass a larger one, as in "
    "`fusion_bayesimp_wide`."
)
FUSION = {
    "bayesimp_laplace": ("`BayesIMP` by `kpp.Laplace`", model(BayesIMP), "Laplace", NARROW),
    "bayesimp_map": ("`BayesIMP` by `kpp.MAP`", model(BayesIMP), "MAP", NARROW),
    "bayesimp_wide": (
        "`BayesIMP` with `width=3`, 3.3 root mean squares of the mediators, by `kpp.MAP`",
        model(BayesIMP, 3.0),
        "MAP",
        "where treatments are rare, effects are still pulled to the mean target.",
    ),
    "imp": ("`IMP` by `kpp.MAP`", model(IMP), "MAP", "the embedding counts as known; use `BayesIMP`."),
    "bayesime": ("`BayesIME` by `kpp.MAP`", model(BayesIME), "MAP", "the function counts as known; use `BayesIMP`."),
}
FEW = "after few queries the mixture still holds large discrepancies; intervals are too wide, and shrink with queries."
SEARCHES = {
    "fit": ("FitPrior", other_data, False, FIXED),
    "learning": ("LearningPrior", other_data, True, FEW),
    "refitted": ("RefittedPrior", no_data, False, FIXED),
    "learning_without_data": ("LearningPrior", no_data, True, ""),
}
LAWS = {
    other_data: "two data sets on the effect of a treatment through a mediator; the objective is the effect.",
    no_data: "the objective is drawn from a Gaussian process of unknown lengthscale; there are no other data.",
}
SIMULATIONS = {
    f"fusion_{name}": Simulation(
        words,
        "a data set of treatment, confounder and mediator, and one of 40 mediators and targets; nine treatments.",
        ROWS,
        functools.partial(measure_fusion, model=found, inference=inference),
        data_sets=100,
        known=known,
    )
    for name, (words, found, inference, known) in FUSION.items()
}
SIMULATIONS["fusion_policies"] = Simulation(
    "`off_policy_value` of `BayesIMP` with `width=3`, by `kpp.MAP`",
    "a data set of treatment, confounder and mediator, and one of 40 mediators and targets; four policies.",
    ROWS,
    measure_policies,
    data_sets=100,
)
SIMULATIONS |= {
    f"search_{name}": Simulation(
        f"`kpp_optimization.optimize` with `{prior}`",
        LAWS[task],
        ROWS if task is other_data else 0,
        functools.partial(measure_search, task=task, learning=learning),
        known=known,
    )
    for name, (prior, task, learning, known) in SEARCHES.items()
}
