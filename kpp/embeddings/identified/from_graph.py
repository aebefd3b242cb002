"""Samples for an interventional embedding: columns of a data frame, selected by a causal graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.data.tables import Schema, as_frame, as_names
from kpp.embeddings.identified.treatment_adjustment import AbstractAdjustment, BackDoor, FrontDoor, NoAdjustment
from kpp.foundation.wording import named
from kpp.kernels import RBF, AbstractKernel, median_heuristic
from kpp.typing import Leaf

if TYPE_CHECKING:
    import pandas as pd

    from kpp.causal import Adjustment, CausalDAG


class InterventionSamples(NamedTuple):
    """Samples of treatment and outcome with their kernels and their adjustment."""

    kernel: AbstractKernel
    treatment_kernel: AbstractKernel
    treatment: Float[Array, "n d"]
    points: Float[Array, "n d2"]
    adjustment: AbstractAdjustment


def read_samples(
    find_adjustment: Callable[..., Adjustment],
    graph: CausalDAG,
    frame: pd.DataFrame,
    treatment: str | Sequence[str],
    outcome: str | Sequence[str],
    kernels: Sequence[AbstractKernel | None],
    adjusting_regularization: Leaf,
) -> InterventionSamples:
    """Find an adjustment whose variables are columns of a data frame, and read the needed columns.

    The kernels are those of the outcome, the treatment and the adjustment. Each that is None is replaced by an RBF with
    the lengthscales of the median heuristic times the square root of the number of columns. The regularization is that
    of the mediators' embedding, which only the front-door adjustment uses. Raises CausalError if a node is unknown, or
    no adjustment with these columns identifies the effect, and ValueError if `frame` is not a data frame, or the
    columns are missing or do not hold finite numbers.
    """
    names = {"treatment": as_names(treatment), "outcome": as_names(outcome)}
    frame, columns = read_frame(frame, names)
    adjustment = find_adjustment(graph, treatment=names["treatment"], outcome=names["outcome"], columns=columns)
    treatments, outcomes = read_columns(frame, names["treatment"]), read_columns(frame, names["outcome"])
    adjusting: AbstractAdjustment = NoAdjustment()
    if adjustment.variables:
        values = read_columns(frame, adjustment.variables)
        chosen = kernel_or_default(kernels[2], values)
        is_backdoor = adjustment.kind == "backdoor"
        adjusting = BackDoor(chosen, values) if is_backdoor else FrontDoor(chosen, values, adjusting_regularization)
    own = kernel_or_default(kernels[0], outcomes), kernel_or_default(kernels[1], treatments)
    return InterventionSamples(*own, treatments, outcomes, adjusting)


def read_frame(frame: Any, names: Mapping[str, Sequence[str]]) -> tuple[Any, list[str]]:
    """Check that a data frame has the columns that some arguments name, and return it with its columns' names."""
    frame = as_frame(frame, "frame")
    columns = [str(column) for column in frame.columns]
    for argument, wanted in names.items():
        missing = [name for name in wanted if name not in columns]
        if missing:
            raise ValueError(f"`{argument}` must be columns of `frame`, got {named(missing)}; it has {named(columns)}")
    return frame, columns


def read_columns(frame: Any, names: Sequence[str]) -> Float[Array, "n d"]:
    """Read columns of finite numbers."""
    return jnp.asarray(Schema(tuple(names)).read(frame, "frame"))


def kernel_or_default(kernel: AbstractKernel | None, values: Float[Array, "n d"]) -> AbstractKernel:
    """Return a kernel, by default an RBF with the median heuristic times the square root of the number of columns."""
    return RBF(median_heuristic(values) * jnp.sqrt(values.shape[1])) if kernel is None else kernel
