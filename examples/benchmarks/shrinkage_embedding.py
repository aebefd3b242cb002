"""Conditional mean embeddings from bags: time and error with one unknown per bag and with one unknown per point.

    python examples/benchmarks/shrinkage_embedding.py [--scale 0.6] [--repeats 5] [--output FOLDER]

Bags of points x given y, with y ~ N(0, 2) and x ~ N(y sin y, 0.5^2), kernels by the median heuristic, regularization
0.1, as in appendix A.4.2 of Chau's thesis: 3 bags of 50 points and 50 bags of 3 (figures A.1 and A.2), 50 bags of 500
points and 500 bags of 50 (figures A.3 and A.4). The usual estimator repeats y for each point and solves a system of all
points, here with NumPy and SciPy's Cholesky factorization on all threads. `--scale` is the share of each bag's points
that is used for figures A.3 and A.4. All 25,000 points need 5 GB and a LAPACK that can factorize such a matrix; the
LAPACK of SciPy crashed on the machine where this script was written. `--output` draws figures A.1 and A.2.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.linalg

from kpp import Bags
from kpp.embeddings import ReplicatedConditionalMeanEmbedding, ShrinkageConditionalMeanEmbedding
from kpp.kernels import RBF, median_heuristic

REGULARIZATION, NOISE = 0.1, 0.5
CLASSES = (ReplicatedConditionalMeanEmbedding, ShrinkageConditionalMeanEmbedding)
HEADER = (
    f"{'bags':>5} {'points':>7} {'naive':>9} {'replicated':>11} {'shrinkage':>10} {'first call':>11} {'faster':>8} "
    f"{'repl.-naive':>12} {'shrink.-naive':>14} {'naive-truth':>12} {'shrink.-truth':>14} {'unscaled':>9}"
)
REASON = """
Times are for the weights of all points at the test points; "first call" of shrinkage is with compilation. Errors
are root mean squares over the test points (x*, y*) of the embeddings' values, between estimators and from the true
E[k(X, x*) | y*]. For bags of equal sizes all three estimators are one, up to rounding; in the last line sizes differ,
and so do they. The thesis prints factors of 600 and 200 and differences of .03 and .02 for equal sizes, which these
estimators cannot show; "unscaled" is the difference of replicated and shrinkage if both systems have 0.1 itself on
their diagonals, and not 0.1 times the number of rows."""


class Problem(NamedTuple):
    """Bags, the points where embeddings are compared, and the kernels."""

    bags: Bags
    x_test: np.ndarray
    y_test: np.ndarray
    kernel: RBF
    input_kernel: RBF

    @property
    def kernels(self) -> dict[str, RBF]:
        """The kernels, by the names of the arguments of an embedding."""
        return {"kernel": self.kernel, "input_kernel": self.input_kernel}


@eqx.filter_jit
def weights(embedding: Any, query: Any) -> Any:
    """Return the weights of all points."""
    return embedding.weights(query)


@eqx.filter_jit
def values(embedding: Any, x: Any, query: Any) -> Any:
    """Return the value at x* of the embedding given y*, for each pair."""
    return jnp.diagonal(embedding.evaluate(x, query))


def main(arguments: list[str] | None = None) -> dict[str, pd.DataFrame]:
    """Measure, and print and return the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", type=float, default=0.6, help="factor on the number of points of each bag")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of kpp, of which the median counts")
    parser.add_argument("--output", type=Path, help="a folder for the pictures of figures A.1 and A.2")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    print(HEADER)
    small = [np.full(num_bags, size) for num_bags, size in ((3, 50), (50, 3))]
    large = [np.full(num_bags, max(1, round(options.scale * size))) for num_bags, size in ((50, 500), (500, 50))]
    unequal = np.maximum(1, np.round(options.scale * np.linspace(10, 90, 50))).astype(int)
    rows = []
    for sizes in (*small, *large, unequal):
        rows.append(measure(make_problem(sizes), options.repeats))
        print(line(rows[-1]), flush=True)
    print(REASON)
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        for figure, sizes in zip(("a1", "a2"), small, strict=True):
            draw(make_problem(sizes), options.output / f"figure_{figure}.png")
    return {"times": pd.DataFrame(rows)}


def make_problem(sizes: np.ndarray, seed: int = 0, num_test: int = 100) -> Problem:
    """Draw bags of the given sizes."""
    rng = np.random.default_rng(seed)
    y = np.sqrt(2) * rng.normal(size=(len(sizes), 1))
    bag = np.repeat(np.arange(len(sizes)), sizes)
    x = (y * np.sin(y))[bag] + NOISE * rng.normal(size=(len(bag), 1))
    y_test = np.linspace(-3, 3, num_test)[:, None]
    x_test = y_test * np.sin(y_test) + NOISE * rng.normal(size=y_test.shape)
    kernel, input_kernel = RBF(median_heuristic(x)), RBF(median_heuristic(y))
    return Problem(Bags.create(x, bag, y), x_test, y_test, kernel, input_kernel)


