"""Simulations with confounders and a known effect, for examples/coverage/effects.py and effect_peers.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from kpp.causal import CausalDAG
from kpp.gp import AbstractPointwiseLikelihood, BernoulliLikelihood, PoissonLikelihood


@dataclasses.dataclass(frozen=True)
class Simulation:
    """A law of tables with columns t, y and confounders, and the effect of one value of t against another.

    Args:
        law: What is simulated.
        table: Simulates a table of n rows.
        levels: The value of the treatment and the reference.
        truth: The effect, the difference of the expected outcomes.
        derivative: The average derivative for a treatment of numbers, otherwise None.
        likelihood: The likelihood of the outcome; None for numbers with Gaussian noise.
    """

    law: str
    table: Callable[[np.random.Generator, int], pd.DataFrame]
    levels: tuple[Any, Any]
    truth: float
    derivative: float | None = None
    likelihood: AbstractPointwiseLikelihood | None = None
    graph: CausalDAG = dataclasses.field(default_factory=lambda: confounded("z"))


def confounded(*names: str) -> CausalDAG:
    """Return the graph in which some columns confound treatment and outcome."""
    return CausalDAG([("t", "y"), *((name, node) for name in names for node in ("t", "y"))])


COLLINEAR = tuple(f"z{j}" for j in range(5))


def logistic(score: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-score))


def _of_levels(surface: Callable, noise: float) -> Callable[[np.random.Generator, int], pd.DataFrame]:
    """Return a simulation of a treatment of two levels, whose log-odds are z."""

    def table(rng: np.random.Generator, num_rows: int) -> pd.DataFrame:
        z = rng.normal(size=num_rows)
        t = (rng.uniform(size=num_rows) < logistic(z)).astype(float)
        return pd.DataFrame({"z": z, "t": t, "y": surface(t, z) + noise * rng.normal(size=num_rows)})

    return table


def _of_doses(surface: Callable, noise: float) -> Callable[[np.random.Generator, int], pd.DataFrame]:
    """Return a simulation of a dose 0.7 z plus a standard normal variable."""

    def table(rng: np.random.Generator, num_rows: int) -> pd.DataFrame:
        z = rng.normal(size=num_rows)
        t = 0.7 * z + rng.normal(size=num_rows)
        return pd.DataFrame({"z": z, "t": t, "y": surface(t, z) + noise * rng.normal(size=num_rows)})

    return table


def _few_treated(rng: np.random.Generator, num_rows: int) -> pd.DataFrame:
    """Treat a tenth of the rows, those with the largest sums of z and a logistic variable."""
    z = rng.normal(size=num_rows)
    t = np.zeros(num_rows)
    t[np.argsort(-(z + rng.logistic(size=num_rows)))[: num_rows // 10]] = 1.0
    y = np.sin(2 * z) + z + t * (1 + np.cos(z)) + 0.5 * rng.normal(size=num_rows)
    return pd.DataFrame({"z": z, "t": t, "y": y})


def _collinear(rng: np.random.Generator, num_rows: int) -> pd.DataFrame:
    """Return a dose and five covariates, of which any two covariates have the correlation 0.9."""
    shared, *own = rng.normal(size=(7, num_rows))
    z = np.sqrt(0.9) * shared[:, None] + np.sqrt(0.1) * np.transpose(own[:5])
    t = np.sqrt(0.9) * z.mean(axis=1) + np.sqrt(0.1) * own[5]
    y = t + z.sum(axis=1) / 2 + 0.5 * rng.normal(size=num_rows)
    return pd.DataFrame({**dict(zip(COLLINEAR, z.T, strict=True)), "t": t, "y": y})


def _labels(rng: np.random.Generator, num_rows: int) -> pd.DataFrame:
    """Return labels whose log-odds are z and 1.5 times the treatment."""
    table = _of_levels(lambda t, z: 1.5 * (t - 0.5) + z, 0.0)(rng, num_rows)
    return table.assign(y=(rng.uniform(size=num_rows) < logistic(table["y"].to_numpy())).astype(float))


def _counts(rng: np.random.Generator, num_rows: int) -> pd.DataFrame:
    """Return counts whose log-rates are half the sum of dose and z."""
    table = _of_doses(lambda t, z: (t + z) / 2, 0.0)(rng, num_rows)
    return table.assign(y=rng.poisson(np.exp(table["y"].to_numpy())).astype(float))


def mean_chance(center: float) -> float:
    """Return the mean of the logistic function at N(center, 1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    return float(weights @ logistic(center + nodes) / weights.sum())


_LEVELS, _DOSE = "a treatment of two levels with log-odds z", "a dose 0.7 z + N(0, 1)"
SIMULATIONS = {
    "linear, two levels": Simulation(
        f"{_LEVELS}, with the effect 2 + z / 2 on top of z, and noise of 0.5.",
        _of_levels(lambda t, z: 2 * t + z + 0.5 * t * z, 0.5),
        (1.0, 0.0),
        2.0,
    ),
    "nonlinear, two levels": Simulation(
        f"{_LEVELS}, with the effect 1 + cos z on top of sin 2z + z, and noise of 0.5.",
        # E cos Z is exp(-1 / 2).
        _of_levels(lambda t, z: np.sin(2 * z) + z + t * (1 + np.cos(z)), 0.5),
        (1.0, 0.0),
        1 + float(np.exp(-0.5)),
    ),
    # The effect is largest for rows of which few are treated.
    "growing, two levels": Simulation(
        f"{_LEVELS}, with the effect 1 + z^2 / 2, largest where few are treated, on top of sin 2z + z, and noise of "
        "0.5.",
        _of_levels(lambda t, z: np.sin(2 * z) + z + t * (1 + z**2 / 2), 0.5),
        (1.0, 0.0),
        1.5,
    ),
    "few treated": Simulation(
        "a tenth of the rows is treated, mostly those with large z; the effect is 1 + cos z on top of sin 2z + z, and "
        "the noise 0.5.",
        _few_treated,
        (1.0, 0.0),
        1 + float(np.exp(-0.5)),
    ),
    "linear, number": Simulation(
        f"{_DOSE}, and the outcome t + z with noise of 0.5.", _of_doses(lambda t, z: t + z, 0.5), (1.0, -1.0), 2.0, 1.0
    ),
    "nonlinear, number": Simulation(
        f"{_DOSE}, and the outcome sin t + z^2 / 2 + z with noise of 0.3.",
        # E cos T for T ~ N(0, 1.49) is exp(-1.49 / 2).
        _of_doses(lambda t, z: np.sin(t) + z**2 / 2 + z, 0.3),
        (1.0, -1.0),
        2 * np.sin(1.0),
        float(np.exp(-1.49 / 2)),
    ),
    "collinear, number": Simulation(
        "five covariates of correlation 0.9, a dose 0.95 times their mean plus N(0, 0.1), and the outcome t plus half "
        "of their sum, with noise of 0.5.",
        _collinear,
        (1.0, -1.0),
        2.0,
        1.0,
        graph=confounded(*COLLINEAR),
    ),
    # E of the logistic function at a normal variable, by quadrature.
    "labels, two levels": Simulation(
        f"{_LEVELS}, and labels with log-odds 1.5 (t - 0.5) + z.",
        _labels,
        (1.0, 0.0),
        mean_chance(0.75) - mean_chance(-0.75),
        likelihood=BernoulliLikelihood(),
    ),
    # The mean rate at the dose t is exp(t / 2 + 1 / 8), and E exp((T + Z) / 2) = exp(Var(T + Z) / 8), of variance 3.89.
    "counts, number": Simulation(
        f"{_DOSE}, and counts with log-rates (t + z) / 2.",
        _counts,
        (1.0, -1.0),
        float(2 * np.sinh(0.5) * np.exp(1 / 8)),
        float(np.exp(3.89 / 8) / 2),
        PoissonLikelihood(),
    ),
}
