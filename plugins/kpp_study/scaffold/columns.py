"""The columns of a table: which ones a study can use, and why others are left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kpp.data.tables import numbers_as_text
from kpp_study.study.errors import StudyError
from kpp_study.study.reading.data import most_levels, read_target

REGRESSION, CLASSIFICATION = "regression", "classification"

# 2024-05-31, 31.5.2024, 5/31/24, each perhaps with a time.
_DATE = re.compile(r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))([T\s].*)?")
_DATE_TYPES = ("date", "datetime", "datetime64", "time", "timedelta", "timedelta64", "period")
_SHOWN = 4
_MOST_CODES = 20  # more different whole numbers are hardly codes of categories
_MANY_ROWS = 10  # fewer whole numbers may differ by chance


@dataclass(frozen=True)
class Column:
    """A column that can be a feature."""

    name: str
    is_category: bool
    contents: str  # its values, in words
    may_be_codes: bool = False  # whether it holds a few whole numbers, which may be codes of categories


@dataclass(frozen=True)
class Unusable:
    """A column that is left out."""

    name: str
    reason: str  # the end of a sentence about the column


def describe(column: pd.Series) -> Column | Unusable:
    """Return what a column of a table holds, or why it cannot be a feature."""
    name = str(column.name)
    reason = _fault(column) or (_fault_of_numbers(column) if _is_number(column) else _fault_of_categories(column))
    if reason is not None:
        return Unusable(name, reason)
    if pd.api.types.is_bool_dtype(column):
        return Column(name, False, "true or false, as the numbers 1 and 0")
    if _is_number(column):
        contents, num_levels = f"numbers from {column.min():.4g} to {column.max():.4g}", column.nunique()
        if not _is_whole(column):
            return Column(name, False, contents)
        if num_levels == len(column) > _MANY_ROWS:
            return Column(name, False, f"{contents}, different in every row: leave it out if it is an identifier")
        return Column(name, False, contents, may_be_codes=2 < num_levels <= _MOST_CODES)
    levels = sorted(column.unique().tolist(), key=str)
    return Column(name, True, f"{len(levels)} categories: {listed(levels)}")


def possible_task(column: pd.Series, task: str | None = None) -> str:
    """Return the task that fits a target: classification for two classes and for two whole numbers, else regression.

    A task that the user has chosen is checked. Raises StudyError if values are missing, infinite or all equal, there
    are more than two classes, or the task does not fit.
    """
    name, reason = str(column.name), _fault(column)
    if reason is not None:
        raise StudyError(f"--target: the column {name!r} {reason}")
    y, classes = read_target(column)
    levels = np.unique(y)
    is_label = classes is not None or (len(levels) == 2 and _is_whole(column))
    if task == CLASSIFICATION and not is_label:
        raise StudyError(
            "--task classification needs a target with two classes, which are text or two whole numbers; the column "
            f"{name!r} holds {listed(f'{level:g}' for level in levels)}"
        )
    if task == REGRESSION and classes is not None:
        raise StudyError(f"--task regression needs a target of numbers; the column {name!r} holds {listed(classes)}")
    return task or (CLASSIFICATION if is_label else REGRESSION)


def quoted(text: object) -> str:
    """Return text in quotes, as TOML writes it; it has no line breaks."""
    return json.dumps(str(text), ensure_ascii=False).replace("\x7f", "\\u007f")


def listed(values: Iterable[object]) -> str:
    """Return the first few values in quotes."""
    shown = [quoted(value) for value in values]
    return ", ".join(shown[:_SHOWN]) + (", ..." if len(shown) > _SHOWN else "")


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column)


def holds_codes(column: pd.Series) -> bool:
    """Return whether a target holds two whole numbers other than 0 and 1, which are classes only if it is said."""
    return _is_number(column) and not set(column.unique().tolist()) <= {0, 1}


def _is_whole(column: pd.Series) -> bool:
    return _is_number(column) and bool((column.to_numpy(float) % 1 == 0).all())


def _fault(column: pd.Series) -> str | None:
    """Return why a study cannot use a column at all, or None if it can."""
    missing = int(column.isna().sum())
    if missing:
        return f"lacks {missing} of {len(column)} values: fill them in, or drop these rows, to use it"
    is_number = _is_number(column)
    if not is_number and not isinstance(column.dtype, pd.CategoricalDtype):
        kind = pd.api.types.infer_dtype(column)
        if kind in _DATE_TYPES or (kind == "string" and column.map(_DATE.fullmatch).notna().all()):
            return "holds dates or times: make numbers of them, such as a year, to use it"
        numbers = numbers_as_text(column)
        if numbers is not None:
            return f"holds numbers, {numbers}: name texts for missing values in `missing_values`, to use it"
        if kind != "string":
            return f"holds neither numbers nor text, but values of the type {kind}"
    if column.nunique() == 1:
        return "has the same value in every row"
    if is_number and not np.isfinite(column.to_numpy(float)).all():
        return "holds infinite values"
    return None


def _fault_of_numbers(column: pd.Series) -> str | None:
    """Return why numbers cannot be a feature, or None if they can."""
    values = column.to_numpy(float)
    counts = values[0] in (0.0, 1.0) and np.array_equal(values - values[0], np.arange(len(values)))
    return "counts the rows" if counts and len(values) > 2 else None


def _fault_of_categories(column: pd.Series) -> str | None:
    """Return why categories cannot be a feature, or None if they can."""
    num_levels, num_rows = column.nunique(), len(column)
    if num_levels == num_rows:
        return "is text that differs in every row, such as a name"
    if num_levels > most_levels(num_rows):
        return f"is text with {num_levels} values in {num_rows} rows, too many for categories"
    return None
