"""The data of a study: reading, checking, and standardising a table, with a record of the original units.

Models do not scale their data, so the study does: numeric features and a numeric target are shifted and scaled to mean
    0 and standard deviation 1. `Standardization` keeps these numbers, so that results are reported in the units of the
    file. Columns of text become categories, whose codes are not scaled.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from kpp.labels import read_labels
from kpp.study.config import DataConfig, Rows
from kpp.study.errors import StudyError, blame, did_you_mean
from kpp.tables import Scales, Schema, read_points

__all__ = ["Standardization", "StudyData", "choose_rows", "read_data"]

_CSV, _PARQUET = (".csv", ".csv.gz", ".csv.bz2", ".csv.xz"), (".parquet", ".pq")


@dataclass(frozen=True)
class Standardization:
    r"""The conversion from the file's units to the model's units: (value - center) / scale.

    Attributes:
        center: The number subtracted from each feature, of shape (d,), in its own unit.
        scale: The divisor of each feature, of shape (d,); 1 for categories, booleans and constant columns.
        target_center: The number subtracted from the target.
        target_scale: The divisor of the target.
    """

    center: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]
    target_center: float
    target_scale: float

    @property
    def is_identity(self) -> bool:
        """Whether the model's units are the units of the file."""
        untouched = np.all(self.scale == 1.0) and not self.center.any()
        return bool(untouched and self.target_scale == 1.0 and self.target_center == 0.0)

    def points(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Return points, of shape (n, d), in the model's units."""
        return (x - self.center[None, :]) / self.scale[None, :]

    def target(self, y: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return targets, of shape (n,), in the model's units."""
        return (y - self.target_center) / self.target_scale


@dataclass(frozen=True)
class StudyData:
    """A table ready for a model.

    Attributes:
        path: The file of the table.
        target_name: The name of the target.
        frame: The features as in the file, categories as pandas categories; n rows.
        x: The features in their own units, categories as codes, of shape (n, d).
        y: The target in its own unit, of shape (n,); 0 and 1 for two classes.
        schema: The names of the features and the levels of the categories.
        standardization: The conversion of `x` and `y` to the model's units.
        classes: The two classes of a target that is text or a category, else None.
    """

    path: Path
    target_name: str
    frame: pd.DataFrame
    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]
    schema: Schema
    standardization: Standardization
    classes: tuple[Any, Any] | None = None

    @property
    def shown_target(self) -> str:
        """The name of the target in a report: of two classes, what 1 stands for."""
        return self.target_name if self.classes is None else f"{self.target_name} = {self.classes[1]}"

    @property
    def num_rows(self) -> int:
        """The number of rows, n."""
        return self.x.shape[0]

    @property
    def is_label(self) -> bool:
        """Whether the target is a class label, 0 or 1, which is never scaled."""
        return _is_label(self.y)

    def model_frame(self) -> pd.DataFrame:
        """Return the features in the model's units: numbers standardised, categories unchanged."""
        scaled = self.standardization.points(self.x)
        columns = {
            name: self.frame[name] if name in self.schema.levels else scaled[:, index]
            for index, name in enumerate(self.schema.feature_names)
        }
        return pd.DataFrame(columns, index=self.frame.index)

    def model_target(self) -> Float[np.ndarray, " n"] | pd.Series:
        """Return the target in the model's units, or the classes of the rows as in the file."""
        if self.classes is None:
            return self.standardization.target(self.y)
        return pd.Series(pd.Categorical.from_codes(self.y.astype(int), list(self.classes)))


def read_data(config: DataConfig) -> StudyData:
    """Read the table of a study.

    Args:
        config: The section [data].

    Returns:
        The data.

    Raises:
        StudyError: If the file cannot be read, a column is missing, values are missing (with counts by column) or
            infinite, or the target is constant, or text that does not have two levels.
    """
    table = _read_table(config.path)
    features = _features(table, config)
    _refuse_missing(table[[*features, config.target]], config.path)
    y, classes = _target(table[config.target], config.target)
    frame = table[features].reset_index(drop=True)
    for name in features:
        if name in config.categorical or _is_text(frame[name], name):
            frame[name] = frame[name].astype("category")
        elif not np.isfinite(frame[name].to_numpy(float)).all():
            raise StudyError(f"data.path: the column {name!r} holds infinite values")
    with blame("[data]"):
        x, schema = read_points(frame)
    scaling = _standardization(x, y, schema, config.standardize)
    return StudyData(config.path, config.target, frame, x, y, schema, scaling, classes)


def choose_rows(
    rows: Rows, num_rows: int, rng: np.random.Generator, key: str, *, among: np.ndarray | None = None
) -> np.ndarray:
    """Return row numbers for a number (drawn without replacement, then sorted), a list of row numbers, or ``"all"``.

    They are chosen from `among`, by default from all rows. Raises StudyError, naming the key of the study file, if a
    row does not exist.
    """
    among = np.arange(num_rows) if among is None else np.asarray(among)
    if rows == "all":
        return among
    if isinstance(rows, int):
        if rows >= among.size:
            return among
        return np.sort(rng.choice(among, size=rows, replace=False))
    unknown = sorted(set(rows) - set(among.tolist()))
    if unknown:
        raise StudyError(f"{key} lists the rows {unknown}, but the data have the rows 0 to {num_rows - 1}")
    return np.array(rows)


def _read_table(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise StudyError(f"data.path: there is no file {str(path)!r}")
    name = path.name.lower()
    try:
        if name.endswith(_PARQUET):
            table = pd.read_parquet(path)
        elif name.endswith(_CSV):
            table = pd.read_csv(path)
            _refuse_repeated_columns(path)
        else:
            raise StudyError(f"data.path: {path.name!r} must end in {', '.join(_CSV + _PARQUET)}")
    except ImportError as error:
        raise StudyError("data.path: reading Parquet needs pyarrow; pip install 'kpp[parquet]'") from error
    except StudyError:
        raise
    except (OSError, ValueError) as error:
        raise StudyError(f"data.path: {str(path)!r} can't be read: {error}") from error
    if table.empty:
        raise StudyError(f"data.path: {str(path)!r} has no rows")
    table.columns = [str(column) for column in table.columns]
    return table


def _refuse_repeated_columns(path: Path) -> None:
    """Raise StudyError if the header names a column twice; pandas would rename the second column to ``name.1``."""
    if path.suffix.lower() != ".csv":
        return
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = next(csv.reader(file), [])
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise StudyError(f"data.path: {path.name!r} has more than one column called {', '.join(map(repr, repeated))}")


def _features(table: pd.DataFrame, config: DataConfig) -> list[str]:
    columns = list(table.columns)
    if config.target not in columns:
        raise StudyError(
            f"data.target: there is no column {config.target!r} in {config.path.name!r}; "
            f"{did_you_mean(config.target, columns)}"
        )
    features = list(config.features) if config.features is not None else [c for c in columns if c != config.target]
    for key, names in (("features", features), ("categorical", config.categorical)):
        for name in names:
            if name not in columns:
                raise StudyError(
                    f"data.{key}: there is no column {name!r} in {config.path.name!r}; {did_you_mean(name, columns)}"
                )
    if not features:
        raise StudyError(f"data.features: {config.path.name!r} has no column besides the target")
    return features


def _refuse_missing(table: pd.DataFrame, path: Path) -> None:
    counts = table.isna().sum()
    counts = counts[counts > 0]
    if len(counts):
        listed = ", ".join(f"{name!r}: {count}" for name, count in counts.items())
        raise StudyError(
            f"data.path: {path.name!r} has missing values ({listed}) in {len(table)} rows; drop those rows or fill "
            "them in first"
        )


def _target(column: pd.Series, name: str) -> tuple[Float[np.ndarray, " n"], tuple[Any, Any] | None]:
    """Return the numbers of a target, or the codes of its two classes and the classes."""
    if not pd.api.types.is_numeric_dtype(column):
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


def _is_text(column: pd.Series, name: str) -> bool:
    """Return whether a column holds categories; raise StudyError if it is neither numbers nor a few levels."""
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
        return False
    if isinstance(column.dtype, pd.CategoricalDtype):
        return True
    levels = column.nunique()
    if not pd.api.types.is_object_dtype(column) and not pd.api.types.is_string_dtype(column):
        raise StudyError(f"data.features: the column {name!r} must hold numbers or text, got {column.dtype}")
    if levels > max(10, len(column) // 4):
        raise StudyError(
            f"data.features: the column {name!r} is text with {levels} different values in {len(column)} rows, too "
            "many for categories; leave it out of `features`, or name it in `categorical` if it is meant"
        )
    return True


def _standardization(x: np.ndarray, y: np.ndarray, schema: Schema, standardize: bool) -> Standardization:
    center, scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
    target_center, target_scale = 0.0, 1.0
    if standardize:
        scales = Scales.of(x, schema)
        center, scale = scales.center, scales.scale
        if not _is_label(y):
            target_center, target_scale = float(y.mean()), float(y.std())
    return Standardization(center, scale, target_center, target_scale)


def _is_label(y: np.ndarray) -> bool:
    return set(np.unique(y).tolist()) <= {0.0, 1.0}


def as_json(data: StudyData) -> dict[str, Any]:
    """Return the facts about the data and their scaling, as JSON values for the attributes of the results."""
    scaling = data.standardization
    return {
        "file": data.path.name,
        "rows": data.num_rows,
        "target": data.target_name,
        "schema": data.schema.to_json(),
        "center": scaling.center.tolist(),
        "scale": scaling.scale.tolist(),
        "target_center": scaling.target_center,
        "target_scale": scaling.target_scale,
        "classes": None if data.classes is None else list(data.classes),
    }
