"""Intervals of preferences: duels of unseen pairs, ranks of items, and Pref-SHAP values of duels."""

from __future__ import annotations

import functools
import itertools

import jax
import numpy as np
from numpyro import distributions as dist
from scipy.special import expit

import kpp
from examples.coverage.simulations import Intervals, Simulation
from kpp.kernels import RBF
from kpp.preferences import Rankings
from kpp_models import GPGP, PGP, RankingGP, duel, rank_items, sample_preferences
from kpp_pref_shap import PreferentialItems, PrefShap

jax.config.update("jax_enable_x64", True)

TITLE = "Preferences and rankings"
RNG = np.random.default_rng(0)
ITEMS = RNG.normal(size=(12, 2))
PAIRS = RNG.permutation(list(itertools.combinations(range(len(ITEMS)), 2)))
MATCHED, OTHER = np.repeat(PAIRS[:40], 2, axis=0), PAIRS[40:]
LOCATIONS, SPREAD = np.array([0.0, 1.0]), 0.5  # of the logarithms of lengthscale and variance
KERNEL = RBF(dist.LogNormal(LOCATIONS[0], SPREAD), variance=dist.LogNormal(LOCATIONS[1], SPREAD))
MODELS = {"gpgp": GPGP, "pgp": PGP}
INFERENCES = {
    "nuts": kpp.NUTS(num_warmup=150, num_samples=200, num_chains=1, progress=False),
    "laplace": kpp.Laplace(progress=False),
    "laplace_200": kpp.Laplace(num_samples=200, progress=False),
    "map": kpp.MAP(progress=False),
}
# The game of Pref-SHAP: duels of the last pairs, absent features from five items.
EXPLAINED, REFERENCES = OTHER[-2:], ITEMS[:5]
PREF_SHAP = PrefShap(PreferentialItems(REFERENCES, conditional="interventional"), progress=False)
TASTED = np.array([RNG.permutation(len(ITEMS))[:4] for _ in range(15)])
KNOWN = {
    "map": "Laplace's approximation of the latent preferences is too narrow, and the hyperparameters are fixed at one "
    "value; `kpp.Laplace` and `kpp.NUTS` draw both, and predictions warn.",
}
RANKS = (
    "a rank is a whole number, and its interval leaves out at most 5 % on either side, so that it holds more than 90 %."
)


def mixed_pairs() -> np.ndarray:
    """Return the pairs of the game's coalitions of one feature, (duels, 2 features, references^2, 2, d)."""
    pairs = np.empty((len(EXPLAINED), 2, len(REFERENCES) ** 2, 2, 2))
    for number, feature in itertools.product(range(len(EXPLAINED)), range(2)):
        sides = [np.array(REFERENCES) for _ in range(2)]
        for side, item in zip(sides, ITEMS[EXPLAINED[number]], strict=True):
            side[:, feature] = item[feature]
        pairs[number, feature] = [[a, b] for a in sides[0] for b in sides[1]]
    return pairs


MIXED = mixed_pairs()


def draw_function(rng: np.random.Generator, model: str, pairs: np.ndarray) -> np.ndarray:
    """Draw hyperparameters, and the values of a preference function at pairs."""
    lengthscale, variance = np.exp(rng.normal(LOCATIONS, SPREAD))
    gram = np.asarray(MODELS[model](RBF(lengthscale, variance=variance)).pair_kernel.gram(pairs))
    eigenvalues, vectors = np.linalg.eigh(gram)
    drawn: np.ndarray = vectors @ (np.sqrt(np.maximum(eigenvalues, 0.0)) * rng.normal(size=len(gram)))
    return drawn


def ranks(preferences: np.ndarray) -> np.ndarray:
    """Return the ranks of items by their mean preferences, from a skew-symmetric matrix."""
    return np.argsort(np.argsort(-preferences.sum(axis=1))) + 1


def fit_matches(seed: int, model: str, inference: str) -> tuple[kpp.Fit, np.ndarray, np.ndarray]:
    """Draw a preference function, and fit 80 matches of 40 pairs; return its values at pairs and at mixed pairs, too.

    The values at the mixed pairs are averaged over the references, (duels, 2 features).
    """
    rng = np.random.default_rng(seed)
    values = draw_function(rng, model, np.concatenate([ITEMS[PAIRS], MIXED.reshape(-1, 2, 2)]))
    at_pairs, mixed = values[: len(PAIRS)], values[len(PAIRS) :].reshape(MIXED.shape[:3]).mean(axis=2)
    won = (rng.uniform(size=len(MATCHED)) < np.repeat(expit(at_pairs[:40]), 2)).astype(float)
    options = {"inference": INFERENCES[inference], "num_prior_samples": 0}
    return MODELS[model](KERNEL).fit(jax.random.key(seed), ITEMS[MATCHED], won, **options), at_pairs, mixed


