"""Names of scikit-learn's classes, by which estimators are recognized without importing scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np


def sklearn_name(value: Any) -> str | None:
    """Return the name of a class of scikit-learn itself; None for others, and for subclasses, which may do anything."""
    return type(value).__name__ if type(value).__module__.startswith("sklearn.") else None


def describe(value: Any) -> str:
    """Return the class of an object for a message."""
    return f"a {type(value).__module__}.{type(value).__qualname__}"


def as_dense(matrix: Any) -> np.ndarray:
    """Return a matrix of numbers, which may be sparse, as a float array."""
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, dtype=float)
