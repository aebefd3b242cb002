"""Data and classifiers of the experiments on GPEC: the synthetic boundary, tables, boosted trees.

(Hill, Masoomi, Torop, Ghimire and Dy, Boundary-aware uncertainty for feature attribution explainers, 2024, appendix E.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.model_selection import train_test_split

# Column of the target -> its value for class 1. The first of these columns that a table contains is its target.
TARGETS = {"GoodCustomer": 1, "Target": 1, "income": ">50K", "Revenue": True, "diabetes": 1, "target": 1}
HALF_WIDTH = 10.0  # the synthetic points lie in [-10, 10]^2

Predictor = Callable[[Any], np.ndarray]


def wave(x1: np.ndarray) -> np.ndarray:
    """Return the height of the synthetic boundary, 2 cos(10 / x1), and 0 where x1 is next to 0."""
    tiny = np.abs(x1) < 20 / ((5e6 + 1) * np.pi)
    return np.where(tiny, 0.0, 2 * np.cos(10 / np.where(tiny, 1.0, x1)))


def wavy_classifier(x: Any) -> np.ndarray:
    """Return the probability of class 1, which is 1 above the synthetic boundary and 0 elsewhere, (n,)."""
    x = np.asarray(x)
    return (x[:, 1] > wave(x[:, 0])).astype(float)


def synthetic_points(seed: int, n: int) -> np.ndarray:
    """Draw n points evenly from the square, (n, 2)."""
    return np.random.default_rng(seed).uniform(-HALF_WIDTH, HALF_WIDTH, size=(n, 2))


@dataclass(frozen=True)
class Table:
    """Numeric features and labels 0 and 1."""

    name: str
    x: pd.DataFrame
    y: np.ndarray

    def keep(self, columns: list[str]) -> Table:
        """Return the table with some of its features.

        Raises:
            click.UsageError: If it has no such columns.
        """
        missing = sorted(set(columns) - set(self.x))
        if missing:
            raise click.UsageError(f"{self.name} has no columns {missing}, but {list(self.x)}")
        return Table(self.name, self.x[columns], self.y)


def breast_cancer() -> Table:
    """Return the breast cancer data that come with scikit-learn."""
    data = load_breast_cancer(as_frame=True)
    return Table("breast cancer", data.data, data.target.to_numpy())


def read_table(path: Path) -> Table:
    """Read a CSV file with a header and one of `TARGETS` among its columns; text becomes indicator columns.

    Raises:
        click.UsageError: If no column is a target, or if only one class is present.
    """
    table = pd.read_csv(path, skipinitialspace=True)
    target = next((name for name in TARGETS if name in table), None)
    if target is None:
        raise click.UsageError(f"{path} must have one of the columns {list(TARGETS)} as its target, got {list(table)}")
    complete = table.dropna()
    if len(complete) < len(table):
        click.echo(f"{path.stem}: {len(table) - len(complete)} of {len(table)} rows have missing values, left out")
    y = (complete[target] == TARGETS[target]).to_numpy(int)
    if len(np.unique(y)) < 2:
        raise click.UsageError(f"{path} must hold two classes in {target!r}; one is {TARGETS[target]!r}")
    return Table(path.stem, pd.get_dummies(complete.drop(columns=target), dtype=float).astype(float), y)


def tables(paths: tuple[Path, ...]) -> list[Table]:
    """Return the tables given, and the breast cancer data."""
    return [*map(read_table, paths), breast_cancer()]


@dataclass(frozen=True)
class Split:
    """Training and test rows, in numbers."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def split(table: Table, seed: int) -> Split:
    """Leave out a quarter of the rows, with the classes in proportion."""
    x, x_test, y, y_test = train_test_split(
        table.x.to_numpy(), table.y, test_size=0.25, random_state=seed, stratify=table.y
    )
    return Split(x, y, x_test, y_test)


@functools.cache
def has_xgboost() -> bool:
    """Tell whether XGBoost can be imported."""
    try:
        import xgboost  # noqa: F401
    except ImportError:
        return False
    return True


def boosted_trees(x: np.ndarray, y: np.ndarray, gamma: float | None = None) -> Any:
    """Fit boosted trees by XGBoost; without it, and where `gamma` is None, by scikit-learn.

    Args:
        x: The rows, (n, d).
        y: The labels 0 and 1, (n,).
        gamma: The cost of a leaf in XGBoost; None means 0.

    Raises:
        click.UsageError: If `gamma` is given and XGBoost is not installed.
    """
    if has_xgboost():
        from xgboost import XGBClassifier

        return XGBClassifier(gamma=gamma or 0.0, n_estimators=100, n_jobs=1, random_state=0).fit(x, y)
    if gamma is not None:
        raise click.UsageError("this experiment needs XGBoost, whose penalty gamma it varies: pip install xgboost")
    return GradientBoostingClassifier(random_state=0).fit(x, y)


def probability(model: Any) -> Predictor:
    """Return the probability of class 1 as a function of rows, (n, d) to (n,)."""

    def function(x: Any) -> np.ndarray:
        return model.predict_proba(np.asarray(x))[:, 1].astype(float)

    return function
