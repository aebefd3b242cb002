"""The sentences and small tables of a report about its study."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
from collections.abc import Mapping

import numpy as np

from kpp.explanations import Explanation
from kpp.inference import AbstractInference, AbstractModel
from kpp_study.report import sentences
from kpp_study.report.contents import Column, DataSummary
from kpp_study.report.rows import Predicted
from kpp_study.study.config import StudyConfig
from kpp_study.study.data import StudyData

_PACKAGES = ("kpp", "numpyro", "jax", "arviz", "numpy", "xarray")


def data_summary(data: StudyData) -> DataSummary:
    """Describe the data in their own units."""
    return DataSummary(
        file=data.path.name,
        counted=data.counted,
        target=data.shown_target,
        y=data.y,
        columns=[_column(data, index) for index in range(data.schema.num_features)],
        scaling=_scaling_sentence(data),
        warnings=_warnings(data),
    )


def inference(config: StudyConfig, used: AbstractInference, sizes: tuple[int, int]) -> str:
    """Return a sentence on how the model was fitted; `sizes` holds the numbers of chains and of draws per chain."""
    chains, draws = sizes
    name = config.inference.name
    if not used.approximates and chains * draws > 1:
        steps = getattr(used, "num_warmup", None)
        warmup = f" after {steps} steps of warm-up" if steps is not None else ""
        return f"Fitted by {name}: {chains} {_plural('chain', chains)} of {draws} draws{warmup}."
    return f"Fitted by {name}: {chains * draws} {_plural('draw', chains * draws)}."


def explained(explanation: Explanation, data: StudyData, available: int) -> str:
    """Return a sentence on what was explained and how accurately; `available` is the number of posterior draws."""
    return sentences.explained(explanation, rows=data.num_instances, available=available)


def units(data: StudyData) -> str:
    """Return a sentence on the units of the hyperparameters."""
    if data.standardization.is_identity:
        return ""
    return (
        "They are in the units of the standardised data: a lengthscale of 1 is one standard deviation of its feature, "
        "a variance of 1 that of the target."
    )


def value_unit(data: StudyData, explanation: Explanation, model: AbstractModel, is_probability: bool) -> str:
    """Return the unit of the contributions, in words."""
    if explanation.attrs.get("scale") == "probability":
        return f"probability of {data.shown_target}"
    return f"{_latent(model)} of {data.shown_target}" if is_probability else f"in units of {data.target_name}"


def further(
    rows: np.ndarray,
    probability: np.ndarray | None,
    predictive: np.ndarray | None,
    explanation: Explanation,
    model: AbstractModel,
) -> Predicted | None:
    """Return what the explained rows are predicted to be, where the explanation is of something else.

    Args:
        rows: The numbers of the explained rows, (p,).
        probability: The probability of label 1 in all rows, (n,), or None.
        predictive: Draws of new observations in all rows, (s, n), or None.
        explanation: The explanation.
        model: The model.
    """
    if probability is not None and explanation.attrs.get("scale") != "probability":
        return Predicted.probability(probability[rows], _latent(model))
    return None if predictive is None else Predicted.observation(predictive[:, rows])


def _latent(model: AbstractModel) -> str:
    return "log-odds" if getattr(model, "link", None) == "logit" else "latent function"


def provenance(
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
    for name, value in explanation.attrs.items():
        if name not in ("levels", "versions", "study") and isinstance(value, (str, int, float, bool)):
            entries[f"explanation: {name.replace('_', ' ')}"] = (
                f"{value:.6g}" if isinstance(value, float) else str(value)
            )
    entries |= {f"time for {name}": f"{duration:.1f} s" for name, duration in seconds.items()}
    entries["software"] = ", ".join(f"{name} {version}" for name, version in versions().items())
    entries["Python"] = platform.python_version()
    return entries


def versions() -> dict[str, str]:
    """Return the versions of the packages that matter."""
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def _column(data: StudyData, index: int) -> Column:
    name = data.schema.feature_names[index]
    values = data.x[:, index]
    numbers = {"mean": values.mean(), "sd": values.std(), "low": values.min(), "high": values.max()}
    levels = data.schema.levels.get(name, ())
    counts = [f"{level} ({int((values == code).sum())})" for code, level in enumerate(levels)]
    shown = ", ".join(counts[:12]) + (f" and {len(counts) - 12} more" if len(counts) > 12 else "")
    return Column(name, **{key: float(value) for key, value in numbers.items()}, levels=shown)


def _scaling_sentence(data: StudyData) -> str:
    scaling = data.standardization
    if scaling.is_identity:
        return "The model sees them as they are."
    which = "features that are numbers"
    if scaling.target_scale != 1.0 or scaling.target_center != 0.0:
        which += f" and {data.target_name}"
    return (
        f"For the model, {which} were shifted and scaled to mean 0 and standard deviation 1; predictions, "
        "contributions and feature values in this report are back in their own units."
    )


def _warnings(data: StudyData) -> list[str]:
    warnings = []
    constant = [name for j, name in enumerate(data.schema.feature_names) if np.ptp(data.x[:, j]) == 0.0]
    if constant:
        warnings.append(f"Constant columns, which cannot explain anything: {', '.join(constant)}.")
    return warnings


def _plural(word: str, count: int) -> str:
    return word if count == 1 else word + "s"
