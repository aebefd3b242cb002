"""The explained rows of a report: a table of all numbers, and the waterfall of each row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from markupsafe import Markup

from kpp.explanations import Explanation
from kpp.plots.toolkit import importance_order, mean_absolute
from kpp_study.report.drawings.bars import Scale, step
from kpp_study.report.numbers import NOTHING, interval, number, signed

#: The largest number of rows in the table. A row of ten features and its waterfall take about 4 KB.
MAX_ROWS = 200
#: The probability of all intervals of the report.
PROBABILITY = 0.9
#: The latent function of a label in words, by its link.
LATENT = {"logit": "log-odds", "probit": "latent function"}
_NUMBER = re.compile(r"[-\u2212+]?[\d,]+(\.\d+)?([eE][-\u2212+]?\d+)?")


@dataclass(frozen=True)
class Predicted:
    """What is predicted for each explained row in addition to the prediction that is explained."""

    heading: str  # of its column
    texts: Sequence[str]  # one for each explained row
    of_prediction: str  # the heading of the column of the predictions that are explained
    sentence: str  # how both differ

    @classmethod
    def observation(cls, draws: np.ndarray) -> Predicted:
        """Return the intervals of a new observation from its draws, (s, p)."""
        tails = (1 - PROBABILITY) / 2, (1 + PROBABILITY) / 2
        bounds = np.quantile(draws, tails, axis=0).T
        sentence = (
            f"Below the mean prediction is the {PROBABILITY:.0%} interval of the mean. An observed value also has "
            "noise, so compare it with the interval of a new observation."
        )
        heading = f"{PROBABILITY:.0%} interval of a new observation"
        return cls(heading, [interval(pair) for pair in bounds], "mean prediction", sentence)

    @classmethod
    def probability(cls, values: np.ndarray, unit: str) -> Predicted:
        """Return probabilities, (p,), of a label that is explained in another unit."""
        sentence = f"Predictions and contributions are {unit}; each row also has its probability."
        return cls("probability", [f"{value:.3f}" for value in values], unit, sentence)


@dataclass(frozen=True)
class Step:
    """One line of a waterfall: its label, the contribution and its interval as text, and its picture."""

    label: str
    size: str
    interval: str
    picture: Markup


@dataclass(frozen=True)
class Waterfall:
    """The way from the base value to one prediction."""

    base: str
    steps: Sequence[Step]  # the largest contribution first
    strongest: str  # the two largest contributions


@dataclass(frozen=True)
class Cell:
    """One feature of a row: its value, its contribution and the interval of the contribution, as text."""

    value: str
    size: str
    interval: str


@dataclass(frozen=True)
class Row:
    """One explained prediction, as text."""

    key: int  # unique in the table, for the identifiers in the page
    name: str
    output: str  # empty without outputs
    prediction: str
    interval: str  # empty if it is not known
    further: str  # what else is predicted for the row; empty if nothing is
    observed: str  # empty if nothing was
    cells: Sequence[Cell]
    waterfall: Waterfall | None


@dataclass(frozen=True)
class RowTable:
    """The table of explained rows."""

    features: Sequence[tuple[str, bool]]  # their names, and whether they are numbers
    rows: Sequence[Row]
    waterfalls: Sequence[Row]  # the rows that have one, in the order of their predictions
    total: int  # of the explained rows, of which the table may hold a part
    shown: int
    num_features: int
    has_outputs: bool
    prediction: str  # the heading of the column of predictions
    further: str  # the heading of the column of what else is predicted; empty if there is none
    about_further: str  # how it differs from the prediction
    observed: str  # the kind of the column of observed values, "number" or "text"; empty if there is none
    has_intervals: bool
    has_standard_errors: bool  # of contributions that are estimates


def row_table(
    explanation: Explanation,
    waterfalls: Sequence[int],
    observed: Sequence[str] | None,
    *,
    max_features: int,
    predicted: Predicted | None = None,
    progress: Callable[[Sequence[int]], Iterable[int]] = list,
) -> RowTable:
    """Write the explained rows as text, at most `MAX_ROWS` predictions.

    If there are more, those with a waterfall are kept, and the others are spread evenly over the order of predictions.
    `waterfalls` are the positions of the rows that get one; `progress` wraps the positions of all rows of the table.
    """
    outputs = explanation.output_names or ("",)
    most = max(1, MAX_ROWS // len(outputs))
    order = by_prediction(explanation)
    drawn = spread(list(waterfalls), most)
    kept = set(drawn)
    rest = [position for position in order if position not in kept]
    positions = sorted([*drawn, *spread(rest, most - len(drawn))])
    columns = importance_order(mean_absolute(explanation.values))[:max_features].tolist()
    writer = _Writer(Explanation(explanation.isel(instance=positions).dataset.compute()), columns, max_features)
    rows: list[Row] = []
    for index, position in enumerate(progress(positions)):
        seen = "" if observed is None else observed[position]
        further = "" if predicted is None else predicted.texts[position]
        rows.extend(writer.rows(index, seen, further, position in kept))
    place = {position: index for index, position in enumerate(order)}
    with_waterfall = [row for row in rows if row.waterfall is not None]
    return RowTable(
        writer.features,
        rows,
        sorted(with_waterfall, key=lambda row: place[positions[row.key // len(outputs)]]),
        total=len(explanation),
        shown=len(positions),
        num_features=len(explanation.feature_names),
        has_outputs=explanation.output_names is not None,
        prediction="prediction" if predicted is None else predicted.of_prediction,
        further="" if predicted is None else predicted.heading,
        about_further="" if predicted is None else predicted.sentence,
        observed=_kind(observed),
        has_intervals=writer.bounds is not None,
        has_standard_errors=explanation.standard_errors is not None,
    )


def by_prediction(explanation: Explanation) -> list[int]:
    """Return the positions of the rows in the order of their mean predictions, of the last output if there are some."""
    predictions = explanation.predictions
    mean = predictions.mean([dim for dim in ("chain", "draw") if dim in predictions.dims])
    ranked = mean.isel(output=-1) if "output" in mean.dims else mean
    return np.argsort(ranked.values, kind="stable").tolist()


def spread(positions: list[int], most: int) -> list[int]:
    """Return at most `most` of the positions, evenly spaced."""
    if len(positions) <= most:
        return positions
    return [positions[place] for place in np.linspace(0, len(positions) - 1, most).round().astype(int)]


class _Writer:
    """Writes the rows of an explanation in memory, with the features at some positions as columns of the table."""

    def __init__(self, explanation: Explanation, columns: list[int], max_features: int) -> None:
        mean = explanation.mean().dataset
        self.outputs = explanation.output_names or ("",)
        self.values, self.predictions = _arranged(mean["values"]), _arranged(mean["predictions"])
        self.base = _arranged(mean["base_values"].broadcast_like(mean["predictions"]))
        is_uncertain = explanation.has_draws or explanation.variance is not None
        self.bounds = _arranged(explanation.interval(PROBABILITY)) if is_uncertain else None
        self.prediction_bounds = _prediction_bounds(explanation)
        self.names = explanation.feature_names
        self.instances = [_row_name(name) for name in mean.coords["instance"].values]
        self.data = [_as_text(column) for column in explanation.schema.decode(mean["data"].values).values()]
        self.columns = columns
        self.max_features = max_features
        levels = explanation.schema.levels
        self.features = [(self.names[j], self.names[j] not in levels) for j in self.columns]

    def rows(self, index: int, observed: str, further: str, has_waterfall: bool) -> Iterator[Row]:
        """Yield the predictions of one explained row, one for each output."""
        for place, output in enumerate(self.outputs):
            bounds = self.prediction_bounds
            yield Row(
                index * len(self.outputs) + place,
                self.instances[index],
                output,
                number(self.predictions[index, place]),
                "" if bounds is None else interval(bounds[index, place]),
                further,
                observed,
                [self._cell(index, place, j) for j in self.columns],
                self._waterfall(index, place) if has_waterfall else None,
            )

    def _cell(self, index: int, place: int, j: int) -> Cell:
        return Cell(self.data[j][index], signed(self.values[index, place, j]), self._interval(index, place, j))

    def _interval(self, index: int, place: int, j: int) -> str:
        return "" if self.bounds is None else interval(self.bounds[index, place, j])

    def _waterfall(self, index: int, place: int) -> Waterfall:
        """Draw the largest contributions one by one, and the others as one step."""
        values, base = self.values[index, place], float(self.base[index, place])
        order = np.argsort(-np.abs(values), kind="stable").tolist()
        count = len(order) if len(order) <= self.max_features else self.max_features - 1
        shown, rest = order[:count], order[count:]
        labels = [self._label(index, j) for j in shown]
        sizes = [float(values[j]) for j in shown]
        if len(rest):
            labels.append(f"{len(rest)} other features")
            sizes.append(float(values[rest].sum()))
        gap = float(self.predictions[index, place]) - base - float(values.sum())
        if abs(gap) > 1e-6 * max(1.0, abs(base), float(np.abs(values).max())):  # of an explainer that is not additive
            labels.append("not attributed to features")
            sizes.append(gap)
        bounds = [None if self.bounds is None else self.bounds[index, place, j].tolist() for j in shown]
        bounds += [None] * (len(sizes) - len(bounds))
        strongest = ", ".join(f"{self.names[j]} ({signed(values[j])})" for j in order[:2])
        return Waterfall(number(base), list(_steps(labels, sizes, bounds, base)), strongest)

    def _label(self, index: int, j: int) -> str:
        value = self.data[j][index]
        return self.names[j] if value == NOTHING else f"{self.names[j]} = {value}"


def _steps(
    labels: Sequence[str], sizes: Sequence[float], bounds: Sequence[list[float] | None], base: float
) -> Iterator[Step]:
    ends = base + np.concatenate([[0.0], np.cumsum(sizes)])
    whiskers = [start + bound for start, pair in zip(ends, bounds, strict=False) for bound in pair or ()]
    scale = Scale([*ends, *whiskers])
    for label, size, start, pair in zip(labels, sizes, ends, bounds, strict=False):
        yield Step(label, signed(size), "" if pair is None else interval(pair), step(scale, start, size, pair, base))


def _arranged(array: xr.DataArray) -> np.ndarray:
    """Return the numbers by instance and output, and by feature and bound if there are such axes."""
    each = array if "output" in array.dims else array.expand_dims("output")
    return each.transpose("instance", "output", "feature", "bound", missing_dims="ignore").values.astype(float)


def _prediction_bounds(explanation: Explanation) -> np.ndarray | None:
    """Return the bounds of the intervals of predictions, (instance, output, 2); None if they are not known.

    Under a Gaussian law of the contributions, the prediction changes by their sum, whose variance needs the covariance.
    """
    covariance = explanation.covariance
    if covariance is None and (explanation.variance is not None or not explanation.has_draws):
        return None
    predictions = explanation.predictions  # explained by one feature, from the base value 0
    alone = predictions.expand_dims(feature=["prediction"]).transpose(*explanation.values.dims)
    law = xr.Dataset({"values": alone, "base_values": 0.0, "predictions": predictions, "data": alone})
    if covariance is not None:
        if "instance_other" in covariance.dims:
            own = xr.DataArray(np.arange(len(explanation)), dims="instance")
            covariance = covariance.isel(instance=own, instance_other=own).drop_vars("instance_other", errors="ignore")
        total = covariance.sum(("feature", "feature_other")).clip(min=0.0)
        law["variance"] = total.expand_dims(feature=["prediction"]).transpose(*law["values"].dims)
    return _arranged(Explanation(law).interval(PROBABILITY).isel(feature=0))


def _row_name(name: Any) -> str:
    return f"Row {name}" if isinstance(name, (int, np.integer)) else str(name)


def _kind(observed: Sequence[str] | None) -> str:
    if observed is None:
        return ""
    return "number" if all(_NUMBER.fullmatch(text) for text in observed) else "text"


def _as_text(column: np.ndarray) -> list[str]:
    """Write the values of a feature; NaN is the value of a feature that stands for several columns."""
    return [number(float(value)) if isinstance(value, (float, np.floating)) else str(value) for value in column]
