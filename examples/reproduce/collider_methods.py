"""The five methods of the collider regression experiments, and the tables that compare them over seeds."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import equinox as eqx
import jax
import numpy as np
import pandas as pd
from scipy.stats import wilcoxon
from sklearn.ensemble import RandomForestRegressor

from kpp.causal import Independence
from kpp.kernels import RBF
from kpp_models import ColliderRidge
from kpp_models.estimators import ProjectedRegressor

METHODS = ("RF", "P-RF", "KRR", "P-KRR", "H_P-KRR")
UNPROJECTED = {"P-RF": "RF", "P-KRR": "KRR", "H_P-KRR": "KRR"}
REGULARIZATION = 1e-3  # of ridge regression, multiplied by the number of labeled rows
Function = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Sample:
    """Labeled rows (n, d) with centered targets, unlabeled rows, and the number of columns that are children.

    The children of Y come first; the other columns are spouses.
    """

    x: np.ndarray
    y: np.ndarray
    unlabeled: np.ndarray
    num_children: int

    @property
    def children(self) -> tuple[int, ...]:
        return tuple(range(self.num_children))

    @property
    def spouses(self) -> tuple[int, ...]:
        return tuple(range(self.num_children, self.x.shape[1]))

    @property
    def rows(self) -> np.ndarray:
        """All rows, for the conditional expectations."""
        return np.concatenate([self.x, self.unlabeled])


@dataclasses.dataclass(frozen=True)
class Settings:
    """Hyperparameters; `ridge` is the total ridge of the conditional mean embedding, not multiplied by its rows."""

    lengthscales: tuple[float, float]  # of children and spouses
    ridge: float
    forest: Mapping[str, int]
    regularization: float = REGULARIZATION

    def collider_ridge(self, sample: Sample, projection: str, ridge: float | None = None) -> ColliderRidge:
        """Return KRR (projection "none"), P-KRR ("function") or H_P-KRR ("space") with the product kernel (r + 1) l."""
        children, spouses = (RBF(lengthscale) for lengthscale in self.lengthscales)
        total = self.ridge if ridge is None else ridge
        return ColliderRidge(
            children,
            spouses,
            self.regularization,
            total / len(sample.rows),
            children=sample.children,
            spouses=sample.spouses,
            projection=projection,
            center=False,
        )

    def fit_forest(self, sample: Sample, seed: int) -> Function:
        """Fit RF, and store its predictions, because every projection needs them at the same rows."""
        forest = RandomForestRegressor(**self.forest, random_state=seed, n_jobs=1).fit(sample.x, sample.y)
        found: dict[bytes, np.ndarray] = {}

        def predict(x: np.ndarray) -> np.ndarray:
            key = np.ascontiguousarray(x).tobytes()
            if key not in found:
                found[key] = forest.predict(x)
            return found[key]

        return predict


@eqx.filter_jit
def evaluate(model: Any, data: Any, x: Any) -> jax.Array:
    """Fit by closed form and predict; compiled once for all data of the same shapes."""
    return model.function_draw({}, data)(x)


def fitted(model: ColliderRidge, sample: Sample) -> Function:
    """Return the fit of a ridge regression as a function of rows."""
    model, data, _ = model.prepare(sample.x, sample.y, unlabeled=unlabeled_of(sample))
    return lambda x: np.asarray(evaluate(model, data, x))


def unlabeled_of(sample: Sample) -> np.ndarray | None:
    """Return the rows without labels, None where there are none."""
    return sample.unlabeled if len(sample.unlabeled) else None


def project_forest(forest: Function, sample: Sample) -> Function:
    """Return P-RF: the forest minus a linear regression of its predictions at all rows on the spouses.

    Targets are centered. The forest is already fitted, so targets of 0 give the same result.
    """
    projected = ProjectedRegressor(
        forest,
        collider=Independence("Y", sample.spouses),
        conditional="linear",
        prefit=True,
        check=False,
        gain_folds=None,
    )
    return projected.fit(sample.x, np.zeros_like(sample.y), unlabeled_of(sample)).predict


def fit_all(settings: Settings, sample: Sample, forest: Function) -> dict[str, Function]:
    """Return the predictions of all methods, as functions of rows; the forest is fitted already."""
    return {
        "RF": forest,
        "P-RF": project_forest(forest, sample),
        **{
            name: fitted(settings.collider_ridge(sample, projection), sample)
            for name, projection in (("KRR", "none"), ("P-KRR", "function"), ("H_P-KRR", "space"))
        },
    }


def standard_error(values: pd.DataFrame | pd.Series) -> Any:
    return values.std(ddof=1) / np.sqrt(len(values))


def print_scores(scores: pd.DataFrame, title: str, *, lower_is_better: bool = True) -> None:
    """Print mean, sd and standard error over seeds (rows), and how often and by how much the projection is better.

    Args:
        scores: One row per seed and one column per method.
        title: What the scores are.
        lower_is_better: Whether they are errors.
    """
    click.echo(f"\n{title}, {len(scores)} seeds")
    click.echo(f"{'':>9}{'mean':>9}{'sd':>9}{'se':>9}   compared with no projection: better in   by (mean +- se)")
    for name, column in scores.items():
        row = f"{name:>9}{column.mean():>9.4f}{column.std(ddof=1):>9.4f}{standard_error(column):>9.4f}"
        if name in UNPROJECTED:
            gain = (scores[UNPROJECTED[name]] - column) * (1 if lower_is_better else -1)
            row += f"{(gain > 0).mean():>36.2f}{gain.mean():>11.4f} +- {standard_error(gain):.4f}"
        click.echo(row)


def wilcoxon_table(scores: pd.DataFrame) -> pd.DataFrame:
    """Return two-sided p-values of the Wilcoxon signed-rank test for each pair of methods, below the diagonal."""
    table = pd.DataFrame(index=scores.columns[1:], columns=scores.columns[:-1], dtype=float)
    for left, right in itertools.combinations(scores.columns, 2):
        table.loc[right, left] = wilcoxon(scores[left], scores[right]).pvalue
    return table


def print_wilcoxon(scores: pd.DataFrame, title: str) -> None:
    """Print the p-values of all pairs."""
    click.echo(f"\nWilcoxon signed-rank test, two-sided p-values: {title}")
    table = wilcoxon_table(scores)
    click.echo(" " * 9 + "".join(f"{name:>9}" for name in table.columns))
    for name, row in table.iterrows():
        click.echo(f"{name:>9}" + "".join(f"{value:>9.1e}" for value in row.dropna()))


def draw_boxes(axis: Any, scores: pd.DataFrame, label: str) -> None:
    """Draw the scores of each method over seeds on an axis."""
    axis.boxplot(scores.to_numpy(), tick_labels=list(scores.columns), showmeans=True)
    axis.set_ylabel(label)
    axis.tick_params(axis="x", rotation=30)


def save_figure(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=150)
    plt.close(figure)
