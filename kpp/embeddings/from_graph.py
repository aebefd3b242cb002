"""Samples of an intervention read from a data frame, by what a causal graph says is to be adjusted for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.embeddings.treatment_adjustment import AbstractAdjustment, BackDoor, FrontDoor, NoAdjustment
from kpp.kernels import RBF, AbstractKernel, median_heuristic
from kpp.tables import Schema, is_table
from kpp.typing import Leaf

if TYPE_CHECKING:
    from kpp.causal import Adjustment, CausalDAG

__all__ = ["InterventionSamples", "read_samples"]


@dataclasses.dataclass(frozen=True)
class InterventionSamples:
    """The columns of a data frame that an interventional embedding needs.

    Args:
        treatment: The treatments, (n, d).
        points: The outcomes, (n, d').
        others: What is adjusted for, (n, d''), or None if nothing is.
        found: The adjustment: its kind and variables, the columns of `others`.
    """

    treatment: Float[Array, "n d"]
    points: Float[Array, "n d2"]
    others: Float[Array, "n d3"] | None
    found: Adjustment

    def kernel_of(self, name: str) -> RBF:
        """Return an RBF with the lengthscales of the median heuristic for one of the arrays.

        Args:
            name: "treatment", "points" or "others".
        """
        values = getattr(self, name)
        return RBF(median_heuristic(values) * jnp.sqrt(values.shape[1]))

    def adjustment(self, kernel: AbstractKernel | None, regularization: Leaf) -> AbstractAdjustment:
        """Return the adjustment with its samples.

        Args:
            kernel: The kernel of what is adjusted for; None for `kernel_of`.
            regularization: That of the mediators' embedding, for the front door.
        """
        if self.others is None:
            return NoAdjustment()
        kernel = self.kernel_of("others") if kernel is None else kernel
        if self.found.kind == "backdoor":
            return BackDoor(kernel, self.others)
        return FrontDoor(kernel, self.others, regularization)


def read_samples(graph: CausalDAG, frame: Any, treatment: Any, outcome: Any) -> InterventionSamples:
    """Find what is to be adjusted for among the columns of a data frame, and read what is needed.

    Args:
        graph: The causal graph.
        frame: A data frame, one row a sample.
        treatment: The column of the treatment, or several.
        outcome: The column of the outcome, or several.

    Returns:
        The samples.

    Raises:
        CausalError: If a node is unknown, or no adjustment by these columns identifies the effect.
        ValueError: If `frame` is no data frame, or the columns needed are missing or hold no finite numbers.
    """
    from kpp.causal import find_adjustment  # networkx is loaded only where there is a graph

    if not is_table(frame):
        raise ValueError(f"`frame` must be a data frame with the graph's nodes as columns, got {type(frame).__name__}")
    names = {"treatment": _names(treatment), "outcome": _names(outcome)}
    columns = [str(column) for column in frame.columns]
    for argument, wanted in names.items():
        missing = [name for name in wanted if name not in columns]
        if missing:
            raise ValueError(f"`{argument}` must be columns of `frame`, got {missing}; it has {columns}")
    found = find_adjustment(graph, names["treatment"], names["outcome"], columns=columns)
    others = _read(frame, found.variables) if found.variables else None
    return InterventionSamples(_read(frame, names["treatment"]), _read(frame, names["outcome"]), others, found)


def _names(names: Any) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _read(frame: Any, names: tuple[str, ...]) -> Float[Array, "n d"]:
    return jnp.asarray(Schema(names).read(frame, "frame"))
