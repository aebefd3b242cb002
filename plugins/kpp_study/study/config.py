"""Study files: the data, the model, the inference, and what to explain.

A study is a TOML file with the sections [study], [data], [model], [inference], [explainer], [certificate] and [report].
It is read and checked completely before any slow computation; an error message names the key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kpp_study.study.data_config import DataConfig, read_data_section
from kpp_study.study.errors import StudyError, did_you_mean
from kpp_study.study.section import Rows, Section

_DEFAULT_INSTANCES = 40
_DEFAULT_MAX_DRAWS = 200
_DEFAULT_WATERFALLS = 200


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
class CertificateConfig:
    """The section [certificate].

    Attributes:
        data_sets: How many data sets are simulated to measure the intervals of the study (`kpp.certify`); 0 for none.
    """

    data_sets: int = 0


@dataclass(frozen=True)
class ReportConfig:
    """The section [report].

    Attributes:
        waterfalls: The explained rows that get a waterfall, at most 200: a number of rows, spread evenly from the
            lowest to the highest prediction, or a list of row numbers, or all.
    """

    waterfalls: Rows = _DEFAULT_WATERFALLS


@dataclass(frozen=True)
class StudyConfig:
    """The contents of a study file.

    Attributes:
        title: The title of the report.
        seed: The seed of all random numbers.
        data: The section [data].
        model: The model, in the format of `kpp.storage.serialization`.
        inference: The section [inference].
        explainer: The section [explainer].
        certificate: The section [certificate].
        report: The section [report].
        source: The text of the file.
    """

    title: str
    seed: int
    data: DataConfig
    model: Mapping[str, Any]
    inference: InferenceConfig
    explainer: ExplainerConfig
    certificate: CertificateConfig
    report: ReportConfig
    source: str


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
        text = path.read_bytes().decode("utf-8-sig")
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
        hint = "; a path with backslashes stands in single quotes, 'C:\\data\\table.csv'" if "\\" in text else ""
        raise StudyError(f"not valid TOML: {error}{hint}") from error
    whole = Section(table, "study file")
    sections = {name: whole.get(name, {}) for name in ("study", "inference", "explainer", "certificate", "report")}
    for name in ("data", "model"):
        sections[name] = whole.get(name, None)
    for key in whole.rest():
        raise StudyError(f"unknown section [{key}]; {did_you_mean(key, whole.asked)}")
    for name, what in (("data", "`path` and `target`"), ("model", "`name` and the model's fields")):
        if sections[name] is None:
            raise StudyError(f"the section [{name}] is missing; it gives {what}")
    read = {name: reader(Section(sections[name], name)) for name, reader in SECTIONS.items()}
    title_given, seed = read.pop("study")
    data = read["data"].starting_at(folder)
    return StudyConfig(title=title_given or title, seed=seed, source=text, **{**read, "data": data})


def _study(section: Section) -> tuple[str | None, int]:
    title = section.optional_text("title", "the title of the report, by default the name of the file")
    seed = section.count("seed", 0, 0, "the seed of all random numbers")
    section.finish()
    return title, seed


def _model(section: Section) -> dict[str, Any]:
    section.text("name", None, "the name of a model (`kpp plugins` lists them)")
    return dict(section.table)


def _inference(section: Section) -> InferenceConfig:
    name = section.text("name", "NUTS", "the name of an inference")
    return InferenceConfig(name, section.rest())


def _explainer(section: Section) -> ExplainerConfig:
    rows = "a number of rows, a list of row numbers (from 0), or all"
    config = ExplainerConfig(
        name=section.text("name", "rkhs-shap", "the name of an explainer (`kpp plugins` lists them)"),
        instances=section.rows("instances", _DEFAULT_INSTANCES, f"the rows to explain: {rows}"),
        background=section.rows("background", None, f"the rows that replace absent features: {rows}"),
        max_draws=section.count("max_draws", _DEFAULT_MAX_DRAWS, 1, "the largest number of posterior draws to explain"),
    )
    return ExplainerConfig(config.name, config.instances, config.background, config.max_draws, section.rest())


def _certificate(section: Section) -> CertificateConfig:
    what = "the number of data sets that are simulated to measure the intervals of the study, 2 or more, or 0 for none"
    number = section.count("data_sets", 0, 0, what)
    if number == 1:
        raise StudyError(f"certificate.data_sets must be {what}, got 1")
    section.finish()
    return CertificateConfig(number)


def _report(section: Section) -> ReportConfig:
    what = "the explained rows with a plot of their own"
    config = ReportConfig(waterfalls=section.rows("waterfalls", _DEFAULT_WATERFALLS, what, least=0))
    section.finish()
    return config


#: The reader of each section; `kpp_study.study.schema` calls them, too.
SECTIONS: dict[str, Callable[[Section], Any]] = {
    "study": _study,
    "data": read_data_section,
    "model": _model,
    "inference": _inference,
    "explainer": _explainer,
    "certificate": _certificate,
    "report": _report,
}
