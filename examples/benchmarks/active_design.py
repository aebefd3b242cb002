"""Shapley values from few coalitions: the active design of kpp, KernelSHAP of kpp, and KernelSHAP of shap.

    python examples/benchmarks/active_design.py [--data-sets 4]

Each method may value the same number of coalitions of 10 players, the empty and the full one included. Problems are

* sums of 30 unanimity games of one to five players with normal coefficients, 8 sums for each data set, and
* a random forest of the Friedman function, at 8 points with 30 background points.

The exact values come from all 1024 coalitions. Errors are sums of squares, relative to the exact values. "held" is the
share of the intervals of 1.645 standard errors that hold the exact value, which should be 90 %. In the rows "alone" the
active design explains one game or point at a time; otherwise those of a data set share their coalitions.
"""

from __future__ import annotations

import argparse
import functools
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import numpy as np
import shap
from sklearn.datasets import make_friedman1
from sklearn.ensemble import RandomForestRegressor

from kpp_surrogates import KernelSHAP

BUDGETS = (40, 80, 160)
NUM_FEATURES, NUM_GAMES, NUM_TERMS = 10, 8, 30
HEADER = f"{'problem':>17} {'method':>12} {'coalitions':>11} {'relative squared error':>23} {'held':>7} {'CPU s':>7}"


@dataclass(frozen=True)
class Problem:
    """A function to explain.

    Args:
        function: The function, from points (n, d) to (n,) or (n, outputs).
        background: The background points, (m, d).
        x: The points to explain, (p, d).
    """

    function: Callable[[np.ndarray], np.ndarray]
    background: np.ndarray
    x: np.ndarray

    def exact(self) -> np.ndarray:
        """Return the exact values, (p, d[, outputs]), from all coalitions."""
        return KernelSHAP(self.background, progress=False).explain(self.function, self.x).values.values

    def alone(self, exact: np.ndarray) -> Iterator[tuple[Problem, np.ndarray]]:
        """Yield one problem for each point and output, with its exact values, (1, d)."""
        for row, values in enumerate(exact):
            for output, column in enumerate(values.reshape(NUM_FEATURES, -1).T):
                function = functools.partial(self.one_output, output)
                yield Problem(function, self.background, self.x[row : row + 1]), column[None]

    def one_output(self, output: int, x: np.ndarray) -> np.ndarray:
        """Return one output of the function, (n,)."""
        return self.function(x).reshape(len(x), -1)[:, output]


@dataclass(frozen=True)
class Result:
    """The relative squared error, the share of intervals that hold the exact value, and the CPU seconds."""

    error: float
    held: float
    seconds: float


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-sets", type=int, default=4, help="data sets of each problem")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    logging.getLogger("shap").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=UserWarning)
    print(HEADER)
    for name, draw in (("unanimity games", unanimity_games), ("forest", forest)):
        problems = [draw(seed) for seed in range(options.data_sets)]
        for line in describe(name, problems):
            print(line, flush=True)


def describe(name: str, problems: list[Problem]) -> Iterator[str]:
    """Yield the lines of a table, for each budget and method."""
    together = [(problem, problem.exact()) for problem in problems]
    single = [one for problem, exact in together for one in problem.alone(exact)]
    methods = {
        "active": ("active", together),
        "active alone": ("active", single),
        "random": ("random", together),
        "shap": ("shap", together),
    }
    for budget in BUDGETS:
        for label, (method, chosen) in methods.items():
            found = [measure(*pair, method, budget, seed) for seed, pair in enumerate(chosen)]
            error, held, seconds = np.mean([(r.error, r.held, r.seconds) for r in found], axis=0)
            share = f"{held:>7.1%}" if method != "shap" else f"{'':>7}"
            yield f"{name:>17} {label:>12} {budget:>11} {error:>23.6f} {share} {seconds:>7.2f}"


def unanimity_games(seed: int) -> Problem:
    """Return a sum of products of present players for each output, at the full coalition and against the empty one."""
    rng = np.random.default_rng(seed)
    members = np.zeros((NUM_GAMES, NUM_TERMS, NUM_FEATURES), dtype=bool)
    for term in members.reshape(-1, NUM_FEATURES):
        term[rng.choice(NUM_FEATURES, size=rng.integers(1, 6), replace=False)] = True
    coefficients = rng.normal(size=(NUM_GAMES, NUM_TERMS))

    def function(x: np.ndarray) -> np.ndarray:
        present = np.where(members, np.asarray(x)[:, None, None, :], 1.0).prod(axis=-1)
        return np.einsum("ngt,gt->ng", present, coefficients)

    return Problem(function, np.zeros((1, NUM_FEATURES)), np.ones((1, NUM_FEATURES)))


def forest(seed: int) -> Problem:
    """Return a random forest of the Friedman function, some background rows, and other rows to explain."""
    x, y = make_friedman1(500, NUM_FEATURES, noise=1.0, random_state=seed)
    model = RandomForestRegressor(50, random_state=seed).fit(x, y)
    return Problem(model.predict, x[:30], x[100 : 100 + NUM_GAMES])


def measure(problem: Problem, truth: np.ndarray, method: str, budget: int, seed: int) -> Result:
    """Explain a problem by "active" or "random" coalitions of kpp, or by "shap"."""
    start = time.process_time()
    if method == "shap":
        np.random.seed(seed)
        explainer = shap.KernelExplainer(problem.function, problem.background)
        values = explainer.shap_values(problem.x, nsamples=budget - 2, silent=True, l1_reg=False)
        values, errors = np.asarray(values), np.zeros(truth.shape)
    else:
        kernel_shap = KernelSHAP(problem.background, design=method, num_coalitions=budget, progress=False)
        explanation = kernel_shap.explain(problem.function, problem.x, rng_key=jax.random.key(seed))
        values, errors = explanation.values.values, explanation.standard_errors.values
    seconds = time.process_time() - start
    misses = values - truth
    held = np.mean(np.abs(misses) <= 1.645 * errors)
    return Result(float(np.sum(misses**2) / np.sum(truth**2)), float(held), seconds)


if __name__ == "__main__":
    main()
