"""How far the gain of collider regression can be trusted: the bound of theorem 4.2, and graphs that are partly wrong.

    python examples/reproduce/collider_limits.py [--seeds 40] [--small]

(Bouabid, Fawkes and Sejdinovic, Returning the favour: when regression benefits from probabilistic causal knowledge,
2023.) The simulation is that of `collider_simulation.py`, with 100 unlabeled rows and the hyperparameters of figure 4.

"bounds": by the number of labeled rows, both lower bounds of `ColliderRidge.least_gain`, the oracle gap of KRR, which
is the reduction of its error by the exact projection, and the measured reduction by the estimated one (P-KRR). The
lower bound of Var(Y | X) is the variance of Y given the Gaussian vector behind X.

"edges": the graph has an edge from the first spouse to Y that the methods do not know. Y is sqrt(1 - w^2) times what it
was plus w times the Gaussian variable behind this spouse, so that w is the correlation of both, and the children react
to the new Y. Errors by w, with 50 labeled rows; "detected" is the share of data sets in which
`kpp.embeddings.mean_independence_test` rejects the independence at 5 % on the labeled rows.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import click
import jax
import numpy as np
import pandas as pd
from collider_methods import Settings, fitted
from collider_simulation import (
    FOREST,
    NUM_CHILDREN,
    SIGMA,
    SMALL,
    Case,
    Plan,
    Process,
    Seed,
    gaussian,
    oracle_gap,
    transform,
)

from kpp.embeddings import mean_independence_test

SETTINGS = Settings((8.0, 2.0), 1.0, FOREST)
LABELED = (10, 20, 50, 100, 200)
EDGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7)
PROJECTIONS = {"KRR": "none", "P-KRR": "function", "H_P-KRR": "space"}
SPOUSE = NUM_CHILDREN  # the column of the first spouse
#: Weights of the children on the spouses and Y, in this order, and the variance of Y given children and spouses.
WEIGHTS = np.linalg.solve(SIGMA[NUM_CHILDREN:, NUM_CHILDREN:], SIGMA[NUM_CHILDREN:, :NUM_CHILDREN])
RESIDUAL = float(1.0 / np.linalg.inv(SIGMA)[-1, -1])


@dataclasses.dataclass(frozen=True)
class WrongProcess(Process):
    """The same data with an edge from the first spouse to Y."""

    edge: float = 0.0

    def draw(self, rng: np.random.Generator, num_rows: int, num_spouses: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw features, children first, and targets."""
        latent = gaussian(rng, num_rows, self.sigma)
        y = np.sqrt(1.0 - self.edge**2) * latent[:, -1] + self.edge * latent[:, SPOUSE]
        latent[:, :NUM_CHILDREN] += np.outer(y - latent[:, -1], WEIGHTS[-1])
        latent[:, -1] = y
        columns = self.standardise(transform(rng, latent, self.num_children))
        return columns[:, : self.num_children + num_spouses], columns[:, -1]


def bounds(seed: Seed, labeled: int) -> dict[str, Any]:
    """Return the bounds and the gains for one data set."""
    case = Case(labeled=labeled)
    sample = seed.sample(case)
    models = {name: SETTINGS.collider_ridge(sample, projection) for name, projection in PROJECTIONS.items()}
    functions = {name: fitted(models[name], sample) for name in ("KRR", "P-KRR")}
    least = models["KRR"].least_gain(sample.x, RESIDUAL / seed.process.scale[-1] ** 2, unlabeled=sample.unlabeled)
    points = seed.process.draw_given_latent(seed.rng(3), *seed.plan.gap, case.spouses)
    errors = {name: seed.error(function, case.spouses) for name, function in functions.items()}
    return {
        "labeled": labeled,
        "seed": seed.seed,
        "theorem 4.2": least.theorem,
        "trace bound": least.trace,
        "oracle gap": oracle_gap(functions["KRR"], points),
        "gain of P-KRR": errors["KRR"] - errors["P-KRR"],
    }


def edges(number: int, edge: float, plan: Plan, process: Process) -> dict[str, Any]:
    """Return the errors on one data set with a wrong graph."""
    wrong = WrongProcess(
        **{field.name: getattr(process, field.name) for field in dataclasses.fields(process)}, edge=edge
    )
    seed, case = Seed(number, wrong, SETTINGS, plan), Case()
    sample = seed.sample(case)
    found = {
        name: seed.error(fitted(SETTINGS.collider_ridge(sample, projection), sample), case.spouses)
        for name, projection in PROJECTIONS.items()
    }
    test = mean_independence_test(jax.random.key(number), sample.y, sample.x[:, list(sample.spouses)])
    gains = {f"gain of {name}": found["KRR"] - found[name] for name in ("P-KRR", "H_P-KRR")}
    return {"edge": edge, "seed": number, **found, **gains, "detected": float(test.p_value < 0.05)}


@click.command(help=__doc__)
@click.option("--seeds", default=40, show_default=True, help="Data sets.")
@click.option("--small", is_flag=True, help="Two data sets and few settings.")
def main(seeds: int, small: bool) -> dict[str, pd.DataFrame]:
    """Measure bounds and gains."""
    jax.config.update("jax_enable_x64", True)
    process, plan = Process.standardised(), SMALL if small else Plan(num_test=2000)
    numbers = range(2 if small else seeds)
    labeled, weights = (LABELED[1:2], EDGES[::6]) if small else (LABELED, EDGES)
    tables = {
        "bounds": [bounds(Seed(number, process, SETTINGS, plan), count) for count in labeled for number in numbers],
        "edges": [edges(number, edge, plan, process) for edge in weights for number in numbers],
    }
    frames = {name: pd.DataFrame(rows) for name, rows in tables.items()}
    for frame in frames.values():
        key = frame.columns[0]
        groups = frame.drop(columns="seed").groupby(key)
        click.echo(pd.concat({"mean": groups.mean(), "se": groups.sem()}).round(5).to_string())
    return frames


if __name__ == "__main__":
    main()
