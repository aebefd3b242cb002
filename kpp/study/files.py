"""The tables of a study's files."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kpp.memory import check_expansion
from kpp.study.errors import StudyError, did_you_mean
from kpp.tables import is_number

__all__ = ["check_columns", "read_table", "refuse_missing"]

_CSV, _PARQUET = (".csv", ".csv.gz", ".csv.bz2", ".csv.xz"), (".parquet", ".pq")
_UNPACK: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def read_table(path: Path, key: str) -> pd.DataFrame:
    """Read a CSV or Parquet file; the key of the study file is named in errors.

    Raises:
        StudyError: If the file cannot be read, has no rows, or has two columns of one name.
    """
    if not path.is_file():
        raise StudyError(f"{key}: there is no file {str(path)!r}")
    name = path.name.lower()
    try:
        _refuse_expansion(path)
        if name.endswith(_PARQUET):
            table = pd.read_parquet(path)
        elif name.endswith(_CSV):
            table = pd.read_csv(path)
            _refuse_repeated_columns(path, key)
        else:
            raise StudyError(f"{key}: {path.name!r} must end in {', '.join(_CSV + _PARQUET)}")
    except ImportError as error:
        raise StudyError(f"{key}: reading Parquet needs pyarrow; pip install 'kpp[parquet]'") from error
    except StudyError:
        raise
    except Exception as error:  # the libraries raise errors of many types for a file that is damaged
        raise StudyError(f"{key}: {str(path)!r} can't be read: {error}") from error
    if table.empty:
        raise StudyError(f"{key}: {str(path)!r} has no rows")
    table.columns = [str(column) for column in table.columns]
    objects = [name for name, column in table.items() if column.dtype == object and is_number(column.dropna())]
    return table.astype(dict.fromkeys(objects, float))  # decimals of Parquet, for example


def check_columns(table: pd.DataFrame, names: Sequence[str], key: str, path: Path) -> None:
    """Raise StudyError unless a table has all of these columns."""
    columns = list(table.columns)
    for name in names:
        if name not in columns:
            raise StudyError(f"{key}: there is no column {name!r} in {path.name!r}; {did_you_mean(name, columns)}")


def refuse_missing(table: pd.DataFrame, key: str, path: Path) -> None:
    """Raise StudyError if values are missing, with their numbers by column."""
    counts = table.isna().sum()
    counts = counts[counts > 0]
    if len(counts):
        listed = ", ".join(f"{name!r}: {count}" for name, count in counts.items())
        raise StudyError(
            f"{key}: {path.name!r} has missing values ({listed}) in {len(table)} rows; drop those rows or fill them in "
            "first"
        )


def _refuse_expansion(path: Path) -> None:
    """Raise ValueError if the table is very much larger than its file; it is not kept in memory here."""
    size, suffix = path.stat().st_size, path.suffix.lower()
    if suffix in _PARQUET:
        import pyarrow.parquet

        parquet = pyarrow.parquet.read_metadata(path)
        check_expansion(8 * parquet.num_rows * parquet.num_columns, size)
    elif suffix in _UNPACK:
        length = 0
        with _UNPACK[suffix](path) as file:
            while block := file.read(2**20):
                length += len(block)
                check_expansion(length, size)


def _refuse_repeated_columns(path: Path, key: str) -> None:
    """Raise StudyError if the header names a column twice; pandas would rename the second column to ``name.1``."""
    if path.suffix.lower() != ".csv":
        return
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = next(csv.reader(file), [])
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise StudyError(f"{key}: {path.name!r} has more than one column called {', '.join(map(repr, repeated))}")
