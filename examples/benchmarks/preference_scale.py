"""Time preference functions fitted to tens of thousands of matches, with their memory and accuracy.

Run it as `python examples/benchmarks/preference_scale.py [--quick] [--nystrom 300]`. There are 1000 items with five
features and 40,000 or 50,000 random matches. One fifth of the pairs is held out, with all their matches. The true
preference function is the sum of a function with cycles and a utility. `kpp_models.PreferenceRidge` and
`PreferenceLogistic` use the generalized preferential kernel of k + c, first exactly and then with Nystrom's method on
landmarks; the baseline is linear. Accuracy is measured on held-out matches, and the accuracy of the true function is
the best possible. Peak memory is the peak of the whole process up to the printed line.
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

from kpp.features import Nystrom
from kpp.kernels import RBF, GeneralizedPreferential
from kpp.preferences import Matches
from kpp_models import PreferenceLogistic, PreferenceRidge
from kpp_models.estimators import PairwiseLogisticRegression, match_rows

UNIT = 1024**3 if sys.platform == "darwin" else 1024**2  # of the peak memory
Values = Callable[[Any], Any]


def truth(pairs: np.ndarray) -> np.ndarray:
    """Log-odds of pairs (m, 2, 5): a skew-symmetric form of bent features, and a utility."""
    form = np.random.default_rng(7).normal(size=(5, 5))
    first, second = pairs[:, 0], pairs[:, 1]
    circular = np.einsum("ij,jk,ik->i", np.tanh(first), form - form.T, np.tanh(second))
    return 2.0 * circular + 2.0 * (np.sin(2.0 * first[:, 0]) - np.sin(2.0 * second[:, 0]))


def draw(num_items: int, num_matches: int) -> tuple[Matches, Matches]:
    """Training matches, and test matches of other pairs."""
    rng = np.random.default_rng(0)
    items = rng.normal(size=(num_items, 5))
    first = rng.integers(0, num_items, num_matches)
    second = (first + rng.integers(1, num_items, num_matches)) % num_items
    chance = 1.0 / (1.0 + np.exp(-truth(np.stack([items[first], items[second]], axis=1))))
    matches = Matches.create(items, first, second, (rng.uniform(size=num_matches) < chance).astype(float))
    return matches.split(jax.random.key(0), 0.8, by="pair")


def report(name: str, seconds: float, values: Values, test: Matches) -> None:
    """Print the time, the peak memory, and the accuracy on held-out matches."""
    found = np.asarray(values(test.points))
    right = np.where(found > 0, np.asarray(test.wins), np.asarray(test.losses)).sum() / test.num_matches
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / UNIT
    print(f"{name:44} {seconds:8.1f} s   peak memory {memory:5.2f} GB   accuracy {right:.3f}", flush=True)


def run(num_items: int, num_matches: int, num_landmarks: int) -> None:
    """Fit everything to one set of matches."""
    train, test = draw(num_items, num_matches)
    print(f"\n{num_matches} matches of {num_items} items; {train.num_matches} on {train.num_pairs} pairs are fitted to")
    report("truth", 0.0, truth, test)
    landmarks = train.items[:num_landmarks]
    kernels = {
        "k + c": GeneralizedPreferential(RBF(2.5) + 0.5),
        f"k + c, {num_landmarks} landmarks": GeneralizedPreferential(Nystrom(RBF(2.5) + 0.5, landmarks)),
    }
    for label, kernel in kernels.items():
        for model in (PreferenceRidge(kernel, 1e-4), PreferenceLogistic(kernel, 1e-4)):
            start = time.perf_counter()
            function = model.fit(train)
            jax.block_until_ready(function.coefficients)
            report(f"{type(model).__name__}, {label}", time.perf_counter() - start, function, test)
    rows = match_rows(train)
    start = time.perf_counter()
    linear = PairwiseLogisticRegression().fit(rows.features, rows.y, rows.sample_weight)
    seconds = time.perf_counter() - start
    report("PairwiseLogisticRegression", seconds, lambda x: linear.decision_function(x.reshape(len(x), -1)), test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the items and matches")
    parser.add_argument("--nystrom", type=int, default=300, help="how many landmarks")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    scale = 10 if options.quick else 1
    for num_matches in (40_000, 50_000):
        run(1000 // scale, num_matches // scale, options.nystrom // scale)


if __name__ == "__main__":
    main()
