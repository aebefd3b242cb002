"""The data of a study of any kind: a table, with a causal graph or not, bags of points, matches, or two data sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np
import pandas as pd

from kpp.causal import is_adjustment_set, is_frontdoor_set, minimal_adjustment_sets
from kpp.causal.toolkit import as_causal_graph
from kpp.data.bags import Bags
from kpp.data.tables import Scales, read_points
from kpp.preferences import Matches
from kpp_study.study.errors import StudyError, blame
from kpp_study.study.reading.data import StudyData, read_data_columns
from kpp_study.study.reading.files import complete_rows, read_complete_rows, read_with_features
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
    data = _read_plain(config)
    if files.unlabelled is None:
        return data
    names = list(data.units.schema.feature_names)
    table = read_complete_rows(files.unlabelled, "data.unlabelled", config.dialect, {"unlabelled": names})
    with blame("data.unlabelled"):
        return dataclasses.replace(data, options={"unlabelled": data.units.points(table[names])})


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
    outcome = list(files.outcome)
    needed = {"outcome": outcome, "adjusting": list(files.adjusting or ())}
    trial, features = read_with_features(config, config.path, "data.path", needed)
    of_targets = {"outcome": outcome, "target": [config.target]}
    known = read_complete_rows(files.targets, "data.targets", config.dialect, of_targets)
    adjusting = _choose_adjusting(files, features, list(trial.columns))
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


def _choose_adjusting(files: SimpleNamespace, treatment: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return the columns to adjust for: those given, if the graph permits them, or else the best minimal set.

    Without a graph they are those given. Raises StudyError if the given columns are neither an adjustment set nor a
    front-door set, or there is no set among the columns.
    """
    if files.graph is None:
        return list(files.adjusting or ())
    with blame("data.graph"):
        read = as_causal_graph(files.graph)
        nodes = {"treatment": list(treatment), "outcome": list(files.outcome)}
        if files.adjusting is None:
            within = [column for column in columns if column in read]
            chosen = next(minimal_adjustment_sets(read, **nodes, within=within), None)
            if chosen is None:
                raise StudyError(
                    f"data.graph: no columns of data.path adjust for the effect of {', '.join(treatment)} on "
                    f"{', '.join(files.outcome)}; name front-door mediators in data.adjusting, if there are any"
                )
            return [column for column in columns if column in chosen]
        check = is_adjustment_set(read, **nodes, adjusting=list(files.adjusting))
        if not check and not is_frontdoor_set(read, **nodes, mediators=list(files.adjusting)):
            raise StudyError(f"data.adjusting does not fit data.graph: {check}")
    return list(files.adjusting)


_READERS: dict[str, Callable[[DataConfig], StudyData]] = {
    "table": _read_plain,
    "graph": _read_with_graph,
    "bags": _read_bags,
    "matches": _read_matches,
    "effects": _read_effects,
}
