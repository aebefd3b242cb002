"""Embeddings of identified effects: their errors, how often their intervals hold the truth, and their time.

    python examples/benchmarks/estimand_embeddings.py [--rows 100 300 1000] [--samples 20] [--draws 100]

Two effects that neither a back door nor a front door identifies: the front door with a covariate, and the napkin. In
the linear models the truth is exact; in the others it is the mean of a large sample under the intervention. The error
is the root mean square of E[Y | do(x)] at five treatments between the quantiles of 10 and 90 percent, in standard
deviations of the outcome, next to the error of the regression of Y on x. The intervals of 90 percent are those of the
bootstrap. The time is for a fit and five queries, and for the bootstrap.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd

from kpp.causal import CausalDAG
from kpp.embeddings import ConditionalMeanEmbedding, EstimandEmbedding, select_regularization
from kpp.kernels import RBF, median_heuristic

LEVELS = np.linspace(0.1, 0.9, 5)
TRUTH_ROWS = 400_000

Columns = dict[str, np.ndarray]


class Model(NamedTuple):
    """A causal model: its graph, and a function that draws a table, whose treatment may be set to a value."""

    graph: CausalDAG
    draw: Callable[[np.random.Generator, int, float | None], Columns]


def front_door(bend: Callable[[np.ndarray], np.ndarray]) -> Model:
    """Return a front door whose covariate is a cause of all its variables."""

    def draw(rng: np.random.Generator, n: int, value: float | None) -> Columns:
        hidden, z, *noise = rng.normal(size=(5, n))
        x = 0.6 * hidden + 0.6 * z + 0.6 * noise[0] if value is None else np.full(n, value)
        m = bend(x) + 0.5 * z + 0.5 * noise[1]
        return {"z": z, "x": x, "m": m, "y": m + 0.5 * z + 0.8 * hidden + 0.4 * noise[2]}

    edges = [("x", "m"), ("m", "y"), ("z", "x"), ("z", "m"), ("z", "y")]
    return Model(CausalDAG(edges, bidirected=[("x", "y")]), draw)


def napkin(bend: Callable[[np.ndarray], np.ndarray]) -> Model:
    """Return the napkin: w has hidden causes in common with x and with y."""

    def draw(rng: np.random.Generator, n: int, value: float | None) -> Columns:
        hidden_x, hidden_y, *noise = rng.normal(size=(6, n))
        w = 0.7 * hidden_x + 0.7 * hidden_y + 0.4 * noise[0]
        r = 0.7 * w + 0.7 * noise[1]
        x = 0.7 * r + 0.6 * hidden_x + 0.5 * noise[2] if value is None else np.full(n, value)
        return {"w": w, "r": r, "x": x, "y": bend(x) + 0.8 * hidden_y + 0.4 * noise[3]}

    return Model(CausalDAG([("w", "r"), ("r", "x"), ("x", "y")], bidirected=[("w", "x"), ("w", "y")]), draw)


MODELS = {
    "front door, linear": front_door(lambda x: 0.9 * x),
    "front door, bent": front_door(lambda x: 1.2 * np.sin(1.5 * x)),
    "napkin, linear": napkin(lambda x: 0.9 * x),
    "napkin, bent": napkin(lambda x: 1.2 * np.sin(1.5 * x)),
}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 300, 1000], help="rows of the samples")
    parser.add_argument("--samples", type=int, default=20, help="samples of each size")
    parser.add_argument("--draws", type=int, default=100, help="draws of the bootstrap, 0 for none")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="the models")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(
        f"{'model':>20} {'n':>6} {'error':>14} {'plain':>7} {'coverage':>14} {'width':>7} {'fit s':>7} {'draws s':>8}"
    )
    for name in options.models:
        query, truth = true_effect(MODELS[name])
        for n in options.rows:
            seeds = range(options.samples)
            results = [one_sample(MODELS[name], seed, n, options.draws, query, truth) for seed in seeds]
            errors, plain, covered, widths, fits, draws = map(np.array, zip(*results, strict=True))
            print(f"{name:>20} {n:>6} {shown(errors):>14} {plain.mean():>7.3f} {shown(covered):>14}", end="")
            print(f" {widths.mean():>7.2f} {np.median(fits):>6.1f}s {np.median(draws):>6.1f}s", flush=True)


def shown(values: np.ndarray) -> str:
    """Return a mean and its standard error."""
    return f"{values.mean():.3f} ({values.std(ddof=1) / np.sqrt(len(values)):.3f})"


def true_effect(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Return treatments, and the expected outcome at each of them."""
    rng = np.random.default_rng(10**6)
    query = np.quantile(model.draw(rng, TRUTH_ROWS, None)["x"], LEVELS)
    return query[:, None], np.array([model.draw(rng, TRUTH_ROWS, value)["y"].mean() for value in query])


def one_sample(
    model: Model, seed: int, n: int, num_draws: int, query: np.ndarray, truth: np.ndarray
) -> tuple[float, float, float, float, float, float]:
    """Return error, error of the plain regression, coverage, width, and the seconds of fit and bootstrap."""
    frame = pd.DataFrame(model.draw(np.random.default_rng(seed), n, None))
    center, scale = frame["y"].mean(), frame["y"].std()
    values = ((frame["y"] - center) / scale).to_numpy()
    wanted = (truth - center) / scale
    start = time.perf_counter()
    embedding = EstimandEmbedding.from_graph(model.graph, frame, "x", "y")
    found = np.asarray(embedding.expectation(values, query))
    fitted = time.perf_counter()
    errors = [float(np.sqrt(np.mean((each - wanted) ** 2))) for each in (found, plain_effect(frame, values, query))]
    if not num_draws:
        return *errors, np.nan, np.nan, fitted - start, np.nan
    start_draws = time.perf_counter()
    draws = embedding.bootstrap(jax.random.key(seed), values, query, num_draws=num_draws)
    low, high = draws.quantile([0.05, 0.95], ("chain", "draw")).to_numpy()
    covered = float(np.mean((low <= wanted) & (wanted <= high)))
    return *errors, covered, float(np.mean(high - low)), fitted - start, time.perf_counter() - start_draws


def plain_effect(frame: pd.DataFrame, values: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Return the kernel regression of the outcome on the treatment, which is confounded."""
    x, y = frame[["x"]].to_numpy(), values[:, None]
    embedding = ConditionalMeanEmbedding(
        kernel=RBF(1.0), input_kernel=RBF(median_heuristic(x)), inputs=x, points=y, regularization=1.0
    )
    return np.asarray(select_regularization(embedding).embedding.expectation(values, query))


if __name__ == "__main__":
    main()
