"""The section [data]: which files hold the data, and what they hold.

A table is the usual kind. The other kinds are a table whose columns are nodes of a causal graph, bags of points with
one target per bag, matches between pairs of items, and two data sets for the effect of treatments on a target.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kpp.runtime.files import expand_user
from kpp_study.study.dialect import DROP, PLAIN, REFUSE, TableFormat
from kpp_study.study.errors import StudyError, did_you_mean
from kpp_study.study.section import Section


@dataclasses.dataclass(frozen=True)
class GraphFiles:
    """The further keys of the kind "graph".

    Attributes:
        graph: The causal graph in the language DOT or dagitty, or the path of a file that holds it.
        unlabelled: A file of rows without the target, or None.
    """

    graph: str
    unlabelled: Path | None = None


@dataclasses.dataclass(frozen=True)
class BagFiles:
    """The further keys of the kind "bags".

    Attributes:
        bags: The file with one row per bag.
        bag: The column that names the bag, in both files.
        covariates: The columns of `bags` that describe a bag; None if bags have no covariates.
        targets: A file of targets at their own covariates; None if `bags` holds one target per bag.
    """

    bags: Path
    bag: str
    covariates: tuple[str, ...] | None = None
    targets: Path | None = None


@dataclasses.dataclass(frozen=True)
class MatchFiles:
    """The further keys of the kind "matches", as for `kpp.preferences.Matches.from_tables`.

    Attributes:
        items: The file with one row per item.
        item: The column of `items` that names the item.
        winner: The column that names the winner of a match.
        loser: The column that names the loser.
        tie: The column that is 1 for a tie, or None if there are none.
        contexts: The columns that hold the context of a match.
    """

    items: Path
    item: str
    winner: str
    loser: str
    tie: str | None = None
    contexts: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class EffectFiles:
    """The further keys of the kind "effects".

    Attributes:
        outcome: The columns of outcomes, in both files.
        targets: The file with outcomes and targets.
        adjusting: The columns to adjust for; None if the graph decides, or there are none.
        graph: The causal graph, as for `GraphFiles`, or None.
    """

    outcome: tuple[str, ...]
    targets: Path
    adjusting: tuple[str, ...] | None = None
    graph: str | None = None


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The section [data].

    Attributes:
        path: A CSV or Parquet file; relative paths start at the study file. For bags it has one row per point, and for
            matches one row per match.
        target: The column to predict; empty for matches, whose outcome is predicted.
        features: The columns to predict from; None for all other columns. For matches they are columns of the items,
            and for effects the treatments.
        categorical: Columns of numbers that are codes of categories; for the target, of two classes.
        standardize: Whether features and target are shifted and scaled to mean 0 and standard deviation 1 for the
            model.
        further: The keys of kinds other than "table".
        dialect: The keys about the format of all files.
    """

    path: Path
    target: str
    features: tuple[str, ...] | None = None
    categorical: tuple[str, ...] = ()
    standardize: bool = True
    further: GraphFiles | BagFiles | MatchFiles | EffectFiles | None = None
    dialect: TableFormat = PLAIN

    def starting_at(self, folder: Path) -> DataConfig:
        """Return the section with relative paths that start at a folder."""
        return dataclasses.replace(
            self, path=folder / expand_user(self.path), further=self.further and _starting_at(self.further, folder)
        )


def read_data_section(section: Section) -> DataConfig:
    """Read and check the section [data]; its key `kind` decides which further keys it has.

    Raises:
        StudyError: If a key is unknown, missing or invalid.
    """
    what, target, further = KINDS[section.choice("kind", "table", list(KINDS), "what the files hold")]
    config = DataConfig(
        path=Path(section.text("path", None, f"a CSV or Parquet file {what}")),
        target=section.text("target", None, target) if target else "",
        features=section.names("features", "the columns to predict from, by default all others"),
        categorical=section.names("categorical", "columns of numbers that are codes of categories") or (),
        standardize=section.flag("standardize", True, "whether the model sees numbers with mean 0 and variance 1"),
        further=further(section),
        dialect=_dialect(section),
    )
    section.finish()
    _check_columns(config)
    return config


