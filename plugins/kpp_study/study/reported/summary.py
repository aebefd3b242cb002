"""The contents of the report of a study: its results, and the sentences and small tables about it."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping

import numpy as np
import xarray as xr

from kpp.explanations import Explanation
from kpp.inference import Fit
from kpp.typing import RngKey
from kpp_study.report import sentences
from kpp_study.report.contents import ColumnSummary, DataSummary, ReportContents
from kpp_study.report.rows import LATENT, Predicted
from kpp_study.study.output import versions
from kpp_study.study.reading.data import StudyData
from kpp_study.study.reported import results
from kpp_study.study.reported.describe import describe_model
from kpp_study.study.sections.config import StudyConfig
from kpp_study.study.sections.section import Rows


def report_contents(
    config: StudyConfig,
    data: StudyData,
    rows: np.ndarray,
    fit: Fit,
    groups: Mapping[str, xr.Dataset],
    explanation: Explanation,
    *,
    keys: Mapping[str, RngKey],
    seconds: Mapping[str, float],
) -> ReportContents:
    """Return the contents of the report.

    Args:
        config: The contents of the study file.
        data: The data.
        rows: The numbers of the explained rows, (p,).
        fit: The fit.
        groups: The groups of the fit, in the units of the table.
        explanation: The explanation, in the units of the table.
        keys: Random keys, "predict" and "prior".
        seconds: How long each stage took.
    """
    model, available = config.model, fit.num_chains * fit.num_draws
    probability = results.probabilities(fit, data)
    predictive = results.predictive_draws(keys["predict"], fit, data, groups) if probability is None else None
    loo, reason = results.leave_one_out(fit, data, groups, of_labels=probability is not None)
    latent = LATENT.get(getattr(model, "link", ""), "latent function")
    return ReportContents(
        title=config.title,
        created=sentences.today(),
        data=_data_summary(data),
        model=describe_model(model),
        units=_units(data),
        inference=_inference(config, fit),
        approximates=config.inference.approximates,
        posterior=groups["posterior"],
        prior=results.prior_draws(keys["prior"], model, groups),
        sample_stats=groups.get("sample_stats"),
        predictive=predictive,
        probability=probability if probability is None or data.match is None else probability[data.match],
        further=_further(data, rows, probability, predictive, explanation, latent),
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
        scaling=_scaling_sentence(data),
        warnings=[f"Constant columns, which cannot explain anything: {', '.join(constant)}."] if constant else [],
    )


def _inference(config: StudyConfig, fit: Fit) -> str:
    """Return a sentence on how the model was fitted."""
    used, chains, draws = config.inference, fit.num_chains, fit.num_draws
    name = config.sections["inference"]["name"]
    if not used.approximates and chains * draws > 1:
        steps = getattr(used, "num_warmup", None)
        warmup = f" after {steps} steps of warm-up" if steps is not None else ""
        return f"Fitted by {name}: {chains} {_plural('chain', chains)} of {draws} draws{warmup}."
    return f"Fitted by {name}: {chains * draws} {_plural('draw', chains * draws)}."


def _units(data: StudyData) -> str:
    """Return a sentence on the units of the hyperparameters."""
    if data.units.is_identity:
        return ""
    return (
        "They are in the units of the standardized data: a lengthscale of 1 is one standard deviation of its feature, "
        "a variance of 1 that of the target."
    )


def _value_unit(data: StudyData, explanation: Explanation, latent: str | None) -> str:
    """Return the unit of the contributions, in words; `latent` is that of the function of a label."""
    if explanation.attrs.get("scale") == "probability":
        return f"probability of {data.units.target}"
    return f"in units of {data.target_name}" if latent is None else f"{latent} of {data.units.target}"


def _further(
    data: StudyData,
    rows: np.ndarray,
    probability: np.ndarray | None,
    predictive: np.ndarray | None,
    explanation: Explanation,
    latent: str,
) -> Predicted | None:
    """Return what the explained rows are predicted to be, where the explanation is of something else.

    Args:
        data: The data.
        rows: The numbers of the explained rows, (p,).
        probability: The probability of label 1 in all rows, (n,), or None.
        predictive: Draws of new observations of the target, (s, M), or None.
        explanation: The explanation.
        latent: The unit of the function of a label.
    """
    if probability is not None and explanation.attrs.get("scale") != "probability":
        return Predicted.probability(probability[rows], latent)
    if predictive is None or data.observed is None:  # of bags, the draws are not of the explained points
        return None
    return Predicted.observation(predictive[:, rows])


def _waterfall_positions(rows: Rows, explanation: Explanation, instances: np.ndarray) -> list[int]:
    """Return the positions of the explained rows that get a waterfall plot, in the order of their predictions.

    `rows` is a number of rows, spread evenly from the lowest to the highest prediction, a list of row numbers, or all;
    `instances` are the numbers of the explained rows.
    """
    predictions = explanation.mean().predictions
    ranked = predictions.isel(output=-1) if "output" in predictions.dims else predictions
    order = np.argsort(ranked.values, kind="stable")
    if isinstance(rows, tuple):
        return [int(position) for position in order if instances[position] in rows]
    if rows == "all" or rows >= order.size:
        return order.tolist()
    if rows == 1:
        return [int(order[order.size // 2])]
    return order[np.linspace(0, order.size - 1, rows).round().astype(int)].tolist()


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
    shown = ", ".join(counts[:12]) + (f" and {len(counts) - 12} more" if len(counts) > 12 else "")
    return ColumnSummary(name, **{key: float(value) for key, value in numbers.items()}, levels=shown)


def _scaling_sentence(data: StudyData) -> str:
    units = data.units
    if units.is_identity:
        return "The model sees them as they are."
    which = "features that are numbers"
    if units.target_scale != 1.0 or units.target_center != 0.0:
        which += f" and {data.target_name}"
    return (
        f"For the model, {which} were shifted and scaled to mean 0 and standard deviation 1; predictions, "
        "contributions and feature values in this report are back in their own units."
    )


def _plural(word: str, count: int) -> str:
    return word if count == 1 else word + "s"
