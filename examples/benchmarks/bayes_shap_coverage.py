"""How often the intervals of BayesSHAP contain the exact Shapley value, on models for which this value is known.

    python examples/benchmarks/bayes_shap_coverage.py [--points 40] [--background 50] [--seeds 5] [--perturbations 200]

Each model has 8 to 10 features, so KernelSHAP enumerates all coalitions over the same background: this gives the exact
values. Coverage is the share of 90 % intervals that contain the exact value, over points, features and seeds. The width
of an interval is in units of the root mean square of the exact values. "published" draws coalitions uniformly and
weights them by the Shapley kernel. "Shapley law" draws them by the Shapley kernel, which is the default of kpp.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import GradientBoostingClassifier, RandomForestRegressor
from sklearn.kernel_ridge import KernelRidge

from kpp_surrogates import BayesSHAP, KernelSHAP

PROBABILITY = 0.9
LAWS = {"Shapley law": "shapley", "published": "uniform"}
WEIGHTS = np.array([2.0, -1.0, 0.5, 0.0, 0.0, 1.0, 3.0, -2.0])


class Problem(NamedTuple):
    """A model, the background and the points to explain."""

    model: Any
    background: np.ndarray
    x: np.ndarray


class Coverage(NamedTuple):
    """The share of intervals that contain the exact value, and their mean width in units of the exact values."""

    share: float
    width: float


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=40, help="points that are explained")
    parser.add_argument("--background", type=int, default=50, help="background points")
    parser.add_argument("--seeds", type=int, default=5, help="repetitions with different random numbers")
    parser.add_argument("--perturbations", type=int, default=200, help="coalitions of each point")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"{'model':>20}" + "".join(f"{name:>14} {'width':>7}" for name in LAWS))
    for name, problem in make_problems(options.points, options.background).items():
        found = [measure(problem, law, options.seeds, options.perturbations) for law in LAWS.values()]
        print(f"{name:>20}" + "".join(f"{each.share:>14.1%} {each.width:>7.2f}" for each in found), flush=True)


def make_problems(num_points: int, num_background: int) -> dict[str, Problem]:
    """Return functions of Gaussian points, and models of scikit-learn of its data."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(num_points + num_background, len(WEIGHTS)))
    functions: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "linear": lambda x: x @ WEIGHTS + 50.0,
        "interactions": lambda x: x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + x[:, 3] * x[:, 4] * x[:, 5] + x[:, 6],
        "product of three": lambda x: x[:, 0] * x[:, 1] * x[:, 2],
        "step": lambda x: (x[:, 0] + x[:, 1] > 0).astype(float),
    }
    problems = {name: Problem(each, rows[:num_background], rows[num_background:]) for name, each in functions.items()}
    models = {
        "kernel ridge": (KernelRidge(kernel="rbf", gamma=0.1, alpha=0.1), load_diabetes),
        "random forest": (RandomForestRegressor(50, min_samples_leaf=5, random_state=0), load_diabetes),
        "boosted classifier": (GradientBoostingClassifier(random_state=0), load_breast_cancer),
    }
    for name, (model, load) in models.items():
        x, y = load(return_X_y=True)
        x = ((x - x.mean(axis=0)) / x.std(axis=0))[:, :10]
        chosen = rng.permutation(len(x))[: num_points + num_background]
        problems[name] = Problem(model.fit(x, y), x[chosen[:num_background]], x[chosen[num_background:]])
    return problems


def measure(problem: Problem, coalitions: str, num_seeds: int, num_perturbations: int) -> Coverage:
    """Return how often the intervals contain the exact values."""
    truth = KernelSHAP(problem.background, progress=False).explain(problem.model, problem.x).values
    explainer = BayesSHAP(
        problem.background, num_perturbations=num_perturbations, coalitions=coalitions, progress=False
    )
    held, widths = [], []
    for seed in range(num_seeds):
        bounds = explainer.explain(problem.model, problem.x, rng_key=jax.random.key(seed)).interval(PROBABILITY)
        lower, upper = bounds.sel(bound="lower"), bounds.sel(bound="upper")
        held.append(float(((lower <= truth) & (truth <= upper)).mean()))
        widths.append(float((upper - lower).mean()))
    return Coverage(float(np.mean(held)), float(np.mean(widths) / np.sqrt((truth**2).mean())))


if __name__ == "__main__":
    main()
