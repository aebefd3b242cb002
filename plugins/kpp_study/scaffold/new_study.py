"""A new study file: from the answers to a few questions, or from options, to the file.

Its text has every choice with a comment that says why, and what else is possible.
"""

from __future__ import annotations

import csv
import dataclasses
import math
import os
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click
import pandas as pd

from kpp.runtime.files import expand_user
from kpp_study.report.pages import template_environment
from kpp_study.scaffold.columns import (
    CLASSIFICATION,
    REGRESSION,
    Column,
    Unusable,
    describe,
    holds_codes,
    possible_task,
    quoted,
)
from kpp_study.study.dialect import DROP, PLAIN, TableFormat, dialect_keys, seen_dialect
from kpp_study.study.errors import StudyError
from kpp_study.study.reading.files import read_table, require_columns

QUICK, FULL = "quick", "full"
#: From more rows on, inducing points replace the exact Gaussian process, whose time grows with the cube of the rows.
MANY_ROWS = 1000

_NUM_INDUCING = 100
_WIDTH, _COLUMN = 100, 34
_DIALECT = {
    "separator": "the character between the columns, as the file shows",
    "decimal": "the decimal mark, as the file shows",
    "encoding": "the encoding, as the file shows",
    "missing": "rows that lack a value are left out; with refuse, they are an error",
}
_ALL = "all"
# Rows are left out if columns lack at most this share of their values, and at most twice as many rows lack one.
_FEW = 0.05

Answer = TypeVar("Answer")


def choose_study(
    *, data: str | None, target: str | None, task: str | None, features: str | None, inference: str | None, ask: bool
) -> StudyChoices:
    """Collect all that a study file needs: the answers that are given, and those that the terminal or a default gives.

    The features are names with commas between, or "all". Raises StudyError if an answer is invalid, or the data or the
    target is missing and must not be asked for.
    """
    path, table, dialect = _answer(data, _read_data, "The table, a CSV or Parquet file", missing="DATA", ask=ask)
    if ask and target is None:
        click.echo(f"{path.name} has {len(table)} rows and the columns {', '.join(table.columns)}")

    def read_target(name: str) -> str:
        require_columns(table, [name], "--target", path)
        possible_task(table[name])
        return name

    name = _answer(target, read_target, "The column to predict", missing="--target", ask=ask)

    def read_task(text: str) -> str:
        return possible_task(table[name], _one_of(text, (REGRESSION, CLASSIFICATION), "--task"))

    question = f"The task, {REGRESSION} or {CLASSIFICATION}"
    task = _answer(task, read_task, question, possible_task(table[name]), ask=ask)
    columns = [describe(table[column]) for column in table.columns if column != name]
    question = f"The features, with commas between, or {_ALL}"
    chosen, left_out = _answer(features, lambda text: _choose_features(text, columns, path), question, _ALL, ask=ask)
    question = f"The inference, {QUICK} (Laplace's approximation) or {FULL} (NUTS)"
    inference = _answer(inference, lambda text: _one_of(text, (QUICK, FULL), "--inference"), question, QUICK, ask=ask)
    num_different = len(table[[feature.name for feature in chosen]].drop_duplicates())
    codes = task == CLASSIFICATION and holds_codes(table[name])
    return StudyChoices(path, name, task, chosen, left_out, inference, len(table), num_different, dialect, codes)


