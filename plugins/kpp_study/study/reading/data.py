"""The data of a study: columns of features and a target are read, checked, and standardized.

Models do not scale their data, so the study does: numeric features and a numeric target are shifted and scaled to mean
0 and standard deviation 1. `StudyUnits` keeps these numbers, so that results are reported in the units of the file.
Columns of text become categories, whose codes are not scaled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from kpp.data.labels import read_labels
from kpp.data.tables import numbers_as_text, read_points
from kpp_study.study.errors import StudyError, blame
from kpp_study.study.reading.units import StudyUnits
from kpp_study.study.sections.data_config import DataConfig


@dataclass(frozen=True)
class StudyData:
    """The data of a study, ready for a model; all kinds of data have the same fields."""

    path: Path
    target_name: str
    counted: str  # how much there is to learn from, in words
    x: Float[np.ndarray, "n d"]  # the features in their own units, categories as codes
    y: Float[np.ndarray, " M"]  # the target in its own unit, one for each row of a table; 0 and 1 for two classes
    classes: tuple[Any, Any] | None  # of a target that is text or a category
    is_label: bool  # whether the target is a class label, 0 or 1, which is never scaled
    units: StudyUnits  # the names of the features, and the conversion of `x` and `y` to the model's units
    features: Any  # in the model's units, categories as in the file, from which absent ones are replaced
    training: tuple[Any, Any]  # the arguments x and y of a model's `fit`, in the model's units
    points: Any  # what can be predicted in the model's units: a table of `features`, or Matches
    num_points: int
    observed: Sequence[str] | None  # at each of `points`, as text; None if the target was not observed there
    facts: Mapping[str, Any]  # about the data and their scaling, as JSON values for the attributes of the results
    options: Mapping[str, Any] = field(default_factory=dict)  # further data for `fit`, in the model's units
    match: np.ndarray | None = None  # for each match the position of its pair in `points`
    is_table: bool = True  # whether there is one target for each row of features
    treatment: str | None = None  # the feature whose effect on the target the others identify
    mediation: pd.DataFrame | None = None  # in their own units, the columns that divide this effect


def read_data_columns(config: DataConfig, table: pd.DataFrame, target: pd.Series | None) -> StudyData:
    """Read complete rows of features and a target, as a table has them; the other kinds change what differs.

    Matches have no target. Raises StudyError if values are infinite, a feature is neither numbers nor a few levels, or
    the target is constant, or text that does not have two levels.
    """
    y, classes = (np.zeros(0), None) if target is None else read_target(target, config.categorical)
    frame = read_features(table, config.categorical)
    with blame("[data]"):
        x, schema = read_points(frame)
    is_label = is_binary(y)
    shown = config.target if classes is None else f"{config.target} = {classes[1]}"
    units = StudyUnits.of(x, None if is_label else y, schema, shown, standardize=config.standardize)
    features = units.points(frame)
    response: Any = units.response(y)
    if classes is not None:
        response = pd.Series(pd.Categorical.from_codes(y.astype(int), [*classes]))
    facts = {"file": config.path.name, "rows": len(x), "target": config.target}
    return StudyData(
        path=config.path,
        target_name=config.target,
        counted=f"{len(x)} rows",
        x=x,
        y=y,
        classes=classes,
        is_label=is_label,
        units=units,
        features=features,
        training=(features, response),
        points=features,
        num_points=len(x),
        facts={**facts, **units.to_json(), "classes": None if classes is None else list(classes)},
        observed=[f"{shown} = {value:g}" if is_label else f"{value:.4g}" for value in y],
    )


def read_target(
    column: pd.Series, categorical: Sequence[str] = ()
) -> tuple[Float[np.ndarray, " n"], tuple[Any, Any] | None]:
    """Return the numbers of a target, or the codes of its two classes and the classes.

    Numbers are classes if `categorical` names the target.
    """
    name = str(column.name)
    if name in categorical:
        column = column.astype("category")
    if not pd.api.types.is_numeric_dtype(column):
        _refuse_numbers_as_text(column, name, "target")
        try:
            codes, classes = read_labels(column)
        except ValueError as error:
            raise StudyError(f"data.target: the column {name!r} must hold numbers or two classes: {error}") from error
        return np.asarray(codes), classes
    if pd.api.types.is_complex_dtype(column):
        raise StudyError(f"data.target: the column {name!r} must hold real numbers, got complex ones")
    y = column.to_numpy(float)
    if not np.isfinite(y).all():
        raise StudyError(f"data.target: the column {name!r} holds infinite values")
    if np.ptp(y) == 0.0:
        raise StudyError(f"data.target: the column {name!r} is {y[0]:g} in every row, so there is nothing to predict")
    return y, None


def is_binary(y: Float[np.ndarray, " n"]) -> bool:
    """Return whether the numbers of a target are labels, 0 and 1."""
    return set(np.unique(y).tolist()) <= {0.0, 1.0}


def most_levels(num_rows: int) -> int:
    """Return with how many different values a column of text is still read as categories."""
    return max(10, num_rows // 4)


def read_features(table: pd.DataFrame, categorical: Sequence[str]) -> pd.DataFrame:
    """Return the columns of features, finite numbers or a few levels, categories as pandas categories."""
    frame = table.reset_index(drop=True)
    for name in frame:
        if name in categorical or _is_text(frame[name], str(name)):
            frame[name] = frame[name].astype("category")
        elif not np.isfinite(frame[name].to_numpy(float)).all():
            raise StudyError(f"data.path: the column {name!r} holds infinite values")
    return frame


def _is_text(column: pd.Series, name: str) -> bool:
    """Return whether a column holds categories; raise StudyError if it is neither numbers nor a few levels."""
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
        return False
    if isinstance(column.dtype, (pd.CategoricalDtype, pd.IntervalDtype)):
        return True
    _refuse_numbers_as_text(column, name, "features")
    levels = column.nunique()
    if not pd.api.types.is_object_dtype(column) and not pd.api.types.is_string_dtype(column):
        raise StudyError(f"data.features: the column {name!r} must hold numbers or text, got {column.dtype}")
    if levels > most_levels(len(column)):
        raise StudyError(
            f"data.features: the column {name!r} is text with {levels} different values in {len(column)} rows, too "
            "many for categories; leave it out of `features`, or name it in `categorical` if it is meant"
        )
    return True


def _refuse_numbers_as_text(column: pd.Series, name: str, key: str) -> None:
    found = numbers_as_text(column)
    if found is not None:
        raise StudyError(
            f"data.{key}: most entries of the column {name!r} are numbers: {found}; list texts that stand for missing "
            "values in `missing_values`, or name the column in `categorical` if its numbers are codes"
        )
