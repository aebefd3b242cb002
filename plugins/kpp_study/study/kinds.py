"""The data of a study of any kind: a table, with a causal graph or not, bags of points, matches, or two data sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from kpp.causal import CausalDAG, collider_partition, is_adjustment_set, is_frontdoor_set, minimal_adjustment_sets
from kpp.causal.toolkit import as_causal_graph
from kpp.data.bags import Bags
from kpp.data.tables import Scales, read_points
from kpp.preferences import Matches
from kpp_study.study.data import (
    StudyData,
    choose_features,
    read_features,
    read_plain_table,
    read_target,
    standardization,
)
from kpp_study.study.data_config import BagFiles, DataConfig, EffectFiles, GraphFiles, MatchFiles
from kpp_study.study.errors import StudyError, blame
from kpp_study.study.files import check_columns, complete_rows, read_table

#: The fields of a model that the graph of the data decides.
DECIDED_FIELDS = ("children", "spouses", "parents")


def read_data(config: DataConfig) -> StudyData:
    """Read the files of a study.

    Raises:
        StudyError: If a file cannot be read, a column is missing, values are missing or infinite, or the files do not
            fit each other.
    """
    if isinstance(config.further, GraphFiles):
        return _read_with_graph(config, config.further)
    if isinstance(config.further, BagFiles):
        return _read_bags(config, config.further)
    if isinstance(config.further, MatchFiles):
        return _read_matches(config, config.further)
    if isinstance(config.further, EffectFiles):
        return _read_effects(config, config.further)
    return read_plain_table(config)


def _read_with_graph(config: DataConfig, files: GraphFiles) -> StudyData:
    """Read a table whose columns are nodes of a graph, which decides the parts of a collider model."""
    data = read_plain_table(config)
    with blame("data.graph"):
        partition = collider_partition(_read_graph(files.graph), config.target)
    parts = {part: tuple(getattr(partition, part)) for part in DECIDED_FIELDS}
    options = {}
    if files.unlabelled is not None:
        table = read_table(files.unlabelled, "data.unlabelled", config.dialect)
        names = list(data.schema.feature_names)
        check_columns(table, names, "data.unlabelled", files.unlabelled)
        table = complete_rows(table, names, "data.unlabelled", files.unlabelled, config.dialect)
        with blame("data.unlabelled"):
            further = dataclasses.replace(data, frame=table[names], x=data.schema.read(table[names]))
        options = {"unlabelled": further.model_frame()}
    return dataclasses.replace(data, options=options, fields=parts)


def _read_bags(config: DataConfig, files: BagFiles) -> StudyData:
    """Read points in bags, one covariate per bag, and one target per bag or targets at their own covariates."""
    points, bags = (
        read_table(config.path, "data.path", config.dialect),
        read_table(files.bags, "data.bags", config.dialect),
    )
    check_columns(points, [files.bag], "data.bag", config.path)
    check_columns(bags, [files.bag], "data.bag", files.bags)
    covariates = list(files.covariates or ())
    check_columns(bags, covariates, "data.covariates", files.bags)
    features = choose_features(points, config, [files.bag])
    points = complete_rows(points, [*features, files.bag], "data.path", config.path, config.dialect)
    bags = complete_rows(bags, [files.bag, *covariates], "data.bags", files.bags, config.dialect)
    targets, key, path = bags, "data.bags", files.bags
    if files.targets is not None:
        targets, key, path = read_table(files.targets, "data.targets", config.dialect), "data.targets", files.targets
        check_columns(targets, covariates, "data.covariates", path)
    check_columns(targets, [config.target], "data.target", path)
    targets = complete_rows(targets, [config.target, *covariates], key, path, config.dialect)
    bags = bags if files.targets is not None else targets  # rows may have been left out
    y, classes = read_target(targets[config.target], config)
    frame = read_features(points, config, features)
    with blame("[data]"):
        x, schema = read_points(frame)
        scaling = standardization(x, y, schema, config.standardize)
        data = StudyData(config.path, config.target, frame, x, y, schema, scaling, classes)
        places, options = _scaled_covariates(bags, targets, covariates, config.standardize, files.targets is not None)
        training = Bags.create(data.model_frame(), points[files.bag], places, covariate_bag=bags[files.bag])
    return dataclasses.replace(data, training=training, options=options)


def _scaled_covariates(
    bags: pd.DataFrame, targets: pd.DataFrame, covariates: list[str], standardize: bool, separate: bool
) -> tuple[pd.DataFrame | None, dict[str, pd.DataFrame]]:
    """Return the covariates of the bags and, if targets have their own, those of the targets, in the model's units."""
    if not covariates:
        if separate:
            raise StudyError("data.covariates is missing: they are the columns that join `bags` and `targets`")
        return None, {}
    table, places = _scaled(bags[covariates], targets[covariates], standardize)
    return table, {"covariates": places} if separate else {}


