"""The data of a study: reading, checking, and standardising a table, with a record of the original units.

Models do not scale their data, so the study does: numeric features and a numeric target are shifted and scaled to mean
    0 and standard deviation 1. `Standardization` keeps these numbers, so that results are reported in the units of the
    file. Columns of text become categories, whose codes are not scaled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from kpp.data.bags import Bags
from kpp.data.labels import read_labels
from kpp.data.tables import Scales, Schema, numbers_as_text, read_points
from kpp.preferences import Matches
from kpp_study.study.data_config import DataConfig
from kpp_study.study.errors import StudyError, blame
from kpp_study.study.files import check_columns, complete_rows, read_table
from kpp_study.study.section import Rows


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
        y: The target in its own unit, of shape (M,), one for each row of a table; 0 and 1 for two classes.
        schema: The names of the features and the levels of the categories.
        standardization: The conversion of `x` and `y` to the model's units.
        classes: The two classes of a target that is text or a category, else None.
        training: What the model is fitted to in the model's units, if it is not the table of features: `kpp.Bags`,
            `kpp.preferences.Matches`, or several tables by name.
        options: Further data for `fit`, in the model's units.
        fields: Fields of the model that the data decide.
    """

    path: Path
    target_name: str
    frame: pd.DataFrame
    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " M"]
    schema: Schema
    standardization: Standardization
    classes: tuple[Any, Any] | None = None
    training: Bags | Matches | Mapping[str, pd.DataFrame] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shown_target(self) -> str:
        """The name of the target in a report: of two classes, what 1 stands for."""
        return self.target_name if self.classes is None else f"{self.target_name} = {self.classes[1]}"

    @property
    def num_rows(self) -> int:
        """The number of rows, n."""
        return self.x.shape[0]

    @property
    def num_instances(self) -> int:
        """The number of rows that can be explained: of the features, or of matches."""
        return self.training.num_pairs if isinstance(self.training, Matches) else self.num_rows

    @property
    def is_label(self) -> bool:
        """Whether the target is a class label, 0 or 1, which is never scaled."""
        return isinstance(self.training, Matches) or _is_label(self.y)

    @property
    def counted(self) -> str:
        """How much there is to learn from, in words."""
        if isinstance(self.training, Matches):
            return f"{self.training.num_matches} matches between {self.training.num_items} items"
        if isinstance(self.training, Bags):
            return f"{self.y.size} aggregates and {self.training.num_bags} bags with {self.num_rows} points"
        if self.training is not None:
            return f"{self.num_rows} treatments and {self.y.size} targets"
        return f"{self.num_rows} rows"

    @property
    def observes_rows(self) -> bool:
        """Whether the target was observed in the rows that can be explained."""
        return self.training is None or isinstance(self.training, Matches)

    def training_data(self) -> tuple[Any, Any]:
        """Return the arguments x and y of a model's `fit`, in the model's units."""
        if isinstance(self.training, Matches):
            return self.training, None
        return self.model_frame() if self.training is None else self.training, self.model_target()

    def instances(self, rows: np.ndarray) -> Any:
        """Return some of the rows that can be explained, in the model's units."""
        return self.training.take(rows) if isinstance(self.training, Matches) else self.model_frame().iloc[rows]

    def background(self, rows: np.ndarray) -> Any:
        """Return rows of features that replace absent ones, in the model's units."""
        frame = self.model_frame().iloc[rows]
        return self.schema.read(frame) if isinstance(self.training, Matches) else frame

    def observed(self, rows: np.ndarray) -> list[str] | None:
        """Return what was observed in explained rows, as text; None if the target was not observed in these rows."""
        if not self.observes_rows:
            return None
        if isinstance(self.training, Matches):
            counts = np.stack([self.training.wins, self.training.losses], axis=1)[rows]
            return [f"{low:g} to {high:g}" for low, high in np.sort(counts, axis=1)[:, ::-1]]
        if self.is_label:
            return [f"{self.shown_target} = {self.y[row]:g}" for row in rows]
        return [f"{self.y[row]:.4g}" for row in rows]

    def of_matches(self, values: np.ndarray) -> np.ndarray:
        """Return the value of the pair of each match, (M,), for values of pairs; values of rows are unchanged."""
        return values[self.training.single_matches()[0]] if isinstance(self.training, Matches) else values

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


def read_features(table: pd.DataFrame, config: DataConfig, features: list[str]) -> pd.DataFrame:
    """Return the columns of features, categories as pandas categories.

    Raises:
        StudyError: If values are infinite, or a column is neither numbers nor a few levels.
    """
    frame = table[features].reset_index(drop=True)
    for name in features:
        if name in config.categorical or _is_text(frame[name], name):
            frame[name] = frame[name].astype("category")
        elif not np.isfinite(frame[name].to_numpy(float)).all():
            raise StudyError(f"data.path: the column {name!r} holds infinite values")
    return frame


def read_plain_table(config: DataConfig) -> StudyData:
    """Read the table of a study.

    Args:
        config: The section [data].

    Returns:
        The data.

    Raises:
        StudyError: If the file cannot be read, a column is missing, values are missing (with counts by column) and not
            to be dropped, or infinite, or the target is constant, or text that does not have two levels.
    """
    table = read_table(config.path, "data.path", config.dialect)
    check_columns(table, [config.target], "data.target", config.path)
    features = choose_features(table, config, [config.target])
    table = complete_rows(table, [*features, config.target], "data.path", config.path, config.dialect)
    y, classes = read_target(table[config.target], config)
    frame = read_features(table, config, features)
    with blame("[data]"):
        x, schema = read_points(frame)
    scaling = standardization(x, y, schema, config.standardize)
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


def choose_features(table: pd.DataFrame, config: DataConfig, others: Sequence[str]) -> list[str]:
    """Return the names of the features: those of the study file, or all columns but some others.

    Raises:
        StudyError: If a column does not exist, or there are no features.
    """
    columns = list(table.columns)
    features = list(config.features) if config.features is not None else [c for c in columns if c not in others]
    for key, names in (("features", features), ("categorical", config.categorical)):
        check_columns(table, names, f"data.{key}", config.path)
    if not features:
        raise StudyError(f"data.features: {config.path.name!r} has no column besides {', '.join(map(repr, others))}")
    return features


def read_target(
    column: pd.Series, config: DataConfig | None = None
) -> tuple[Float[np.ndarray, " n"], tuple[Any, Any] | None]:
    """Return the numbers of a target, or the codes of its two classes and the classes.

    Numbers are classes if the study file names the target in `categorical`.
    """
    name = str(column.name)
    if config is not None and name in config.categorical:
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


def most_levels(num_rows: int) -> int:
    """Return with how many different values a column of text is still read as categories."""
    return max(10, num_rows // 4)


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


def standardization(x: np.ndarray, y: np.ndarray, schema: Schema, standardize: bool) -> Standardization:
    """Return the conversion of points (n, d) and a target to the model's units; labels are not scaled."""
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
