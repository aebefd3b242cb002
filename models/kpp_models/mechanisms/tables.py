"""Columns of a table by the names of variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from kpp.foundation.validation import as_targets, is_concrete
from kpp.foundation.wording import named


def read_columns(table: Any, names: Iterable[str], argument: str) -> dict[str, Array]:
    """Return the columns of a table with the allowed names, (n,) each, in its order; None has no columns.

    Raises TypeError if the table has no names, and ValueError if a column has another name, is not one finite number
    per row, or columns differ in length.
    """
    if table is None:
        return {}
    if not hasattr(table, "keys"):
        raise TypeError(f"`{argument}` must be a mapping or a data frame, got {type(table).__name__}")
    given, allowed = list(table.keys()), list(names)
    unknown = [name for name in given if name not in allowed]
    if unknown:
        raise ValueError(
            f"`{argument}` must have columns among {named(allowed)}, got {named(unknown)} too; select columns as in "
            f"`{argument}[[...]]`"
        )
    columns = {name: as_targets(table[name], name=f"{argument}[{name!r}]") for name in given}
    lengths = {name: column.shape[0] for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"`{argument}` must have columns of one length, got {lengths}")
    return columns


def common_length(columns: Mapping[str, Array]) -> int:
    """Return the number of rows."""
    return next(iter(columns.values())).shape[0]


def check_support(support: Any, values: Array | None, argument: str) -> None:
    """Raise ValueError if a column has values that its mechanism never gives, such as 2 for a label."""
    if values is None or not is_concrete(values):
        return
    with jax.ensure_compile_time_eval():
        possible = np.all(support(np.asarray(values)))
    if not possible:
        raise ValueError(f"`{argument}` must hold values in the support of its mechanism, {support}")


def read_units(
    table: Any, columns: Mapping[str, Array], nodes: tuple[str, ...], argument: str = "unit"
) -> dict[str, Array]:
    """Return the columns of units, a value for each node; without a table, the columns of the training rows."""
    units = dict(columns) if table is None else read_columns(table, nodes, argument)
    missing = [name for name in nodes if name not in units]
    if missing:
        raise ValueError(
            f"`{argument}` must have a column for each node, got none for {named(missing)}; for a latent common cause "
            "take a bidirected edge, as `graph.project()` does"
        )
    return units
