"""The report of a study: one HTML file that contains its figures and needs neither a network nor JavaScript."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jinja2
import numpy as np

from kpp.explanations import Explanation
from kpp.plots import credible_interval
from kpp.report import figures
from kpp.report.contents import ReportContents
from kpp.report.convergence import Convergence, assess
from kpp.report.images import Image, embed, figure_style, fit_margins

__all__ = ["render_report"]

_SECTIONS = (
    ("data", "Data"),
    ("model", "Model"),
    ("posterior", "Priors and posteriors"),
    ("convergence", "Convergence"),
    ("check", "Predictive check"),
    ("loo", "Leave-one-out"),
    ("explanation", "Explanation"),
    ("instances", "Single predictions"),
    ("made", "How it was made"),
)
_PROBABILITY = 0.9
_MAX_FEATURES = 15
_OPEN_WATERFALLS = 2


def render_report(contents: ReportContents, *, progress: Callable[[Sequence[int]], Any] = list) -> str:
    """Write a report as HTML.

    Args:
        contents: The contents. Any text in it is escaped.
        progress: Wraps the iterable of the positions of the waterfall plots, the slow part, to show a progress bar.

    Returns:
        The text of the HTML file.
    """
    convergence = assess(contents.posterior, contents.sample_stats, markov_chain=contents.markov_chain)
    importance = _importance(contents.explanation)
    with figure_style():
        page: dict[str, Any] = {
            "target_image": _target_image(contents),
            "prior_image": _prior_image(contents),
            "check_image": _check_image(contents),
            "loo_image": _loo_image(contents),
            "global_images": _global_images(contents),
            "waterfalls": [
                _waterfall(contents, position, index < _OPEN_WATERFALLS)
                for index, position in enumerate(progress(contents.waterfalls))
            ],
        }
    model_name, model_text = contents.model
    page |= {
        "title": contents.title,
        "created": contents.created,
        "sections": _SECTIONS,
        "glance": _glance(contents, convergence, importance),
        "data": contents.data,
        "model_sentence": f"The model is {model_name}. A distribution in place of a number is a prior.",
        "model_text": model_text,
        "units": contents.units,
        "convergence": convergence,
        "inference_sentence": contents.inference,
        "check_sentence": _check_sentence(contents),
        "loo": contents.loo,
        "loo_sentence": _loo_sentence(contents),
        "explanation_sentence": contents.explained,
        "explained": len(contents.explanation),
        "value_unit": contents.value_unit,
        "importance": importance,
        "importance_has_interval": contents.explanation.has_draws,
        "provenance": list(contents.provenance.items()),
        "versions": contents.versions,
        "source": contents.source,
    }
    return _environment().get_template("template.html.j2").render(page)


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kpp.report", "."), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"number": _number, "short": _short, "fixed": _fixed}
    return environment


def _number(value: float, digits: int = 4) -> str:
    """Write a number with `digits` significant digits, without an exponent if possible."""
    if not np.isfinite(value):
        return "–"
    if value == 0 or 1e-3 <= abs(value) < 10**digits:
        return f"{value:.{digits}g}"
    return f"{value:,.0f}" if 1 <= abs(value) < 1e7 else f"{value:.{digits - 1}e}"


def _short(value: float) -> str:
    return _number(value, 3)


def _fixed(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}" if np.isfinite(value) else "–"


def _importance(explanation: Explanation) -> list[dict[str, Any]]:
    """Return the mean absolute contribution of each feature, the largest first."""
    values = explanation.values
    absolute = abs(values).mean([dim for dim in values.dims if dim in ("instance", "output")])
    mean = absolute.mean(("chain", "draw")) if explanation.has_draws else absolute
    bounds = credible_interval(absolute, _PROBABILITY).values if explanation.has_draws else None
    rows = []
    for index in np.argsort(-mean.values, kind="stable"):
        row: dict[str, Any] = {"name": explanation.feature_names[index], "mean": float(mean.values[index])}
        if bounds is not None:
            row |= {"lower": float(bounds[index, 0]), "upper": float(bounds[index, 1])}
        rows.append(row)
    return rows


def _glance(
    contents: ReportContents, convergence: Convergence, importance: list[dict[str, Any]]
) -> list[dict[str, str]]:
    chains = f"{convergence.num_chains} × {convergence.num_draws} draws"
    if np.isfinite(convergence.max_rhat):
        chains += f"; R-hat up to {convergence.max_rhat:.3f}, ESS from {convergence.min_ess:.0f}"
    items = [
        {
            "label": "Data",
            "value": contents.data.counted,
            "note": f"{len(contents.data.columns)} features; {contents.data.file}",
        },
        {"label": "Convergence", "value": convergence.verdict, "note": chains},
    ]
    if contents.predictive is not None and contents.probability is None:
        items.append(
            {
                "label": "Variance explained (R²)",
                "value": f"{_r_squared(contents):.2f}",
                "note": "on the rows the model saw",
            }
        )
    if contents.probability is not None:
        right = np.mean((contents.probability > 0.5) == (contents.data.y > 0.5))
        items.append({"label": "Labels right", "value": f"{right:.0%}", "note": "of the rows the model saw"})
    if contents.loo is not None:
        items.append(
            {"label": "Leave-one-out elpd", "value": f"{contents.loo.elpd:,.1f}", "note": f"± {contents.loo.se:.1f}"}
        )
    items.append(
        {
            "label": "Most important",
            "value": importance[0]["name"],
            "note": f"moves a prediction by {_number(importance[0]['mean'])} on average",
        }
    )
    return items


def _r_squared(contents: ReportContents) -> float:
    assert contents.predictive is not None
    residual = contents.data.y - contents.predictive.mean(axis=0)
    return float(1.0 - residual.var() / contents.data.y.var())


def _target_image(contents: ReportContents) -> Image:
    y, name = contents.data.y, contents.data.target
    alt = (
        f"Histogram of {name}: {y.size} values from {_number(y.min())} to {_number(y.max())}, mean {_number(y.mean())}."
    )
    return embed(figures.target_histogram(y, name), alt, f"The distribution of {name}.")


def _prior_image(contents: ReportContents) -> Image | None:
    figure = None if contents.prior is None else figures.priors_and_posteriors(contents.prior, contents.posterior)
    if figure is None:
        return None
    names = ", ".join(map(str, contents.posterior.data_vars))
    return embed(figure, f"Prior and posterior distributions of {names}; the table under Convergence has the numbers.")


def _check_image(contents: ReportContents) -> Image | None:
    data = contents.data
    if contents.probability is not None:
        figure = figures.calibration(data.y, contents.probability, data.target)
        return embed(figure, f"Predicted probabilities of {data.target} against how often it was 1.")
    if contents.predictive is None:
        return None
    figure = figures.predictive_check(data.y, contents.predictive, data.target)
    alt = (
        f"Left: the distribution of {data.target} over that of data drawn from the model. Right: observed against "
        f"predicted {data.target}, row by row; {_coverage(contents):.0%} of the 90% intervals hold the observed value."
    )
    caption = (
        "Left: if the model fits, the grey histogram looks like one of the blue ones. Right: points on the dashed line "
        "are predicted perfectly."
    )
    return embed(figure, alt, caption)


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
    alt = f"Pareto k of each row; {contents.loo.high} of {contents.loo.n} are above 0.7."
    caption = (
        "Pareto k says how much a single row moves the posterior; below the dashed line the result can be trusted."
    )
    return embed(figures.loo_diagnostics(contents.loo.pareto_k), alt, caption)


def _loo_sentence(contents: ReportContents) -> str:
    loo = contents.loo
    if loo is None:
        return f"There is no leave-one-out result: {contents.loo_reason}"
    told = f"How well is each row predicted from all the others? {loo.n} rows were left out in turn. "
    if loo.high == 0:
        return told + "All Pareto k are below 0.7, so the result can be trusted."
    return (
        told
        + f"{loo.high} of them have a Pareto k above 0.7, so take the result with care: single rows sway the posterior."
    )


def _global_images(contents: ReportContents) -> list[dict[str, Any]]:
    """Return a beeswarm plot and a bar plot for each output."""
    explanation = contents.explanation
    top = ", ".join(row["name"] for row in _importance(explanation)[:3])
    groups = []
    for output in explanation.output_names or (None,):
        beeswarm = _plot(contents, "beeswarm", xlabel=f"contribution ({contents.value_unit})", output=output)
        bar = _plot(contents, "bar", xlabel=f"mean absolute contribution ({contents.value_unit})", output=output)
        images = [
            embed(
                beeswarm,
                f"Beeswarm: the contribution of every feature to every explained prediction; largest for {top}.",
                "One dot for each explained row, at its mean contribution; the colour is the value of the feature.",
            ),
            embed(
                bar,
                f"Bars: mean absolute contribution of each feature with 90% intervals; largest for {top}.",
                "How much each feature moves predictions on average. The line on a bar is the 90% interval of its "
                "posterior.",
            ),
        ]
        groups.append({"name": output, "images": images})
    return groups


def _waterfall(contents: ReportContents, position: int, is_open: bool) -> dict[str, Any]:
    explanation = contents.explanation.mean()[position]
    row = explanation.dataset.coords["instance"].values[0]
    prediction = " / ".join(_number(float(value)) for value in np.atleast_1d(explanation.predictions.values[0]))
    strongest = _strongest(explanation)
    images = [
        embed(
            _plot(
                contents, "waterfall", xlabel=f"prediction ({contents.value_unit})", instance=position, output=output
            ),
            f"Waterfall of row {row}: from the base value to the prediction {prediction}, most by {strongest}.",
            "The line on a bar is the 90% interval of its contribution." if contents.explanation.has_draws else "",
        )
        for output in explanation.output_names or (None,)
    ]
    return {
        "row": row,
        "prediction": prediction,
        "observed": None if contents.observed is None else contents.observed[position],
        "strongest": strongest,
        "images": images,
        "open": is_open,
    }


def _strongest(explanation: Explanation) -> str:
    """Name the two features with the largest contributions to a prediction, and their contributions."""
    values = explanation.values.values[0]
    total = np.abs(values).reshape(len(values), -1).max(axis=1)
    told = []
    for index in np.argsort(-total, kind="stable")[:2]:
        size = np.atleast_1d(values[index])
        told.append(f"{explanation.feature_names[index]} ({size[np.argmax(np.abs(size))]:+.3g})")
    return ", ".join(told)


def _plot(contents: ReportContents, kind: str, *, xlabel: str, **options: Any) -> Any:
    """Draw one of the explanation's plots on a figure outside pyplot, which would keep it in memory."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = min(_MAX_FEATURES, len(contents.explanation.feature_names))
    is_one_of_many = kind == "waterfall"
    with mpl.rc_context({"figure.constrained_layout.use": not is_one_of_many}):
        figure = Figure(figsize=(7.8, 1.4 + 0.36 * rows))
    axis = figure.add_subplot()
    getattr(contents.explanation.plot, kind)(ax=axis, max_features=_MAX_FEATURES, **options)
    axis.set_xlabel(xlabel)
    if is_one_of_many:
        fit_margins(figure, axis)
    return figure
