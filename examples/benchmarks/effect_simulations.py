"""Simulations with a confounder and a known effect, for effect_coverage.py and effect_peers.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pandas as pd

from kpp.causal import CausalDAG
from kpp.gp import AbstractPointwiseLikelihood, BernoulliLikelihood, PoissonLikelihood


@dataclasses.dataclass(frozen=True)
class Simulation:
    """A law of tables with columns z, t and y, and the effect of one value of t against another.

    Args:
        table: Simulates a table of n rows.
        levels: The value of the treatment and the reference.
        truth: The effect, the difference of the expected outcomes.
        derivative: The average derivative for a treatment of numbers, otherwise None.
        likelihood: The likelihood of the outcome; None for numbers with Gaussian noise.
    """

    table: Callable[[np.random.Generator, int], pd.DataFrame]
    levels: tuple[float, float]
    truth: float
    derivative: float | None = None
    likelihood: AbstractPointwiseLikelihood | None = None
    graph: CausalDAG = dataclasses.field(default_factory=lambda: CausalDAG([("z", "t"), ("z", "y"), ("t", "y")]))


def _logistic(score: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-score))


def _of_levels(surface: Callable, noise: float) -> Callable[[np.random.Generator, int], pd.DataFrame]:
    """Return a simulation of a treatment of two levels, whose log-odds are z."""

    def table(rng: np.random.Generator, num_rows: int) -> pd.DataFrame:
        z = rng.normal(size=num_rows)
        t = (rng.uniform(size=num_rows) < _logistic(z)).astype(float)
        return pd.DataFrame({"z": z, "t": t, "y": surface(t, z) + noise * rng.normal(size=num_rows)})

    return table


def _of_doses(surface: Callable, noise: float) -> Callable[[np.random.Generator, int], pd.DataFrame]:
    """Return a simulation of a dose 0.7 z plus a standard normal variable."""

    def table(rng: np.random.Generator, num_rows: int) -> pd.DataFrame:
        z = rng.normal(size=num_rows)
        t = 0.7 * z + rng.normal(size=num_rows)
        return pd.DataFrame({"z": z, "t": t, "y": surface(t, z) + noise * rng.normal(size=num_rows)})

    return table


def _labels(rng: np.random.Generator, num_rows: int) -> pd.DataFrame:
    """Return labels whose log-odds are z and 1.5 times the treatment."""
    table = _of_levels(lambda t, z: 1.5 * (t - 0.5) + z, 0.0)(rng, num_rows)
    return table.assign(y=(rng.uniform(size=num_rows) < _logistic(table["y"].to_numpy())).astype(float))


def _counts(rng: np.random.Generator, num_rows: int) -> pd.DataFrame:
    """Return counts whose log-rates are half the sum of dose and z."""
    table = _of_doses(lambda t, z: (t + z) / 2, 0.0)(rng, num_rows)
    return table.assign(y=rng.poisson(np.exp(table["y"].to_numpy())).astype(float))


def _mean_chance(center: float) -> float:
    """Return the mean of the logistic function at N(center, 1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    return float(weights @ _logistic(center + nodes) / weights.sum())


SIMULATIONS = {
    "linear, two levels": Simulation(_of_levels(lambda t, z: 2 * t + z + 0.5 * t * z, 0.5), (1.0, 0.0), 2.0),
    "nonlinear, two levels": Simulation(
        # E cos Z is exp(-1 / 2).
        _of_levels(lambda t, z: np.sin(2 * z) + z + t * (1 + np.cos(z)), 0.5),
        (1.0, 0.0),
        1 + float(np.exp(-0.5)),
    ),
    # The effect is largest for rows of which few are treated.
    "growing, two levels": Simulation(
        _of_levels(lambda t, z: np.sin(2 * z) + z + t * (1 + z**2 / 2), 0.5), (1.0, 0.0), 1.5
    ),
    "linear, number": Simulation(_of_doses(lambda t, z: t + z, 0.5), (1.0, -1.0), 2.0, 1.0),
    "nonlinear, number": Simulation(
        # E cos T for T ~ N(0, 1.49) is exp(-1.49 / 2).
        _of_doses(lambda t, z: np.sin(t) + z**2 / 2 + z, 0.3),
        (1.0, -1.0),
        2 * np.sin(1.0),
        float(np.exp(-1.49 / 2)),
    ),
    # E of the logistic function at a normal variable, by quadrature.
    "labels, two levels": Simulation(
        _labels, (1.0, 0.0), _mean_chance(0.75) - _mean_chance(-0.75), likelihood=BernoulliLikelihood()
    ),
    # The mean rate at the dose t is exp(t / 2 + 1 / 8), and E exp((T + Z) / 2) = exp(Var(T + Z) / 8), of variance 3.89.
    "counts, number": Simulation(
        _counts,
        (1.0, -1.0),
        float(2 * np.sinh(0.5) * np.exp(1 / 8)),
        float(np.exp(3.89 / 8) / 2),
        PoissonLikelihood(),
    ),
}
