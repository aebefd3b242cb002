"""A question about an effect: a graph, a treatment and an outcome, and which columns answer it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kpp.causal import CausalDAG, CausalError, find_adjustment, is_adjustment_set

__all__ = ["EffectQuestion"]


@dataclasses.dataclass(frozen=True)
class EffectQuestion:
    """The effect of a treatment on an outcome, in a graph.

    Args:
        graph: The graph.
        treatment: The treatment, a node.
        outcome: The outcome, a node.
    """

    graph: CausalDAG
    treatment: str
    outcome: str

    def find_covariates(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return an adjustment set among the columns of a table.

        Args:
            columns: The columns; names outside the graph are ignored.

        Raises:
            NotCoveredError: If the columns do not identify the effect.
            CausalError: If they identify it through mediators only.
        """
        found = find_adjustment(self.graph, treatment=self.treatment, outcome=self.outcome, columns=columns)
        if found.kind == "frontdoor":
            raise CausalError(
                f"`graph` identifies the effect of {self.treatment!r} on {self.outcome!r} through the mediators "
                f"{list(found.variables)} only, and not by adjustment; kpp.embeddings.EstimandEmbedding, "
                "kpp.embeddings.InterventionalMeanEmbedding and kpp_models.BayesIMP take mediators"
            )
        return found.variables

    def check_covariates(self, covariates: Sequence[str]) -> None:
        """Raise CausalError if columns are not an adjustment set."""
        unknown = [name for name in covariates if name not in self.graph]
        if unknown:
            raise CausalError(f"`graph` must have the columns of the fit as nodes, it lacks {unknown}")
        check = is_adjustment_set(self.graph, treatment=self.treatment, outcome=self.outcome, adjusting=covariates)
        if not check:
            raise CausalError(
                f"the columns {list(covariates)} of the fit are not an adjustment set for the effect of "
                f"{self.treatment!r} on {self.outcome!r}: {check}; fit the columns of "
                "kpp.causal.minimal_adjustment_sets, or pass the data frame"
            )
