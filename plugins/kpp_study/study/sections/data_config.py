"""The section [data]: which files hold the data, and what they hold.

A table is the usual kind. The other kinds are a table whose columns are nodes of a causal graph, bags of points with
one target per bag, matches between pairs of items, and two data sets for the effect of treatments on a target.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kpp.runtime.files import expand_user
from kpp_study.study.dialect import DROP, PLAIN, REFUSE, TableFormat
from kpp_study.study.errors import StudyError, did_you_mean
from kpp_study.study.sections.section import Key, character, choice, file, flag, names, read_section, text

_GRAPH_FILES = (".dot", ".gv", ".txt")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The section [data]."""

    path: Path  # for bags it has one row per point, and for matches one row per match
    target: str  # empty for matches, whose outcome is predicted
    kind: str = "table"
    features: tuple[str, ...] | None = None  # None for all other columns; of matches those of the items
    categorical: tuple[str, ...] = ()  # columns of numbers that are codes of categories; for the target, of two classes
    standardize: bool = True  # to mean 0 and standard deviation 1 for the model
    further: SimpleNamespace = dataclasses.field(default_factory=SimpleNamespace)
    dialect: TableFormat = PLAIN  # the keys about the format of all files


def read_data_section(table: Any, folder: Path) -> DataConfig:
    """Read and check the section [data]; its key `kind` decides which further keys it has.

    Relative paths start at the folder. Raises StudyError if a key is unknown, missing or invalid.
    """
    kind = read_section(table, "data", {"kind": _KIND}, is_open=True)["kind"]
    keys = KINDS[kind]
    found = {"target": "", **read_section(table, "data", keys)}
    paths = [name for name, key in keys.items() if key.is_file and found[name] is not None]
    found |= {name: folder / expand_user(Path(found[name])) for name in paths}
    if (found.get("graph") or "").endswith(_GRAPH_FILES):
        found["graph"] = _read_graph(folder / expand_user(Path(found["graph"])))
    further = SimpleNamespace(**{name: found[name] for name in _FURTHER[kind]})
    found |= {"dialect": _filled(TableFormat, found), "further": further}
    config = _filled(DataConfig, found)
    _check(config)
    return config


def _read_graph(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise StudyError(f"data.graph: {str(path)!r} can't be read: {error.strerror or error}") from error


def _filled(cls: Any, found: Mapping[str, Any]) -> Any:
    """Return an object whose fields are the keys of their names."""
    return cls(**{field.name: found[field.name] for field in dataclasses.fields(cls) if field.name in found})


def _check(config: DataConfig) -> None:
    """Raise StudyError if keys do not fit each other."""
    features, further = config.features, config.further
    if config.dialect.separator == config.dialect.decimal:
        raise StudyError(f"data.separator and data.decimal must differ, got {config.dialect.decimal!r} for both")
    if features == ():
        raise StudyError("data.features must name at least one column; leave it out to use all but the target")
    if config.target in (features or ()):
        raise StudyError(f"data.features must not contain the target {config.target!r}")
    unknown = [name for name in config.categorical if name not in (*(features or ()), config.target)]
    if features is not None and unknown:
        hint = did_you_mean(unknown[0], features)
        raise StudyError(f"data.categorical names {unknown[0]!r}, which is not in data.features; {hint}")
    if config.kind == "bags" and further.targets is not None and not further.covariates:
        raise StudyError("data.covariates is missing: they are the columns that join `bags` and `targets`")
    if config.kind == "graph" and further.treatment is not None:
        if further.unlabeled is not None:
            raise StudyError("data.unlabeled must be left out beside data.treatment")
        if further.treatment not in (features or (further.treatment,)):
            raise StudyError(f"data.features must contain the treatment {further.treatment!r}, or be left out")
    if config.kind == "graph":
        _check_mediation(further)
    if config.kind == "effects" and further.graph and features is None and further.adjusting is None:
        raise StudyError("data.features is missing: the treatments, as data.graph decides the columns to adjust for")


def _check_mediation(further: SimpleNamespace) -> None:
    for key in ("mediators", "counterfactual"):
        if getattr(further, key) is not None and further.treatment is None:
            raise StudyError(f"data.{key} needs data.treatment, the column whose effect is of interest")
    if further.mediators == ():
        raise StudyError("data.mediators must name at least one column, or be left out")
    if further.at is not None and further.mediators is None:
        raise StudyError("data.at needs data.mediators: its two values are those that mediation compares")


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (int, float, str))


