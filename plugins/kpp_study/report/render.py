"""Reports, of a study or of an explanation alone: one HTML file with its figures, without a network or JavaScript."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import kpp
from kpp.explanations import Explanation
from kpp.gp import probability
from kpp_study.report import sentences
from kpp_study.report.contents import ReportContents
from kpp_study.report.convergence import assess, hyperparameters
from kpp_study.report.drawings import alternatives, figures
from kpp_study.report.drawings.images import Image, embed, figure_style
from kpp_study.report.explained import explained_part, importance
from kpp_study.report.numbers import counted
from kpp_study.report.pages import render
from kpp_study.report.rows import LATENT, Predicted

_SECTIONS = (
    ("data", "Data"),
    ("model", "Model"),
    ("posterior", "Priors and posteriors"),
    ("convergence", "Convergence"),
    ("check", "Predictive check"),
    ("loo", "Leave-one-out"),
    ("explanation", "Explanation"),
    ("curves", "Curves"),
    ("instances", "Single predictions"),
    ("made", "How it was made"),
)
_SECTIONS_OF_EXPLANATION = [section for section in _SECTIONS if section[0] in ("explanation", "instances", "made")]


def render_report(contents: ReportContents, *, progress: Callable[[Sequence[int]], Any] = list) -> str:
    """Write a report as HTML.

    Args:
        contents: The contents. Any text in it is escaped.
        progress: Wraps the positions of the rows in the table, to show a progress bar.

    Returns:
        The text of the HTML file.
    """
    draws = contents.posterior, contents.sample_stats
    convergence = assess(*draws, approximates=contents.approximates, latent=contents.latent)
    coverage = _coverage(contents)
    with figure_style():
        images = {
            "target_image": _target_image(contents),
            "prior_image": _prior_image(contents),
            "check_image": _check_image(contents, coverage),
            "loo_image": _loo_image(contents),
            "curves_image": _curves_image(contents),
        }
        explained = explained_part(
            contents.explanation,
            sentence=contents.explained,
            value_unit=contents.value_unit,
            waterfalls=contents.waterfalls,
            observed=contents.observed,
            predicted=contents.further,
            progress=progress,
        )
    page = {
        "sections": [section for section in _SECTIONS if contents.curves or section[0] != "curves"],
        "strongest": importance(contents.explanation)[0],
        "convergence": convergence,
        "is_label": contents.probability is not None,
        "seen": _skill_in_seen_rows(contents),
        "coverage": coverage,
    }
    return render("template.html.j2", {**vars(contents), **images, **explained, **page})


def _skill_in_seen_rows(contents: ReportContents) -> float | None:
    """Return the share of right labels, or of explained variance, in the rows that the model saw."""
    y = contents.data.y
    if contents.probability is not None:
        return float(np.mean((contents.probability > 0.5) == (y > 0.5)))
    if contents.predictive is None:
        return None
    return float(1.0 - (y - contents.predictive.mean(axis=0)).var() / y.var())


def _target_image(contents: ReportContents) -> Image:
    y, name = contents.data.y, contents.data.target
    caption = f"The distribution of {name}."
    return embed(figures.target_histogram(y, name), alternatives.target(y, name), caption, label="Histogram")


def _prior_image(contents: ReportContents) -> Image | None:
    prior, posterior = contents.prior, hyperparameters(contents.posterior)
    figure = None if prior is None else figures.priors_and_posteriors(prior, posterior)
    if prior is None or figure is None:
        return None
    return embed(figure, alternatives.priors_and_posteriors(prior, posterior), label="Plot of priors and posteriors")


def _curves_image(contents: ReportContents) -> Image | None:
    if not contents.curves:
        return None
    figure = figures.curves(contents.curves, contents.value_unit)
    caption = "Short lines on the axis are the values of the feature in the data."
    return embed(figure, alternatives.curves(contents.curves), caption, label="Curves of features")


def _check_image(contents: ReportContents, coverage: float) -> Image | None:
    data = contents.data
    if contents.probability is not None:
        figure = figures.calibration(data.y, contents.probability, data.target)
        text = alternatives.calibration(data.y, contents.probability, data.target)
        return embed(figure, text, label="Plot of calibration")
    if contents.predictive is None:
        return None
    figure = figures.predictive_check(data.y, contents.predictive, data.target)
    text = alternatives.predictive_check(data.y, contents.predictive, data.target, coverage)
    caption = (
        "Left: if the model fits, the gray histogram looks like one of the blue ones. Right: points on the dashed line "
        "are predicted perfectly."
    )
    return embed(figure, text, caption, label="Plot of observed and predicted values")


def _coverage(contents: ReportContents) -> float:
    """Return the share of observed values in their 90% predictive intervals; NaN without draws of the data."""
    if contents.predictive is None:
        return float("nan")
    lower, upper = np.quantile(contents.predictive, [0.05, 0.95], axis=0)
    return float(np.mean((lower <= contents.data.y) & (contents.data.y <= upper)))


def _loo_image(contents: ReportContents) -> Image | None:
    if contents.loo is None:
        return None
    caption = (
        "Pareto k says how much a single row moves the posterior; below the dashed line the result can be trusted."
    )
    k = contents.loo.pareto_k
    return embed(figures.loo_diagnostics(k), alternatives.leave_one_out(k), caption, label="Plot of Pareto k")


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
            sentence=sentences.explained(explanation),
            value_unit=_value_unit(explanation),
            waterfalls=range(len(explanation)),
            predicted=_predicted(explanation),
        )
    page = {
        "title": title or (f"Explanation of {target}" if target else "Explanation of predictions"),
        "created": sentences.today(),
        "version": kpp.__version__,
        "sections": _SECTIONS_OF_EXPLANATION,
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
    facts |= sentences.recorded(explanation)
    versions = explanation.attrs.get("versions", {})
    if isinstance(versions, Mapping) and versions:
        facts["software"] = ", ".join(f"{name} {version}" for name, version in versions.items())
    return facts