def measure(problem: Problem, repeats: int) -> dict[str, float]:
    """Compare the estimators on one problem, and return a row of the table."""
    bags = problem.bags
    replicated, shrinkage = (cls(**problem.kernels, bags=bags, regularization=REGULARIZATION) for cls in CLASSES)
    first = seconds(lambda: weights(shrinkage, problem.y_test).block_until_ready())
    weights(replicated, problem.y_test).block_until_ready()
    ours = [median_seconds(case, problem.y_test, repeats) for case in (replicated, shrinkage)]
    start = time.perf_counter()
    naive_weights = solve_naively(problem)
    naive = time.perf_counter() - start
    found = [np.asarray(values(case, problem.x_test, problem.y_test)) for case in (replicated, shrinkage)]
    expected = np.sum(naive_weights * gaussian(np.asarray(bags.points), problem.x_test, problem.kernel), axis=0)
    errors = [root_mean_square(found[0] - expected), root_mean_square(found[1] - expected)]
    errors += [root_mean_square(case - truth(problem)) for case in (expected, found[1])]
    return {
        "bags": bags.num_bags,
        "points": bags.num_points,
        "naive, s": naive,
        "replicated, s": ours[0],
        "shrinkage, s": ours[1],
        "first call, s": first,
        "times faster": naive / ours[1],
        "replicated minus naive": errors[0],
        "shrinkage minus naive": errors[1],
        "naive minus truth": errors[2],
        "shrinkage minus truth": errors[3],
        "unscaled": unscaled_difference(problem),
    }


def line(row: dict[str, float]) -> str:
    """Return a row in words."""
    bags, points, naive, replicated, shrinkage, first, faster, *errors, unscaled = row.values()
    return (
        f"{bags:>5} {points:>7} {naive:>7.2f} s {replicated * 1e3:>8.1f} ms {shrinkage * 1e3:>7.1f} ms "
        f"{first:>9.2f} s {faster:>7.0f}x {errors[0]:>12.0e} {errors[1]:>14.0e} {errors[2]:>12.4f} "
        f"{errors[3]:>14.4f} {unscaled:>9.4f}"
    )


def draw(problem: Problem, path: Path) -> None:
    """Draw the bags, and the values of both embeddings at (x*, y*) on a grid."""
    import matplotlib.pyplot as plt

    points, covariates = np.asarray(problem.bags.points), np.asarray(problem.bags.covariates)
    x, y = np.linspace(points.min(), points.max(), 80)[:, None], np.linspace(-3, 3, 80)[:, None]
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained", sharex=True, sharey=True)
    axes[0].scatter(covariates[np.asarray(problem.bags.index), 0], points[:, 0], s=6)
    axes[0].set(title=f"{problem.bags.num_bags} bags, {problem.bags.num_points} points", xlabel="y", ylabel="x")
    for axis, cls, title in zip(axes[1:], CLASSES, ("standard", "shrinkage"), strict=True):
        embedding = cls(**problem.kernels, bags=problem.bags, regularization=REGULARIZATION)
        shown = axis.pcolormesh(y[:, 0], x[:, 0], np.asarray(embedding.evaluate(x, y)).T, vmin=0.0, vmax=1.0)
        axis.set(title=f"embedding, {title}", xlabel="y")
    figure.colorbar(shown, ax=axes, label="E[k(X, x) | y]")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def solve_naively(problem: Problem) -> np.ndarray:
    """Return the weights of the estimator on repeated covariates, (n, test), by one system of all points."""
    repeated = np.asarray(problem.bags.covariates)[np.asarray(problem.bags.index)]
    matrix = gaussian(repeated, repeated, problem.input_kernel)
    matrix[np.diag_indices_from(matrix)] += len(matrix) * REGULARIZATION
    factor = scipy.linalg.cho_factor(matrix.T, lower=True, overwrite_a=True, check_finite=False)
    sections = gaussian(repeated, problem.y_test, problem.input_kernel)
    return scipy.linalg.cho_solve(factor, sections, check_finite=False)


def gaussian(first: np.ndarray, second: np.ndarray, kernel: RBF) -> np.ndarray:
    """Return an RBF kernel matrix between points with one feature, computed in place."""
    matrix = np.subtract(first, second.T)
    np.square(matrix, out=matrix)
    matrix *= -0.5 / float(np.squeeze(kernel.lengthscale)) ** 2
    return np.exp(matrix, out=matrix)


def truth(problem: Problem) -> np.ndarray:
    """Return E[k(X, x*) | y*] of the Gaussian distribution of X."""
    lengthscale = float(np.squeeze(problem.kernel.lengthscale))
    spread = lengthscale**2 + NOISE**2
    mean = problem.y_test * np.sin(problem.y_test)
    return (lengthscale / np.sqrt(spread) * np.exp(-((problem.x_test - mean) ** 2) / (2 * spread)))[:, 0]


def unscaled_difference(problem: Problem) -> float:
    """Return the difference of the estimators if both have 0.1 on the diagonal, for any number of rows."""
    bags = problem.bags
    pair = zip(CLASSES, (bags.num_points, bags.num_bags), strict=True)
    cases = [cls(**problem.kernels, bags=bags, regularization=REGULARIZATION / rows) for cls, rows in pair]
    replicated, shrinkage = (np.asarray(values(case, problem.x_test, problem.y_test)) for case in cases)
    return root_mean_square(replicated - shrinkage)


def median_seconds(embedding: Any, query: np.ndarray, repeats: int) -> float:
    """Return the median of the seconds that the weights take, once they are compiled."""
    return statistics.median(seconds(lambda: weights(embedding, query).block_until_ready()) for _ in range(repeats))


def root_mean_square(differences: np.ndarray) -> float:
    """Return the root of the mean of the squares."""
    return float(np.sqrt(np.mean(np.square(differences))))


def seconds(run: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
