"""Marginal, conditional, causal and asymmetric Shapley values of one model, side by side.

    python examples/gallery/causal_shapley.py [--output FILE]

Simulated days: the season drives the temperature, both drive the humidity, and a Gaussian process predicts the rentals
of a bike shop, which depend on the temperature and the humidity only. The picture has the mean absolute value of each
feature by each kind of Shapley value, and the direct and indirect parts of the causal ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import kpp
from kpp.causal import CausalDAG
from kpp.games import Causal, direct_and_indirect_effects
from kpp.kernels import RBF
from kpp_models import GPRegression

GRAPH = CausalDAG([("season", "temperature"), ("season", "humidity"), ("temperature", "humidity")])
KINDS = {
    "marginal": {"value_function": "interventional"},
    "conditional": {"value_function": "observational-gaussian"},
    "causal": {"value_function": "causal", "graph": GRAPH},
    "asymmetric": {"value_function": "observational-gaussian", "order": GRAPH},
}


def simulate(rng: np.random.Generator, num_days: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the features and the rentals of some days, in standard units."""
    season = rng.normal(size=num_days)
    temperature = 0.8 * season + 0.6 * rng.normal(size=num_days)
    humidity = -0.4 * temperature + 0.3 * season + 0.8 * rng.normal(size=num_days)
    rentals = 1.5 * temperature - 0.3 * temperature**2 - 0.5 * humidity + 0.3 * rng.normal(size=num_days)
    return pd.DataFrame({"season": season, "temperature": temperature, "humidity": humidity}), rentals


def explain_by_each(num_days: int = 150, num_explained: int = 40) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the mean absolute values, and the mean absolute direct and indirect parts of the causal ones."""
    days, rentals = simulate(np.random.default_rng(0), num_days)
    fit = GPRegression(RBF(np.full(3, 2.0), variance=4.0), noise_variance=0.1).fit(
        jax.random.key(0), days, rentals, inference=kpp.MAP()
    )
    some = days[:num_explained]
    values = {
        kind: np.abs(kpp.explain(fit, some, background=days, covariance=None, **options).dataset["values"])
        .mean(("chain", "draw", "instance"))
        .to_numpy()
        for kind, options in KINDS.items()
    }
    game = Causal(days.to_numpy(), GRAPH, feature_names=days.columns)
    effects = direct_and_indirect_effects(game, fit.function(), some.to_numpy())
    parts = {name: np.abs(part).mean((0, 1, 2)) for name, part in effects._asdict().items()}
    return pd.DataFrame(values, index=days.columns), pd.DataFrame(parts, index=days.columns)


def draw(values: pd.DataFrame, parts: pd.DataFrame, path: Path) -> None:
    """Draw both tables as bars."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), sharex=True, layout="constrained")
    values.iloc[::-1].plot.barh(ax=left, width=0.75, color=["#bdc3c7", "#7fb3d5", "#1f618d", "#e59866"])
    parts.iloc[::-1].plot.barh(ax=right, width=0.5, color=["#1f618d", "#85c1e9"])
    left.set_title("four kinds of Shapley values", loc="left", fontsize=10)
    right.set_title("causal values: two parts", loc="left", fontsize=10)
    for axis in (left, right):
        axis.set_xlabel("mean absolute value")
        axis.legend(frameon=False, fontsize=8, loc="lower right", reverse=True)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("causal_shapley.svg"), help="the picture to write")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    values, parts = explain_by_each()
    print(values.round(2), parts.round(2), sep="\n\n")
    draw(values, parts, options.output)


if __name__ == "__main__":
    main()