_GRAPH = "the causal graph in the language of DOT, dagitty or lavaan, or a file that holds it"
_TARGET = "the name of the column to predict"
_TREATED = "with treatments, outcomes and columns to adjust for"
_FURTHER: dict[str, dict[str, Key]] = {
    "table": {},
    "graph": {
        "unlabeled": file("a file of rows without the target"),
        "graph": text(_GRAPH, required=True),
        "treatment": text("the column whose effect on the target is of interest; the graph decides what to adjust for"),
        "mediators": names("columns through which a part of the effect leads; the study reports this part"),
        "at": Key(
            "the two values of the treatment between which the parts of its effect are compared, from and to",
            {"type": "array", "items": {"type": ["number", "string", "boolean"]}, "minItems": 2, "maxItems": 2},
            "a list of two different values of the treatment",
            lambda value: isinstance(value, list) and all(map(_is_scalar, value)) and len(value) == len({*value}) == 2,
        ),
        "counterfactual": Key(
            "a value of the treatment: the study says what the target of each explained row would have been with it",
            {"type": ["number", "string", "boolean"]},
            "a value of the treatment",
            _is_scalar,
        ),
    },
    "bags": {
        "bags": file("the file with one row per bag", required=True),
        "bag": text("the column that names the bag, in both files", required=True),
        "covariates": names("the columns that describe a bag"),
        "targets": file("a file of targets at their own covariates"),
    },
    "matches": {
        "items": file("the file with one row per item", required=True),
        "item": text("the column of `items` that names the item", "ID"),
        "winner": text("the column that names the winner of a match", "winner"),
        "loser": text("the column that names the loser of a match", "loser"),
        "tie": text("the column that is 1 for a tie and 0 otherwise"),
        "contexts": names("the columns that hold the context of a match", ()),
    },
    "effects": {
        "outcome": names("the columns of outcomes, in both files", required=True),
        "targets": file("the file with outcomes and targets", required=True),
        "adjusting": names("the columns to adjust for"),
        "graph": text(f"{_GRAPH}; it decides or checks the columns to adjust for"),
    },
}
_KIND = choice("what the files hold", "table", list(_FURTHER))


def _keys(kind: str, what: str, target: str) -> dict[str, Key]:
    """Return the keys of a kind; `what` is a row of the file, and matches have no target."""
    return {
        "kind": _KIND,
        "path": file(f"a CSV or Parquet file {what}", required=True),
        **({"target": text(target, required=True)} if target else {}),
        "features": names("the columns to predict from, by default all others"),
        "categorical": names("columns of numbers that are codes of categories", ()),
        "standardize": flag("whether the model sees numbers with mean 0 and variance 1", True),
        **_FURTHER[kind],
        "separator": character("the character between the columns of CSV files", PLAIN.separator),
        "decimal": choice("the decimal mark of CSV files", PLAIN.decimal, [".", ","]),
        "encoding": text('the encoding of CSV files, such as "latin-1"', PLAIN.encoding),
        "missing_values": names('texts that stand for missing values, such as "?"', ()),
        "missing": choice("what to do with rows that lack values", PLAIN.missing, [REFUSE, DROP]),
    }


#: For each kind its keys.
KINDS: dict[str, dict[str, Key]] = {
    "table": _keys("table", "with the features and the target", _TARGET),
    "graph": _keys("graph", "whose columns are nodes of a causal graph", _TARGET),
    "bags": _keys("bags", "with one row per point", "the name of the column of aggregates to explain"),
    "matches": _keys("matches", "with one row per match", ""),
    "effects": _keys("effects", _TREATED, "the name of the target, in `targets`"),
}