def measure_duels(seed: int, model: str, inference: str) -> dict[str, Intervals]:
    """Ask for the probabilities that one item beats another, of pairs without matches."""
    fit, preferences, _ = fit_matches(seed, model, inference)
    found = duel(fit, *ITEMS[OTHER].swapaxes(0, 1))
    return {"": Intervals(expit(preferences[40:]), found["lower"].values, found["upper"].values)}


def measure_ranks(seed: int, model: str, inference: str) -> dict[str, Intervals]:
    """Ask for the ranks of all items by their mean preferences."""
    fit, preferences, _ = fit_matches(seed, model, inference)
    matrix = np.zeros((len(ITEMS), len(ITEMS)))
    matrix[tuple(PAIRS.T)] = preferences
    found = rank_items(sample_preferences(fit, jax.random.key(seed), ITEMS, 200))
    return {"": Intervals(ranks(matrix - matrix.T), found.lower, found.upper)}


def measure_values(seed: int, model: str, inference: str) -> dict[str, Intervals]:
    """Ask for the Pref-SHAP values of two duels, which have a formula for two features."""
    fit, preferences, mixed = fit_matches(seed, model, inference)
    # Half of the value of the feature alone, and half of what it adds to the other one.
    shapley = 0.5 * (mixed + preferences[-2:, None] - mixed[:, ::-1])
    found = PREF_SHAP.explain(fit, ITEMS[EXPLAINED], rng_key=jax.random.key(seed)).interval(0.9)
    return {"": Intervals(shapley, found.sel(bound="lower").values, found.sel(bound="upper").values)}


def measure_rankings(seed: int) -> dict[str, Intervals]:
    """Draw a utility and the orders of four items each, and ask for the ranks of all items."""
    rng = np.random.default_rng(seed)
    lengthscale, variance = np.exp(rng.normal(LOCATIONS, SPREAD))
    gram = np.asarray(RBF(lengthscale, variance=variance)(ITEMS, ITEMS)) + 1e-8 * np.eye(len(ITEMS))
    utility = np.linalg.cholesky(gram) @ rng.normal(size=len(ITEMS))
    orders = [tasted[np.argsort(-(utility[tasted] + rng.gumbel(size=4)))] for tasted in TASTED]
    options = {"inference": INFERENCES["laplace_200"], "num_prior_samples": 0}
    fit = RankingGP(KERNEL).fit(jax.random.key(seed), Rankings.create(ITEMS, orders), **options)
    found = rank_items(sample_preferences(fit, jax.random.key(seed), ITEMS, 200))
    return {"": Intervals(ranks(utility[:, None] - utility[None, :]), found.lower, found.upper)}


LAW = (
    "items with two normal features, a function of the Gaussian process, and the winners of matches, with "
    "hyperparameters from the model's own priors; {}."
)
SIMULATIONS = {
    f"preference_{model}_{inference}": Simulation(
        f"{name}, duels of unseen pairs, by {words}",
        LAW.format("the 26 of the 66 pairs of 12 items that have no match"),
        len(MATCHED),
        functools.partial(measure_duels, model=model, inference=inference),
        data_sets=data_sets,
        known=KNOWN.get(inference, ""),
    )
    for model, name in {"gpgp": "GPGP", "pgp": "PGP"}.items()
    for inference, (words, data_sets) in {
        "nuts": ("`kpp.NUTS`", 100),
        "laplace": ("`kpp.Laplace`", 200),
        "laplace_200": ("`kpp.Laplace` with 200 draws", 200),
        "map": ("`kpp.MAP`", 200),
    }.items()
}
SIMULATIONS["preference_ranks"] = Simulation(
    "PGP, ranks of items, by `kpp.Laplace`",
    LAW.format("all 12 items"),
    len(MATCHED),
    functools.partial(measure_ranks, model="pgp", inference="laplace_200"),
    known=RANKS,
)
SIMULATIONS["ranking_ranks"] = Simulation(
    "RankingGP, ranks of items, by `kpp.Laplace`",
    "12 items with two normal features, a utility of the Gaussian process, and orders of four items each from the law "
    "of Plackett and Luce, with hyperparameters from the model's own priors.",
    len(TASTED),
    measure_rankings,
    known=RANKS,
)
SIMULATIONS["pref_shap"] = Simulation(
    "GPGP, Pref-SHAP values of duels, by `kpp.Laplace`",
    LAW.format("two duels of unseen pairs, interventional values with five reference items"),
    len(MATCHED),
    functools.partial(measure_values, model="gpgp", inference="laplace_200"),
    data_sets=100,
)
