"""The part of a report that shows an explanation: what predictions rest on, and single predictions."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from kpp.explanations import Explanation
from kpp.explanations.toolkit import drawn_independently
from kpp.foundation.wording import listed
from kpp.plots import credible_interval
from kpp.plots.toolkit import importance_order, mean_absolute
from kpp_study.report.drawings import alternatives
from kpp_study.report.drawings.bars import Scale, bar
from kpp_study.report.drawings.images import Image, embed
from kpp_study.report.numbers import interval, short_name
from kpp_study.report.rows import PROBABILITY, Predicted, row_table

_MAX_FEATURES = 15
_DRAWS = ("chain", "draw")
_MOST = 10  # names in a sentence
_FEWEST_DRAWS = 20  # for the lower end of an interval of probability 0.9


@dataclass(frozen=True)
class Importance:
    """The importance of a feature."""

    name: str
    mean: float  # its mean absolute contribution
    bounds: tuple[float, float] | None
    certain: float | None  # the share of rows whose contribution has an interval without 0; None without intervals
    picture: Markup

    @property
    def interval(self) -> str:
        """The interval as text."""
        return "" if self.bounds is None else interval(self.bounds)


def importance(explanation: Explanation, output: int | None = None) -> list[Importance]:
    """Return the mean absolute contribution of each feature, the largest first.

    Without `output` it is the mean over all outputs. It has an interval if there are draws.
    """
    explanation = explanation if output is None else explanation.isel(output=output)
    values = explanation.values
    rows = [dim for dim in values.dims if dim in ("instance", "output")]
    absolute = mean_absolute(values, independent=drawn_independently(explanation.dataset))
    means = (absolute.mean(_DRAWS) if explanation.has_draws else absolute).values
    bounds = credible_interval(absolute, PROBABILITY).values if explanation.has_draws else None
    certain = None
    if explanation.has_draws or explanation.variance is not None:
        each = explanation.interval(PROBABILITY).transpose("bound", ...)
        certain = ((each[0] > 0) | (each[1] < 0)).mean(rows).values
    largest = max(means.max(), 0.0 if bounds is None else bounds.max())
    scale = Scale([0.0, 1.02 * float(largest)], margin=0.0)
    found = []
    for j in importance_order(absolute):
        pair = None if bounds is None else (float(bounds[j, 0]), float(bounds[j, 1]))
        share = None if certain is None else float(certain[j])
        picture = bar(scale, float(means[j]), pair)
        found.append(Importance(explanation.feature_names[j], float(means[j]), pair, share, picture))
    return found


def _about_zero(found: Sequence[Importance], explanation: Explanation) -> str:
    """Say which bars reach 0, and what that means."""
    draws = explanation.values.sizes["chain"] * explanation.values.sizes["draw"]
    if draws < _FEWEST_DRAWS or explanation.attrs.get("uncertainty") == "hyperparameters only":
        return (
            "The intervals hold too little of the uncertainty to reach 0, even for a feature that is pure noise. Where "
            "few rows have a certain sign, the data do not show that the feature matters."
        )
    told = "The bias of absolute values is removed, so the interval of a feature that is pure noise reaches 0."
    below = [short_name(each.name) for each in found if each.bounds is not None and each.bounds[0] <= 0]
    if not below:
        return f"{told} No interval does."
    return f"{told} It does so, and the data do not show that the feature matters, for {listed(below, _MOST)}."


def explained_part(
    explanation: Explanation,
    *,
    sentence: str,
    value_unit: str,
    waterfalls: Sequence[int],
    observed: Sequence[str] | None = None,
    predicted: Predicted | None = None,
    progress: Callable[[Sequence[int]], Iterable[int]] = list,
) -> dict[str, Any]:
    """Return the variables of the template of this part; call it inside `figure_style`.

    `waterfalls` are the positions of the rows that get one. For each explained row there may be what was observed, as
    text, and what else is predicted; `progress` wraps the positions of the rows of the table.
    """
    table = row_table(
        explanation, waterfalls, observed, max_features=_MAX_FEATURES, predicted=predicted, progress=progress
    )
    names = explanation.output_names
    outputs: list[tuple[int | None, str]] = [(None, "")] if names is None else list(enumerate(names))
    return {
        "explanation_sentence": sentence,
        "value_unit": value_unit,
        "groups": [_group(explanation, position, name, value_unit) for position, name in outputs],
        "importance_has_interval": explanation.has_draws,
        "table": table,
        "probability": f"{PROBABILITY:.0%}",
    }


def _group(explanation: Explanation, output: int | None, name: str, value_unit: str) -> dict[str, Any]:
    found = importance(explanation, output)
    return {
        "name": name,
        "importance": found,
        "has_signs": any(feature.certain is not None for feature in found),
        "about_zero": _about_zero(found, explanation) if explanation.has_draws else "",
        "beeswarm": _beeswarm(explanation, output, name, value_unit),
    }


def _beeswarm(explanation: Explanation, output: int | None, name: str, value_unit: str) -> Image:
    from matplotlib.figure import Figure

    rows = min(_MAX_FEATURES, len(explanation.feature_names))
    figure = Figure(figsize=(7.2, 1.4 + 0.36 * rows))
    axis = explanation.plot.beeswarm(ax=figure.add_subplot(), max_features=_MAX_FEATURES, output=output)
    axis.set_xlabel(textwrap.fill(f"contribution ({short_name(value_unit)})", 50))
    caption = "One dot for each explained row, at its mean contribution; the color is the value of the feature."
    text = alternatives.beeswarm(explanation, output)
    return embed(figure, text, caption, label=f"Beeswarm plot {short_name(name)}".strip())
