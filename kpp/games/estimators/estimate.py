"""Shapley values with their standard errors, as every estimator returns them."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Float

from kpp.typing import AnyArray

__all__ = ["ShapleyEstimate"]


class ShapleyEstimate(eqx.Module):
    """Shapley values, and how they were computed.

    Args:
        values: The values, (p, g), led by draws, with the outputs last.
        standard_errors: A standard error for each value, of their shape; None if they are exact.
        method: "quadrature", "enumeration", "least-squares" or "permutation".
        exact: Whether nothing was sampled.
        num_coalitions: How many different coalitions were valued, the empty and the full one among them; None for
            quadrature.
        num_nodes: The number of nodes of the quadrature, else None.
    """

    values: Float[AnyArray, "..."]
    standard_errors: Float[AnyArray, "..."] | None
    method: str = eqx.field(static=True)
    exact: bool = eqx.field(static=True)
    num_coalitions: int | None = eqx.field(static=True)
    num_nodes: int | None = eqx.field(static=True)
