"""A question about an effect: a graph, a treatment and an outcome, and which columns answer it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from kpp.causal import CausalDAG, CausalError, Estimand, NotCoveredError, find_adjustment, identify, is_adjustment_set
from kpp.causal.toolkit import UnreachableOutcomeError
from kpp.data.tables import read_points
from kpp.foundation.wording import named


@dataclasses.dataclass(frozen=True)
class EffectQuestion:
    """The effect of a treatment, or of several at once, on an outcome, nodes of a graph."""

    graph: CausalDAG
    treatment: Any  # a name, or a tuple of names
    outcome: str

    @property
    def treatments(self) -> tuple[str, ...]:
        """The names of all treatments."""
        return (self.treatment,) if isinstance(self.treatment, str) else self.treatment

    def find_covariates(self, columns: Sequence[str]) -> tuple[str, ...] | None:
        """Return an adjustment set among the columns of a table, or None if the effect is identified otherwise only.

        Names outside the graph are ignored. Raises NotCoveredError if the columns do not identify the effect,
        UnreachableOutcomeError if there is none, and CausalError if the treatment or the outcome is not among the
        columns.
        """
        try:
            found = find_adjustment(self.graph, treatment=self.treatment, outcome=self.outcome, columns=columns)
        except NotCoveredError as error:
            if error.estimand is None:
                raise
            return None
        return None if found.kind == "frontdoor" else found.variables

    def answer(self, columns: Sequence[str]) -> tuple[str, ...] | str:
        """Return the adjustment set, or as text another expression of the effect or why it is not identified.

        Raises:
            CausalError: If the question is invalid; see `find_covariates`.
        """
        try:
            covariates = self.find_covariates(columns)
        except UnreachableOutcomeError:
            covariates = None
        except NotCoveredError as error:
            return str(error)
        return str(self.identify(columns)) if covariates is None else covariates

    def identify(self, columns: Sequence[str]) -> Estimand:
        """Return the effect as an expression in the law of the columns of a table.

        Names outside the graph are ignored, and other nodes are hidden. Raises NotIdentifiableError if the columns do
        not identify the effect.
        """
        narrowed = self.graph.hide(self.graph.observed - frozenset(columns))
        return identify(narrowed, treatment=self.treatment, outcome=self.outcome)

    def adjusted(self, covariates: Sequence[str]) -> str:
        """Return the expression of the effect by an adjustment set, as text."""
        treatments = ", ".join(self.treatments)
        left, condition = f"P({self.outcome} | do({treatments}))", ", ".join([treatments, *covariates])
        law = f"P({self.outcome} | {condition})"
        if not covariates:
            return f"{left} = {law}"
        names = ", ".join(covariates)
        return f"{left} = sum_{{{names}}} {law} P({names})"

    def attributes(self, treatment_name: str, rows: int, *, bootstrap: bool = True) -> dict[str, Any]:
        """Return what the dataset of each estimate records: the question, the number of rows, and the bootstrap."""
        return {
            "graph": str(self.graph),
            "treatment_name": treatment_name,
            "outcome": self.outcome,
            "bootstrap": int(bootstrap),
            "rows": rows,
        }

    def read_outcome(self, table: pd.DataFrame, argument: str = "outcome") -> tuple[Float[np.ndarray, " n"], bool]:
        """Return the outcome of each row, (n,), and whether it is a column of booleans; messages name the argument.

        Raises ValueError if the outcome is text, a category or constant, or values are missing.
        """
        points, schema = read_points(table[[self.outcome]], "data")
        if schema.levels:
            raise ValueError(
                f"`{argument}` must be a column of numbers or booleans, got the levels "
                f"{list(schema.levels.values())[0]} in {self.outcome!r}; give `data[{self.outcome!r}] == level`"
            )
        if np.ptp(points) == 0:
            raise ValueError(
                f"`{argument}` must vary, got {points[0, 0]:g} in all {len(points)} rows of {self.outcome!r}: the "
                f"{argument} is constant, and no effect can be estimated"
            )
        return points[:, 0], bool(schema.booleans)

    def check_covariates(self, covariates: Sequence[str]) -> None:
        """Raise CausalError if columns are not an adjustment set."""
        unknown = [name for name in covariates if name not in self.graph]
        if unknown:
            raise CausalError(f"`graph` must have the columns of the fit as nodes, it lacks {named(unknown)}")
        check = is_adjustment_set(self.graph, treatment=self.treatment, outcome=self.outcome, adjusting=covariates)
        if not check:
            raise CausalError(
                f"the columns {named(covariates)} of the fit are not an adjustment set for the effect of "
                f"{self.treatment!r} on {self.outcome!r}: {check}; fit the columns of "
                "kpp.causal.minimal_adjustment_sets, or pass the data frame"
            )
