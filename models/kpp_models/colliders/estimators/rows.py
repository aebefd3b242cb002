"""Rows of features, in their original form and as numbers, and the predictions of any fitted predictor for them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, clone

from kpp import Fit
from kpp.data.estimators import read_arrays
from kpp.data.tables import is_table
from kpp_models.colliders.estimators.regressions import Regressor, fit_columns


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows of features: the input of a predictor, perhaps a data frame, and the same as an array."""

    features: Any
    table: Float[np.ndarray, "n d"]

    def __len__(self) -> int:
        return len(self.table)

    def take(self, index: np.ndarray) -> Rows:
        """Return some of the rows."""
        features = self.features.iloc[index] if hasattr(self.features, "iloc") else self.features[index]
        return Rows(features, self.table[index])

    def without(self, index: np.ndarray) -> Rows:
        """Return all other rows."""
        return self.take(np.delete(np.arange(len(self)), index))


def read_labeled(estimator: BaseEstimator, X: object, y: object, *, y_numeric: bool = False) -> tuple[Rows, np.ndarray]:
    """Read labeled rows, at least two, and make the estimator remember number and names of the columns."""
    table, labels = read_arrays(estimator, X, y, ensure_min_samples=2, numeric=y_numeric)
    return Rows(X if is_table(X) else table, table), labels


def read_targets(estimator: BaseEstimator, X: object, y: object) -> tuple[Rows, Float[np.ndarray, " n"]]:
    """Read rows whose labels are numbers."""
    rows, targets = read_labeled(estimator, X, y, y_numeric=True)
    return rows, targets.astype(np.float64)


def read_new_rows(estimator: BaseEstimator, X: object) -> Rows:
    """Read rows with the columns of those that the estimator was fitted to."""
    table = read_arrays(estimator, X, reset=False)
    return Rows(X if is_table(X) else table, table)


def read_unlabeled(estimator: BaseEstimator, X_unlabeled: object, labeled: Rows) -> Rows:
    """Read the rows without labels; None means that there are no such rows."""
    return labeled.take(np.arange(0)) if X_unlabeled is None else read_new_rows(estimator, X_unlabeled)


def fit_predictor(estimator: object, prefit: bool, rows: Rows, targets: np.ndarray) -> Any:
    """Return the estimator itself if it is fitted, otherwise a copy of it, fitted to targets (n,) or (n, q)."""
    if prefit:
        return estimator
    if isinstance(estimator, type) or not (isinstance(estimator, Regressor) and hasattr(estimator, "get_params")):
        raise TypeError(
            "`estimator` must be a scikit-learn estimator, or with `prefit=True` anything that predicts, got "
            f"{estimator!r}"
        )
    if targets.ndim == 2:
        return fit_columns(estimator, rows.features, targets)
    return clone(estimator).fit(rows.features, targets)


def predict_mean(predictor: object, rows: Rows) -> Float[np.ndarray, " n"]:
    """Return one prediction per row: of a `kpp.Fit` the mean over draws, otherwise the value of the predictor."""
    if isinstance(predictor, Fit):
        values: Any = predictor.predict(rows.features)["mean"].mean(("chain", "draw"))
    elif hasattr(predictor, "predict"):
        values = predictor.predict(rows.features)
    elif callable(predictor):
        values = predictor(rows.features)
    else:
        raise TypeError(f"`estimator` must have `predict`, be a kpp.Fit or a callable, got {predictor!r}")
    found = np.asarray(values, dtype=np.float64)
    check_predictions(found, (len(rows),))
    return found


def check_predictions(found: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raise ValueError if predictions have the wrong shape, or some are NaN or infinite."""
    if found.shape != shape:
        raise ValueError(f"`estimator` must predict the shape {shape}, got {found.shape}")
    if not np.isfinite(found).all():
        raise ValueError(f"`estimator` must predict finite numbers, got {int((~np.isfinite(found)).sum())} others")
