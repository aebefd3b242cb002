"""The treatment among the columns of a fit: its values, their labels and units, and how it depends on the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from kpp.data.tables import Scales, Schema, check_columns, read_points
from kpp.inference import Fit
from kpp_models.treatments.overlap import Assignment, effective_size

# The values of a treatment of numbers by default: this many between the quantiles of 5 and 95 percent.
_NUM_VALUES = 20


def refuse_constant(values: Collection[Any], name: str) -> None:
    """Raise ValueError if a treatment has one value in all rows."""
    if len(np.unique(np.asarray(values))) == 1:
        raise ValueError(
            f"`treatment` must vary to have an effect, got a column {name!r} with one value in all {len(values)} rows"
        )


def setting_label(value: Any) -> Any:
    """Return the label of a value of the treatment: itself, or a text of the values of several treatments."""
    if not isinstance(value, tuple | list):
        return value
    return ", ".join(str(each) if isinstance(each, str) else f"{each:g}" for each in value)


@dataclasses.dataclass(frozen=True)
class TreatmentColumn:
    """The treatment, one column of the rows of a fit, which may be standardized; or several treatments, c columns."""

    rows: Float[np.ndarray, "n d"]
    schema: Schema
    index: Any  # the position of the treatment, or those of c treatments
    center: Any = 0.0  # the value of the treatment that the rows have as 0; or c values
    width: Any = 1.0  # the units of the treatment that the rows have as 1; or c units

    @classmethod
    def of_fit(cls, fit: Fit, name: str | tuple[str, ...], scales: Scales | None = None) -> TreatmentColumn:
        """Return a column of a fit to a table that was standardized by `scales`; raise ValueError if it is constant."""
        schema, rows = cast(Schema, fit.schema), np.asarray(fit.data["x"])
        index = schema.index(name) if isinstance(name, str) else np.array([schema.index(each) for each in name])
        column = cls(rows, schema, index)
        for part in column.parts:
            refuse_constant(part.treatment, part.name)
        if scales is None:
            return column
        return dataclasses.replace(column, center=scales.center[index], width=scales.scale[index])

    @property
    def parts(self) -> list[TreatmentColumn]:
        """Each of the treatments."""
        numbers = np.broadcast_arrays(np.atleast_1d(self.index), self.center, self.width)
        return [TreatmentColumn(self.rows, self.schema, *part) for part in zip(*numbers, strict=True)]

    @property
    def name(self) -> str:
        """The name of the treatment, or those of several treatments."""
        return ", ".join(self.schema.feature_names[index] for index in np.atleast_1d(self.index))

    @property
    def covariates(self) -> list[str]:
        """The names of the other columns."""
        return [str(name) for name in np.delete(self.schema.feature_names, self.index)]

    @property
    def levels(self) -> list[Any]:
        """The levels of a treatment that is a category; none for numbers and booleans."""
        return list(self.schema.levels.get(self.name, ()))

    @property
    def treatment(self) -> Float[np.ndarray, "n *c"]:
        """The treatment of each row, in its own units, (n,), or several treatments, (n, c)."""
        return self.rows[:, self.index] * self.width + self.center

    @property
    def is_number(self) -> bool:
        """Whether there is one treatment, a number of more than two values, and not a category."""
        is_one_number = np.ndim(self.index) == 0 and self.name not in self.schema.categories
        return is_one_number and len(np.unique(self.treatment)) > 2

    def scaled(self, values: Float[np.ndarray, "t *c"]) -> Float[np.ndarray, "t *c"]:
        """Return values of the treatment in the units of the rows."""
        return (values - self.center) / self.width

    def settings(self, at: Sequence[Any] | None) -> tuple[Float[np.ndarray, "t *c"], list[Any]]:
        """Return the values of the treatment for a curve, as numbers or codes, and their labels; (t, c) of several.

        None stands for the default of `kpp_models.causal_effect`. Raises ValueError if a level is unknown, or a number
        is not finite.
        """
        if np.ndim(self.index):
            if at is None or not len(at) or any(np.shape(setting) != np.shape(self.index) for setting in at):
                raise ValueError(f"`at` must hold settings of all treatments, ({self.name}), got {at!r}")
            columns = [part.settings(list(own))[0] for part, own in zip(self.parts, zip(*at, strict=True), strict=True)]
            return np.stack(columns, axis=1), [setting_label(setting) for setting in at]
        if self.levels:
            labels = self.levels if at is None else list(at)
            strange = [label for label in labels if label not in self.levels]
            if strange:
                raise ValueError(f"`at` must hold levels of {self.name!r}, {self.levels}, got {strange}")
            return np.array([float(self.levels.index(label)) for label in labels]), labels
        values = np.unique(self.treatment) if at is None else np.asarray(at, dtype=float)
        if at is None and len(values) > 2:
            low, high = np.quantile(self.treatment, [0.05, 0.95])
            values = np.linspace(low, high, _NUM_VALUES)
        if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
            raise ValueError(f"`at` must hold finite numbers, shape (t,), got {at!r}")
        return values, values.tolist()

    def assignment(self, mask: Any = slice(None), hidden: Sequence[int] = ()) -> Assignment:
        """Return how the treatment depends on the covariates, in all or some of the rows, without some columns."""
        left_out = [self.index, *hidden]
        covariates = np.delete(self.rows[mask], left_out, axis=1)
        names = [str(name) for name in np.delete(self.schema.feature_names, left_out)]
        is_number = self.name not in self.schema.categories and len(np.unique(self.treatment[mask])) > 2
        return Assignment(self.treatment[mask], covariates, self.schema.select(names), is_number)

    def effective_rows(self, values: Float[np.ndarray, "t *c"], mask: Bool[np.ndarray, " n"]) -> np.ndarray:
        """Return the effective sample size at each value in some rows, (t,); see `kpp_models.effective_rows`.

        The weights of several treatments are products: each depends on the covariates and the treatments before it.
        """
        weights, later = np.ones(()), np.atleast_1d(self.index).tolist()
        for part, own in zip(self.parts, values.reshape(len(values), -1).T, strict=True):
            later = later[1:]
            weights = weights * part.assignment(mask, later).weights(own)
        return effective_size(weights)


def covariate_balance(
    data: pd.DataFrame, treatment: str, covariates: Sequence[str], *, at: Sequence[Any]
) -> pd.DataFrame:
    r"""Return how much the covariates of two levels of a treatment differ, before and after weighting.

    .. math:: \frac{\bar z_1 - \bar z_0}{\sqrt{(s_1^2 + s_0^2) / 2}}

    The weights are inverse probabilities by a logistic regression, as in `kpp_models.effective_rows`; s has no weights.
    If weighted differences are beyond 0.1 or so, the effect rests more on the regression than on similar rows.

    Args:
        data: The table.
        treatment: The treatment, a column of two or more levels.
        covariates: Columns of numbers, booleans or categories; each level of a category but the first has a row.
        at: The two levels, first that of the treated.

    Returns:
        The columns "difference" and "weighted difference", with a row for each covariate.

    Raises:
        ValueError: If a column is missing or invalid, or the treatment does not have the two levels.
    """
    check_columns(data.columns, [treatment, *covariates], "data")
    points, schema = read_points(data[[treatment, *covariates]], "data")
    column = TreatmentColumn(points, schema, 0)
    assignment, levels = column.assignment(), column.settings(at)[0]
    is_level = column.treatment == levels[:, None]
    if len(levels) != 2 or assignment.is_number or not is_level.any(axis=1).all():
        raise ValueError(f"`at` must hold two of the levels of {treatment!r}, got {at!r}")
    design, weights = assignment.design, assignment.weights(levels)
    spread = np.sqrt(np.mean([design[rows].var(axis=0, ddof=1) for rows in is_level], axis=0))
    found = {
        name: np.subtract(*(np.average(design, axis=0, weights=each) for each in loads)) / spread
        for name, loads in (("difference", is_level), ("weighted difference", weights))
    }
    return pd.DataFrame(found, index=[*assignment.columns])
