"""The error of observational values in low rank, against the exact ones."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from kpp.foundation.validation import count
from kpp.functions import RKHSFunction
from kpp.games.players.players import Instances
from kpp.games.values.conditional.observational import Observational, proper_coalitions
from kpp.typing import AnyArray, PointFunction, RngKey


class LandmarkError(NamedTuple):
    """The error of an observational game with landmarks.

    Attributes:
        relative: The root mean squared error of the values of proper coalitions, divided by the root mean square of the
            exact values minus the base value.
        num_landmarks: The number of landmarks, b.
        num_rows: The number of background points of the two games that were compared.
        num_coalitions: The number of coalitions.
    """

    relative: float
    num_landmarks: int
    num_rows: int
    num_coalitions: int


def landmark_error(
    value_function: Observational,
    function: PointFunction,
    x: Float[AnyArray, "p d"],
    *,
    num_rows: int = 1000,
    num_coalitions: int = 20,
    rng_key: RngKey | None = None,
) -> LandmarkError:
    r"""Compare the values of a game with landmarks and of the exact game.

    .. math::

        \sqrt{\frac{\sum_{S, x} (v_{\text{low}}(S) - v(S))^2}{\sum_{S, x} (v(S) - v(\emptyset))^2}}

    If there are more than `num_rows` background points, both games get a part of the background: that number of
    the points that are not landmarks, at even steps. The regularization is multiplied by the number of rows, so the
    error hardly depends on this number.

    Args:
        value_function: The game with landmarks.
        function: An `RKHSFunction`, or any function that the game accepts.
        x: Points to explain, (p, d); a few are enough.
        num_rows: The largest background of the exact game, which takes time of the order of its third power.
        num_coalitions: How many proper coalitions to compare, with sizes drawn uniformly; all if there are not more.
        rng_key: A JAX random key for the coalitions, if there are more.

    Returns:
        The error, with the numbers of landmarks, rows and coalitions.

    Raises:
        ValueError: If the game has no landmarks, or there are fewer than two features.
        TypeError: If the value function is not `Observational`, or a random key is needed and none is given.
    """
    if value_function.landmarks is None:
        raise ValueError(
            "`value_function` must have landmarks to be compared with the exact game, got `landmarks` None"
        )
    rows = _rows(value_function, count(num_rows, "num_rows"))
    proper = proper_coalitions(rows.shape[1], count(num_coalitions, "num_coalitions"), rng_key)
    coalitions = np.concatenate([np.zeros_like(proper[:1]), proper])
    low, exact = (
        _values(dataclasses.replace(value_function, background=rows, landmarks=landmarks), function, x, coalitions)
        for landmarks in (value_function.landmarks, None)
    )
    difference, spread = np.sum((low - exact)[1:] ** 2), np.sum((exact[1:] - exact[0]) ** 2)
    relative = math.sqrt(difference / spread) if spread > 0 else 0.0
    return LandmarkError(relative, np.shape(value_function.landmarks)[0], len(rows), len(proper))


def _rows(game: Observational, num_rows: int) -> Float[np.ndarray, "n d"]:
    """Return the background, or some rows of it that are not landmarks."""
    background = np.asarray(game.background)
    if len(background) <= num_rows:
        return background
    known = {row.tobytes() for row in np.asarray(game.landmarks, background.dtype)}
    others = background[[row.tobytes() not in known for row in background]]
    rows = others if len(others) else background
    num = min(num_rows, len(rows))
    return rows[np.arange(num) * len(rows) // num]


def _values(game: Observational, function: PointFunction, x: Instances, coalitions: np.ndarray) -> np.ndarray:
    """Return the values, led by the axis of the coalitions."""
    values = np.asarray(game(function, x, coalitions))
    if isinstance(function, RKHSFunction):
        return np.moveaxis(values, len(function.batch_shape), 0)
    return values if values.ndim <= 3 else np.moveaxis(values, 2, 0)
