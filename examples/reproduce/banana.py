"""Shapley values on the banana distribution B(1/b, 10) against the truth (RKHS-SHAP paper, experiment 1).

    python examples/reproduce/banana.py [--quick] [--sizes N ...] [--bends B ...] [--seeds SEED ...] [--samples N]

For each n, b and seed of the points the table holds R^2 of RKHS-ISV and RKHS-OSV, kpp's interventional and
observational values of a kernel ridge regression; of KSHAP-ISV, the values of shap's KernelExplainer for the same
regression; and of GSHAP-OSV, the mean over samples from Gaussian conditional distributions (Aas et al., 2021). All n
points are training data and explained points, of which the two slow methods, KSHAP and GSHAP, explain a tenth. All are
the background, of which they take `--samples`. R^2 is the mean over the two features.

The true interventional values have a closed form. The true observational values need h(x2) = E[(X1^2 - v) / b | X2 =
x2], an integral over X1, which is computed by quadrature. The formula of the paper replaces it by x2, which is correct
for b = 1 only. The last column is the R^2 of this formula.
"""

from __future__ import annotations

import argparse
import itertools
import time

import jax
import numpy as np
import pandas as pd
import shap

import kpp
from kpp.games import GaussianConditional, Interventional, Observational, shapley_values
from kpp.kernels import RBF, median_heuristic
from kpp_models import KernelRidge

BENDS = (1.0, 10.0, 20.0, 50.0, 100.0)
SIZES = (1000, 3000)
VARIANCE = 10.0
METHODS = ("RKHS-ISV", "KSHAP-ISV", "RKHS-OSV", "GSHAP-OSV", "formula")


def main(arguments: list[str] | None = None) -> dict[str, pd.DataFrame]:
    """Print and return the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="60 points and two values of b, for a quick trial run")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of points n")
    parser.add_argument("--bends", type=float, nargs="+", default=BENDS, help="values of b")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0,), help="seeds of the points")
    parser.add_argument("--samples", type=int, default=200, help="background points of KSHAP and GSHAP")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    if options.quick:
        options.sizes, options.bends = (60,), (1.0, 20.0)
    print(f"{'n':>6} {'b':>5} {'seed':>5} " + " ".join(f"{method:>10}" for method in METHODS) + f" {'seconds':>8}")
    rows = []
    for n, bend, seed in itertools.product(options.sizes, options.bends, options.seeds):
        start = time.perf_counter()
        found = scores(n, bend, seed, options.samples)
        cells = " ".join(f"{score:>10.4f}" for score in found.values())
        print(f"{n:>6} {bend:>5g} {seed:>5} {cells} {time.perf_counter() - start:>8.1f}", flush=True)
        rows.append({"n": n, "b": bend, "seed": seed, **found})
    return {"r_squared": pd.DataFrame(rows)}


def scores(n: int, bend: float, seed: int, num_samples: int) -> dict[str, float]:
    """Return R^2 of the values of each method, and of the paper's formula."""
    x = banana(n, bend, seed)
    interventional, observational, paper = truth(x, bend)
    function = fit(x, curve(x[:, 0], bend) + x[:, 1])
    few, background = x[: max(100, n // 10)], x[:num_samples]
    kernel_shap = shap.KernelExplainer(lambda rows: np.asarray(function(rows)).reshape(len(rows)), background)
    targets = {
        "RKHS-ISV": (shapley_values(Interventional(x), function, x), interventional),
        "KSHAP-ISV": (kernel_shap.shap_values(few, silent=True), interventional),
        "RKHS-OSV": (shapley_values(Observational(x), function, x), observational),
        "GSHAP-OSV": (shapley_values(GaussianConditional(background), function, few), observational),
        "formula": (paper, observational),
    }
    return {method: r_squared(values, target[: np.size(values) // 2]) for method, (values, target) in targets.items()}


def banana(n: int, bend: float, seed: int) -> np.ndarray:
    """Draw n points: X1 = Z1 and X2 = (Z1^2 - v) / b + Z2 with Z ~ N(0, diag(v, 1))."""
    z = np.random.default_rng(seed).normal(size=(n, 2)) * np.array([VARIANCE**0.5, 1.0])
    return np.column_stack([z[:, 0], curve(z[:, 0], bend) + z[:, 1]])


def curve(x1: np.ndarray, bend: float) -> np.ndarray:
    """Return (x1^2 - v) / b."""
    return (x1**2 - VARIANCE) / bend


def fit(x: np.ndarray, y: np.ndarray) -> kpp.RKHSFunction:
    """Fit kernel ridge regression: median lengthscales, and a penalty chosen by leave-one-out cross-validation.

    Without noise the smallest penalty always wins. Below 1e-7 the fit gets worse where there are no data, most of
    all at b = 1, and interventional values evaluate the fit there.
    """
    model = KernelRidge(RBF(lengthscale=median_heuristic(x)), regularization=1e-6)
    selection = model.select(x, y, grid={"regularization": np.logspace(-7, -3, 5)})
    return selection.model.fit(jax.random.key(0), x, y).function()


def truth(x: np.ndarray, bend: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return interventional values, observational values, and the latter by the paper's formula; all (n, 2)."""
    first, second = curve(x[:, 0], bend), x[:, 1]
    interventional = np.column_stack([first, second])
    excess = (first - conditional_mean(second, bend)) / 2
    observational = np.column_stack([first + excess, second - excess])
    paper = np.column_stack([3 * first - second, 3 * second - first]) / 2
    return interventional, observational, paper


def conditional_mean(x2: np.ndarray, bend: float, num_nodes: int = 8001) -> np.ndarray:
    """Return E[(X1^2 - v) / b | X2 = x2] by quadrature over x1, whose density is N(0, v) times N(x2; curve(x1), 1)."""
    nodes = np.linspace(-8, 8, num_nodes) * VARIANCE**0.5
    values = curve(nodes, bend)
    means = np.empty(len(x2))
    for i, value in enumerate(x2):
        log_density = -(nodes**2) / (2 * VARIANCE) - (value - values) ** 2 / 2
        density = np.exp(log_density - log_density.max())
        means[i] = density @ values / density.sum()
    return means


def r_squared(values: np.ndarray, target: np.ndarray) -> float:
    """Return the coefficient of determination, the mean over features."""
    residual = ((np.asarray(values).reshape(target.shape) - target) ** 2).sum(axis=0)  # one chain and draw
    return float(np.mean(1 - residual / ((target - target.mean(axis=0)) ** 2).sum(axis=0)))


if __name__ == "__main__":
    main()
