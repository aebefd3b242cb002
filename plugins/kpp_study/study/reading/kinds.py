"""The data of a study of any kind: a table, with a causal graph or not, bags of points, matches, or two data sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from kpp.causal import CausalDAG, is_adjustment_set, is_frontdoor_set, minimal_adjustment_sets
from kpp.causal.toolkit import as_causal_graph
from kpp.data.bags import Bags
from kpp.data.tables import Scales, read_points
from kpp.preferences import Matches
from kpp_study.study.errors import StudyError, blame
from kpp_study.study.reading.data import StudyData, is_binary, read_data_columns, read_features, read_target
from kpp_study.study.reading.files import (
    complete_rows,
    read_complete_rows,
    read_table,
    read_with_features,
    require_columns,
)
from kpp_study.study.sections.data_config import DataConfig


def read_data(config: DataConfig) -> StudyData:
    """Read the files of a study.

    Raises StudyError if a file cannot be read, a column is missing, values are missing or infinite, or the files do not
    fit each other.
    """
    return _READERS[config.kind](config)


def _read_plain(config: DataConfig) -> StudyData:
    """Read a table with features and a target."""
    table, features = read_with_features(config, config.path, "data.path", {"target": [config.target]})
    return read_data_columns(config, table[features], table[config.target])


def _read_with_graph(config: DataConfig) -> StudyData:
    """Read a table whose columns are nodes of a graph, and rows without the target if there are any."""
    files = config.further
    if files.treatment is not None:
        return _read_with_treatment(config, files.treatment)
    data = _read_plain(config)
    if files.unlabeled is None:
        return data
    names = list(data.units.schema.feature_names)
    table = read_complete_rows(files.unlabeled, "data.unlabeled", config.dialect, {"unlabeled": names})
    with blame("data.unlabeled"):
        return dataclasses.replace(data, options={"unlabeled": data.units.points(table[names])})


def _read_with_treatment(config: DataConfig, treatment: str) -> StudyData:
    """Read a treatment, a target, and the columns to adjust for, those of the study file or the best minimal set."""
    table = read_table(config.path, "data.path", config.dialect)
    require_columns(table, [config.target], "data.target", config.path)
    require_columns(table, [treatment], "data.treatment", config.path)
    given = None if config.features is None else [name for name in config.features if name != treatment]
    with blame("data.graph"):
        graph = as_causal_graph(config.further.graph)
        if config.target in graph and config.target not in graph.descendants(treatment):
            raise StudyError(
                f"data.graph: no directed path leads from {treatment!r} to {config.target!r}, so there is no effect"
            )
    covariates = _adjusting(graph, [treatment], [config.target], given, list(table.columns), "data.features")
    data = _read_plain(dataclasses.replace(config, features=(treatment, *covariates)))
    if np.ptp(data.x[:, 0]) == 0.0:
        raise StudyError(f"data.treatment: the column {treatment!r} has one value in every row, so no effect is seen")
    mediation = None if config.further.mediators is None else _read_mediation(config, graph, table)
    return dataclasses.replace(data, treatment=treatment, mediation=mediation)


def _read_mediation(config: DataConfig, graph: CausalDAG, table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that may divide an effect, in their own units: the mediators, the target and its causes.

    A target that is a label becomes a column of booleans.
    """
    mediators = config.further.mediators
    require_columns(table, mediators, "data.mediators", config.path)
    causes = [name for name in table if name in {*graph.ancestors(config.target), *mediators}]
    rows = complete_rows(table, causes, "data.path", config.path, config.dialect)[causes]
    y = read_target(rows[config.target], config.categorical)[0]
    features = read_features(rows.drop(columns=config.target), config.categorical)
    return features.assign(**{config.target: y.astype(bool) if is_binary(y) else y})


def _read_bags(config: DataConfig) -> StudyData:
    """Read points in bags, one covariate per bag, and one target per bag or targets at their own covariates."""
    files = config.further
    points, features = read_with_features(config, config.path, "data.path", {"bag": [files.bag]})
    covariates = list(files.covariates or ())
    of_targets = {"covariates": covariates, "target": [config.target]}
    of_bags = {"bag": [files.bag], **(of_targets if files.targets is None else {"covariates": covariates})}
    bags = targets = read_complete_rows(files.bags, "data.bags", config.dialect, of_bags)
    if files.targets is not None:
        targets = read_complete_rows(files.targets, "data.targets", config.dialect, of_targets)
    data = read_data_columns(config, points[features], targets[config.target])
    with blame("[data]"):
        places, options = None, {}
        if covariates:
            places, own = _scaled(bags[covariates], targets[covariates], config.standardize)
            options = {} if files.targets is None else {"covariates": own}
        training = Bags.create(data.features, points[files.bag], places, covariate_bag=bags[files.bag])
    counted = f"{data.y.size} aggregates and {training.num_bags} bags with {data.counted.replace('rows', 'points')}"
    return _elsewhere(data, training, options, counted)


