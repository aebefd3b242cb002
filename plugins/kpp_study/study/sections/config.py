"""Study files: the data, the model, the inference, and what to explain.

A study is a TOML file with the sections [study], [data], [model], [inference], [explainer], [certificate] and [report].
It is read once, and all its options are checked at reading; an error message names the key.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kpp import registry
from kpp.causal import collider_partition
from kpp.causal.toolkit import as_causal_graph
from kpp.inference import AbstractInference, AbstractModel
from kpp.storage import serialization
from kpp_study.study.errors import StudyError, blame, did_you_mean
from kpp_study.study.sections.data_config import DataConfig, read_data_section
from kpp_study.study.sections.section import (
    Key,
    Rows,
    check_options,
    count,
    fields_of,
    is_needed,
    read_section,
    rows,
    text,
)

#: The fields of a model that the graph of the data decides.
DECIDED_FIELDS = ("children", "spouses", "parents")
_PATH = re.compile(r"^`([\w.]+)`: ")
_SIMULATED = (
    "the number of data sets that are simulated to measure the intervals of the study, 2 or more, or 0 for none"
)
_ROWS = "a number of rows, a list of row numbers (from 0), or all"
#: The keys of each section but [data], which has those of its kind (`kpp_study.study.sections.data_config.KINDS`).
SECTIONS: dict[str, dict[str, Key]] = {
    "study": {
        "title": text("the title of the report, by default the name of the file"),
        "seed": count("the seed of all random numbers", 0),
    },
    "data": {},
    "model": {"name": text("the name of a model (`kpp plugins` lists them)", required=True)},
    "inference": {"name": text("the name of an inference", "NUTS")},
    "explainer": {  # besides the options of the explainer and its value function
        "name": text("the name of an explainer (`kpp plugins` lists them)", "rkhs-shap"),
        "instances": rows(f"the rows to explain: {_ROWS}", 40),
        "background": rows(f"the rows that replace absent features: {_ROWS}"),
        "max_draws": count("the largest number of posterior draws to explain", 200, 1),
    },
    "certificate": {"data_sets": count(_SIMULATED, 0)},
    "report": {"waterfalls": rows("the explained rows with a plot of their own", 200, least=0)},
}


@dataclass(frozen=True)
class ExplainerConfig:
    """The section [explainer], whose options have been checked."""

    name: str
    instances: Rows  # the rows to explain
    background: Rows | None  # the rows that stand for "feature unknown"; None if the explainer takes none
    max_draws: int  # of the posterior; they are evenly thinned from every chain
    options: Mapping[str, Any]  # of the explainer and its value function, "value_function" among them
    of_function: bool  # whether it explains a function in an RKHS
    shows_progress: bool

    def arguments(self, background: Any, *, progress: bool = False) -> dict[str, Any]:
        """Return the arguments of `kpp.explain` that choose the explainer.

        None stands for no background; a progress bar is shown only if the explainer has one.
        """
        shown = {"progress": progress} if self.shows_progress else {}
        given = {} if background is None else {"background": background}
        return {"explainer": self.name, **shown, **self.options, **given}


@dataclass(frozen=True)
class StudyConfig:
    """The contents of a study file.

    Attributes:
        title: The title of the report.
        seed: The seed of all random numbers.
        data: The section [data].
        model: The model.
        inference: The inference.
        explainer: The section [explainer].
        data_sets: How many data sets are simulated to measure the intervals of the study (`kpp.certify`); 0 for none.
        waterfalls: The explained rows that get a waterfall, at most 200: a number of rows, spread evenly from the
            lowest to the highest prediction, or a list of row numbers, or all.
        sections: The sections as they are in the file.
        decided: The fields of the model that are not in the file, because the graph of the data decides them.
        source: The text of the file.
    """

    title: str
    seed: int
    data: DataConfig
    model: AbstractModel
    inference: AbstractInference
    explainer: ExplainerConfig
    data_sets: int
    waterfalls: Rows
    sections: Mapping[str, Mapping[str, Any]]
    decided: Mapping[str, tuple[str, ...]]
    source: str


def load_study(path: str | Path) -> StudyConfig:
    """Read and check a study file. Turn on float64 first, as the command does.

    Args:
        path: The TOML file.

    Returns:
        The study; a relative path of its data starts at the folder of the file.

    Raises:
        StudyError: If the file cannot be read or is invalid.
    """
    path = Path(path)
    try:
        source = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise StudyError(f"the study file {str(path)!r} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise StudyError(f"the study file {str(path)!r} is not UTF-8 text: {error}") from error
    try:
        return parse_study(source, folder=path.parent, title=path.stem)
    except StudyError as error:
        raise StudyError(f"{path.name}: {error}") from error


def parse_study(source: str, *, folder: Path = Path(), title: str = "study") -> StudyConfig:
    """Check the text of a study file.

    Args:
        source: The TOML text.
        folder: The folder at which relative paths start.
        title: The title if the text does not give one.

    Returns:
        The study.

    Raises:
        StudyError: If the text is not TOML or is invalid; the message names the key.
    """
    try:
        table = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        hint = "; a path with backslashes stands in single quotes, 'C:\\data\\table.csv'" if "\\" in source else ""
        raise StudyError(f"not valid TOML: {error}{hint}") from error
    unknown = [key for key in table if key not in SECTIONS]
    if unknown:
        raise StudyError(f"unknown section [{unknown[0]}]; {did_you_mean(unknown[0], SECTIONS)}")
    for name, what in (("data", "`path` and `target`"), ("model", "`name` and the model's fields")):
        if name not in table:
            raise StudyError(f"the section [{name}] is missing; it gives {what}")
    return _read_sections({name: table.get(name, {}) for name in SECTIONS}, source, folder, title)


def _read_sections(sections: dict[str, Any], source: str, folder: Path, title: str) -> StudyConfig:
    is_open = ("model", "inference")
    names = [name for name in SECTIONS if name not in ("data", "explainer")]
    found = {name: read_section(sections[name], name, SECTIONS[name], is_open=name in is_open) for name in names}
    if found["certificate"]["data_sets"] == 1:
        raise StudyError(f"certificate.data_sets must be {_SIMULATED}, got 1")
    data = read_data_section(sections["data"], folder)
    decided = _decided(data)
    options = {key: value for key, value in sections["inference"].items() if key != "name"}
    return StudyConfig(
        title=found["study"]["title"] or title,
        seed=found["study"]["seed"],
        data=data,
        model=_build_model(sections["model"], decided),
        inference=_build_inference(found["inference"]["name"], options),
        explainer=_read_explainer_section(sections["explainer"], of_pairs=data.kind == "matches"),
        data_sets=found["certificate"]["data_sets"],
        waterfalls=found["report"]["waterfalls"],
        sections={**sections, "inference": {**options, **found["inference"]}},
        decided=decided,
        source=source,
    )


def _decided(data: DataConfig) -> dict[str, tuple[str, ...]]:
    """Return the fields of the model that the data decide: a graph alone the parts of a collider model."""
    if data.kind != "graph" or data.further.treatment is not None:
        return {}
    with blame("data.graph"):
        partition = collider_partition(as_causal_graph(data.further.graph), data.target)
    return {part: tuple(getattr(partition, part)) for part in DECIDED_FIELDS}


def _build_model(section: Mapping[str, Any], decided: Mapping[str, Any]) -> AbstractModel:
    """Build the model of the section [model], with further fields that the graph of the data decides.

    The section has the format of `kpp.storage.serialization`. A kernel may also have the key ``on = [features]``, which
    means ``kernel.on(features)``. Raises StudyError if a name is not registered, a field is unknown or missing, or a
    value is invalid; or if the model does not have the fields that are decided, or the section gives one of them.
    """
    if decided:
        with blame("model.name"):
            known = fields_of(registry.get("models", section["name"]))
        if not known.keys() >= decided.keys():
            raise StudyError(
                f"data.kind 'graph' needs a model with the fields {', '.join(decided)}, such as 'ColliderRegression', "
                f"got model.name {section['name']!r}"
            )
    given = [name for name in decided if name in section]
    if given:
        raise StudyError(f"model.{given[0]} must be left out, because data.graph decides it")
    try:
        return serialization.from_spec(_with_selections({**section, **decided}), "models")
    except (ValueError, TypeError) as error:
        found = str(error)
        path = _PATH.match(found)
        where = f"model.{path[1]}" if path else "[model]"
        raise StudyError(f"{where}: {found[path.end() :] if path else found}") from error


def _build_inference(name: str, options: Mapping[str, Any]) -> AbstractInference:
    """Build the inference of the section [inference]; raise StudyError if the name, an option or a value is invalid."""
    with blame("inference.name"):
        cls: Any = registry.get("inferences", name)
    check_options("inference", options, fields_of(cls), also=("name",))
    with blame("[inference]"):
        return cls(**options)


def _read_explainer_section(table: Any, *, of_pairs: bool) -> ExplainerConfig:
    """Read and check the section [explainer]; `of_pairs` says whether functions of pairs are explained."""
    keys = SECTIONS["explainer"]
    found = read_section(table, "explainer", keys, is_open=True)
    options = {key: value for key, value in table.items() if key not in keys}
    with blame("explainer.name"):
        cls: Any = registry.get("explainers", found["name"])
    if (cls.requires == "pairs") != of_pairs:
        kind = "matches need" if of_pairs else "only data of the kind 'matches' have"
        raise StudyError(f"explainer.name: {kind} an explainer of pairs, such as 'pref-shap', got {found['name']!r}")
    known = fields_of(cls)
    if "value_function" in known:
        name = options.setdefault("value_function", "interventional")
        with blame("explainer.value_function"):
            known |= fields_of(registry.get("value_functions", name))
    takes_background = known.pop("background", None) is not None
    check_options("explainer", options, known, keys)
    for name, field in known.items():
        if name not in options and is_needed(field):
            raise StudyError(f"explainer.{name} is missing: the explainer {found['name']!r} needs it")
    if found["background"] is not None and not takes_background:
        raise StudyError("explainer.background: neither the explainer nor its value function takes a background")
    found["background"] = (found["background"] or "all") if takes_background else None
    of_function = cls.requires == "rkhs_function"
    return ExplainerConfig(**found, options=options, of_function=of_function, shows_progress="progress" in known)


def _with_selections(section: Any) -> Any:
    """Replace every key ``on`` of a kernel by the kernel that it stands for."""
    if isinstance(section, list):
        return [_with_selections(entry) for entry in section]
    if not isinstance(section, Mapping):
        return section
    inner = {key: _with_selections(value) for key, value in section.items() if key != "on"}
    return {"name": "Selected", "kernel": inner, "features": section["on"]} if "on" in section else inner
