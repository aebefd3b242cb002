"""Shapley values with their standard errors, as every estimator returns them."""

from __future__ import annotations

import equinox as eqx
import numpy as np
from jaxtyping import Float

from kpp.typing import AnyArray


class ShapleyEstimate(eqx.Module):
    """Shapley values, and how they were computed.

    Args:
        values: The values, (p, g), led by draws, with the outputs last.
        standard_errors: A standard error for each value, of their shape; None if nothing was sampled,
            and 0 if a tolerance was missed by sampling, so that all coalitions were valued.
        method: "quadrature", "enumeration", "least-squares", "permutation", "active" or
            "asymmetric".
        exact: Whether nothing was sampled: neither coalitions nor the rows behind their values.
        num_coalitions: How many different coalitions were valued, the empty and the full one among them; None for
            quadrature.
        num_nodes: The number of nodes of the quadrature, else None.
        tolerance: The requested bound of the standard errors, in the unit of the values; None if none was requested.
    """

    values: Float[AnyArray, "..."]
    standard_errors: Float[AnyArray, "..."] | None
    method: str = eqx.field(static=True)
    exact: bool = eqx.field(static=True)
    num_coalitions: int | None = eqx.field(static=True)
    num_nodes: int | None = eqx.field(static=True)
    tolerance: float | None = eqx.field(static=True, default=None)

    @property
    def tolerance_reached(self) -> bool | None:
        """Whether the largest standard error is at most the tolerance; None if none was requested."""
        if self.tolerance is None:
            return None
        return self.standard_errors is None or float(np.max(self.standard_errors)) <= self.tolerance
