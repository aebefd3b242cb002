"""Exact Shapley values at few rows, amortized values at many: time, errors and intervals.

    python examples/benchmarks/amortized.py [--quick] [--rows 2000]

A Gaussian-process regression of scikit-learn learns Friedman's first function from 500 rows. It has 20 features, of
which the function uses the first five. "rkhs-shap" computes exact values at m of these rows, over a background of 100
others; quadrature is the method. Then the values at new rows are predicted by

* "naive-gp", a Gaussian process of the values, whose lengthscale the evidence chooses, or that has the model's own;
* kernel ridge regression, its penalty (and lengthscale) by cross-validation, and a network with two layers of 128
  units: one regression with all values as outputs, as FastSHAP is, without variances.

The table has, after compilation, processor seconds to fit to the m exact values, and processor microseconds per
predicted row. Next comes the root mean squared error, relative to the standard deviation of the exact values. "gap" is
the root mean squared difference between the sum of the values and the prediction minus the base value, relative to the
standard deviation of the predictions. The prediction of the model is cheap, so the gap can be closed (`with_sums`);
"closed" is the error then. The last columns are the shares of exact values in 90 % intervals (before, and closed), and
those (closed) of the five features that the function uses and of the others.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPRegressor

import kpp
from kpp.explanations import Explanation
from kpp.games import Interventional
from kpp_gpec import NaiveGP
from kpp_rkhs_shap import RKHSShap

NUM_USED, QUANTILE = 5, 1.6448536
PENALTIES = [1e-8, 1e-6, 1e-4, 1e-2]
SCORING = "neg_mean_squared_error"  # the default is the mean R^2, in which features without influence count as much


class Problem(NamedTuple):
    """A model and its exact values."""

    model: GaussianProcessRegressor
    lengthscale: np.ndarray  # of the model, (d,)
    rows: np.ndarray  # that may be explained exactly, (n, d)
    explanation: Explanation  # of them
    new: np.ndarray  # (p, d)
    truth: np.ndarray  # the exact values at the new rows, (p, d)
    totals: np.ndarray  # the predictions minus the base value there, (p,)
    seconds: float  # processor time of the exact values of the new rows


def make_problem(num_rows: int, num_background: int, num_features: int, num_new: int) -> Problem:
    """Fit the model, and compute exact values."""
    x, y = make_friedman1(num_rows + num_background, num_features, noise=1.0, random_state=0)
    new, _ = make_friedman1(num_new, num_features, random_state=1)
    kernel = ConstantKernel(10.0) * RBF(np.ones(num_features), (1e-2, 1e3)) + WhiteKernel(1.0)
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(
        x[num_background:], y[num_background:]
    )
    explainer = RKHSShap(Interventional(x[:num_background]), covariance=None, progress=False)
    explanation = kpp.explain(model, x[num_background:], explainer=explainer)
    start = time.process_time()
    exact = kpp.explain(model, new, explainer=explainer)
    seconds = time.process_time() - start
    totals = np.asarray(exact.predictions - exact.base_values)
    lengthscale = model.kernel_.k1.k2.length_scale
    return Problem(model, lengthscale, x[num_background:], explanation, new, exact.values.values, totals, seconds)


def with_sums(mean: np.ndarray, variance: np.ndarray, totals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the law of independent normal values (p, d) given their sums (p,).

    .. math:: \mu_j + \frac{v_j}{\sum_l v_l} \Bigl(t - \sum_l \mu_l\Bigr), \qquad v_j - \frac{v_j^2}{\sum_l v_l}
    """
    shares = variance / variance.sum(axis=1, keepdims=True)
    return mean + shares * (totals - mean.sum(axis=1))[:, None], variance * (1 - shares)


