"""The report of an explanation alone: one HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import kpp
from kpp.explanations import Explanation
from kpp.gp import probability
from kpp_study.report.drawings.images import figure_style
from kpp_study.report.explained import explained_part, importance
from kpp_study.report.numbers import counted
from kpp_study.report.pages import render
from kpp_study.report.rows import LATENT, Predicted
from kpp_study.report.sentences import explained, recorded, today

_SECTIONS = (("explanation", "Explanation"), ("instances", "Single predictions"), ("made", "How it was made"))


def render_explanation(explanation: Explanation, *, title: str | None = None) -> str:
    """Write the report of an explanation as HTML, in one file without a network.

    Args:
        explanation: The explanation, with draws, with a Gaussian law, or with plain values.
        title: The title of the report; by default it names the target, if the explanation does.

    Returns:
        The text of the HTML file. Any text in the explanation is escaped.

    Raises:
        ValueError: If it has no instances.
    """
    if not len(explanation):
        raise ValueError("`explanation` must have at least one instance, got none")
    target, predictions = explanation.attrs.get("target"), explanation.mean().predictions.values
    with figure_style():
        part = explained_part(
            explanation,
            sentence=explained(explanation),
            value_unit=_value_unit(explanation),
            waterfalls=range(len(explanation)),
            predicted=_predicted(explanation),
        )
    page = {
        "title": title or (f"Explanation of {target}" if target else "Explanation of predictions"),
        "created": today(),
        "version": kpp.__version__,
        "sections": _SECTIONS,
        "strongest": importance(explanation)[0],
        "count": len(explanation),
        "num_features": len(explanation.feature_names),
        "lowest": predictions.min(),
        "highest": predictions.max(),
        "mean": predictions.mean(),
        "provenance": _provenance(explanation),
        "source": explanation.attrs.get("study", ""),
    }
    return render("explanation.html.j2", {**page, **part})


def _value_unit(explanation: Explanation) -> str:
    target, attrs = explanation.attrs.get("target"), explanation.attrs
    of_target = f" of {target}" if target else ""
    if attrs.get("scale") == "probability":
        return f"probability{of_target}"
    if attrs.get("link") in LATENT:
        return f"{LATENT[attrs['link']]}{of_target}"
    return "in the unit of the predictions"  # which is not recorded


def _predicted(explanation: Explanation) -> Predicted | None:
    """Return the probability of each row, if latent values of a label are explained by draws of the function."""
    attrs, predictions = explanation.attrs, explanation.predictions
    of_function = attrs.get("uncertainty") in ("full", "function only") and explanation.variance is None
    if attrs.get("link") not in LATENT or not of_function or not explanation.has_draws or "output" in predictions.dims:
        return None
    values = np.asarray(probability(attrs["link"], predictions.transpose("chain", "draw", "instance").values))
    return Predicted.probability(values.mean((0, 1)), LATENT[attrs["link"]])


def _provenance(explanation: Explanation) -> Mapping[str, Any]:
    """Return the recorded facts that are short."""
    sizes = [counted(size, str(dim)) for dim, size in explanation.values.sizes.items()]
    facts: dict[str, Any] = {"contributions": ", ".join(sizes)}
    facts |= recorded(explanation)
    versions = explanation.attrs.get("versions", {})
    if isinstance(versions, Mapping) and versions:
        facts["software"] = ", ".join(f"{name} {version}" for name, version in versions.items())
    return facts