def write_study(choices: StudyChoices, output: Path) -> None:
    """Write a study file, or raise StudyError."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(study_text(choices, output), encoding="utf-8")
    except OSError as error:
        raise StudyError(f"--output: {str(output)!r} can't be written: {error.strerror or error}") from error


def _answer(
    given: str | None,
    read: Callable[[str], Answer],
    question: str,
    default: str | None = None,
    *,
    ask: bool,
    missing: str = "",
) -> Answer:
    """Read a known answer, else ask for one until it is valid, else read the default."""
    if given is not None:
        return read(given)
    if ask:
        return click.prompt(question, default=default, value_proc=lambda text: _or_ask_again(read, text))
    if default is None:
        raise StudyError(f"{missing} is missing: kpp new study DATA --target COLUMN; without --yes, a terminal asks")
    return read(default)


def _or_ask_again(read: Callable[[str], Answer], text: str) -> Answer:
    try:
        return read(text.strip())
    except StudyError as error:
        raise click.UsageError(str(error)) from error  # click shows it and asks again


def _read_data(text: str) -> tuple[Path, pd.DataFrame, TableFormat]:
    """Read a table in the dialect that it shows, without the rows that lack values if they are few."""
    path = expand_user(Path(text))
    dialect = seen_dialect(path) if path.is_file() and ".csv" in path.name.lower() else PLAIN
    table = read_table(path, "DATA", dialect)
    few = table.columns[table.isna().mean() <= _FEW].tolist()
    complete = table.dropna(subset=few)
    if len(complete) < len(table) and len(complete) >= (1 - 2 * _FEW) * len(table):
        table, dialect = complete.reset_index(drop=True), dataclasses.replace(dialect, missing=DROP)
    return path, table, dialect


def _one_of(text: str, choices: Sequence[str], option: str) -> str:
    if text not in choices:
        raise StudyError(f"{option} must be {' or '.join(choices)}, got {text!r}")
    return text


def _choose_features(
    text: str, columns: Sequence[Column | Unusable], path: Path
) -> tuple[list[Column], list[Unusable]]:
    """Divide the columns into features and others; a column that was asked for by name must be usable."""
    usable = [column for column in columns if isinstance(column, Column)]
    left_out = [column for column in columns if isinstance(column, Unusable)]
    if text == _ALL:
        if not usable:
            reasons = "; ".join(f"{column.name!r} {column.reason}" for column in left_out)
            raise StudyError(f"DATA: {path.name!r} has no column that can be a feature: {reasons or 'no other column'}")
        return usable, left_out
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not any(names):
        raise StudyError(f"--features must name at least one column, or be {_ALL!r}, got {text!r}")
    known = pd.DataFrame(columns=[column.name for column in columns])
    require_columns(known, names, "--features", path)
    for column in left_out:
        if column.name in names:
            raise StudyError(f"--features: the column {column.name!r} {column.reason}")
    others = [Unusable(column.name, "was not chosen") for column in usable if column.name not in names]
    return [column for column in usable if column.name in names], [*left_out, *others]


@dataclass(frozen=True)
class StudyChoices:
    """What decides the contents of a study file."""

    data: Path
    target: str
    task: str
    features: Sequence[Column]
    left_out: Sequence[Unusable]  # the other columns and why they are left out
    inference: str
    num_rows: int
    num_different: int  # the number of rows that differ in a feature
    dialect: TableFormat = PLAIN  # the format of the table, as far as it is not the usual one
    has_codes: bool = False  # whether the target holds numbers that are classes

    @property
    def has_many_rows(self) -> bool:
        """Whether there are too many rows for an exact Gaussian process, so that the model has inducing points."""
        return self.num_rows > MANY_ROWS


def study_text(choices: StudyChoices, output: Path) -> str:
    """Return the text of a study file: the template `study.toml.j2`, filled; paths start at its folder."""
    environment = template_environment("kpp_study.scaffold", "", keep_trailing_newline=True)
    environment.filters |= {"quoted": quoted, "comment": _comment, "explained": _explained, "listed": _listed}
    numbers = [feature.name for feature in choices.features if not feature.is_category]
    return environment.get_template("study.toml.j2").render(
        choices=choices,
        output=output.name,
        path=_relative(choices.data, output),
        is_classification=choices.task == CLASSIFICATION,
        dialect=dialect_keys(choices.dialect),
        about_dialect=_DIALECT,
        codes=[feature.name for feature in choices.features if feature.may_be_codes],
        numbers=numbers,
        categories=[feature.name for feature in choices.features if feature.is_category],
        # The mean squared distance of two rows is 2 d, so that exp(-2 d / (2 l^2)) = 1 / e for l = sqrt(d).
        log_median=round(0.5 * math.log(max(1, len(numbers))), 2),
        num_inducing=min(_NUM_INDUCING, choices.num_different),
    )


def _relative(data: Path, output: Path) -> str:
    """Return the path of the data from the folder of the study file; absolute if they are on different drives."""
    try:
        return Path(os.path.relpath(data, output.parent)).as_posix()
    except ValueError:
        return data.absolute().as_posix()


def _listed(names: Sequence[str], key: str) -> str:
    """Write a list of names, on one line if it fits."""
    line = f"{key} = [{', '.join(map(quoted, names))}]"
    return line if len(line) <= _WIDTH else "\n".join([f"{key} = [", *(f"    {quoted(name)}," for name in names), "]"])


def _explained(code: str, comment: str) -> str:
    """Write a line whose length is unknown with a comment: at its end if it fits, else above."""
    if len(code) <= _COLUMN:
        return f"{code:<{_COLUMN}} # {comment}"
    indent = code[: len(code) - len(code.lstrip())]
    return f"{indent}# {comment}\n{code}"


def _comment(text: str, indent: str = "") -> str:
    """Write a comment on lines of its own."""
    start = f"# {indent}"
    return textwrap.fill(
        text, _WIDTH, initial_indent=start, subsequent_indent=start, break_long_words=False, break_on_hyphens=False
    )
