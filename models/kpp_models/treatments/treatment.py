"""The treatment among the columns of a fit: its values, their labels and units, and how it depends on the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Bool, Float

from kpp.data.tables import Scales, Schema
from kpp.inference import Fit
from kpp_models.treatments.overlap import Assignment

# The values of a treatment of numbers by default: this many between the quantiles of 5 and 95 percent.
_NUM_VALUES = 20


def refuse_constant(values: Collection[Any], name: str) -> None:
    """Raise ValueError if a treatment has one value in all rows."""
    if len(np.unique(np.asarray(values))) == 1:
        raise ValueError(
            f"`treatment` must vary to have an effect, got a column {name!r} with one value in all {len(values)} rows"
        )


@dataclasses.dataclass(frozen=True)
class TreatmentColumn:
    """The treatment, one column of the rows of a fit, which may be standardized."""

    rows: Float[np.ndarray, "n d"]
    schema: Schema
    index: int  # the position of the treatment
    center: float = 0.0  # the value of the treatment that the rows have as 0
    width: float = 1.0  # the units of the treatment that the rows have as 1

    @classmethod
    def of_fit(cls, fit: Fit, name: str, scales: Scales | None = None) -> TreatmentColumn:
        """Return a column of a fit to a table that was standardized by `scales`; raise ValueError if it is constant."""
        schema, rows = cast(Schema, fit.schema), np.asarray(fit.data["x"])
        index = schema.index(name)
        refuse_constant(rows[:, index], name)
        if scales is None:
            return cls(rows, schema, index)
        return cls(rows, schema, index, float(scales.center[index]), float(scales.scale[index]))

    @property
    def name(self) -> str:
        """The name of the treatment."""
        return self.schema.feature_names[self.index]

    @property
    def covariates(self) -> list[str]:
        """The names of the other columns."""
        return [name for name in self.schema.feature_names if name != self.name]

    @property
    def levels(self) -> list[Any]:
        """The levels of a treatment that is a category; none for numbers and booleans."""
        return list(self.schema.levels.get(self.name, ()))

    @property
    def treatment(self) -> Float[np.ndarray, " n"]:
        """The treatment of each row, in its own units, (n,)."""
        return self.rows[:, self.index] * self.width + self.center

    @property
    def is_number(self) -> bool:
        """Whether the treatment is a number of more than two values, and not a category."""
        return self.name not in self.schema.categories and len(np.unique(self.treatment)) > 2

    def scaled(self, values: Float[np.ndarray, " t"]) -> Float[np.ndarray, " t"]:
        """Return values of the treatment in the units of the rows."""
        return (values - self.center) / self.width

    def settings(self, at: Sequence[Any] | None) -> tuple[Float[np.ndarray, " t"], list[Any]]:
        """Return the values of the treatment for a curve, as numbers or codes, and their labels.

        None stands for the default of `kpp_models.causal_effect`. Raises ValueError if a level is unknown, or a number
        is not finite.
        """
        if self.levels:
            labels = self.levels if at is None else list(at)
            strange = [label for label in labels if label not in self.levels]
            if strange:
                raise ValueError(f"`at` must hold levels of {self.name!r}, {self.levels}, got {strange}")
            return np.array([float(self.levels.index(label)) for label in labels]), labels
        values = self._default_values() if at is None else np.asarray(at, dtype=float)
        if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
            raise ValueError(f"`at` must hold finite numbers, shape (t,), got {at!r}")
        return values, values.tolist()

    def assignment(self, mask: Bool[np.ndarray, " n"]) -> Assignment:
        """Return how the treatment depends on the covariates, in some of the rows."""
        covariates = np.delete(self.rows[mask], self.index, axis=1)
        is_number = self.name not in self.schema.categories and len(np.unique(self.treatment[mask])) > 2
        return Assignment(self.treatment[mask], covariates, self.schema.select(self.covariates), is_number)

    def _default_values(self) -> Float[np.ndarray, " t"]:
        different = np.unique(self.treatment)
        if len(different) <= 2:
            return different
        low, high = np.quantile(self.treatment, [0.05, 0.95])
        return np.linspace(low, high, _NUM_VALUES)