def processes(problem: Problem, num_known: int) -> dict[str, dict[str, Any]]:
    """Return the scores of Gaussian processes of the values."""
    known, explanation = problem.rows[:num_known], problem.explanation.isel(instance=slice(num_known))
    options = {
        "naive-gp": {},
        "naive-gp, model's lengthscales": {"lengthscale": problem.lengthscale, "standardize": False},
    }
    scores = {}
    for name, own in options.items():
        # The base explainer is not called, because its explanation is given.
        explainer = NaiveGP("rkhs-shap", known, **own)
        explainer.fit(problem.model, explanation=explanation).law(problem.new)
        start = time.process_time()
        fitted = explainer.fit(problem.model, explanation=explanation)
        middle = time.process_time()
        law = fitted.law(problem.new)
        times = middle - start, time.process_time() - middle
        scores[name] = score(problem, times, law.mean[..., 0], law.variance[..., 0])
    return scores


def regressions(problem: Problem, num_known: int) -> dict[str, dict[str, Any]]:
    """Return the scores of regressions that predict the values without variances."""
    location, scale = problem.rows.mean(axis=0), problem.rows.std(axis=0)
    values = problem.explanation.values.values[:num_known]
    largest = values.std(axis=0).max()
    ridge = {"gamma": [0.001, 0.003, 0.01, 0.03, 0.1], "alpha": PENALTIES}
    network = MLPRegressor(hidden_layer_sizes=(128, 128), solver="lbfgs", alpha=1e-3, max_iter=2000, random_state=0)
    estimators = {
        "kernel ridge": (GridSearchCV(KernelRidge(kernel="rbf"), ridge, scoring=SCORING), scale),
        "kernel ridge, model's lengthscales": (
            GridSearchCV(KernelRidge(kernel="rbf", gamma=0.5), {"alpha": PENALTIES}, scoring=SCORING),
            problem.lengthscale,
        ),
        "network": (network, scale),
    }
    scores = {}
    for name, (estimator, divisor) in estimators.items():
        start = time.process_time()
        estimator.fit((problem.rows[:num_known] - location) / divisor, values / largest)
        middle = time.process_time()
        found = largest * estimator.predict((problem.new - location) / divisor)
        scores[name] = score(problem, (middle - start, time.process_time() - middle), found, None)
    return scores


def score(
    problem: Problem, times: tuple[float, float], mean: np.ndarray, variance: np.ndarray | None
) -> dict[str, float]:
    """Return the numbers of one row of the table; without variances all features share a gap equally."""
    truth, totals = problem.truth, problem.totals
    size = np.sqrt(truth.var(axis=0).sum())
    closed, left = with_sums(mean, np.ones_like(mean) if variance is None else variance, totals)
    found = {
        "fit s": times[0],
        "us / row": 1e6 * times[1] / len(truth),
        "error": error(mean, truth) / size,
        "gap": float(np.sqrt(np.mean((totals - mean.sum(axis=1)) ** 2)) / totals.std()),
        "closed": error(closed, truth) / size,
    }
    if variance is None:
        return found
    held = np.abs(closed - truth) <= QUANTILE * np.sqrt(left)
    return found | {
        "held": float(np.mean(np.abs(mean - truth) <= QUANTILE * np.sqrt(variance))),
        "held closed": float(held.mean()),
        "held used": float(held[:, :NUM_USED].mean()),
        "held others": float(held[:, NUM_USED:].mean()),
    }


def error(found: np.ndarray, truth: np.ndarray) -> float:
    """Return the root mean squared distance between the rows."""
    return float(np.sqrt(np.mean(np.sum((found - truth) ** 2, axis=1))))


def main(arguments: list[str] | None = None) -> pd.DataFrame:
    """Measure, print the table, and return it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="6 features, 60 rows, and few new rows")
    parser.add_argument("--rows", type=int, default=2000, help="how many new rows")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore", ConvergenceWarning)  # lengthscales of features that are not used grow to the bound
    problem = make_problem(60, 20, 6, 50) if options.quick else make_problem(500, 100, 20, options.rows)
    print(f"exact values: {1e6 * problem.seconds / len(problem.new):.0f} us / row", flush=True)
    rows = []
    for num_known in (20, 40) if options.quick else (50, 100, 200, 400):
        scores = processes(problem, num_known) | regressions(problem, num_known)
        rows += [{"m": num_known, "method": name, **found} for name, found in scores.items()]
    table = pd.DataFrame(rows)
    print(table.to_string(index=False, float_format="{:.4g}".format, na_rep=""))
    return table


if __name__ == "__main__":
    main()
