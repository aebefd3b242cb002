"""Time preference functions fitted to tens of thousands of matches, with their memory and accuracy.

Run it as `python examples/benchmarks/preference_scale.py [--quick] [--nystrom 300] [--only contexts]`.

Without contexts there are 1000 items with five features and 40,000 or 50,000 random matches. One fifth of the pairs is
held out, with all their matches. The true preference function is the sum of a function with cycles and a utility.
`kpp_models.PreferenceRidge` and `PreferenceLogistic` use the generalized preferential kernel of k + c, first exactly
and then with Nystrom's method on landmarks; the baselines are a linear utility and one strength per item.

With contexts there are 500 items and 95,000 matches, each in one of three contexts, such as the surface of a tennis
court; one fifth of the matches is held out. In each context the true preference function is the sum of a part that all
contexts share and a part of its own. `kpp_models.PreferenceGP` with 15 landmarks has priors for two hyperparameters,
whose values maximize Laplace's approximation of the evidence.

Accuracy and log loss (in nats per match) are measured on held-out matches; those of the true function are the best
possible. Peak memory is the peak of the whole process up to the printed line. `--only NAME` runs one model of the part
with contexts, so that the peak is its own.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist

import kpp
from kpp.features import Nystrom
from kpp.kernels import RBF, Contextual, GeneralizedPreferential, Linear
from kpp.preferences import Matches
from kpp_models import PreferenceGP, PreferenceLogistic, PreferenceRidge
from kpp_models.estimators import BradleyTerry, PairwiseLogisticRegression, match_rows

UNIT = 1024**3 if sys.platform == "darwin" else 1024**2  # of the peak memory
Values = Callable[[Any], Any]


def truth(pairs: np.ndarray, seed: int = 7) -> np.ndarray:
    """Log-odds of pairs (m, 2, 5): a skew-symmetric form of bent features, and a utility."""
    rng = np.random.default_rng(seed)
    form, utility = rng.normal(size=(5, 5)), rng.integers(5)
    first, second = pairs[:, 0], pairs[:, 1]
    circular = np.einsum("ij,jk,ik->i", np.tanh(first), form - form.T, np.tanh(second))
    return 2.0 * circular + 2.0 * (np.sin(2.0 * first[:, utility]) - np.sin(2.0 * second[:, utility]))


def truth_in_contexts(points: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Log-odds of pairs (m, 2, 5) in contexts (m, 3), which select one of three functions."""
    pairs, contexts = map(np.asarray, points)
    own = np.stack([truth(pairs, 8 + context) for context in range(3)], axis=1)
    return 0.5 * truth(pairs) + 0.5 * np.sum(contexts * own, axis=1)


def draw(num_items: int, num_matches: int, *, contexts: bool = False) -> tuple[Matches, Matches]:
    """Training matches, and test matches: of other pairs, or with contexts any other matches."""
    rng = np.random.default_rng(0)
    items = rng.normal(size=(num_items, 5))
    first = rng.integers(0, num_items, num_matches)
    second = (first + rng.integers(1, num_items, num_matches)) % num_items
    pairs, where = np.stack([items[first], items[second]], axis=1), None
    if contexts:
        where = np.eye(3)[rng.integers(0, 3, num_matches)]
    odds = truth(pairs) if where is None else truth_in_contexts((pairs, where))
    y = (rng.uniform(size=num_matches) < 1.0 / (1.0 + np.exp(-odds))).astype(float)
    matches = Matches.create(items, first, second, y, where)
    return matches.split(jax.random.key(0), 0.8, by="match" if contexts else "pair")


def report(name: str, start: float, probability: Values, test: Matches) -> None:
    """Print the time, the peak memory, and the accuracy and log loss on held-out matches."""
    seconds = time.perf_counter() - start
    chance = np.clip(np.asarray(probability(test.inputs)), 1e-3, 1 - 1e-3)
    wins, losses = np.asarray(test.wins), np.asarray(test.losses)
    right = np.where(chance > 0.5, wins, losses).sum() / test.num_matches
    loss = -(wins * np.log(chance) + losses * np.log(1 - chance)).sum() / test.num_matches
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / UNIT
    print(
        f"{name:44} {seconds:7.1f} s   peak {memory:5.2f} GB   accuracy {right:.3f}   log loss {loss:.4f}", flush=True
    )