def _read_matches(config: DataConfig) -> StudyData:
    """Read matches between items; the target is the outcome for the first item of each pair."""
    files = config.further
    items, features = read_with_features(config, files.items, "data.items", {"item": [files.item]})
    named = {"winner": [files.winner], "loser": [files.loser], "contexts": list(files.contexts)}
    named |= {"tie": [files.tie]} if files.tie is not None else {}
    matches = read_complete_rows(config.path, "data.path", config.dialect, named)
    data = read_data_columns(dataclasses.replace(config, target="the first item wins"), items[features], None)
    with blame("[data]"):
        training = Matches.from_tables(
            data.features.assign(**{files.item: items[files.item]}),
            matches,
            winner=files.winner,
            loser=files.loser,
            item=files.item,
            features=features,
            contexts=files.contexts,
            tie=files.tie,
        )
    match, y = training.single_matches()
    counts = np.sort(np.stack([training.wins, training.losses], axis=1), axis=1)
    return dataclasses.replace(
        data,
        y=y,
        counted=f"{training.num_matches} matches between {training.num_items} items",
        features=data.units.schema.read(data.features),
        training=(training, None),
        points=training,
        num_points=training.num_pairs,
        observed=[f"{high:g} to {low:g}" for low, high in counts],
        match=match,
        is_table=False,
    )


def _read_effects(config: DataConfig) -> StudyData:
    """Read treatments with outcomes and columns to adjust for, and outcomes with targets."""
    files = config.further
    outcome, adjusting = list(files.outcome), list(files.adjusting or ())
    needed = {"outcome": outcome, "adjusting": adjusting}
    trial, features = read_with_features(config, config.path, "data.path", needed)
    of_targets = {"outcome": outcome, "target": [config.target]}
    known = read_complete_rows(files.targets, "data.targets", config.dialect, of_targets)
    if files.graph is not None:
        with blame("data.graph"):
            graph = as_causal_graph(files.graph)
        columns = list(trial.columns)
        adjusting = _adjusting(graph, features, outcome, files.adjusting, columns, "data.adjusting", mediators=True)
    trial = complete_rows(trial, adjusting, "data.path", config.path, config.dialect)
    data = read_data_columns(config, trial[features], known[config.target])
    with blame("[data]"):
        outcomes, places = _scaled(trial[outcome], known[outcome], config.standardize)
        tables = {"treatment": data.features, "outcome": outcomes}
        if adjusting:
            tables["adjusting"] = _scaled(trial[adjusting], trial[adjusting], config.standardize)[0]
    counted = f"{len(data.x)} treatments and {data.y.size} targets"
    return _elsewhere(data, tables, {"mediators": places}, counted)


def _elsewhere(data: StudyData, training: object, options: dict[str, pd.DataFrame], counted: str) -> StudyData:
    """Return data whose target was not observed at the rows of features."""
    training = training, data.training[1]
    return dataclasses.replace(data, training=training, options=options, counted=counted, observed=None, is_table=False)


def _scaled(table: pd.DataFrame, other: pd.DataFrame, standardize: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two tables in the model's units, whose scales are those of the first."""
    if not standardize:
        return table, other
    scales = Scales.of(*read_points(table))
    return scales.apply(table), scales.apply(other)


def _adjusting(
    graph: CausalDAG,
    treatment: Sequence[str],
    outcome: Sequence[str],
    given: Sequence[str] | None,
    columns: Sequence[str],
    key: str,
    *,
    mediators: bool = False,
) -> list[str]:
    """Return the columns to adjust for: those given, if the graph permits them, or else the best minimal set.

    `key` gives them in the study file. Raises StudyError if they are no adjustment set, nor front-door mediators where
    these are possible, or if there is no set among the columns.
    """
    nodes = {"treatment": [*treatment], "outcome": [*outcome]}
    with blame("data.graph"):
        if given is not None:
            check = is_adjustment_set(graph, **nodes, adjusting=[*given])
            if not check and not (mediators and is_frontdoor_set(graph, **nodes, mediators=[*given])):
                raise StudyError(f"{key} does not fit data.graph: {check}")
            return list(given)
        chosen = next(minimal_adjustment_sets(graph, **nodes, within=[name for name in columns if name in graph]), None)
    if chosen is None:
        other = "name front-door mediators in data.adjusting, if there are any"
        raise StudyError(
            f"data.graph: no columns of data.path adjust for the effect of {', '.join(treatment)} on "
            f"{', '.join(outcome)}; {other if mediators else 'see kpp_models.causal_effect for other ways'}"
        )
    return [column for column in columns if column in chosen]


_READERS: dict[str, Callable[[DataConfig], StudyData]] = {
    "table": _read_plain,
    "graph": _read_with_graph,
    "bags": _read_bags,
    "matches": _read_matches,
    "effects": _read_effects,
}