def _read_matches(config: DataConfig, files: MatchFiles) -> StudyData:
    """Read matches between items; the target is the outcome for the first item of each pair."""
    matches, items = (
        read_table(config.path, "data.path", config.dialect),
        read_table(files.items, "data.items", config.dialect),
    )
    check_columns(items, [files.item], "data.item", files.items)
    named = {"winner": [files.winner], "loser": [files.loser], "contexts": list(files.contexts)}
    named |= {"tie": [files.tie]} if files.tie is not None else {}
    for key, columns in named.items():
        check_columns(matches, columns, f"data.{key}", config.path)
    features = choose_features(items, dataclasses.replace(config, path=files.items), [files.item])
    items = complete_rows(items, [files.item, *features], "data.items", files.items, config.dialect)
    used = [name for names in named.values() for name in names]
    matches = complete_rows(matches, used, "data.path", config.path, config.dialect)
    frame = read_features(items, config, features)
    with blame("[data]"):
        x, schema = read_points(frame)
        scaling = standardization(x, np.zeros(1), schema, config.standardize)
        data = StudyData(config.path, "the first item wins", frame, x, np.zeros(0), schema, scaling)
        training = Matches.from_tables(
            data.model_frame().assign(**{files.item: items[files.item]}),
            matches,
            winner=files.winner,
            loser=files.loser,
            item=files.item,
            features=features,
            contexts=files.contexts,
            tie=files.tie,
        )
    return dataclasses.replace(data, training=training, y=training.single_matches()[1])


def _read_effects(config: DataConfig, files: EffectFiles) -> StudyData:
    """Read treatments with outcomes and columns to adjust for, and outcomes with targets."""
    trial, known = (
        read_table(config.path, "data.path", config.dialect),
        read_table(files.targets, "data.targets", config.dialect),
    )
    outcome, given = list(files.outcome), files.adjusting
    for table, path in ((trial, config.path), (known, files.targets)):
        check_columns(table, outcome, "data.outcome", path)
    check_columns(trial, given or (), "data.adjusting", config.path)
    check_columns(known, [config.target], "data.target", files.targets)
    if files.graph is not None and config.features is None and given is None:
        raise StudyError("data.features is missing: the treatments, as data.graph decides the columns to adjust for")
    features = choose_features(trial, config, [*outcome, *(given or ())])
    adjusting = list(given or ())
    if files.graph is not None:
        adjusting = _choose_adjusting(files.graph, features, outcome, list(trial.columns), given)
    trial = complete_rows(trial, [*features, *outcome, *adjusting], "data.path", config.path, config.dialect)
    known = complete_rows(known, [*outcome, config.target], "data.targets", files.targets, config.dialect)
    y, classes = read_target(known[config.target], config)
    frame = read_features(trial, config, features)
    with blame("[data]"):
        x, schema = read_points(frame)
        scaling = standardization(x, y, schema, config.standardize)
        data = StudyData(config.path, config.target, frame, x, y, schema, scaling, classes)
        outcomes, places = _scaled(trial[outcome], known[outcome], config.standardize)
        tables = {"treatment": data.model_frame(), "outcome": outcomes}
        if adjusting:
            tables["adjusting"] = _scaled(trial[adjusting], trial[adjusting], config.standardize)[0]
    return dataclasses.replace(data, training=tables, options={"mediators": places})


def _scaled(table: pd.DataFrame, other: pd.DataFrame, standardize: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two tables in the model's units, whose scales are those of the first."""
    if not standardize:
        return table, other
    scales = Scales.of(*read_points(table))
    return scales.apply(table), scales.apply(other)


def _read_graph(text: str) -> CausalDAG:
    """Read a graph in the language dagitty or DOT; the text may be the path of a file."""
    if text.endswith((".dot", ".gv", ".txt")):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except OSError as error:
            raise StudyError(f"data.graph: {text!r} can't be read: {error.strerror or error}") from error
    return as_causal_graph(text)


def _choose_adjusting(
    graph: str,
    treatment: Sequence[str],
    outcome: Sequence[str],
    columns: Sequence[str],
    adjusting: Sequence[str] | None,
) -> list[str]:
    """Return the columns to adjust for: those given, if the graph permits them, or else the best minimal set.

    Raises:
        StudyError: If the given columns are neither an adjustment set nor a front-door set, or there is no set among
            the columns.
    """
    with blame("data.graph"):
        read = _read_graph(graph)
        nodes = {"treatment": list(treatment), "outcome": list(outcome)}
        if adjusting is None:
            within = [column for column in columns if column in read]
            chosen = next(minimal_adjustment_sets(read, **nodes, within=within), None)
            if chosen is None:
                raise StudyError(
                    f"data.graph: no columns of data.path adjust for the effect of {', '.join(treatment)} on "
                    f"{', '.join(outcome)}; name front-door mediators in data.adjusting, if there are any"
                )
            return [column for column in columns if column in chosen]
        check = is_adjustment_set(read, **nodes, adjusting=list(adjusting))
        if not check and not is_frontdoor_set(read, **nodes, mediators=list(adjusting)):
            raise StudyError(f"data.adjusting does not fit data.graph: {check}")
    return list(adjusting)
