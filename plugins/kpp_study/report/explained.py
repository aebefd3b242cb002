"""The part of a report that shows an explanation: what predictions rest on, and single predictions."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special
import xarray as xr
from markupsafe import Markup

from kpp.explanations import Explanation
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
_NOISE_PROBABILITY = 0.95
_MOST = 10  # names in a sentence
_FEWEST_DRAWS = 20  # for a quantile of this probability


@dataclass(frozen=True)
class Importance:
    """The importance of a feature.

    Attributes:
        name: The feature.
        mean: Its mean absolute contribution.
        bounds: The interval of it, or None.
        noise: What it would be at most without any effect (`_noise_levels`), or None.
        certain: The share of rows whose contribution has an interval without 0, or None without intervals.
        picture: A bar with its interval.
    """

    name: str
    mean: float
    bounds: tuple[float, float] | None
    noise: float | None
    certain: float | None
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
    absolute = mean_absolute(values)
    means = (absolute.mean(_DRAWS) if explanation.has_draws else absolute).values
    bounds = credible_interval(absolute, PROBABILITY).values if explanation.has_draws else None
    noise = _noise_levels(explanation, rows)
    certain = None
    if explanation.has_draws or explanation.variance is not None:
        each = explanation.interval(PROBABILITY).transpose("bound", ...)
        certain = ((each[0] > 0) | (each[1] < 0)).mean(rows).values
    largest = max(means.max(), 0.0 if bounds is None else bounds.max())
    scale = Scale([0.0, 1.02 * float(largest)], margin=0.0)
    found = []
    for j in importance_order(absolute):
        pair = None if bounds is None else (float(bounds[j, 0]), float(bounds[j, 1]))
        level, share = (None if each is None else float(each[j]) for each in (noise, certain))
        picture = bar(scale, float(means[j]), pair, level)
        found.append(Importance(explanation.feature_names[j], float(means[j]), pair, level, share, picture))
    return found


def _noise_levels(explanation: Explanation, rows: list[str]) -> np.ndarray | None:
    r"""Return for each feature the mean absolute contribution that one without effect exceeds in 5% of data sets.

    Its posterior means are then errors, of at most the posterior spread. So for each draw the deviations d from the
    means stand for the means, and contributions are spread around them with the posterior standard deviations
    :math:`\sigma`. The level is the 95% quantile over draws of the mean over rows of

    .. math:: E|d + \sigma Z| = d\, \mathrm{erf}(d / \sigma\sqrt{2}) + \sigma \sqrt{2 / \pi}\, e^{-d^2 / 2 \sigma^2}.

    If the draws of rows are independent, which their errors are not, all rows have the deviation of the same quantile.
    """
    values, attrs = explanation.values, explanation.attrs
    if not explanation.has_draws or values.sizes["chain"] * values.sizes["draw"] < _FEWEST_DRAWS:
        return None
    if attrs.get("uncertainty") == "hyperparameters only":
        return None
    spread = values.std(_DRAWS)
    if attrs.get("instances_drawn") == "independently":
        shift = scipy.special.ndtri((1 + _NOISE_PROBABILITY) / 2) * spread
        return _folded_mean(shift, spread).mean(rows).values
    levels = _folded_mean(values - values.mean(_DRAWS), spread).mean(rows).compute()
    return levels.quantile(_NOISE_PROBABILITY, _DRAWS).values


def _folded_mean(shift: xr.DataArray, spread: xr.DataArray) -> xr.DataArray:
    """Return the mean of the absolute value of a Gaussian number."""
    ratio = shift / spread.where(spread > 0, 1.0) / np.sqrt(2.0)
    return shift * scipy.special.erf(ratio) + spread * np.sqrt(2.0 / np.pi) * np.exp(-(ratio**2))


def _about_noise(found: Sequence[Importance]) -> str:
    """Say what the bars can and cannot show."""
    told = (
        "A mean absolute contribution cannot be negative, so its interval never reaches 0, not even for a feature that "
        "is pure noise."
    )
    if any(feature.noise is None for feature in found):
        return f"{told} Where few rows have a certain sign, the data do not show that the feature matters."
    below = [short_name(each.name) for each in found if each.noise is not None and each.mean <= each.noise]
    told += (
        f" Compare it with the noise level: without any effect, the feature would stay below it in "
        f"{_NOISE_PROBABILITY:.0%} of data sets."
    )
    if not below:
        return f"{told} All features are above."
    return f"{told} Not above their noise level, so that the data do not show that they matter: {listed(below, _MOST)}."


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
    """Return what the template of this part needs; call it inside `figure_style`.

    Args:
        explanation: The explanation.
        sentence: What was explained and how.
        value_unit: The unit of the contributions, in words.
        waterfalls: The positions of the rows that get a waterfall.
        observed: For each explained row what was observed, as text.
        predicted: For each explained row what else is predicted.
        progress: Wraps the positions of the rows of the table.

    Returns:
        The variables of the template.
    """
    table = row_table(
        explanation, waterfalls, observed, max_features=_MAX_FEATURES, predicted=predicted, progress=progress
    )
    return {
        "explanation_sentence": sentence,
        "value_unit": value_unit,
        "groups": [_group(explanation, position, name, value_unit) for position, name in _outputs(explanation)],
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
        "about_noise": _about_noise(found) if explanation.has_draws else "",
        "beeswarm": _beeswarm(explanation, output, name, value_unit),
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