def _check_columns(config: DataConfig) -> None:
    if config.features == ():
        raise StudyError("data.features must name at least one column; leave it out to use all but the target")
    if config.target in (config.features or ()):
        raise StudyError(f"data.features must not contain the target {config.target!r}")
    if config.features is not None:
        for name in config.categorical:
            if name not in (*config.features, config.target):
                hint = did_you_mean(name, config.features)
                raise StudyError(f"data.categorical names {name!r}, which is not in data.features; {hint}")


def _dialect(section: Section) -> TableFormat:
    given = TableFormat(
        separator=section.character("separator", PLAIN.separator, "the character between the columns of CSV files"),
        decimal=section.choice("decimal", PLAIN.decimal, [".", ","], "the decimal mark of CSV files"),
        encoding=section.text("encoding", PLAIN.encoding, 'the encoding of CSV files, such as "latin-1"'),
        missing_values=section.names("missing_values", 'texts that stand for missing values, such as "?"') or (),
        missing=section.choice("missing", PLAIN.missing, [REFUSE, DROP], "what to do with rows that lack values"),
    )
    if given.separator == given.decimal:
        raise StudyError(f"data.separator and data.decimal must differ, got {given.decimal!r} for both")
    return given


def _table(section: Section) -> None:
    """A table has no further keys."""


def _graph(section: Section) -> GraphFiles:
    unlabelled = section.optional_text("unlabelled", "a file of rows without the target")
    return GraphFiles(section.text("graph", None, _GRAPH), _as_path(unlabelled))


def _bags(section: Section) -> BagFiles:
    return BagFiles(
        bags=Path(section.text("bags", None, "the file with one row per bag")),
        bag=section.text("bag", None, "the column that names the bag, in both files"),
        covariates=section.names("covariates", "the columns that describe a bag"),
        targets=_as_path(section.optional_text("targets", "a file of targets at their own covariates")),
    )


def _matches(section: Section) -> MatchFiles:
    return MatchFiles(
        items=Path(section.text("items", None, "the file with one row per item")),
        item=section.text("item", "ID", "the column of `items` that names the item"),
        winner=section.text("winner", "winner", "the column that names the winner of a match"),
        loser=section.text("loser", "loser", "the column that names the loser of a match"),
        tie=section.optional_text("tie", "the column that is 1 for a tie and 0 otherwise"),
        contexts=section.names("contexts", "the columns that hold the context of a match") or (),
    )


def _effects(section: Section) -> EffectFiles:
    outcome = section.names("outcome", "the columns of outcomes, in both files", required=True)
    return EffectFiles(
        outcome=outcome or (),
        targets=Path(section.text("targets", None, "the file with outcomes and targets")),
        adjusting=section.names("adjusting", "the columns to adjust for"),
        graph=section.optional_text("graph", f"{_GRAPH}; it decides or checks the columns to adjust for"),
    )


_GRAPH = "the causal graph in the language DOT or dagitty, or a file that holds it"
_TARGET = "the name of the column to predict"
_AnyFiles = GraphFiles | BagFiles | MatchFiles | EffectFiles
_Further = _AnyFiles | None
#: For each kind what a row of the file is, what the target is, if there is one, and the reader of the further keys.
KINDS: dict[str, tuple[str, str, Callable[[Section], _Further]]] = {
    "table": ("with the features and the target", _TARGET, _table),
    "graph": ("whose columns are nodes of a causal graph", _TARGET, _graph),
    "bags": ("with one row per point", "the name of the column of aggregates to explain", _bags),
    "matches": ("with one row per match", "", _matches),
    "effects": (
        "with treatments, outcomes and columns to adjust for",
        "the name of the target, in `targets`",
        _effects,
    ),
}


def _as_path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _starting_at(further: _AnyFiles, folder: Path) -> _AnyFiles:
    given = {field.name: getattr(further, field.name) for field in dataclasses.fields(further)}
    paths: dict[str, Any] = {
        name: folder / expand_user(value) for name, value in given.items() if isinstance(value, Path)
    }
    graph = given.get("graph")
    if graph is not None and graph.endswith((".dot", ".gv", ".txt")):
        paths["graph"] = str(folder / expand_user(Path(graph)))
    return dataclasses.replace(further, **paths)
