"""The tables of a study's files."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from kpp.data.tables import is_number
from kpp.foundation.distribution import extra
from kpp.runtime.memory import check_expansion
from kpp_study.study.dialect import DROP, OPENERS, PLAIN, TableFormat, check_dialect
from kpp_study.study.errors import StudyError, did_you_mean
from kpp_study.study.sections.data_config import DataConfig

_LOGGER = logging.getLogger("kpp")
_CSV, _PARQUET = (".csv", ".csv.gz", ".csv.bz2", ".csv.xz"), (".parquet", ".pq")


def read_table(path: Path, key: str, dialect: TableFormat = PLAIN) -> pd.DataFrame:
    """Read a CSV or Parquet file; the key of the study file is named in errors.

    The index of a Parquet file that has a name, or holds text, becomes a column. Raises StudyError if the file cannot
    be read, has no rows, has two columns of one name, or shows another dialect.
    """
    if not path.is_file():
        raise StudyError(f"{key}: there is no file {str(path)!r}")
    name = path.name.lower()
    try:
        _refuse_expansion(path)
        if name.endswith(_PARQUET):
            table = _with_index(pd.read_parquet(path), path)
        elif name.endswith(_CSV):
            check_dialect(path, dialect, key)
            table = pd.read_csv(
                path,
                sep=dialect.separator,
                decimal=dialect.decimal,
                encoding=dialect.encoding,
                na_values=list(dialect.missing_values),
            )
        else:
            raise StudyError(f"{key}: {path.name!r} must end in {', '.join(_CSV + _PARQUET)}")
    except ImportError as error:
        raise StudyError(f"{key}: reading Parquet needs pyarrow; {extra('parquet')}") from error
    except StudyError:
        raise
    except Exception as error:  # the libraries raise errors of many types for a file that is damaged
        raise StudyError(f"{key}: {str(path)!r} can't be read: {error}") from error
    if table.empty:
        raise StudyError(f"{key}: {str(path)!r} has no rows")
    table.columns = [str(column) for column in table.columns]
    objects = [name for name, column in table.items() if column.dtype == object and is_number(column.dropna())]
    return table.astype(dict.fromkeys(objects, float))  # decimals of Parquet, for example


def require_columns(table: pd.DataFrame, names: Sequence[str], key: str, path: Path) -> None:
    """Raise StudyError unless a table has all of these columns."""
    columns = list(table.columns)
    for name in names:
        if name not in columns:
            raise StudyError(f"{key}: there is no column {name!r} in {path.name!r}; {did_you_mean(name, columns)}")


def read_complete_rows(path: Path, key: str, dialect: TableFormat, needed: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Read the complete rows of a file in the columns that are needed, by the key of [data] that names them."""
    table = read_table(path, key, dialect)
    for name, columns in needed.items():
        require_columns(table, columns, f"data.{name}", path)
    return complete_rows(table, [column for columns in needed.values() for column in columns], key, path, dialect)


def read_with_features(
    config: DataConfig, path: Path, key: str, needed: Mapping[str, Sequence[str]]
) -> tuple[pd.DataFrame, list[str]]:
    """Read the complete rows of the file with the features, and the names of the features.

    These are those of the study file, or all columns that are not needed for something else. Raises StudyError as
    `read_complete_rows` does, or if there are no features.
    """
    table = read_table(path, key, config.dialect)
    others = [column for columns in needed.values() for column in columns]
    features = [c for c in table.columns if c not in others] if config.features is None else list(config.features)
    for name, columns in {**needed, "features": features, "categorical": config.categorical}.items():
        require_columns(table, columns, f"data.{name}", path)
    if not features:
        raise StudyError(f"data.features: {path.name!r} has no column besides {', '.join(map(repr, others))}")
    return complete_rows(table, [*features, *others], key, path, config.dialect), features


def complete_rows(
    table: pd.DataFrame, columns: Sequence[str], key: str, path: Path, dialect: TableFormat
) -> pd.DataFrame:
    """Return the rows of a table in which no value of some columns is missing, if others may be dropped."""
    counts = table[list(columns)].isna().sum()
    counts = counts[counts > 0]
    if not len(counts):
        return table
    listed = ", ".join(f"{name!r}: {count}" for name, count in counts.items())
    complete = table.dropna(subset=list(columns))
    if dialect.missing != DROP or complete.empty:
        fix = 'drop those rows, as `missing = "drop"` does, or fill them in first'
        fix = "no row is complete" if complete.empty else fix
        raise StudyError(f"{key}: {path.name!r} has missing values ({listed}) in {len(table)} rows; {fix}")
    numbers = len(table) - len(complete), len(table)
    _LOGGER.warning("%s: %d of %d rows are left out, as values are missing (%s)", path.name, *numbers, listed)
    return complete.reset_index(drop=True)


def _refuse_expansion(path: Path) -> None:
    """Raise ValueError if the table is very much larger than its file; it is not kept in memory here."""
    size, suffix = path.stat().st_size, path.suffix.lower()
    if suffix in _PARQUET:
        import pyarrow.parquet

        parquet = pyarrow.parquet.read_metadata(path)
        check_expansion(8 * parquet.num_rows * parquet.num_columns, size)
    elif suffix in OPENERS:
        length = 0
        with OPENERS[suffix](path) as file:
            while block := file.read(2**20):
                length += len(block)
                check_expansion(length, size)


def _with_index(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return a table whose index is a column if it means something: if it has a name or is not of whole numbers."""
    if isinstance(table.index, pd.RangeIndex):
        return table
    if table.index.names == [None] and pd.api.types.is_integer_dtype(table.index):
        _LOGGER.warning("%s: the index of whole numbers has no name and is left out", path.name)
        return table.reset_index(drop=True)
    return table.reset_index()
