"""Standard errors of what is sampled: Shapley values, errors of value functions, and means over a Markov chain.

An interval is an estimate plus and minus 1.645 of its standard errors, which holds 90 % of a normal law.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro import distributions as dist
from scipy.special import logsumexp

import kpp
from examples.coverage.simulations import Intervals, Simulation
from kpp.causal import CausalDAG
from kpp.games import Causal, GaussianConditional, Interventional, Observational, value_error
from kpp.kernels import RBF
from kpp.storage.arviz_data import summary
from kpp_models import GPRegression
from kpp_surrogates import KernelSHAP, ShapleySampling

jax.config.update("jax_enable_x64", True)

TITLE = "Standard errors of sampled numbers"
QUANTILE = 1.6448536

Values = Callable[[np.ndarray], np.ndarray]


def around(truth: Any, estimate: Any, standard_error: Any) -> Intervals:
    """Return the 90 % intervals of normal estimates with their standard errors."""
    estimate, half = np.asarray(estimate), QUANTILE * np.asarray(standard_error)
    return Intervals(truth, estimate - half, estimate + half)


def shapley_values(worth: Values, num_players: int) -> np.ndarray:
    """Return the Shapley values of a game, (g, ...), from the values of all coalitions by their definition."""
    coalitions = np.array(list(itertools.product([False, True], repeat=num_players)))
    values = worth(coalitions)
    sizes = coalitions.sum(axis=1)
    found = []
    for player in range(num_players):
        without = np.flatnonzero(~coalitions[:, player])
        weights = 1 / (num_players * np.array([math.comb(num_players - 1, size) for size in sizes[without]]))
        gains = values[without + 2 ** (num_players - 1 - player)] - values[without]
        found.append(np.tensordot(weights, gains, axes=1))
    return np.array(found)


class Waves(NamedTuple):
    """A sum of cosines, each of a linear function of the features.

    Args:
        slopes: The linear functions, (k, d).
        phases: (k,).
    """

    slopes: np.ndarray
    phases: np.ndarray

    def __call__(self, x: Any) -> np.ndarray:
        """Return the sums at points, (..., d)."""
        return np.cos(np.asarray(x) @ self.slopes.T + self.phases).sum(axis=-1)

    def gaussian_mean(self, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """Return the expectations over Gaussians with means (p, d) and one covariance."""
        spread = np.einsum("kd,de,ke->k", self.slopes, covariance, self.slopes)
        return (np.exp(-spread / 2) * np.cos(mean @ self.slopes.T + self.phases)).sum(axis=-1)


PLAYERS, BACKGROUND, POINTS = 20, 20, 4


def draw_triples(seed: int) -> tuple[Waves, np.ndarray, np.ndarray, np.ndarray]:
    """Return a sum of functions of three features each, a background, points and the exact values of these."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(PLAYERS)
    triples = np.stack([order, np.roll(order, 1), np.roll(order, 3)], axis=1)
    slopes = np.zeros((PLAYERS, PLAYERS))
    slopes[np.arange(PLAYERS)[:, None], triples] = rng.normal(size=(PLAYERS, 3))
    waves = Waves(slopes, rng.uniform(0, 2 * np.pi, PLAYERS))
    background, x = rng.normal(size=(BACKGROUND, PLAYERS)), rng.normal(size=(POINTS, PLAYERS))
    truth = np.zeros((POINTS, PLAYERS))
    for row, phase in zip(slopes, waves.phases, strict=True):
        members = np.flatnonzero(row)
        term = Waves(row[None, members], np.array([phase]))

        def worth(coalitions: np.ndarray, term: Waves = term, members: np.ndarray = members) -> np.ndarray:
            rows = np.where(coalitions[:, None, None], x[None, :, None, members], background[None, None][..., members])
            return term(rows).mean(axis=2)

        truth[:, members] += shapley_values(worth, 3).T
    return waves, background, x, truth


def measure_explainer(
    seed: int, explainer: type[KernelSHAP | ShapleySampling], budgets: Mapping[str, dict[str, Any]]
) -> dict[str, Intervals]:
    """Explain a function of twenty features by sampled coalitions."""
    waves, background, x, truth = draw_triples(seed)
    found = {}
    for name, budget in budgets.items():
        explained = explainer(background, progress=False, **budget).explain(waves, x, rng_key=jax.random.key(seed))
        assert explained.standard_errors is not None
        found[name] = around(truth, explained.values.values, explained.standard_errors.values)
    return found


