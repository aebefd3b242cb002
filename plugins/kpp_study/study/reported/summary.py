"""The contents of the report of a study: its results, and the sentences and small tables about it."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from kpp.explanations import Explanation
from kpp.foundation.wording import listed
from kpp.inference import AbstractModel, Fit
from kpp.storage import serialization
from kpp_study.report import sentences
from kpp_study.report.contents import ColumnSummary, DataSummary, ReportContents
from kpp_study.report.numbers import counted
from kpp_study.report.rows import LATENT, Predicted, by_prediction, spread
from kpp_study.study.output import versions
from kpp_study.study.reading.data import StudyData
from kpp_study.study.reported import results
from kpp_study.study.sections.config import StudyConfig
from kpp_study.study.sections.section import Rows

if TYPE_CHECKING:
    from kpp_study.study.plan import StudyPlan


def report_contents(
    plan: StudyPlan, fit: Fit, groups: Mapping[str, xr.Dataset], explanation: Explanation, seconds: Mapping[str, float]
) -> ReportContents:
    """Return the contents of the report; groups and explanation are in the units of the table."""
    config, data, rows, keys = plan.config, plan.data, plan.rows, plan.keys
    model, available = config.model, fit.num_chains * fit.num_draws
    probability = results.probabilities(fit, data)
    predictive = results.predictive_draws(keys["predict"], fit, data, groups) if probability is None else None
    loo, reason = results.leave_one_out(fit, data, groups, of_labels=probability is not None)
    latent = LATENT.get(getattr(model, "link", ""), "latent function")
    further: Predicted | None = None  # what the rows are predicted to be, where the explanation is of something else
    if probability is not None and explanation.attrs.get("scale") != "probability":
        further = Predicted.probability(probability[rows], latent)
    elif predictive is not None and data.observed is not None:  # of bags, the draws are not of the explained points
        further = Predicted.observation(predictive[:, rows])
    return ReportContents(
        title=config.title,
        created=sentences.today(),
        data=_data_summary(data),
        model=describe_model(model),
        inference=_inference(config, fit),
        approximates=config.inference.approximates,
        posterior=groups["posterior"],
        latent=xr.Dataset({name: site for name, site in groups.get("latent", {}).items() if name in fit.draws}),
        sensitivity=results.prior_sensitivity(fit, groups),
        prior=results.prior_draws(keys["prior"], model, groups),
        sample_stats=groups.get("sample_stats"),
        predictive=predictive,
        probability=probability if probability is None or data.match is None else probability[data.match],
        further=further,
        loo=loo,
        loo_reason=reason,
        explanation=explanation,
        explained=sentences.explained(explanation, rows=data.num_points, available=available),
        value_unit=_value_unit(data, explanation, None if probability is None else latent),
        waterfalls=_waterfall_positions(config.waterfalls, explanation, rows),
        observed=None if data.observed is None else [data.observed[row] for row in rows],
        provenance=_provenance(config, explanation, available, seconds),
        versions=versions(),
        source=config.source,
    )


def _data_summary(data: StudyData) -> DataSummary:
    """Describe the data in their own units."""
    names = data.units.schema.feature_names
    constant = [name for j, name in enumerate(names) if np.ptp(data.x[:, j]) == 0.0]
    return DataSummary(
        file=data.path.name,
        counted=data.counted,
        target=data.units.target,
        y=data.y,
        columns=[_column(data, index) for index in range(len(names))],
        scaled=_scaled(data),
        warnings=[f"Constant columns, which cannot explain anything: {', '.join(constant)}."] if constant else [],
    )


def describe_model(model: AbstractModel) -> tuple[str, str]:
    """Return the name of a model, and its fields as indented text with ``~`` before each prior."""
    described = serialization.to_spec(model)
    return str(described["name"]), "\n".join(_lines(described, ""))


def _lines(described: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in described.items():
        if key not in ("name", "kind") and value is not None:
            yield from _field_lines(key, value, indent)


def _field_lines(key: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping) and "prior" in value:
        yield f"{indent}{key} ~ {_prior(value)}"
    elif isinstance(value, Mapping) and value["name"] == "Selected":
        first, *rest = _field_lines(key, value["kernel"], indent)
        yield f"{first}, on {', '.join(map(str, value['features']))}"
        yield from rest
    elif isinstance(value, Mapping):
        yield f"{indent}{key} = {value['name']}"
        yield from _lines(value, indent + "    ")
    elif isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
        for index, entry in enumerate(value):
            yield from _field_lines(f"{key}.{index}", entry, indent)
    else:
        yield f"{indent}{key} = {value}"


def _prior(described: Mapping[str, Any]) -> str:
    shown = {key: value for key, value in described.items() if key not in ("prior", "expand", "to_event")}
    arguments = ", ".join(
        f"{key}={_prior(value) if isinstance(value, Mapping) else value}" for key, value in shown.items()
    )
    expand = described.get("expand")
    return f"{described['prior']}({arguments})" + (f", {' × '.join(map(str, expand))} independent" if expand else "")


def _inference(config: StudyConfig, fit: Fit) -> str:
    """Return a sentence on how the model was fitted."""
    used, chains, draws = config.inference, fit.num_chains, fit.num_draws
    name = config.sections["inference"]["name"]
    if not used.approximates and chains * draws > 1:
        steps = getattr(used, "num_warmup", None)
        warmup = f" after {steps} steps of warm-up" if steps is not None else ""
        return f"Fitted by {name}: {counted(chains, 'chain')} of {draws} draws{warmup}."
    return f"Fitted by {name}: {counted(chains * draws, 'draw')}."


def _value_unit(data: StudyData, explanation: Explanation, latent: str | None) -> str:
    """Return the unit of the contributions, in words; `latent` is that of the function of a label."""
    if explanation.attrs.get("scale") == "probability":
        return f"probability of {data.units.target}"
    return f"in units of {data.target_name}" if latent is None else f"{latent} of {data.units.target}"


def _waterfall_positions(rows: Rows, explanation: Explanation, instances: np.ndarray) -> list[int]:
    """Return the positions of the explained rows that get a waterfall plot, in the order of their predictions.

    `rows` is a number of rows, spread evenly from the lowest to the highest prediction, a list of row numbers, or all;
    `instances` are the numbers of the explained rows.
    """
    order = by_prediction(explanation)
    if isinstance(rows, tuple):
        return [position for position in order if instances[position] in rows]
    if rows == "all":
        return order
    return [order[len(order) // 2]] if rows == 1 else spread(order, rows)


def _provenance(
    config: StudyConfig, explanation: Explanation, available: int, seconds: Mapping[str, float]
) -> dict[str, str]:
    """Return facts about the computation, by name."""
    sizes = explanation.dataset.sizes
    used = sizes.get("chain", 1) * sizes.get("draw", 1)
    entries = {
        "run": datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        "seed": str(config.seed),
        "posterior draws explained": f"{used} of {available}",
        "explained rows": ", ".join(str(row) for row in explanation.dataset.coords["instance"].values),
    }
    entries |= {f"explanation: {name}": fact for name, fact in sentences.recorded(explanation).items()}
    entries |= {f"time for {name}": f"{duration:.1f} s" for name, duration in seconds.items()}
    entries["software"] = ", ".join(f"{name} {version}" for name, version in versions().items())
    entries["Python"] = platform.python_version()
    return entries


def _column(data: StudyData, index: int) -> ColumnSummary:
    schema, values = data.units.schema, data.x[:, index]
    name = schema.feature_names[index]
    numbers = {"mean": values.mean(), "sd": values.std(), "low": values.min(), "high": values.max()}
    levels = schema.levels.get(name, ())
    counts = [f"{level} ({int((values == code).sum())})" for code, level in enumerate(levels)]
    return ColumnSummary(name, **{key: float(value) for key, value in numbers.items()}, levels=listed(counts, 12))


def _scaled(data: StudyData) -> str:
    """Return which columns the model sees shifted and scaled; empty if none."""
    units = data.units
    if units.is_identity:
        return ""
    with_target = units.target_scale != 1.0 or units.target_center != 0.0
    return "features that are numbers" + f" and {data.target_name}" * with_target
