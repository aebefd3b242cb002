"""Intervals of what the target of a row would have been, as a study with `counterfactual` writes them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from examples.coverage.simulations import Intervals, Simulation
from kpp_study.study.plan import make_plan
from kpp_study.study.sections.config import parse_study

jax.config.update("jax_enable_x64", True)

TITLE = "Counterfactuals of rows"
ROWS, SHOWN, WAVES, VALUE = 80, 20, 300, 1.0
STUDY = f"""
[data]
kind = "graph"
path = "table.csv"
target = "rate"
treatment = "dose"
counterfactual = {VALUE}
graph = "digraph {{ age -> dose; age -> rate; dose -> rate }}"
standardize = false

[model]
name = "GPRegression"
noise_variance = {{ prior = "LogNormal", loc = -1.5, scale = 0.4 }}

[model.kernel]
name = "RBF"
lengthscale = {{ prior = "LogNormal", loc = 0.5, scale = 0.3, expand = [2] }}
variance = {{ prior = "LogNormal", loc = 0.0, scale = 0.4 }}

[inference]
name = "Laplace"
num_samples = 200

[explainer]
instances = {SHOWN}
background = 10
"""


def measure_counterfactuals(seed: int) -> dict[str, Intervals]:
    """Draw a function of dose and age from the prior of the model, and ask for each row what it says."""
    rng = np.random.default_rng(seed)
    lengthscales = np.exp(rng.normal(0.5, 0.3, size=2))
    variance, noise = np.exp(rng.normal([0.0, -1.5], 0.4))
    frequencies, phases = rng.normal(size=(2, WAVES)) / lengthscales[:, None], rng.uniform(0.0, 2 * np.pi, size=WAVES)
    weights = np.sqrt(2.0 * variance / WAVES) * rng.normal(size=WAVES)
    age = rng.normal(size=ROWS)
    x = np.stack([0.5 * age + rng.normal(size=ROWS), age], axis=1)

    def function(points: np.ndarray) -> np.ndarray:
        return np.cos(points @ frequencies + phases) @ weights

    kept = np.sqrt(noise) * rng.normal(size=ROWS)
    truth = function(np.stack([np.full(ROWS, VALUE), age], axis=1)) + kept
    with tempfile.TemporaryDirectory() as folder:
        table = pd.DataFrame({"dose": x[:, 0], "age": age, "rate": function(x) + kept})
        table.to_csv(Path(folder) / "table.csv", index=False)
        plan = make_plan(parse_study(STUDY, folder=Path(folder)), progress=False)
        found = plan.counterfactuals(plan.fit(), plan.altered)
    return {"the target with another treatment": Intervals(truth[found.index], found["lower"], found["upper"])}


SIMULATIONS = {
    "counterfactuals": Simulation(
        "Studies with `counterfactual`: GPRegression by `kpp.Laplace`",
        "A function of the Gaussian process of a dose and of an age that affects the dose, and Gaussian noise, which a "
        f"row keeps if its dose becomes {VALUE:g}; {SHOWN} rows. All hyperparameters are from the model's own priors.",
        ROWS,
        measure_counterfactuals,
        data_sets=100,
    )
}
