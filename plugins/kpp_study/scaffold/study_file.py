"""The text of a new study file: every choice with a comment that says why, and what else is possible."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from kpp_study.scaffold.columns import CLASSIFICATION, Column, Unusable, quoted
from kpp_study.study.dialect import PLAIN, TableFormat, dialect_keys

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
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kpp_study.scaffold", ""),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
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
