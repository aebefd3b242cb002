"""Study files: the data, the model, the inference, and what to explain.

A study is a TOML file with the sections [study], [data], [model], [inference], [explainer] and [report]. It is read and
checked completely before any slow computation; an error message names the key.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kpp.study.errors import StudyError, did_you_mean

__all__ = [
    "DataConfig",
    "ExplainerConfig",
    "InferenceConfig",
    "ReportConfig",
    "StudyConfig",
    "load_study",
    "parse_study",
]

#: A choice of rows: a number of rows, a list of row numbers (from 0), or "all".
Rows = int | tuple[int, ...] | Literal["all"]

_DEFAULT_INSTANCES = 40
_DEFAULT_MAX_DRAWS = 200
_DEFAULT_WATERFALLS = 40


@dataclass(frozen=True)
class DataConfig:
    """The section [data].

    Attributes:
        path: A CSV or Parquet file; relative paths start at the study file.
        target: The column to predict.
        features: The columns to predict from; None for all other columns.
        categorical: Columns of numbers that are codes of categories.
        standardize: Whether features and target are shifted and scaled to mean 0 and standard deviation 1 for the
            model.
    """

    path: Path
    target: str
    features: tuple[str, ...] | None = None
    categorical: tuple[str, ...] = ()
    standardize: bool = True


@dataclass(frozen=True)
class InferenceConfig:
    """The section [inference]: the name of an inference and its options."""

    name: str = "NUTS"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExplainerConfig:
    """The section [explainer].

    Attributes:
        name: A registered explainer.
        instances: The rows to explain: a number of rows, drawn with the seed, or a list of row numbers, or all.
        background: The rows that stand for "feature unknown", in the same form; None for all rows, if the explainer
            needs a background.
        max_draws: The maximal number of posterior draws to explain; they are evenly thinned from every chain.
        options: Further options of the explainer and its value function.
    """

    name: str = "rkhs-shap"
    instances: Rows = _DEFAULT_INSTANCES
    background: Rows | None = None
    max_draws: int = _DEFAULT_MAX_DRAWS
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ReportConfig:
    """The section [report].

    Attributes:
        waterfalls: The explained rows that get a waterfall plot: a number of rows, spread evenly from the lowest to the
            highest prediction, or a list of row numbers, or all.
    """

    waterfalls: Rows = _DEFAULT_WATERFALLS


@dataclass(frozen=True)
class StudyConfig:
    """The contents of a study file.

    Attributes:
        title: The title of the report.
        seed: The seed of all random numbers.
        data: The section [data].
        model: The model, in the format of `kpp.serialization`.
        inference: The section [inference].
        explainer: The section [explainer].
        report: The section [report].
        source: The text of the file.
    """

    title: str
    seed: int
    data: DataConfig
    model: Mapping[str, Any]
    inference: InferenceConfig
    explainer: ExplainerConfig
    report: ReportConfig
    source: str


class _Section:
    """A table of the file that records which of its keys were read, so that unknown keys are found."""

    def __init__(self, table: Any, name: str) -> None:
        if not isinstance(table, dict):
            raise StudyError(f"[{name}] must be a section (a TOML table), got {_shown(table)}")
        self.table = table
        self.name = name
        self.asked: set[str] = set()

    def get(self, key: str, default: Any) -> Any:
        self.asked.add(key)
        return self.table.get(key, default)

    def require(self, key: str, what: str) -> Any:
        self.asked.add(key)
        if key not in self.table:
            near = difflib.get_close_matches(key, self.table, n=1)
            hint = f" (there is {near[0]!r}, which means nothing here)" if near else ""
            raise StudyError(f"{self.name}.{key} is missing: {what}{hint}")
        return self.table[key]

    def text(self, key: str, default: str | None, what: str) -> str:
        value = self.require(key, what) if default is None else self.get(key, default)
        if not isinstance(value, str) or not value.strip():
            raise StudyError(f"{self.name}.{key} must be {what}, as text, got {_shown(value)}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise StudyError(f"{self.name}.{key} must be true or false, got {_shown(value)}")
        return value

    def count(self, key: str, default: int, least: int) -> int:
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise StudyError(f"{self.name}.{key} must be a whole number of at least {least}, got {_shown(value)}")
        return value

    def names(self, key: str) -> tuple[str, ...] | None:
        """Return a list of different column names, or None if the key is missing."""
        value = self.get(key, None)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise StudyError(f"{self.name}.{key} must be a list of column names, got {_shown(value)}")
        repeated = sorted({name for name in value if value.count(name) > 1})
        if repeated:
            raise StudyError(f"{self.name}.{key} lists {', '.join(map(repr, repeated))} more than once")
        return tuple(value)

    def rows(self, key: str, default: Any, least: int = 1) -> Any:
        value = self.get(key, default)
        if value is None or value == "all" or (_is_row(value) and value >= least):
            return value
        if isinstance(value, list) and value and all(_is_row(row) for row in value):
            repeated = sorted({row for row in value if value.count(row) > 1})
            if repeated:
                raise StudyError(f"{self.name}.{key} lists the rows {repeated} more than once")
            return tuple(value)
        raise StudyError(
            f'{self.name}.{key} must be a number of rows of at least {least}, a list of row numbers (from 0) or "all", '
            f"got {_shown(value)}"
        )

    def rest(self) -> dict[str, Any]:
        """Return the keys that were not read yet; the caller then checks them."""
        return {key: value for key, value in self.table.items() if key not in self.asked}

    def finish(self) -> None:
        """Raise StudyError if keys remain that were not read."""
        for key in self.rest():
            raise StudyError(f"[{self.name}] has an unknown key {key!r}; {did_you_mean(key, self.asked)}")


def load_study(path: str | Path) -> StudyConfig:
    """Read and check a study file.

    Args:
        path: The TOML file.

    Returns:
        The study; a relative path of its data starts at the folder of the file.

    Raises:
        StudyError: If the file cannot be read or is invalid.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise StudyError(f"the study file {str(path)!r} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise StudyError(f"the study file {str(path)!r} is not UTF-8 text: {error}") from error
    try:
        return parse_study(text, folder=path.parent, title=path.stem)
    except StudyError as error:
        raise StudyError(f"{path.name}: {error}") from error


def parse_study(text: str, *, folder: Path = Path(), title: str = "study") -> StudyConfig:
    """Check the text of a study file.

    Args:
        text: The TOML text.
        folder: The folder at which relative paths start.
        title: The title if the text does not give one.

    Returns:
        The study.

    Raises:
        StudyError: If the text is not TOML or is invalid; the message names the key.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"not valid TOML: {error}") from error
    whole = _Section(table, "study file")
    sections = {name: whole.get(name, {}) for name in ("study", "inference", "explainer", "report")}
    for name in ("data", "model"):
        sections[name] = whole.get(name, None)
    for key in whole.rest():
        raise StudyError(f"unknown section [{key}]; {did_you_mean(key, whole.asked)}")
    for name, what in (("data", "`path` and `target`"), ("model", "`name` and the model's fields")):
        if sections[name] is None:
            raise StudyError(f"the section [{name}] is missing; it gives {what}")
    study = _Section(sections["study"], "study")
    config = StudyConfig(
        title=study.text("title", title, "the title of the report"),
        seed=study.count("seed", 0, 0),
        data=_data(_Section(sections["data"], "data"), folder),
        model=_model(_Section(sections["model"], "model")),
        inference=_inference(_Section(sections["inference"], "inference")),
        explainer=_explainer(_Section(sections["explainer"], "explainer")),
        report=_report(_Section(sections["report"], "report")),
        source=text,
    )
    study.finish()
    return config


def _data(section: _Section, folder: Path) -> DataConfig:
    path = Path(section.text("path", None, "a CSV or Parquet file")).expanduser()
    config = DataConfig(
        path=folder / path,
        target=section.text("target", None, "the name of the column to predict"),
        features=section.names("features"),
        categorical=section.names("categorical") or (),
        standardize=section.flag("standardize", True),
    )
    section.finish()
    if config.features == ():
        raise StudyError("data.features must name at least one column; leave it out to use all but the target")
    if config.target in (config.features or ()):
        raise StudyError(f"data.features must not contain the target {config.target!r}")
    if config.target in config.categorical:
        raise StudyError(f"data.categorical must not contain the target {config.target!r}")
    if config.features is not None:
        for name in config.categorical:
            if name not in config.features:
                hint = did_you_mean(name, config.features)
                raise StudyError(f"data.categorical names {name!r}, which is not in data.features; {hint}")
    return config


def _model(section: _Section) -> dict[str, Any]:
    section.text("name", None, "the name of a model (`kpp plugins` lists them)")
    return dict(section.table)


def _inference(section: _Section) -> InferenceConfig:
    name = section.text("name", "NUTS", "the name of an inference")
    return InferenceConfig(name, section.rest())


def _explainer(section: _Section) -> ExplainerConfig:
    config = ExplainerConfig(
        name=section.text("name", "rkhs-shap", "the name of an explainer (`kpp plugins` lists them)"),
        instances=section.rows("instances", _DEFAULT_INSTANCES),
        background=section.rows("background", None),
        max_draws=section.count("max_draws", _DEFAULT_MAX_DRAWS, 1),
    )
    return ExplainerConfig(config.name, config.instances, config.background, config.max_draws, section.rest())


def _report(section: _Section) -> ReportConfig:
    config = ReportConfig(waterfalls=section.rows("waterfalls", _DEFAULT_WATERFALLS, least=0))
    section.finish()
    return config


def _is_row(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
