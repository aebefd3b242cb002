"""Observational Shapley values in low rank: time, memory and error, beside the exact game.

Run it as `python examples/benchmarks/observational_landmarks.py [--features 10] [--exact 500 2000] [--sizes 500 2000
20000] [--landmarks 100 200 400] [--coalitions 1024]`.
The features are jointly Gaussian, and the function is a kernel ridge regression on 300 points with an RBF kernel. So
the true conditional expectations have a closed form. All methods value the same coalitions: all of them if the budget
allows for it, otherwise sampled ones. Each game runs in a process of its own, whose peak memory is shown; a first call
compiles its programs. Errors are root mean squared differences of Shapley values, relative to the root mean square of
the true ones: from the exact game with the same background, and from the truth. The column "told" is the error of
values that `kpp.games.landmark_error` tells from 1000 background points and 20 coalitions.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from kpp.functions import RKHSFunction
from kpp.games import AbstractValueFunction, Observational, estimate_shapley, landmark_error
from kpp.kernels import RBF

NUM_POINTS, NOISE = 300, 0.3


class Problem(NamedTuple):
    """A function of Gaussian features, points to explain, and the coalitions to value."""

    function: RKHSFunction
    covariance: Float[np.ndarray, "d d"]
    x: Float[np.ndarray, "p d"]
    coalitions: int

    def background(self, size: int) -> Float[np.ndarray, "m d"]:
        """Draw background points."""
        return np.random.default_rng(size).multivariate_normal(np.zeros(len(self.covariance)), self.covariance, size)

    def shapley(self, game: AbstractValueFunction) -> Float[np.ndarray, "p d"]:
        """Return the Shapley values of a game; all games are valued at the same coalitions."""
        key = jax.random.key(0)
        estimate = estimate_shapley(game, self.function, self.x, num_coalitions=self.coalitions, rng_key=key)
        return np.asarray(estimate.values)


class Truth(AbstractValueFunction):
    """The conditional expectation of a function with an RBF kernel under a Gaussian distribution with mean 0."""

    covariance: Float[np.ndarray, "d d"] = eqx.field(converter=np.asarray)

    def __call__(self, function: Any, x: Any, coalitions: Any) -> Float[Array, "c p"]:
        """Value coalitions one by one, by the closed form."""
        values = [self.value(function, np.asarray(x), mask) for mask in np.asarray(coalitions)]
        return jax.numpy.asarray(np.stack(values) + float(function.intercept))

    def base(self, function: Any) -> Float[Array, ""]:
        """Return the expectation of the function."""
        size = len(self.covariance)
        return self(function, np.zeros((1, size)), np.zeros((1, size), bool))[0, 0]

    def value(self, function: Any, x: np.ndarray, mask: np.ndarray) -> Float[np.ndarray, " p"]:
        """Value a coalition without the intercept."""
        points = np.asarray(function.points)
        squares = np.broadcast_to(np.asarray(function.kernel.lengthscale) ** 2, len(mask))
        known, absent = self.covariance[np.ix_(mask, mask)], self.covariance[np.ix_(~mask, mask)]
        slopes = np.linalg.solve(known, absent.T).T
        spread = self.covariance[np.ix_(~mask, ~mask)] - slopes @ absent.T
        widened = spread + np.diag(squares[~mask])
        scale = np.sqrt(np.prod(squares[~mask]) / np.linalg.det(widened))
        gaps = (x[:, mask] @ slopes.T)[:, None] - points[None, :, ~mask]
        absent_part = np.exp(-0.5 * np.einsum("pni,ij,pnj->pn", gaps, np.linalg.inv(widened), gaps, optimize=True))
        present = np.exp(-0.5 * (((x[:, None] - points[None])[..., mask]) ** 2 / squares[mask]).sum(axis=2))
        return scale * (present * absent_part) @ np.asarray(function.coefficients)


def main() -> None:
    """Measure and print the table."""
    options = parse()
    if options.run:
        run(problem(options), *options.run)
        return
    print(
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {options.features} features, {options.points} points"
    )
    task = problem(options)
    truth = task.shapley(Truth(task.covariance))
    scale = np.sqrt(np.mean(truth**2))
    print(f"{'m':>6} {'b':>6} {'seconds':>8} {'ms a coalition':>15} {'us, point too':>14} {'GB':>5}", end="")
    print(f" {'from exact':>11} {'told':>8} {'from truth':>11}")
    for size in sorted({*options.sizes, *options.exact}):
        exact = None
        for landmarks in [0] * (size in options.exact) + [b for b in options.landmarks if size in options.sizes]:
            found = in_process(size, landmarks)
            values = np.array(found["values"])
            exact = values if landmarks == 0 else exact
            errors = [
                np.nan if other is None else np.sqrt(np.mean((values - other) ** 2)) / scale for other in (exact, truth)
            ]
            each = found["seconds"] / min(options.coalitions, 2**options.features)
            line = f"{size:>6} {landmarks or 'exact':>6} {found['seconds']:>8.1f} {1e3 * each:>15.2f}"
            line += f" {1e6 * each / options.points:>14.1f} {found['memory']:>5.2f}"
            print(f"{line} {errors[0]:>11.5f} {found['told']:>8.5f} {errors[1]:>11.5f}", flush=True)


def parse() -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--points", type=int, default=100, help="how many points are explained")
    parser.add_argument("--exact", type=int, nargs="*", default=[500, 2000], help="sizes of the background, exact game")
    parser.add_argument("--sizes", type=int, nargs="*", default=[500, 2000, 20000], help="sizes with landmarks")
    parser.add_argument("--landmarks", type=int, nargs="+", default=[100, 200, 400])
    parser.add_argument("--coalitions", type=int, default=1024, help="how many coalitions are valued at most")
    parser.add_argument("--run", nargs=3, metavar=("SIZE", "LANDMARKS", "FILE"), help=argparse.SUPPRESS)
    jax.config.update("jax_enable_x64", True)
    return parser.parse_args()


def problem(options: argparse.Namespace) -> Problem:
    """Draw the features, and fit the function."""
    rng = np.random.default_rng(0)
    size = options.features
    loadings = rng.normal(size=(size, max(2, size // 3)))
    covariance = loadings @ loadings.T / loadings.shape[1] + 0.3 * np.eye(size)
    covariance /= np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    draws = rng.multivariate_normal(np.zeros(size), covariance, NUM_POINTS + options.points)
    points, x = draws[:NUM_POINTS], draws[NUM_POINTS:]
    target = np.sin(2 * points[:, 0]) + points[:, 1] * points[:, 2] + points[:, 3:].sum(axis=1) / size
    kernel = RBF(lengthscale=np.full(size, np.sqrt(size)))
    matrix = np.asarray(kernel.gram(points)) + NOISE**2 * np.eye(NUM_POINTS)
    function = RKHSFunction(kernel, points, np.linalg.solve(matrix, target - target.mean()), target.mean())
    return Problem(function, covariance, x, options.coalitions)


def in_process(size: int, landmarks: int) -> dict[str, Any]:
    """Measure a game in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        subprocess.run([sys.executable, *sys.argv, "--run", str(size), str(landmarks), str(file)], check=True)
        return json.loads(file.read_text())


def run(task: Problem, size: str, landmarks: str, file: str) -> None:
    """Write the Shapley values of a game, the seconds they took, the peak memory in GB, and the error that is told."""
    game = Observational(task.background(int(size)), landmarks=int(landmarks) or None)
    task.shapley(game)
    start = time.perf_counter()
    values = task.shapley(game)
    seconds = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    told = np.nan
    if game.landmarks is not None:
        told = landmark_error(game, task.function, task.x[:20], rng_key=jax.random.key(1)).relative
    Path(file).write_text(json.dumps({"values": values.tolist(), "seconds": seconds, "memory": memory, "told": told}))


if __name__ == "__main__":
    main()
