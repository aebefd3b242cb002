"""Checks of the square matrices that are arguments of pairwise statistics."""

from __future__ import annotations

import numpy as np

from kpp.foundation.validation import as_finite_array

_SKEW = 1e-6  # relative to the largest entry: the rounding error of single precision


def square(value: object, name: str, *, draws: bool = False) -> np.ndarray:
    """Return a finite square matrix of at least two items, or an array of such matrices with `draws`."""
    as_finite_array(value, name)
    array = np.asarray(value, dtype=float)  # always double precision, also if JAX uses single precision
    enough = array.ndim >= 2 if draws else array.ndim == 2
    if not enough or array.shape[-1] != array.shape[-2] or array.shape[-1] < 2:
        wanted = "(*draws, n, n)" if draws else "(n, n)"
        raise ValueError(f"`{name}` must have shape {wanted} with n of at least 2, got shape {array.shape}")
    return array


def skew(value: object, name: str) -> np.ndarray:
    """Return a skew-symmetric matrix that is not zero."""
    array = square(value, name)
    size, excess = np.abs(array).max(), np.abs(array + array.T).max()
    if size == 0:
        raise ValueError(f"`{name}` must hold some preferences, got only zeros")
    if excess > _SKEW * size:
        raise ValueError(
            f"`{name}` must be skew-symmetric, g(i, j) = -g(j, i), got entries that differ from this by {excess:g}; "
            "of probabilities take P - 1/2"
        )
    return (array - array.T) / 2


def adjacency(value: object, name: str) -> np.ndarray:
    """Return a matrix of nonnegative edges between different items."""
    array = square(value, name)
    if (array < 0).any() or np.diagonal(array).any():
        raise ValueError(
            f"`{name}` must have no negative entries and a diagonal of zeros, got the smallest entry {array.min():g} "
            f"and the largest of the diagonal {np.diagonal(array).max():g}"
        )
    return array
