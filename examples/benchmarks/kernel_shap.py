"""KernelSHAP of kpp and of shap with an equal budget: errors on a model of 20 features with known Shapley values.

    python examples/benchmarks/kernel_shap.py [--points 4] [--background 20] [--seeds 20]

The model is a polynomial with products of up to four features. Each product is a game of its few features, enumerated
by the definition; Shapley values are linear, so the sum over the products gives the exact values. Every explainer may
evaluate the same number of coalitions, each by its mean prediction over the background. Errors are root mean squares
over points and features, in percent of the root mean square of the exact values, averaged over the seeds.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import math
import warnings
from dataclasses import dataclass

import jax
import numpy as np
import shap

from kpp_surrogates import KernelSHAP

BUDGETS = (256, 1024, 4096)
NUM_FEATURES = 20
HEADER = (
    f"{'coalitions':>10} {'kpp':>8} {'it states':>10} {'shap, no l1':>12} {'its default':>12} {'kpp/shap':>9}   "
    f"{'rows predicted':>20}   {'additivity error':>20}"
)
REASON = """
"shap, no l1" is KernelExplainer with l1_reg=False, which keeps all features; its default keeps ten and sets the others
to 0, for any budget. "it states" are the standard errors of kpp. Rows predicted are those handed to the model in
all, and additivity errors the largest |base + sum - prediction|, by kpp / by shap."""


@dataclass(frozen=True)
class Problem:
    """A polynomial to explain, and its exact values.

    Args:
        terms: The features of each product, and its coefficient.
        background: The background points, (m, d).
        x: The points to explain, (p, d).
    """

    terms: tuple[tuple[tuple[int, ...], float], ...]
    background: np.ndarray
    x: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the polynomial at points (n, d)."""
        return sum(coefficient * np.prod(x[:, list(term)], axis=1) for term, coefficient in self.terms)

    def shapley_values(self) -> np.ndarray:
        """Return the exact values, (p, d), by the definition of each product's game."""
        values = np.zeros(self.x.shape)
        for term, coefficient in self.terms:
            for player in term:
                others = [j for j in term if j != player]
                for size in range(len(term)):
                    weight = coefficient / (len(term) * math.comb(len(term) - 1, size))
                    for present in itertools.combinations(others, size):
                        gain = self._worth(term, (*present, player)) - self._worth(term, present)
                        values[:, player] += weight * gain
        return values

    def _worth(self, term: tuple[int, ...], present: tuple[int, ...]) -> np.ndarray:
        """Return the mean of a product with the absent features from the background, (p,)."""
        absent = [j for j in term if j not in present]
        return np.prod(self.x[:, list(present)], axis=1) * np.prod(self.background[:, absent], axis=1).mean()


@dataclass
class Counter:
    """A function that counts the rows that it predicts."""

    problem: Problem
    rows: int = 0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the predictions."""
        self.rows += len(x)
        return self.problem.predict(np.asarray(x))


@dataclass(frozen=True)
class Result:
    """The result of one explanation.

    Args:
        error: The root mean square error.
        stated: The root mean square of the standard errors, 0 if there are none.
        gap: The largest additivity error.
        rows: The number of predicted rows.
    """

    error: float
    stated: float
    gap: float
    rows: int


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
    problem = make_problem(options.points, options.background)
    print(HEADER)
    for budget in BUDGETS:
        print(describe(problem, budget, measure(problem, budget, options.seeds)), flush=True)
    print(REASON)


def make_problem(num_points: int, num_background: int) -> Problem:
    """Draw a polynomial with a term of each feature and 15 products of each number of features from 2 to 4."""
    rng = np.random.default_rng(0)
    terms = [((j,), float(rng.normal())) for j in range(NUM_FEATURES)]
    for size in (2, 3, 4):
        for _ in range(15):
            chosen = rng.choice(NUM_FEATURES, size=size, replace=False)
            terms.append((tuple(int(j) for j in chosen), float(rng.normal())))
    points = rng.normal(size=(num_background + num_points, NUM_FEATURES))
    return Problem(tuple(terms), points[:num_background], points[num_background:])


def measure(problem: Problem, budget: int, num_seeds: int) -> dict[str, list[Result]]:
    """Return the results of all explainers, one for each seed."""
    truth = problem.shapley_values()
    results: dict[str, list[Result]] = {"kpp": [], "shap": [], "default": []}
    for seed in range(num_seeds):
        results["kpp"].append(explain_by_kpp(problem, truth, budget, seed))
        results["shap"].append(explain_by_shap(problem, truth, budget, seed, l1_reg=False))
        results["default"].append(explain_by_shap(problem, truth, budget, seed))
    return results


def explain_by_kpp(problem: Problem, truth: np.ndarray, budget: int, seed: int) -> Result:
    """Explain with kpp; the budget does not count the empty and the full coalition, as in shap."""
    function = Counter(problem)
    explainer = KernelSHAP(problem.background, num_coalitions=budget + 2, progress=False)
    explanation = explainer.explain(function, problem.x, rng_key=jax.random.key(seed))
    gap = float(explanation.additivity_error().max())
    return Result(norm(explanation.values - truth), norm(explanation.standard_errors), gap, function.rows)


def explain_by_shap(problem: Problem, truth: np.ndarray, budget: int, seed: int, **options: bool) -> Result:
    """Explain with shap."""
    np.random.seed(seed)
    function = Counter(problem)
    explainer = shap.KernelExplainer(function, problem.background)
    values = explainer.shap_values(problem.x, nsamples=budget, silent=True, **options)
    gap = np.abs(explainer.expected_value + values.sum(axis=1) - problem.predict(problem.x)).max()
    return Result(norm(values - truth), 0.0, float(gap), function.rows)


def mean_error(results: list[Result]) -> float:
    """Return the mean over the seeds."""
    return float(np.mean([result.error for result in results]))


def describe(problem: Problem, budget: int, results: dict[str, list[Result]]) -> str:
    """Return a line of the table."""
    scale = norm(problem.shapley_values())
    ours, theirs, default = (mean_error(results[name]) / scale for name in ("kpp", "shap", "default"))
    stated = float(np.mean([result.stated for result in results["kpp"]])) / scale
    rows = "/".join(f"{results[name][0].rows:>9}" for name in ("kpp", "shap"))
    gaps = "/".join(f"{max(result.gap for result in results[name]):>9.0e}" for name in ("kpp", "shap"))
    return (
        f"{budget:>10} {ours:>8.2%} {stated:>10.2%} {theirs:>12.2%} {default:>12.2%} {ours / theirs:>9.2f}   "
        f"{rows:>20}   {gaps:>20}"
    )


def norm(values: np.ndarray) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


if __name__ == "__main__":
    main()
