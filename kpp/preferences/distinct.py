"""The different items and contexts of arrays with one row for each match or ranking."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from kpp.foundation.validation import as_points
from kpp.typing import Numbers


def distinct_items(points: Numbers) -> tuple[Float[np.ndarray, "n d"], Int[np.ndarray, "m 2"]]:
    """Return the different items in pairs. Not traceable by JAX.

    Args:
        points: m pairs, (m, 2, d).

    Returns:
        The n different items in lexicographic order, (n, d), and their numbers in each pair, (m, 2).

    Raises:
        ValueError: If `points` does not have this shape.
    """
    array = np.asarray(points)
    if array.ndim != 3 or array.shape[1] != 2:
        raise ValueError(f"`points` must hold pairs of items, an array (m, 2, d), got shape {array.shape}")
    items, numbers = np.unique(array.reshape(-1, array.shape[2]), axis=0, return_inverse=True)
    return items, numbers.reshape(-1, 2)


def distinct_contexts(contexts: Numbers) -> tuple[Float[np.ndarray, "c f"], Int[np.ndarray, " m"]]:
    """Return the different contexts of matches. Not traceable by JAX.

    Args:
        contexts: The context of each of m pairs, (m, f).

    Returns:
        The c different contexts in lexicographic order, (c, f), and the number of the context of each pair, (m,).
    """
    array = np.asarray(as_points(contexts, "contexts")) + 0.0  # turns -0. into 0.
    distinct, numbers = np.unique(array, axis=0, return_inverse=True)
    return distinct, numbers.reshape(-1)