def measure_observational(seed: int) -> dict[str, Intervals]:
    """Sample the observational game of ten features, where its enumeration is the truth."""
    rng = np.random.default_rng(seed)
    background, x = rng.normal(size=(30, 10)), rng.normal(size=(2, 10))
    function = kpp.RKHSFunction(RBF(3.0), background, rng.normal(size=30))
    game = Observational(background)
    truth = shapley_values(lambda coalitions: np.asarray(game(function, x, coalitions)), 10).T
    found = {}
    for method in ("least-squares", "permutation"):
        estimate = kpp.games.estimate_shapley(
            game, function, x, method=method, num_coalitions=300, rng_key=jax.random.key(seed)
        )
        found[method] = around(truth, estimate.values, estimate.standard_errors)
    return found


CHAIN = CausalDAG([("x0", "x1"), ("x1", "x2"), ("x2", "x3")])


def conditional(covariance: np.ndarray, x: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means and covariance of centered Gaussian features given the present ones."""
    if mask.all():
        return x, np.zeros_like(covariance)
    cross = covariance[:, mask] @ np.linalg.inv(covariance[np.ix_(mask, mask)])
    return x[:, mask] @ cross.T, covariance - cross @ covariance[mask]


def intervened(covariance: np.ndarray, x: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means and covariance of centered Gaussian features in a chain after the present ones are set."""
    mean, spread = np.zeros_like(x), np.zeros_like(covariance)
    for j, present in enumerate(mask):
        if present:
            mean[:, j] = x[:, j]
            continue
        slope = covariance[j, j - 1] / covariance[j - 1, j - 1] if j else 0.0
        mean[:, j] = slope * mean[:, j - 1] if j else 0.0
        if j:
            spread[j, :j] = spread[:j, j] = slope * spread[j - 1, :j]
            spread[j, j] = slope**2 * spread[j - 1, j - 1]
        spread[j, j] += covariance[j, j] - (slope * covariance[j, j - 1] if j else 0.0)
    return mean, spread


def measure_drawn(seed: int) -> dict[str, Intervals]:
    """Explain by games that draw the absent features, of four features; enumerate their exact values."""
    rng = np.random.default_rng(seed)
    waves = Waves(rng.normal(size=(10, 4)), rng.uniform(0, 2 * np.pi, 10))
    background, x = np.cumsum(rng.normal(size=(50, 4)), axis=1), np.cumsum(rng.normal(size=(4, 4)), axis=1)
    center, covariance = background.mean(axis=0), np.cov(background.T, bias=True)
    games = {
        "Gaussian conditionals": (GaussianConditional(background, seed=seed), conditional),
        "after an intervention": (Causal(background, CHAIN, seed=seed), intervened),
    }
    found = {}
    for name, (game, law) in games.items():

        def worth(coalitions: np.ndarray, law: Any = law) -> np.ndarray:
            rows = []
            for mask in coalitions:
                mean, spread = law(covariance, x - center, mask)
                rows.append(waves.gaussian_mean(mean + center, spread))
            return np.array([np.full(len(x), waves(background).mean()), *rows[1:]])

        explained = KernelSHAP(background, value_function=game, progress=False).explain(waves, x)
        assert explained.standard_errors is not None
        found[name] = around(shapley_values(worth, 4).T, explained.values.values, explained.standard_errors.values)
    return found


COALITIONS, VALUED = 64, 100


def measure_value_error(seed: int) -> dict[str, Intervals]:
    """Estimate the mean squared error of the interventional values of a linear function of nine features."""
    rng = np.random.default_rng(seed)
    weights, root = rng.normal(size=9), rng.normal(size=(9, 9)) / 3
    background, x = rng.normal(size=(30, 9)), rng.normal(size=(VALUED, 9)) @ root.T
    found = value_error(
        Interventional(background),
        lambda rows: np.asarray(rows) @ weights,
        x,
        num_coalitions=COALITIONS,
        rng_key=jax.random.key(seed),
    )
    absent = ~np.array(list(itertools.product([False, True], repeat=9)))[1:-1] * weights
    errors = np.sum((absent @ root) ** 2, axis=1) + (absent @ background.mean(axis=0)) ** 2
    sizes = np.count_nonzero(absent, axis=1)
    by_size = [np.mean(errors[sizes == 9 - size]) for size in range(1, 9)]
    return {
        "all coalitions": around(errors.mean(), found["mean_squared_error"], found["standard_error"]),
        "by size": around(by_size, found["by_size"][1:-1], found["by_size_standard_error"][1:-1]),
    }


ROWS, SPREAD = 20, 0.5
LOGARITHMS = {"kernel.lengthscale": 0.0, "noise_variance": -1.5}
PRIORS = {name: dist.LogNormal(location, SPREAD) for name, location in LOGARITHMS.items()}
MODEL = GPRegression(RBF(PRIORS["kernel.lengthscale"]), noise_variance=PRIORS["noise_variance"])
CHAINS = kpp.NUTS(num_warmup=150, num_samples=200, num_chains=2, progress=False)


def posterior_means(x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return the posterior means of the two hyperparameters on a grid of their logarithms."""
    scores = np.linspace(-4.0, 4.0, 61)
    grid = np.stack(np.meshgrid(scores, scores, indexing="ij"), axis=-1).reshape(-1, 2)
    lengthscales, noises = np.exp(np.array(list(LOGARITHMS.values())) + SPREAD * grid).T
    squares = (x - x.T) ** 2
    grams = np.exp(-squares / (2 * lengthscales[:, None, None] ** 2)) + noises[:, None, None] * np.eye(len(x))
    fits = np.linalg.solve(grams, np.broadcast_to(y[:, None], (len(grams), len(y), 1)))[..., 0] @ y
    log_weights = -0.5 * (fits + np.linalg.slogdet(grams)[1] + np.sum(grid**2, axis=1))
    weights = np.exp(log_weights - logsumexp(log_weights))
    return dict(zip(LOGARITHMS, (float(weights @ lengthscales), float(weights @ noises)), strict=True))


def measure_chain(seed: int) -> dict[str, Intervals]:
    """Sample the posterior of two hyperparameters."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, 1))
    y = np.sin(2 * x[:, 0]) + 0.5 * rng.normal(size=ROWS)
    table = summary(MODEL.fit(jax.random.key(seed), x, y, inference=CHAINS, num_prior_samples=0).idata)
    return {
        name: around(mean, table["mean"][name], table["mcse_mean"][name])
        for name, mean in posterior_means(x, y).items()
    }


BUDGETS = {
    "256 coalitions": {"num_coalitions": 256},
    "1024 coalitions": {"num_coalitions": 1024},
    "`tolerance=0.05`": {"tolerance": 0.05},
}
FEW = {
    "128 coalitions": {"num_coalitions": 128, "design": "active"},
    "256 coalitions": {"num_coalitions": 256, "design": "active"},
    "`tolerance=0.02`": {"tolerance": 0.02, "design": "active"},
}
TRIPLES = "a sum of twenty waves of three features each, of twenty normal features; twenty background rows."
SIMULATIONS = {
    **{
        name: Simulation(
            about,
            TRIPLES,
            BACKGROUND,
            functools.partial(measure_explainer, explainer=explainer, budgets=BUDGETS),
            known=known,
        )
        for name, about, explainer, known in (
            ("sampling_kernel_shap", "KernelSHAP", KernelSHAP, ""),
            (
                "sampling_orders",
                "ShapleySampling",
                ShapleySampling,
                "256 coalitions of twenty features are six orders with their reverses, and a standard error of six "
                "numbers is itself uncertain (2.02 of them hold 90 %, not 1.645); take more coalitions, as the default "
                "does.",
            ),
        )
    },
    "sampling_active": Simulation(
        'KernelSHAP, `design="active"`',
        TRIPLES,
        BACKGROUND,
        functools.partial(measure_explainer, explainer=KernelSHAP, budgets=FEW),
        data_sets=50,
    ),
    "sampling_observational": Simulation(
        "Observational Shapley values by `estimate_shapley`, 300 of 1024 coalitions",
        "a function in an RKHS and ten normal features; the values of all coalitions are the truth.",
        30,
        measure_observational,
        data_sets=100,
    ),
    "sampling_draws": Simulation(
        "Games that draw absent features, all coalitions",
        "a sum of ten waves of four features in a chain, and the closed form of their expectations.",
        50,
        measure_drawn,
    ),
    "sampling_value_error": Simulation(
        "`kpp.games.value_error`, 64 of 510 coalitions",
        "a linear function of nine correlated normal features.",
        VALUED,
        measure_value_error,
    ),
    "sampling_chain": Simulation(
        "Means over the draws of `kpp.NUTS`, `mcse_mean` of a study's summary",
        "noise around a sine; a grid gives the posterior means of two hyperparameters.",
        ROWS,
        measure_chain,
        known="the error is itself estimated, from the autocorrelation of 200 draws of each of two chains; with few "
        "effective draws it is too small. Take more draws where a digit matters.",
    ),
}