def report_fit(name: str, model: Any, train: Matches, test: Matches) -> None:
    """Fit a model of kpp and report it; the time includes compilation."""
    start = time.perf_counter()
    options = {"inference": kpp.MAP(num_restarts=0, progress=False), "num_prior_samples": 0}
    fit = model.fit(jax.random.key(1), train, **options)
    report(name, start, lambda x: fit.predict(x)["probability"].values[0, 0], test)
    for site, values in fit.draws.items():
        print(f"    {site} = {float(values[0, 0]):.3f}")


def report_baselines(train: Matches, test: Matches) -> None:
    """Report a linear utility, and one strength per item; both ignore contexts."""
    shown = match_rows(train)
    start = time.perf_counter()
    linear = PairwiseLogisticRegression().fit(shown.features, shown.y, shown.sample_weight)
    pairs = np.asarray(test.points).reshape(test.num_pairs, -1)
    report("PairwiseLogisticRegression", start, lambda x: linear.predict_proba(pairs)[:, 1], test)
    start = time.perf_counter()
    strengths = BradleyTerry(num_items=train.num_items).fit(shown.numbers, shown.y, shown.sample_weight)
    numbers = np.asarray(test.pairs)
    report("BradleyTerry", start, lambda x: strengths.predict_proba(numbers)[:, 1], test)


def run(num_items: int, num_matches: int, num_landmarks: int) -> None:
    """Fit everything to one set of matches without contexts."""
    train, test = draw(num_items, num_matches)
    print(f"\n{num_matches} matches of {num_items} items; {train.num_matches} on {train.num_pairs} pairs are fitted to")
    report("truth", time.perf_counter(), lambda x: jax.nn.sigmoid(truth(np.asarray(x))), test)
    base = RBF(2.5) + 0.5
    kernels = {
        "k + c": GeneralizedPreferential(base),
        f"k + c, {num_landmarks} landmarks": GeneralizedPreferential(Nystrom(base, train.items[:num_landmarks])),
    }
    for label, kernel in kernels.items():
        for model in (PreferenceRidge(kernel, 1e-4), PreferenceLogistic(kernel, 1e-4)):
            report_fit(f"{type(model).__name__}, {label}", model, train, test)
    report_baselines(train, test)


def run_contexts(num_items: int, num_matches: int, only: str) -> None:
    """Fit everything to one set of matches with contexts."""
    train, test = draw(num_items, num_matches, contexts=True)
    print(
        f"\n{num_matches} matches of {num_items} items in 3 contexts; {train.num_matches} on {train.num_pairs} pairs "
        "in contexts are fitted to"
    )
    report("truth", time.perf_counter(), lambda x: jax.nn.sigmoid(truth_in_contexts(x)), test)
    base, where = RBF(2.5) + 0.5, Linear() + 0.5
    few = Nystrom(RBF(dist.LogNormal(1.0, 0.5)) + dist.HalfNormal(1.0), train.items[:15])
    scaled = 2.0 * Contextual(GeneralizedPreferential(few), where)
    models = {
        "ridge": PreferenceRidge(Contextual(GeneralizedPreferential(base), where), 1e-4),
        "logistic": PreferenceLogistic(Contextual(GeneralizedPreferential(base), where), 1e-4),
        "shared": PreferenceLogistic(Contextual(GeneralizedPreferential(base), Linear() * 0.0 + 1.0), 1e-4),
        "evidence": PreferenceGP(scaled, latent="laplace"),
    }
    for name, model in models.items():
        if only in ("all", "contexts", name):
            report_fit(f"{type(model).__name__}, {name}", model, train, test)
    report_baselines(train, test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the items and matches")
    parser.add_argument("--nystrom", type=int, default=300, help="how many landmarks")
    parser.add_argument(
        "--only",
        default="all",
        choices=("all", "no-contexts", "contexts", "ridge", "logistic", "shared", "evidence"),
        help="one part, or one model of the part with contexts",
    )
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    scale = 10 if options.quick else 1
    if options.only in ("all", "no-contexts"):
        for num_matches in (40_000, 50_000):
            run(1000 // scale, num_matches // scale, options.nystrom // scale)
    if options.only != "no-contexts":
        run_contexts(500 // scale, 95_000 // scale, options.only)


if __name__ == "__main__":
    main()
