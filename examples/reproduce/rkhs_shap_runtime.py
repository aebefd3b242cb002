"""Run times of four methods for Shapley values on the banana distribution B(1, 10) (RKHS-SHAP paper, experiment 2).

    python examples/reproduce/rkhs_shap_runtime.py [--quick] [--sizes N ...] [--instances P] [--budget SECONDS]
        [--output FOLDER]

Kernel ridge regression is fitted to n points; all of them are the background, and all are explained unless
`--instances` gives a smaller number. RKHS-ISV and RKHS-OSV are kpp's interventional and observational values, exact for
d = 2; KSHAP-ISV is shap's KernelExplainer; GSHAP-OSV averages over draws from conditional normal distributions (Aas et
al., 2021). A method is left out for larger n if its time at the previous size, extrapolated by the cube of n, exceeds
the budget.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import shap
from scipy.spatial.distance import pdist
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV

import kpp
from kpp.games import GaussianConditional, Interventional, Observational, shapley_values

SIZES = (100, 500, 1000, 1500, 3000, 5000)
QUICK = (40, 80)
VARIANCE = 10.0
# Below this number of seconds, compilation is a large part of the time, so the time does not predict larger n.
MEASURABLE = 5.0


@dataclass(frozen=True)
class Problem:
    """A fitted regression, the points it was fitted to, and those to explain."""

    estimator: KernelRidge
    background: np.ndarray
    x: np.ndarray


def banana(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw n points of B(1, 10) and their targets."""
    z = np.random.default_rng(seed).normal(size=(n, 2)) * np.array([VARIANCE**0.5, 1.0])
    x = np.column_stack([z[:, 0], z[:, 0] ** 2 - VARIANCE + z[:, 1]])
    return x, x[:, 0] ** 2 - VARIANCE + x[:, 1]


def fit(n: int, num_instances: int | None) -> Problem:
    """Fit with the lengthscale of the median heuristic and a penalty chosen by cross-validation."""
    x, y = banana(n)
    lengthscale = np.median(pdist(x[:1000]))
    ridge = KernelRidge(kernel="rbf", gamma=0.5 / lengthscale**2)
    search = GridSearchCV(ridge, {"alpha": np.logspace(-4, 0, 5)}, cv=3).fit(x, y)
    return Problem(search.best_estimator_, x, x[:num_instances])


def rkhs_isv(problem: Problem) -> np.ndarray:
    """Return kpp's interventional Shapley values."""
    game = Interventional(problem.background)
    return np.asarray(shapley_values(game, kpp.as_rkhs_function(problem.estimator), problem.x))


def rkhs_osv(problem: Problem) -> np.ndarray:
    """Return kpp's observational Shapley values."""
    game = Observational(problem.background)
    return np.asarray(shapley_values(game, kpp.as_rkhs_function(problem.estimator), problem.x))


def kshap_isv(problem: Problem) -> np.ndarray:
    """Return the interventional Shapley values of shap's KernelExplainer."""
    explainer = shap.KernelExplainer(problem.estimator.predict, problem.background)
    return explainer.shap_values(problem.x, silent=True)


def gshap_osv(problem: Problem) -> np.ndarray:
    """Return observational Shapley values by draws from conditional normal distributions."""
    game = GaussianConditional(problem.background)
    return np.asarray(shapley_values(game, kpp.as_rkhs_function(problem.estimator), problem.x))


METHODS: dict[str, Callable[[Problem], np.ndarray]] = {
    "RKHS-ISV": rkhs_isv,
    "RKHS-OSV": rkhs_osv,
    "KSHAP-ISV": kshap_isv,
    "GSHAP-OSV": gshap_osv,
}


def measure(sizes: list[int], num_instances: int | None, budget: float) -> pd.DataFrame:
    """Return the seconds of each method at each size, NaN if it was left out."""
    table = pd.DataFrame(np.nan, index=pd.Index(sizes, name="n"), columns=list(METHODS))
    previous: dict[str, tuple[int, float]] = {}
    for n in sizes:
        problem = fit(n, num_instances)
        values = {}
        for name, method in METHODS.items():
            size, seconds = previous.get(name, (n, 0.0))
            if seconds > MEASURABLE and seconds * (n / size) ** 3 > budget:
                continue
            start = time.perf_counter()
            values[name] = method(problem)
            previous[name] = n, time.perf_counter() - start
            table.loc[n, name] = previous[name][1]
        print(describe(table.loc[[n]], values), flush=True)
    return table


def describe(row: pd.DataFrame, values: dict[str, np.ndarray]) -> str:
    """Return a line of run times, and the difference of the two methods that must agree."""
    cells = " ".join(f"{'-' if np.isnan(s) else format(s, '.2f'):>10}" for s in row.iloc[0])
    apart = ""
    if {"RKHS-ISV", "KSHAP-ISV"} <= values.keys():
        apart = f"{np.abs(values['RKHS-ISV'] - values['KSHAP-ISV']).max():14.1e}"
    return f"{row.index[0]:6d} {cells} {apart}"


def draw(table: pd.DataFrame, path: Path) -> None:
    """Save the figure: seconds against n, both logarithmic."""
    figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    for name in table:
        axes.plot(table.index, table[name], marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="number of points", ylabel="seconds")
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> pd.DataFrame:
    """Measure, print a table, and return it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"the sizes {QUICK} only")
    parser.add_argument("--sizes", type=int, nargs="+", default=None, help=f"the numbers of points, {SIZES} by default")
    parser.add_argument("--instances", type=int, default=None, help="how many points to explain; all by default")
    parser.add_argument("--budget", type=float, default=600.0, help="the most seconds a method may be expected to take")
    parser.add_argument("--output", type=Path, default=None, help="a folder for the figure and the table")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    sizes = options.sizes or list(QUICK if options.quick else SIZES)
    print("seconds, compilation included; the last column is the largest difference of the two ISV")
    print(f"{'n':>6} " + " ".join(f"{name:>10}" for name in METHODS))
    table = measure(sizes, options.instances, options.budget)
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        draw(table, options.output / "rkhs_shap_runtime.png")
        table.to_csv(options.output / "rkhs_shap_runtime.csv")
    return table


if __name__ == "__main__":
    main()
