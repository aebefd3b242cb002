"""Find the lengthscales of tens of thousands of matches by themselves: the evidence of a few hundred, then all matches.

Run it as `python examples/reproduce/preference_lengthscales.py [--quick] [--subset 600]`.

There are 800 items with six statistics and one of 18 types, and 40,000 battles. The first statistic, speed, decides
most battles; two others help a little, the rest do nothing, and each type is strong against four others, in a cycle. A
model with one lengthscale for all statistics does not see this. `kpp_models.GPGP` with a prior for each lengthscale,
fitted to a subset of the matches by `kpp.MAP`, maximizes the evidence, and so decides which features matter. Its
lengthscales go into `kpp_models.PreferenceLogistic` with 200 landmarks, which is fitted to all matches, with the
regularization chosen by `select`.

Accuracy and log loss (in nats per match) are measured on a fifth of the matches, which are held out; those of the true
preferences are the best possible.
"""

from __future__ import annotations

import argparse
import logging
import time

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from preference_games import decide, draw_pairs
from scipy.special import expit

import kpp
from kpp.features import Nystrom
from kpp.kernels import RBF, AbstractKernel, Categorical, GeneralizedPreferential
from kpp.preferences import Matches
from kpp_models import GPGP, PreferenceLogistic

STATISTICS, TYPE, NUM_TYPES = (0, 1, 2, 3, 4, 5), 6, 18
LANDMARKS = 200


def battle_odds(items: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the log-odds that the first item wins: speed, two weak statistics, and the cycle of types."""
    step = (items[second, TYPE] - items[first, TYPE]) % NUM_TYPES
    strong = ((step >= 1) & (step <= 4)).astype(float) - (step >= NUM_TYPES - 4)
    return (items[first] - items[second])[:, :6] @ np.array([7.5, 0.5, 0.5, 0, 0, 0]) + 2.5 * strong


def draw(rng: np.random.Generator, num_items: int, num_matches: int) -> Matches:
    """Draw items and battles."""
    items = np.column_stack([rng.normal(size=(num_items, 6)), rng.integers(NUM_TYPES, size=num_items)])
    first, second = draw_pairs(rng, num_items, num_matches)
    played, _ = decide(rng, first, second, battle_odds(items, first, second))
    return Matches.create(items, played["winner"].to_numpy(), played["loser"].to_numpy())


def item_kernel(lengthscales: object, constant: float, correlation: object = 0.0) -> AbstractKernel:
    """Return the kernel of items: the statistics times the types, and a constant that adds a utility."""
    types = Categorical(correlation).on(TYPE)
    return RBF(lengthscales).on(STATISTICS) * types + constant


def machine(lengthscales: np.ndarray, constant: float, correlation: float, landmarks: np.ndarray) -> PreferenceLogistic:
    """Return the model of all matches."""
    kernel = item_kernel(jnp.asarray(lengthscales), constant, correlation)
    return PreferenceLogistic(GeneralizedPreferential(Nystrom(kernel, landmarks)), 1e-4)


def by_evidence(train: Matches, size: int) -> tuple[np.ndarray, float, float]:
    """Return lengthscales, relative constant and correlation of types that maximize the evidence of a subset."""
    few, _ = train.split(jax.random.key(1), size / train.num_matches)
    lengthscale = dist.LogNormal(0.5 * np.log(6.0), 1.0).expand([6]).to_event(1)
    kernel = dist.HalfNormal(10.0) * (
        RBF(lengthscale).on(STATISTICS) * Categorical(dist.Uniform(0.0, 1.0)).on(TYPE) + dist.HalfNormal(1.0)
    )
    search = kpp.MAP(num_restarts=0, progress=False)
    fit = GPGP(kernel).fit(jax.random.key(2), few, inference=search, num_prior_samples=0)
    found = {name.rpartition(".")[2]: np.asarray(value)[0, 0] for name, value in fit.draws.items()}
    constant = np.asarray(fit.draws["kernel.kernel.kernels.1.variance"])[0, 0]
    return found["lengthscale"], float(constant), float(found["correlation"])


def scores(probability: np.ndarray, y: np.ndarray) -> str:
    """Return accuracy and log loss as text."""
    loss = -np.mean(np.log(np.clip(np.where(y == 1, probability, 1 - probability), 1e-12, 1)))
    return f"{((probability > 0.5) == y).mean():>9.3f}{loss:>10.3f}"


def report(name: str, model: PreferenceLogistic, train: Matches, test: Matches, start: float) -> None:
    """Choose the regularization, fit to all matches, and print the scores."""
    chosen = model.select(jax.random.key(3), train, grid={"regularization": [1e-4, 1e-5]}).model
    fit = chosen.fit(jax.random.key(3), train, num_prior_samples=0)
    rows, y = test.single_matches()
    probability = fit.predict(test)["probability"].values[0, 0][rows]
    print(f"{name:<44}{scores(probability, y)}{time.perf_counter() - start:>8.0f} s", flush=True)


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="60 items, 1500 matches, a subset of 100")
    parser.add_argument("--subset", type=int, default=600, help="matches whose evidence is maximized")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    logging.getLogger("kpp").setLevel(logging.ERROR)
    num_items, num_matches, subset = (60, 1500, 100) if arguments.quick else (800, 40_000, arguments.subset)
    rng = np.random.default_rng(0)
    train, test = draw(rng, num_items, num_matches).split(jax.random.key(0), 0.8)
    rows, y = test.single_matches()
    pairs, items = np.asarray(test.pairs), np.asarray(test.items)
    print(f"{'':<44}{'accuracy':>9}{'log loss':>10}{'time':>10}")
    truth = expit(battle_odds(items, *pairs.T))[rows]
    print(f"{'true preferences':<44}{scores(truth, y)}")
    faster = np.where(items[pairs[:, 0], 0] > items[pairs[:, 1], 0], 0.9, 0.1)[rows]
    print(f"{'the faster wins (probability 0.9)':<44}{scores(faster, y)}")
    landmarks = items[rng.choice(num_items, min(LANDMARKS, num_items), replace=False)]
    start = time.perf_counter()
    report("one lengthscale, 2", machine(np.full(6, 2.0), 1.0, 0.0, landmarks), train, test, start)
    start = time.perf_counter()
    lengthscales, constant, correlation = by_evidence(train, subset)
    print(f"lengthscales by the evidence of {subset} matches: {np.round(lengthscales, 1)}")
    report(
        "one lengthscale per statistic, by evidence",
        machine(lengthscales, constant, correlation, landmarks),
        train,
        test,
        start,
    )


if __name__ == "__main__":
    main()
