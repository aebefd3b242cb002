"""Tables: the names of the columns of `x`, and the conversion of text to numbers.

Entry points accept arrays and data frames. A `Schema` remembers the names of the columns and, for categorical ones, the
levels in the order of their codes, so that data given later (to predict, to explain) are read in the same way, and
missing, misspelled or reordered columns are detected. pandas is not needed: any object with ``columns`` that is indexed
by them is a data frame here. Datasets of xarray and labeled arrays of it are read as data frames.
"""

from __future__ import annotations

import collections
import dataclasses
import decimal
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import xarray as xr
from jaxtyping import Float

from kpp.foundation.arguments import guard_exports
from kpp.foundation.validation import as_points, is_missing, one_of, refuse_dates
from kpp.foundation.wording import named, unknown_feature

UNSEEN = ("error", "prior")

_SHOWN_LEVELS = 5
# From this many rows on, a text column with a level per row is taken for a name and not for a feature.
_MANY_ROWS = 10


@runtime_checkable
class _Table(Protocol):
    """A data frame of any library."""

    columns: Any

    def __getitem__(self, column: str, /) -> Any: ...


@dataclasses.dataclass(frozen=True, repr=False)
class Schema:
    """The columns of a table of points.

    Args:
        feature_names: One name per column, d of them, all different.
        levels: For each categorical column its levels; level i has the code i.
        booleans: The columns of booleans, which are read as the numbers 0 and 1.
        unseen: What `read` does with a level of a data frame that is not known: "error" raises ValueError, "prior"
            gives it a code of its own, which `kpp.kernels.Categorical` treats as one more category.

    Example:
        >>> kpp.data.Schema(("age", "town"), {"town": ("Bern", "Biel")})
        Schema(age, town in {Bern, Biel})
    """

    feature_names: tuple[str, ...]
    levels: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    booleans: tuple[str, ...] = ()
    unseen: str = dataclasses.field(default="error", compare=False)

    def __post_init__(self) -> None:
        """Check that names are not repeated, that levels and booleans belong to known columns, and the option."""
        one_of(self.unseen, "unseen", UNSEEN)
        repeated = sorted({name for name in self.feature_names if self.feature_names.count(name) > 1})
        if repeated:
            raise ValueError(f"`feature_names` must be different from each other, got {repeated} more than once")
        for name in (*self.levels, *self.booleans):
            self.index(name)

    @property
    def num_features(self) -> int:
        """The number of columns, d."""
        return len(self.feature_names)

    @property
    def has_default_names(self) -> bool:
        """Whether the names are those of an array without names."""
        return self.feature_names == _default_names(self.num_features)

    @property
    def categories(self) -> frozenset[str]:
        """The names of the columns whose values are codes and not numbers: those with levels, and booleans."""
        return frozenset((*self.levels, *self.booleans))

    def index(self, name: str) -> int:
        """Return the position of a feature.

        Raises:
            ValueError: If the feature does not exist; the message lists similar names.
        """
        if name not in self.feature_names:
            raise ValueError(unknown_feature(name, self.feature_names))
        return self.feature_names.index(name)

    def select(self, names: Sequence[str]) -> Schema:
        """Return the schema of some of the columns, in the order of `names`.

        Raises:
            ValueError: If one does not exist.
        """
        for name in names:
            self.index(name)
        levels = {name: self.levels[name] for name in names if name in self.levels}
        return Schema(tuple(names), levels, tuple(name for name in names if name in self.booleans), self.unseen)

    def read(self, x: object, name: str = "x") -> np.ndarray:
        """Read points by this schema.

        Args:
            x: A data frame or an xarray object with (at least) these columns, in any order, or an array (n, d).
            name: The argument's name for messages.

        Returns:
            A float array of shape (n, d), columns in the order of `feature_names`, levels replaced by codes.

        Raises:
            ValueError: If columns are missing, a level is unknown, values are missing, or the shape is wrong.
        """
        x = as_table(x, name)
        if not isinstance(x, _Table):
            points = np.asarray(as_points(x, name, num_features=self.num_features))
            for feature, levels in self.levels.items():
                codes = points[:, self.index(feature)]
                strange = codes[~np.isin(codes, np.arange(len(levels)))]
                if strange.size:
                    raise ValueError(
                        f"`{name}` must hold codes from 0 to {len(levels) - 1} in the categorical column {feature!r}, "
                        f"got {strange[0]:g}; give a data frame, whose levels are read by name"
                    )
            return points
        check_columns(x.columns, self.feature_names, name)
        refuse_missing(x, self.feature_names, name)
        columns = [self._read_column(x[column], column, name) for column in self.feature_names]
        return np.asarray(as_points(np.stack(columns, axis=1), name))

    def decode(self, points: np.ndarray) -> dict[str, np.ndarray]:
        """Return the columns of coded points by name, codes replaced by their levels.

        Returns:
            One array of shape (n,) per feature.
        """
        columns = {}
        for index, feature in enumerate(self.feature_names):
            column = np.asarray(points)[:, index]
            if feature in self.levels:
                column = np.asarray(self.levels[feature], dtype=object)[column.astype(int)]
            columns[feature] = column
        return columns

    def as_objects(self, points: np.ndarray) -> np.ndarray:
        """Return coded points (n, d) as an array of objects of that shape, codes replaced by their levels."""
        return np.stack([np.asarray(column, dtype=object) for column in self.decode(points).values()], axis=1)

    def to_json(self) -> dict[str, Any]:
        """Return the schema as JSON values."""
        return {
            "feature_names": list(self.feature_names),
            "levels": {name: [plain_level(level) for level in levels] for name, levels in self.levels.items()},
            "booleans": list(self.booleans),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Schema:
        """Return the schema that `to_json` described."""
        levels = {name: tuple(entries) for name, entries in value["levels"].items()}
        return cls(tuple(value["feature_names"]), levels, tuple(value.get("booleans", ())))

    def __repr__(self) -> str:
        """Return the columns, with the levels of each categorical one as far as they are few."""
        return f"Schema({', '.join(_column_text(name, self.levels.get(name)) for name in self.feature_names)})"

    def _read_column(self, column: object, feature: str, name: str) -> np.ndarray:
        values = np.asarray(column)
        refuse_dates(values, name, f" in column {feature!r}")
        if feature not in self.levels:
            return _as_numbers(values, feature, name)
        codes = {level: code for code, level in enumerate(self.levels[feature])}
        found = [plain_level(value) for value in values.tolist()]
        unknown = sorted({value for value in found if value not in codes}, key=str)
        if self.unseen == "prior":
            codes |= {level: len(codes) + number for number, level in enumerate(unknown)}
        elif unknown:
            known = [str(level) for level in self.levels[feature]]
            raise ValueError(
                f"`{name}` has unknown levels {named(map(str, unknown))} in column {feature!r}; known are "
                f'{named(known)}; `Fit.predict` takes `unseen="prior"` for such levels; for estimators of other '
                "libraries `kpp.explain` takes the levels of `background` and of an `x` without chunks"
            )
        return np.array([codes[value] for value in found], dtype=float)


def _column_text(name: str, levels: Sequence[Any] | None) -> str:
    """Return a column's name, for a categorical one with its levels."""
    if levels is None:
        return name
    shown = ", ".join(str(level) for level in levels[:_SHOWN_LEVELS])
    more = f", ... {len(levels)} levels" if len(levels) > _SHOWN_LEVELS else ""
    return f"{name} in {{{shown}{more}}}"


def columns_of_names(x: object, schema: Schema) -> list[str]:
    """Return the text columns of a data frame in which each of many rows has a level of its own, such as an ID.

    There are none if there are fewer than 10 rows, which may differ by chance.
    """
    num_rows = len(np.asarray(x[schema.feature_names[0]])) if isinstance(x, _Table) else 0
    return [name for name, levels in schema.levels.items() if num_rows >= _MANY_ROWS and len(levels) == num_rows]


def columns_of_text(x: Any) -> list[str]:
    """Return the columns of a data frame that hold text, to read all of it as categories, numbers included."""
    return [column for column in x.columns if any(isinstance(entry, str) for entry in np.asarray(x[column]).tolist())]


def is_table(x: object) -> bool:
    """Return whether `x` is a data frame (has ``columns`` and is indexed by them)."""
    return isinstance(x, _Table)


def as_table(x: Any, name: str = "x") -> Any:
    """Return an xarray object with names as a data frame, and anything else unchanged.

    The variables of a Dataset are the columns and share one dimension, otherwise ValueError is raised; a DataArray (n,
    d) has a coordinate of text along its last dimension, the names of the columns. The data frame lacks the coordinates
    of the rows; it is of Dask if `x` has chunks, else of pandas.
    """
    if not isinstance(x, (xr.Dataset, xr.DataArray)):
        return x
    if isinstance(x, xr.DataArray):
        columns = x.coords[x.dims[-1]].values.tolist() if x.ndim == 2 and x.dims[-1] in x.coords else []
        if not columns or not all(isinstance(column, str) for column in columns):
            return x
        x = x.to_dataset(dim=x.dims[-1])
    dims = {str(column): variable.dims for column, variable in x.data_vars.items()}
    if len(set(dims.values())) != 1 or any(len(axes) != 1 for axes in dims.values()):
        raise ValueError(f"`{name}` must be a Dataset whose variables share one dimension, the rows, got {dims}")
    if x.chunks:
        return x.to_dask_dataframe()[list(x.data_vars)]
    import pandas as pd

    return pd.DataFrame({column: variable.values for column, variable in x.data_vars.items()}).infer_objects()


def as_frame(x: Any, name: str) -> Any:
    """Return a data frame whose columns are variables, or an xarray object with names as one, or raise ValueError."""
    table = as_table(x, name)
    if not is_table(table):
        raise ValueError(f"`{name}` must be a data frame with the variables as columns, got {type(x).__name__}")
    return table


def check_columns(known: Iterable[Any], wanted: Iterable[Any], name: str) -> None:
    """Raise ValueError if a table lacks some columns."""
    columns = list(known)
    missing = [str(column) for column in wanted if column not in set(columns)]
    if missing:
        raise ValueError(f"`{name}` lacks the columns {named(missing)}; it has {named(map(str, columns))}")


def as_names(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def read_points(
    x: object, name: str = "x", *, feature_names: Sequence[str] | None = None, categorical: Sequence[str] = ()
) -> tuple[np.ndarray, Schema]:
    """Read a table of points and learn its schema.

    Columns of text, of pandas categories and those named in `categorical` become codes 0, 1, ... of their sorted
    levels; intervals, as `pandas.cut` makes them, are levels by their text. Columns of booleans become the numbers 0
    and 1. Objects that are numbers, such as decimals, are numbers.

    Args:
        x: A data frame, a Dataset of xarray, a DataArray (n, d) with names of columns, or an array (n, d).
        name: The argument's name for messages.
        feature_names: Names of an array's columns; by default ``x0, x1, ...``. A data frame has its own.
        categorical: Columns to be coded although their values are numbers.

    Returns:
        The points, a float array of shape (n, d), and the schema that reads others like them.

    Raises:
        ValueError: If values are missing (with counts by column), a name is unknown or repeated, the shape is wrong, or
            most entries of a column of text are numbers.

    Example:
        >>> points, schema = kpp.data.read_points(x, "x")
        >>> points.shape, schema.feature_names
        ((20, 2), ('x0', 'x1'))
    """
    if isinstance(categorical, str) or not np.iterable(categorical):
        raise ValueError(f"`categorical` must be a list of names of columns, got {categorical!r}")
    x = as_table(x, name)
    if not isinstance(x, _Table):
        points = np.asarray(as_points(x, name))
        names = _names_for(points.shape[1], feature_names, name)
        levels = {feature: tuple(np.unique(points[:, _position(feature, names)])) for feature in categorical}
        schema = Schema(names, levels)
        for feature, entries in levels.items():
            index = schema.index(feature)
            points = np.array(points)
            points[:, index] = np.searchsorted(np.asarray(entries), points[:, index])
        return points, schema
    if feature_names is not None:
        raise ValueError(f"`feature_names` goes with an array; the data frame `{name}` has its own column names")
    names = tuple(str(column) for column in x.columns)
    not_text = [column for column in x.columns if not isinstance(column, str)]
    if not_text:
        raise ValueError(f"`{name}` must have text as column names, got {not_text[:5]}")
    for feature in categorical:
        _position(feature, names)
    for column in names:
        values = np.asarray(x[column])
        refuse_dates(values, name, f" in column {column!r}")
        if values.dtype.kind == "c":
            raise ValueError(f"`{name}` must hold real numbers in column {column!r}, got complex numbers")
    refuse_missing(x, names, name)
    free = [column for column in names if column not in categorical]
    booleans = tuple(column for column in free if _is_boolean(x[column]))
    known = {*booleans, *(column for column in free if is_number(x[column]))}
    for column in free:
        found = None if column in known else numbers_as_text(x[column])
        if found is not None:
            raise ValueError(
                f"`{name}` must hold numbers or categories in column {column!r}, got entries most of which are "
                f"numbers: {found}; convert them, for example by pandas.to_numeric(column, errors='coerce'), and drop "
                "or fill in the rows without a number; if the entries are categories, write column.astype('category')"
            )
    schema = Schema(
        names, {column: _levels(x[column], column, name) for column in names if column not in known}, booleans
    )
    return schema.read(x, name), schema


@dataclasses.dataclass(frozen=True)
class Scales:
    r"""The means and scales by which a table was standardized, to treat further rows in the same way.

    .. math:: x'_{ij} = (x_{ij} - m_j) / s_j

    Args:
        schema: The columns of the table.
        center: :math:`m_j`, the mean of each column of numbers, and 0 for other columns, (d,).
        scale: :math:`s_j`, the standard deviation of each column of numbers that varies, and 1 for other columns, (d,).
    """

    schema: Schema
    center: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]

    @classmethod
    def of(cls, points: Float[np.ndarray, "n d"], schema: Schema) -> Scales:
        """Compute the scales of points that `read_points` has read.

        Args:
            points: The points, (n, d).
            schema: Their columns. Those of categories and of booleans are not scaled.
        """
        numeric = np.array([feature not in schema.categories for feature in schema.feature_names])
        varies = numeric & (np.ptp(points, axis=0) > 0.0)
        center = np.where(numeric, points.mean(axis=0), 0.0)
        return cls(schema, center, np.where(varies, points.std(axis=0), 1.0))

    def apply(self, x: Any, name: str = "x") -> Any:
        """Standardize rows by the means and scales of this table.

        Args:
            x: An array (n, d), or a data frame or an xarray object with (at least) the columns of numbers of this
                table.
            name: The argument's name for messages.

        Returns:
            An array, or a data frame in which only the columns of numbers are changed.

        Raises:
            ValueError: If columns are missing, values are missing, or the shape is wrong.
        """
        x = as_table(x, name)
        if not isinstance(x, _Table):
            points = np.asarray(as_points(x, name, num_features=self.schema.num_features))
            return (points - self.center[None, :]) / self.scale[None, :]
        categories = self.schema.categories
        numeric = [index for index, feature in enumerate(self.schema.feature_names) if feature not in categories]
        if not numeric:
            return x
        features = tuple(self.schema.feature_names[index] for index in numeric)
        points = (Schema(features).read(x, name) - self.center[None, numeric]) / self.scale[None, numeric]
        return _with_columns(x, dict(zip(features, points.T, strict=True)))


def standardize(x: Any, name: str = "x", *, categorical: Sequence[str] = ()) -> tuple[Any, Scales]:
    """Shift and scale the columns of numbers of a table to mean 0 and standard deviation 1.

    Models never rescale data, and priors of lengthscales are most often meant for such columns. Apply the returned
    scales to the rows to predict or explain: ``test = scales.apply(test)``.

    Args:
        x: A data frame of pandas or polars, an xarray object, or an array (n, d).
        name: The argument's name for messages.
        categorical: Columns of numbers that are categories.

    Returns:
        The table, with the same names, and its scales. Columns of text, of categories and of booleans are unchanged,
        and so is the scale of constant columns, which become 0.

    Raises:
        ValueError: If values are missing or not finite, a name is unknown, or the shape is wrong.

    Example:
        >>> scaled, scales = kpp.data.standardize(x)
        >>> scaled.std(axis=0).round(6).tolist()
        [1.0, 1.0]
    """
    points, schema = read_points(x, name, categorical=categorical)
    scales = Scales.of(points, schema)
    return scales.apply(x, name), scales


def _with_columns(x: Any, columns: Mapping[str, np.ndarray]) -> Any:
    """Return a data frame with other values in some columns: polars has the method `with_columns`, pandas `assign`."""
    if hasattr(x, "with_columns"):
        return x.with_columns([type(x[column])(column, values) for column, values in columns.items()])
    return x.assign(**columns)


def refuse_missing(x: _Table, columns: Sequence[str], name: str) -> None:
    """Raise ValueError if values are missing in some columns of a data frame."""
    counts = {column: int(np.sum(_missing(np.asarray(x[column])))) for column in columns}
    counts = {column: count for column, count in counts.items() if count}
    if counts:
        listed = ", ".join(f"{column!r}: {count}" for column, count in counts.items())
        raise ValueError(f"`{name}` has missing values ({listed}); drop those rows or fill them in first")


def _position(feature: str, names: Sequence[str]) -> int:
    if feature not in names:
        raise ValueError(f"`categorical`: {unknown_feature(feature, names)}")
    return list(names).index(feature)


def _default_names(num_features: int) -> tuple[str, ...]:
    return tuple(f"x{j}" for j in range(num_features))


def _names_for(num_features: int, feature_names: Sequence[str] | None, name: str) -> tuple[str, ...]:
    if feature_names is None:
        return _default_names(num_features)
    names = tuple(str(feature) for feature in feature_names)
    if len(names) != num_features:
        raise ValueError(
            f"`feature_names` must have one name for each of the {num_features} columns of `{name}`, got {len(names)}"
        )
    return names


def _missing(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind == "O":
        return np.array([is_missing(value) for value in values.tolist()], dtype=bool)
    return np.zeros(values.shape, dtype=bool)


def is_number(column: object) -> bool:
    """Return whether a column, not of a type for categories, holds numbers, which may be objects, such as decimals."""
    values = np.asarray(column)
    objects = values.dtype.kind == "O" and all(map(_is_real, values.tolist()))
    return (objects or values.dtype.kind in "iuf") and not _is_category(column)


def numbers_as_text(column: object) -> str | None:
    """Return which entries of a column are numbers, perhaps as text, if most are and its type is not for categories."""
    entries = [] if _is_category(column) else np.asarray(column).tolist()
    others = collections.Counter(repr(entry) for entry in entries if not _reads_as_number(entry))
    if others.total() >= len(entries) / 2:
        return None
    shown = ", ".join(f"{entry} ({times} times)" for entry, times in others.most_common(_SHOWN_LEVELS))
    more = f" and {len(others) - _SHOWN_LEVELS} others" if len(others) > _SHOWN_LEVELS else ""
    return f"all but {shown}{more}" if others else "all of them, as text"


def _is_category(column: object) -> bool:
    """Return whether a column is of the type for categories of pandas or polars."""
    return str(getattr(column, "dtype", "")).lower().startswith(("categor", "enum"))


def _is_real(entry: object) -> bool:
    return isinstance(entry, (numbers.Real, decimal.Decimal)) and not isinstance(entry, bool)


def _reads_as_number(entry: object) -> bool:
    """Return whether an entry is a number, or text that says one, also with a decimal comma."""
    try:
        return _is_real(entry) or (isinstance(entry, str) and math.isfinite(float(entry.replace(",", "."))))
    except ValueError:
        return False


def _is_boolean(column: object) -> bool:
    # Columns of booleans that may lack values arrive as objects.
    values = np.asarray(column)
    known = values.dtype.kind == "b" or (
        values.dtype.kind == "O" and all(isinstance(value, bool | np.bool_) for value in values.tolist())
    )
    return known and not _is_category(column)


def _as_numbers(values: np.ndarray, feature: str, name: str) -> np.ndarray:
    try:
        if values.dtype.kind == "c":
            raise TypeError("complex numbers")
        text = sorted({value for value in values.tolist() if isinstance(value, (str, bytes))}, key=str)
        if text:
            raise TypeError(f"got text, such as {', '.join(map(repr, text[:_SHOWN_LEVELS]))}")
        return values.astype(float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{name}` must hold numbers in column {feature!r}: {error}") from None


def _levels(column: object, feature: str, name: str) -> tuple[Any, ...]:
    try:
        values = {plain_level(value) for value in np.asarray(column).tolist()}
        return tuple(sorted(values, key=lambda value: (type(value).__name__, value)))
    except TypeError as error:
        raise ValueError(f"`{name}` must hold numbers or categories in column {feature!r}: {error}") from None


def plain_level(level: object) -> Any:
    """Return a level as Python's own value; an interval of pandas as text."""
    if type(level).__name__ == "Interval":
        return str(level)
    return level.item() if isinstance(level, np.generic) else level


guard_exports(globals())
