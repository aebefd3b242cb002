"""The report of a study: one HTML file that contains its figures and needs neither a network nor JavaScript."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kpp_study.report.contents import ReportContents
from kpp_study.report.convergence import assess, hyperparameters
from kpp_study.report.drawings import alternatives, figures
from kpp_study.report.drawings.images import Image, embed, figure_style
from kpp_study.report.explained import explained_part, importance
from kpp_study.report.pages import render

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
