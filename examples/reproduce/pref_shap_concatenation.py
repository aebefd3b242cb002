"""Naive concatenation gives each feature two Shapley values (Pref-SHAP, appendix E.2, figure E.1).

    python examples/reproduce/pref_shap_concatenation.py [--seeds 5] [--explained 100] [--small] [--output FOLDER]

(Hu, Chau, Ferrando Huertas and Sejdinovic, Explaining preferences with Shapley values, 2022.) The general model of the
game of clusters is explained as a function of both items side by side, of fourteen features, by exact interventional
values. The items of a match are in an arbitrary order. The script prints the mean |phi| of each feature on the left and
on the right, the mean distance of the two values within a match, and the mean |phi| of Pref-SHAP, which has one value
per feature. The output folder contains the bars of the figure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from pref_shap_synthetic import FEATURES, REGULARIZATION, RIDGE, cluster_game, fitted

from kpp.games import Interventional
from kpp.kernels import RBF, GeneralizedPreferential
from kpp_models import PreferenceLogistic
from kpp_pref_shap import PreferentialItems, PrefShap, as_concatenated
from kpp_rkhs_shap import RKHSShap

LENGTHSCALES = (3.0,) * 4 + (0.7,) * 3


def run(seed: int, counts: tuple[int, int], explained: int, num_references: int) -> list[dict[str, Any]]:
    """Fit the general model to 90 % of the matches, explain some of the others, and return one row per feature."""
    rng = np.random.default_rng(seed)
    matches = cluster_game(rng, *counts)
    train, test = matches.split(jax.random.key(seed), 0.9)
    model = PreferenceLogistic(GeneralizedPreferential(RBF(jnp.asarray(LENGTHSCALES))), REGULARIZATION)
    function = fitted(model, train).function()
    pairs = rng.permuted(np.asarray(test.points)[:explained], axis=1)
    references = np.asarray(matches.items)[rng.permutation(matches.num_items)[: 2 * num_references]]
    rows, background = pairs.reshape(len(pairs), -1), references.reshape(num_references, -1)
    naive = RKHSShap(Interventional(background), progress=False).explain(as_concatenated(function), rows)
    left, right = np.split(naive.values.values.reshape(rows.shape), 2, axis=1)
    game = PreferentialItems(references, RIDGE)
    one = PrefShap(game, progress=False).explain(function, pairs).values.values.reshape(left.shape)
    sizes = {"left": left, "right": right, "distance": left - right, "Pref-SHAP": one}
    sizes = {name: np.abs(values).mean(axis=0) for name, values in sizes.items()}
    return [
        {"seed": seed, "feature": name, **{key: values[j] for key, values in sizes.items()}}
        for j, name in enumerate(FEATURES)
    ]


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw the bars of the first seed: both values of each feature."""
    axes = table[table["seed"] == 0].set_index("feature")[["left", "right"]].plot.barh()
    axes.set(xlabel="mean |phi|", ylabel="")
    axes.invert_yaxis()
    axes.figure.savefig(path, dpi=150, bbox_inches="tight")


@click.command(help=__doc__)
@click.option("--seeds", default=5, show_default=True)
@click.option("--explained", default=100, show_default=True, help="Number of explained matches.")
@click.option("--small", is_flag=True, help="One small game and three matches.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for the figure.")
def main(seeds: int, explained: int, small: bool, output: Path | None) -> dict[str, pd.DataFrame]:
    """Explain the games."""
    jax.config.update("jax_enable_x64", True)
    counts, num_references = ((30, 100), 5) if small else ((200, 2000), 30)
    seeds, explained = (1, 3) if small else (seeds, explained)
    table = pd.DataFrame([row for seed in range(seeds) for row in run(seed, counts, explained, num_references)])
    click.echo(table.groupby("feature", sort=False).mean().drop(columns="seed").to_string(float_format="%.3f"))
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        draw(table, output / "pref_shap_concatenation.png")
    return {"sizes": table}


if __name__ == "__main__":
    main()
