"""The report of a study: one HTML file that contains its figures and needs neither a network nor JavaScript."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kpp_study.report.contents import ReportContents
from kpp_study.report.convergence import Convergence, assess, hyperparameters
from kpp_study.report.drawings import alternatives, figures
from kpp_study.report.drawings.images import Image, embed, figure_style
from kpp_study.report.explained import Importance, explained_part, importance
from kpp_study.report.numbers import fixed, number, short_name
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
    convergence = assess(contents.posterior, contents.sample_stats, approximates=contents.approximates)
    with figure_style():
        page: dict[str, Any] = {
            "target_image": _target_image(contents),
            "prior_image": _prior_image(contents),
            "check_image": _check_image(contents),
            "loo_image": _loo_image(contents),
            "curves_image": _curves_image(contents),
            **explained_part(
                contents.explanation,
                sentence=contents.explained,
                value_unit=contents.value_unit,
                waterfalls=contents.waterfalls,
                observed=contents.observed,
                predicted=contents.further,
                progress=progress,
            ),
        }
    model_name, model_text = contents.model
    page |= {
        "title": contents.title,
        "created": contents.created,
        "sections": [section for section in _SECTIONS if contents.curves or section[0] != "curves"],
        "glance": _glance(contents, convergence, importance(contents.explanation)[0]),
        "data": contents.data,
        "model_sentence": f"The model is {model_name}. A distribution in place of a number is a prior.",
        "model_text": model_text,
        "units": contents.units,
        "convergence": convergence,
        "inference_sentence": contents.inference,
        "check_sentence": _check_sentence(contents),
        "certificate": contents.certificate,
        "loo": contents.loo,
        "loo_sentence": _loo_sentence(contents),
        "provenance": list(contents.provenance.items()),
        "versions": contents.versions,
        "source": contents.source,
    }
    return render("template.html.j2", page)


def _glance(contents: ReportContents, convergence: Convergence, strongest: Importance) -> list[dict[str, str]]:
    items = [
        {
            "label": "Data",
            "value": contents.data.counted,
            "note": f"{len(contents.data.columns)} features; {contents.data.file}",
        },
        _posterior_card(convergence),
    ]
    items += _skill_cards(contents)
    items.append(
        {
            "label": "Most important",
            "value": short_name(strongest.name),
            "note": f"moves a prediction by {number(strongest.mean)} on average",
        }
    )
    return items


def _posterior_card(convergence: Convergence) -> dict[str, str]:
    if not convergence.is_judged:
        draws = convergence.num_chains * convergence.num_draws
        note = "" if draws == 1 else f"{draws} draws of the function" if convergence.is_one_value else f"{draws} draws"
        return {"label": "Posterior", "value": convergence.verdict, "note": note}
    chains = f"{convergence.num_chains} × {convergence.num_draws} draws"
    if np.isfinite(convergence.max_rhat):
        chains += f"; R-hat up to {convergence.max_rhat:.3f}, ESS from {convergence.min_ess:.0f}"
    return {"label": "Convergence", "value": convergence.verdict, "note": chains}


def _skill_cards(contents: ReportContents) -> Iterator[dict[str, str]]:
    """Yield the skill in rows that were left out; the fit to the rows that the model saw is in the note."""
    loo = contents.loo
    if contents.probability is not None:
        known = loo is not None and loo.baseline is not None
        held_out = f"{loo.share_right:.0%}" if loo is not None and known else None
        yield _skill_card("Labels right", held_out, f"{_share_right(contents):.0%}")
    elif contents.predictive is not None:
        held_out = f"{loo.r_squared:.2f}" if loo is not None and loo.r_squared is not None else None
        yield _skill_card("Variance explained (R²)", held_out, f"{_r_squared(contents):.2f}")
    if loo is not None:
        notes = [] if loo.baseline is None else [f"{fixed(loo.baseline, 2)} without features; higher is better"]
        notes += [f"not reliable: {loo.high} of {loo.n} rows have Pareto k above 0.7"] if loo.high else []
        yield {"label": "Log score of a left-out row", "value": fixed(loo.log_score, 2), "note": "; ".join(notes)}


def _skill_card(label: str, held_out: str | None, seen: str) -> dict[str, str]:
    if held_out is None:
        return {"label": label, "value": seen, "note": "in the rows that the model saw: its fit, not its skill"}
    return {"label": label, "value": held_out, "note": f"in rows left out in turn; {seen} in the rows the model saw"}


def _share_right(contents: ReportContents) -> float:
    assert contents.probability is not None
    return float(np.mean((contents.probability > 0.5) == (contents.data.y > 0.5)))


def _r_squared(contents: ReportContents) -> float:
    assert contents.predictive is not None
    residual = contents.data.y - contents.predictive.mean(axis=0)
    return float(1.0 - residual.var() / contents.data.y.var())


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


def _check_image(contents: ReportContents) -> Image | None:
    data = contents.data
    if contents.probability is not None:
        figure = figures.calibration(data.y, contents.probability, data.target)
        text = alternatives.calibration(data.y, contents.probability, data.target)
        return embed(figure, text, label="Plot of calibration")
    if contents.predictive is None:
        return None
    figure = figures.predictive_check(data.y, contents.predictive, data.target)
    text = alternatives.predictive_check(data.y, contents.predictive, data.target, _coverage(contents))
    caption = (
        "Left: if the model fits, the gray histogram looks like one of the blue ones. Right: points on the dashed line "
        "are predicted perfectly."
    )
    return embed(figure, text, caption, label="Plot of observed and predicted values")


def _coverage(contents: ReportContents) -> float:
    assert contents.predictive is not None
    lower, upper = np.quantile(contents.predictive, [0.05, 0.95], axis=0)
    return float(np.mean((lower <= contents.data.y) & (contents.data.y <= upper)))


def _check_sentence(contents: ReportContents) -> str:
    if contents.probability is not None:
        return (
            f"Do the predicted probabilities of {contents.data.target} match how often it occurred? The rows are those "
            "the model was fitted to, so this is a check of fit, not of skill."
        )
    if contents.predictive is None:
        return "This model does not draw new data, so there is nothing to compare the data with."
    coverage = _coverage(contents)
    judged = "about as many as it should be" if coverage >= 0.85 else "too few: the model is too sure of itself"
    return (
        f"Would data drawn from the fitted model look like the data? {coverage:.0%} of the 90% predictive intervals "
        f"hold the observed {contents.data.target}, {judged}. The rows are those the model was fitted to, so this is a "
        "check of fit, not of skill; the next section judges skill."
    )


def _loo_image(contents: ReportContents) -> Image | None:
    if contents.loo is None:
        return None
    caption = (
        "Pareto k says how much a single row moves the posterior; below the dashed line the result can be trusted."
    )
    k = contents.loo.pareto_k
    return embed(figures.loo_diagnostics(k), alternatives.leave_one_out(k), caption, label="Plot of Pareto k")


def _loo_sentence(contents: ReportContents) -> str:
    loo = contents.loo
    if loo is None:
        return f"There is no leave-one-out result: {contents.loo_reason}"
    told = f"How well is each row predicted from all the others? {loo.n} rows were left out in turn. "
    if loo.high == 0:
        return told + "All Pareto k are below 0.7, so the result can be trusted."
    return (
        f"{told}{loo.high} of them have a Pareto k above 0.7: their densities cannot be computed without a new fit, so "
        "the numbers of this section and the skill at the top are not reliable, and models must not be compared by "
        "them. Single rows sway the posterior; look at the rows above the dashed line."
    )
