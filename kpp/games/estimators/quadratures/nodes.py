"""The nodes and weights of Gauss-Legendre quadrature, and how many of them are exact for Shapley values."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def gauss_legendre(num_nodes: int) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
    """Return nodes and weights of Gauss-Legendre quadrature on [0, 1], exact for polynomials of degree 2 q - 1.

    Args:
        num_nodes: q, at least 1.

    Returns:
        The nodes, ascending, and the weights, which sum to 1; both of shape (q,).

    Raises:
        ValueError: If q is less than 1.
    """
    if num_nodes < 1:
        raise ValueError(f"`num_nodes` must be at least 1, got {num_nodes}")
    nodes, weights = np.polynomial.legendre.leggauss(num_nodes)
    return (nodes + 1) / 2, weights / 2


def num_nodes(num_features: int) -> int:
    """Return the number of nodes that is exact for Shapley values of d features, d/2 rounded up."""
    return (num_features + 1) // 2  # the integrand has degree d - 1 <= 2 q - 1
