"""Observational values of all coalitions: kpp, NumPy, and an equivalent number of matrix products, in one run.

    python examples/benchmarks/rkhs_shap_observational.py [--coalitions 1024] [--rounds 3]

All 442 points of the diabetes data are explained, and all are the background. For each coalition the linear algebra
consists of a factorization (n^3 / 3), a solve for all points (2 n^3) and a product (2 n^3). This equals 13/6 products
of 442 x 442 matrices. The methods alternate over the rounds, and the table shows the minimum time of each. NumPy
evaluates fewer coalitions, drawn at random; its values must agree. BLAS has one thread, as in the explainer
"rkhs-shap": with more threads, BLAS and XLA wait for each other, and for matrices of this size NumPy is also faster
with one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from kpp.functions import RKHSFunction
from kpp.games import Observational, all_coalitions
from kpp.kernels import RBF

NUMPY_COALITIONS = 32


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--coalitions", type=int, default=1024, help="how many of the 1024 coalitions")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds, of which the fastest counts")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    x, function = fit()
    coalitions = np.random.default_rng(0).permutation(all_coalitions(x.shape[1]))[: options.coalitions]
    some = coalitions[:NUMPY_COALITIONS]
    game = Observational(x)
    elsewhere = Observational(
        x[::-1]
    )  # the background in another order: so that explaining the background is not a special case
    error = check(game, function, x, some)

    methods: dict[str, tuple[Callable[[], object], float]] = {
        "kpp": (lambda: game(function, x, coalitions), len(coalitions)),
        "kpp, other points": (lambda: elsewhere(function, x, coalitions), len(coalitions)),
        "NumPy and SciPy": (lambda: numpy_values(x, function, some), len(some)),
        "13/6 products": (products(x, len(coalitions)), len(coalitions) * 6 / 13),
    }
    with threadpool_limits(1, user_api="blas"):
        times = fastest(methods, options.rounds)
    floor, numpy_time = times["13/6 products"], times["NumPy and SciPy"]
    print(f"{len(coalitions)} coalitions, {len(x)} points, {len(x)} background points; largest difference {error:.1e}")
    print(f"{'':<20} {'ms / coalition':>15} {'/ products':>16} {'NumPy / this':>12}")
    for name, seconds in times.items():
        print(f"{name:<20} {1e3 * seconds:>15.2f} {seconds / floor:>16.2f} {numpy_time / seconds:>11.1f}x")


def fit() -> tuple[np.ndarray, RKHSFunction]:
    """Fit kernel ridge regression to the standardized data."""
    x, y = load_diabetes(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    kernel = RBF(lengthscale=jnp.full(x.shape[1], np.sqrt(x.shape[1])))
    matrix = np.asarray(kernel.gram(x)) + np.eye(len(x))
    return x, RKHSFunction(kernel, x, np.linalg.solve(matrix, y - y.mean()), y.mean())


def check(game: Observational, function: RKHSFunction, x: np.ndarray, coalitions: np.ndarray) -> float:
    """Return the largest difference between the values of kpp and of NumPy, relative to the largest value."""
    proper = coalitions[coalitions.any(axis=1) & ~coalitions.all(axis=1)]
    expected = numpy_values(x, function, proper)
    return float(np.abs(np.asarray(game(function, x, proper)) - expected).max() / np.abs(expected).max())


def numpy_values(x: np.ndarray, function: RKHSFunction, coalitions: np.ndarray) -> np.ndarray:
    """Evaluate proper coalitions in the most direct way: four kernel matrices and a solution for each."""
    lengthscale = np.asarray(function.kernel.lengthscale)
    background, points = x / lengthscale, np.asarray(function.points) / lengthscale
    explained, ridge = background, len(x) * float(Observational(x).regularization)
    values = []
    for mask in coalitions:
        matrix = rbf(background[:, mask], background[:, mask]) + ridge * np.eye(len(x))
        weights = scipy.linalg.solve(matrix, rbf(background[:, mask], explained[:, mask]), assume_a="pos")
        sections = rbf(points[:, mask], explained[:, mask]) * (rbf(points[:, ~mask], background[:, ~mask]) @ weights)
        values.append(np.asarray(function.coefficients) @ sections + float(function.intercept))
    return np.array(values)


def rbf(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the RBF kernel matrix of points in lengthscales."""
    return np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(axis=2))


def products(x: np.ndarray, repeats: int) -> Callable[[], jax.Array]:
    """Return a function that multiplies square matrices of the size of the data a given number of times."""
    matrix = jnp.asarray(np.random.default_rng(0).normal(size=(len(x), len(x))) / np.sqrt(len(x)))

    @jax.jit
    def multiply(matrix: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, repeats, lambda _, total: matrix @ total, matrix)

    return lambda: multiply(matrix)


def fastest(methods: dict[str, tuple[Callable[[], object], float]], rounds: int) -> dict[str, float]:
    """Return the fastest time of each method for one unit of its work; a first call compiles and does not count."""
    times: dict[str, list[float]] = {name: [] for name in methods}
    for number in range(rounds + 1):
        for name, (method, units) in methods.items():
            start = time.perf_counter()
            jax.block_until_ready(method())
            if number:
                times[name].append((time.perf_counter() - start) / units)
    return {name: min(values) for name, values in times.items()}


if __name__ == "__main__":
    main()
