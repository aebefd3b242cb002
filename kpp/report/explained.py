"""The part of a report that shows an explanation: what predictions rest on, and single predictions."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from kpp.explanations import Explanation
from kpp.plots import credible_interval
from kpp.plots.importance import importance_order, mean_absolute
from kpp.report import alternatives
from kpp.report.bars import Scale, bar
from kpp.report.images import Image, embed
from kpp.report.numbers import interval, short_name
from kpp.report.rows import PROBABILITY, row_table

__all__ = ["Importance", "explained_part", "importance"]

_MAX_FEATURES = 15


@dataclass(frozen=True)
class Importance:
    """The mean absolute contribution of a feature, its interval or None, and the picture of both."""

    name: str
    mean: float
    bounds: tuple[float, float] | None
    picture: Markup

    @property
    def interval(self) -> str:
        """The interval as text."""
        return "" if self.bounds is None else interval(self.bounds)


def importance(explanation: Explanation, output: int | None = None) -> list[Importance]:
    """Return the mean absolute contribution of each feature, the largest first.

    Without `output` it is the mean over all outputs. It has an interval if there are draws.
    """
    values = explanation.values if output is None else explanation.values.isel(output=output)
    absolute = mean_absolute(values)
    means = (absolute.mean(("chain", "draw")) if explanation.has_draws else absolute).values
    bounds = credible_interval(absolute, PROBABILITY).values if explanation.has_draws else None
    largest = max(means.max(), 0.0 if bounds is None else bounds.max())
    scale = Scale([0.0, 1.02 * float(largest)], margin=0.0)
    found = []
    for j in importance_order(absolute):
        pair = None if bounds is None else (float(bounds[j, 0]), float(bounds[j, 1]))
        found.append(Importance(explanation.feature_names[j], float(means[j]), pair, bar(scale, float(means[j]), pair)))
    return found


def explained_part(
    explanation: Explanation,
    *,
    sentence: str,
    value_unit: str,
    waterfalls: Sequence[int],
    observed: Sequence[str] | None = None,
    progress: Callable[[Sequence[int]], Iterable[int]] = list,
) -> dict[str, Any]:
    """Return what the template of this part needs; call it inside `figure_style`.

    Args:
        explanation: The explanation.
        sentence: What was explained and how.
        value_unit: The unit of the contributions, in words.
        waterfalls: The positions of the rows that get a waterfall.
        observed: For each explained row what was observed, as text.
        progress: Wraps the positions of the rows of the table.

    Returns:
        The variables of the template.
    """
    table = row_table(explanation, waterfalls, observed, max_features=_MAX_FEATURES, progress=progress)
    return {
        "explanation_sentence": sentence,
        "value_unit": value_unit,
        "groups": [
            {
                "name": name,
                "importance": importance(explanation, position),
                "beeswarm": _beeswarm(explanation, position, name, value_unit),
            }
            for position, name in _outputs(explanation)
        ],
        "importance_has_interval": explanation.has_draws,
        "table": table,
        "probability": f"{PROBABILITY:.0%}",
    }


def _outputs(explanation: Explanation) -> list[tuple[int | None, str]]:
    names = explanation.output_names
    return [(None, "")] if names is None else list(enumerate(names))


def _beeswarm(explanation: Explanation, output: int | None, name: str, value_unit: str) -> Image:
    from matplotlib.figure import Figure

    rows = min(_MAX_FEATURES, len(explanation.feature_names))
    figure = Figure(figsize=(7.2, 1.4 + 0.36 * rows))
    axis = explanation.plot.beeswarm(ax=figure.add_subplot(), max_features=_MAX_FEATURES, output=output)
    axis.set_xlabel(textwrap.fill(f"contribution ({short_name(value_unit)})", 50))
    caption = "One dot for each explained row, at its mean contribution; the color is the value of the feature."
    text = alternatives.beeswarm(explanation, output)
    return embed(figure, text, caption, label=f"Beeswarm plot {short_name(name)}".strip())
