"""Reference kernels in plain NumPy, written as their formulas, for all pairs of two samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def rbf(a: ArrayLike, b: ArrayLike, lengthscale: ArrayLike = 1.0, variance: float = 1.0) -> np.ndarray:
    """The RBF kernel of n1 points (n1, d) and n2 points (n2, d), with one lengthscale or one per feature."""
    difference = (np.asarray(a)[:, None, :] - np.asarray(b)[None, :, :]) / lengthscale
    return variance * np.exp(-0.5 * (difference**2).sum(-1))
