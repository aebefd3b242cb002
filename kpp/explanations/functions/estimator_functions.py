"""Fitted estimators of scikit-learn and XGBoost as functions of points, with the columns that they were fitted on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from numpy.typing import ArrayLike

from kpp.data.tables import Schema, check_columns, columns_of_text, plain_level, read_points


def is_estimator(predictor: object) -> bool:
    """Return whether a predictor has the interface of a scikit-learn estimator, fitted or not."""
    return hasattr(predictor, "get_params") and hasattr(predictor, "predict") and not isinstance(predictor, type)


@dataclasses.dataclass(frozen=True)
class EstimatorFunction:
    """A fitted estimator as a function of points: probabilities for classifiers, predictions otherwise.

    An estimator that was fitted on a data frame gets data frames again, with text in place of codes.

    Args:
        estimator: A fitted estimator of scikit-learn or XGBoost, or any object with their methods.
        schema: The columns it was fitted on and the levels of categorical columns; None if the estimator does not store
            names.
        dtypes: The types of the columns that hold categories, as pairs of a column and a type.
    """

    estimator: Any
    schema: Schema | None = None
    dtypes: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        """Raise TypeError unless the estimator is fitted."""
        if not _is_fitted(self.estimator):
            kind = type(self.estimator)
            raise TypeError(
                f"`predictor` {kind.__module__}.{kind.__qualname__} is not fitted yet; call its `fit` first"
            )

    @classmethod
    def create(cls, estimator: object, table: Any = None, x: Any = None) -> EstimatorFunction:
        """Learn the columns of an estimator.

        Args:
            estimator: The fitted estimator.
            table: A data frame with the columns that it was fitted on, whose levels become codes; needed only if
                columns hold text or categories.
            x: The points to explain; if they are a data frame of pandas, as `table`, its levels become codes, too.

        Returns:
            The function. Its `schema` reads tables.

        Raises:
            TypeError: If the estimator is not fitted.
            ValueError: If the table lacks a column, or values are missing.
        """
        names = getattr(estimator, "feature_names_in_", None)
        if table is None:
            return cls(estimator, None if names is None else Schema(tuple(str(name) for name in names)))
        if names is not None:
            check_columns(table.columns, names, "background")
            table = table[list(names)]
        table = _with_rows(table, x)
        # A foreign estimator takes numbers that are text as it was fitted to them, as categories.
        schema = read_points(table, "background", categorical=columns_of_text(table))[1]
        return cls(estimator, schema, tuple((name, table[name].dtype) for name in schema.levels))

    @property
    def output_names(self) -> tuple[str, ...] | None:
        """The classes of a classifier with probabilities, else None."""
        if self._method == "predict":
            return None
        classes = getattr(self.estimator, "classes_", None)
        return None if classes is None or isinstance(classes, list) else tuple(str(label) for label in classes)

    @property
    def _method(self) -> str:
        return "predict_proba" if hasattr(self.estimator, "predict_proba") else "predict"

    def __call__(self, x: ArrayLike) -> Shaped[np.ndarray, "n *outputs"]:
        """Return the predictions at points (n, d)."""
        return np.asarray(getattr(self.estimator, self._method)(self.rows(np.asarray(x))))

    def rows(self, x: Shaped[np.ndarray, "n d"]) -> Any:
        """Return points, (n, d), in the form in which the estimator was fitted: an array or a data frame."""
        if self.schema is None or not (self.schema.levels or hasattr(self.estimator, "feature_names_in_")):
            return x
        return as_frame(x, self.schema, self.dtypes)


def _with_rows(table: Any, x: Any) -> Any:
    """Return a data frame of pandas with the rows of another one, if it is one with the same columns, below it."""
    if not (hasattr(table, "iloc") and hasattr(x, "iloc")):
        return table
    import pandas as pd

    check_columns(x.columns, table.columns, "x")
    return pd.concat([table, x[list(table.columns)]], ignore_index=True)


def as_frame(points: Float[np.ndarray, "n d"], schema: Schema, dtypes: Iterable[tuple[str, Any]]) -> Any:
    """Return coded points as a pandas data frame."""
    import pandas as pd

    columns: dict[str, Any] = dict(schema.decode(points))
    types = dict(dtypes)
    for name, dtype in types.items():
        levels = {plain_level(level): level for level in getattr(dtype, "categories", ())}
        columns[name] = [levels.get(level, level) for level in columns[name]]
    return pd.DataFrame(columns).astype(types)


def output_names(function: object) -> tuple[str, ...] | None:
    """Return the names of the outputs of a function: the classes of an estimator, else None."""
    return getattr(function, "output_names", None)


def _is_fitted(estimator: object) -> bool:
    """Return whether an estimator is fitted; an estimator that scikit-learn cannot check counts as fitted."""
    from sklearn.base import BaseEstimator
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    if not isinstance(estimator, BaseEstimator) or not hasattr(estimator, "fit"):
        return True
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True
