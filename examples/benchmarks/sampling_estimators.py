"""Errors of sampled Shapley values against the budget, by kpp and by shap's KernelExplainer: one model, one background.

    python examples/benchmarks/sampling_estimators.py [--points 4] [--background 20] [--seeds 20]

A kernel ridge model of the breast cancer data (30 features) is explained at some points. The exact values come from
quadrature. Each estimator may evaluate the same number of coalitions. Errors are root mean squares over points and
features, in percent of the root mean square of the exact values, averaged over the seeds.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np
import shap
from sklearn.datasets import load_breast_cancer
from sklearn.kernel_ridge import KernelRidge
from sklearn.preprocessing import StandardScaler

import kpp
from kpp.games import Interventional, estimate_shapley

BUDGETS = (256, 1024, 4096)
HEADER = (
    f"{'coalitions':>10} {'least squares':>14} {'it states':>10} {'permutation':>12} {'KernelExplainer':>16} "
    f"{'its default':>12} {'ours/theirs':>12} {'error x sqrt(coalitions)':>25}"
)
REASON = """
"least squares" are kpp's values, "it states" the standard errors that come with them. KernelExplainer is called with
l1_reg=False, which keeps all features; its default keeps ten and sets the others to 0, for any budget. The last
column is kpp's error times the square root of the budget, which stays the same if the error falls as it should."""


@dataclass(frozen=True)
class Problem:
    """A model to explain, and the truth."""

    model: KernelRidge
    background: np.ndarray
    x: np.ndarray

    def estimate(self, method: str, budget: int | None = None, seed: int = 0) -> kpp.games.ShapleyEstimate:
        """Return kpp's values."""
        function, key = kpp.as_rkhs_function(self.model), jax.random.key(seed)
        options = {} if budget is None else {"num_coalitions": budget + 2, "rng_key": key}
        return estimate_shapley(Interventional(self.background), function, self.x, method=method, **options)

    def explain_by_shap(self, budget: int, seed: int, **options: bool) -> np.ndarray:
        """Return KernelExplainer's values."""
        np.random.seed(seed)
        explainer = shap.KernelExplainer(self.model.predict, self.background)
        return explainer.shap_values(self.x, nsamples=budget, silent=True, **options)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=4, help="points that are explained")
    parser.add_argument("--background", type=int, default=20, help="background points")
    parser.add_argument("--seeds", type=int, default=20, help="repetitions with different random numbers")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    logging.getLogger("shap").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=UserWarning)
    problem = load(options.points, options.background)
    truth = np.asarray(problem.estimate("quadrature").values)
    print(HEADER)
    for budget in BUDGETS:
        print(describe(budget, measure(problem, truth, budget, options.seeds)), flush=True)
    print(REASON)


def load(num_points: int, num_background: int) -> Problem:
    """Fit the model."""
    x, y = load_breast_cancer(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    model = KernelRidge(kernel="rbf", gamma=1 / x.shape[1], alpha=1.0).fit(x, y - y.mean())
    rows = np.random.default_rng(0).permutation(len(x))[: num_background + num_points]
    return Problem(model, x[rows[:num_background]], x[rows[num_background:]])


def measure(problem: Problem, truth: np.ndarray, budget: int, num_seeds: int) -> dict[str, float]:
    """Return the mean errors of all estimators, relative to the truth."""

    def mean_error(estimate: Callable[[int], np.ndarray]) -> float:
        return float(np.mean([norm(estimate(seed) - truth) for seed in range(num_seeds)]) / norm(truth))

    fits = [problem.estimate("least-squares", budget, seed) for seed in range(num_seeds)]
    return {
        "least squares": mean_error(lambda seed: fits[seed].values),
        "stated": float(np.mean([norm(fit.standard_errors) for fit in fits]) / norm(truth)),
        "permutation": mean_error(lambda seed: problem.estimate("permutation", budget, seed).values),
        "shap": mean_error(lambda seed: problem.explain_by_shap(budget, seed, l1_reg=False)),
        "default": mean_error(lambda seed: problem.explain_by_shap(budget, seed)),
    }


def describe(budget: int, errors: dict[str, float]) -> str:
    """Return a line of the table."""
    ours = errors["least squares"]
    return (
        f"{budget:>10} {ours:>14.2%} {errors['stated']:>10.2%} {errors['permutation']:>12.2%} {errors['shap']:>16.2%} "
        f"{errors['default']:>12.2%} {ours / errors['shap']:>12.2f} {ours * budget**0.5:>25.2f}"
    )


def norm(values: np.ndarray) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


if __name__ == "__main__":
    main()
