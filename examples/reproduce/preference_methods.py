"""Shared code of the experiments on preferences: hyperparameters, scores of probabilities, tests, tables."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import click
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from numpyro.infer.util import log_density
from scipy.stats import ranksums, wilcoxon
from sklearn.metrics import log_loss, roc_auc_score

from kpp.preferences import Matches

METRICS = ("accuracy", "log loss", "AUC")


def on_all_pairs(part: Matches, every: Matches) -> Matches:
    """Return a part of some matches with a row for every pair of all of them, so that all parts have one shape.

    A row without matches has no effect on a model of preferences.
    """
    keys = [np.asarray(m.pairs) @ [every.num_items, 1] for m in (part, every)]
    rows = np.searchsorted(keys[1], keys[0])
    counts = {name: np.zeros(every.num_pairs) for name in ("wins", "losses", "ties")}
    for name, column in counts.items():
        column[rows] = np.asarray(getattr(part, name))
    return dataclasses.replace(every, **{name: jnp.asarray(column) for name, column in counts.items()})


@eqx.filter_jit
def choose_and_predict(models: Any, data: Any, x: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Choose the model of the highest evidence, and predict.

    Args:
        models: A model without priors whose arrays have a leading axis of choices.
        data: The dict that `prepare` of the model returns.
        x: Points in the form that the model takes.

    Returns:
        The number of the choice, the mean latent preferences, and the probabilities of label 1.
    """
    arrays, rest = eqx.partition(models, eqx.is_array)

    def evidence(leaves: Any) -> jax.Array:
        model = eqx.combine(leaves, rest)
        return log_density(model.numpyro_model, (), data, {})[0]

    chosen = jnp.argmax(jax.lax.map(evidence, arrays))
    best = eqx.combine(jax.tree.map(lambda leaf: leaf[chosen], arrays), rest)
    found = best.predictive({}, data, x)
    return chosen, found["mean"], found["probability"]


def stack(models: list[Any]) -> Any:
    """Return models that differ in numbers as one model whose arrays have a leading axis of choices."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf, float) for leaf in leaves]), *models)


def side_by_side(pairs: np.ndarray) -> np.ndarray:
    """Return the concatenated features of both items of pairs (m, 2, d), in both orders, (2 m, 2 d)."""
    return np.concatenate([pairs, pairs[:, ::-1]]).reshape(2 * len(pairs), -1)


def average(probabilities: np.ndarray) -> np.ndarray:
    """Return the win probability of the first item, averaged over both orders of the items."""
    first, second = np.split(np.asarray(probabilities), 2)
    return (first + 1 - second) / 2


def scores(probabilities: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return accuracy, log loss and area under the curve of probabilities that the first item won, without ties.

    The area needs losses and wins, and which item comes first is arbitrary: every match is counted from both sides.
    """
    p = np.clip(probabilities, 1e-12, 1 - 1e-12)
    right = np.where(p == 0.5, 0.5, (p > 0.5) == (y == 1))
    both = np.concatenate([p, 1 - p]), np.concatenate([y, 1 - y])
    return {
        "accuracy": float(right.mean()),
        "log loss": float(log_loss(y, p, labels=[0, 1])),
        "AUC": float(roc_auc_score(both[1], both[0])),
    }


def print_scores(table: pd.DataFrame, title: str) -> None:
    """Print mean +- standard deviation of the metrics over runs; the table has columns run, method and the metrics."""
    click.echo(f"\n{title}: mean +- standard deviation over {table['run'].nunique()} runs")
    click.echo(f"{'':>22}" + "".join(f"{name:>18}" for name in METRICS))
    for method, part in table.groupby("method", sort=False):
        cells = [f"{part[name].mean():.3f} +- {part[name].std(ddof=1):.3f}" for name in METRICS]
        click.echo(f"{method:>22}" + "".join(f"{cell:>18}" for cell in cells))


def print_tests(table: pd.DataFrame, metric: str, reference: str) -> None:
    """Print for each method its mean difference from a reference, and two-sided p-values of two tests over runs."""
    wide = table.pivot(index="run", columns="method", values=metric)
    click.echo(
        f"\n{metric} minus the value of {reference}: mean, p of the rank-sum test and of the paired signed-rank test"
    )
    for method in table["method"].unique():
        if method == reference:
            continue
        gap = wide[method] - wide[reference]
        paired = wilcoxon(gap).pvalue if (gap != 0).any() else 1.0
        unpaired = ranksums(wide[method], wide[reference]).pvalue
        click.echo(f"{method:>22}{gap.mean():>10.3f}{unpaired:>12.1e}{paired:>12.1e}")


def grid(*axes: Any) -> list[tuple[float, ...]]:
    """Return all combinations of values."""
    return list(itertools.product(*(np.asarray(axis, float).tolist() for axis in axes)))
