"""Value functions as games of shapiq, whose approximators and indices then work on them."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from kpp.foundation.distribution import extra
from kpp.foundation.validation import as_points
from kpp.functions import RKHSFunction
from kpp.games.players.players import Players, as_players
from kpp.games.values.abstract import AbstractValueFunction
from kpp.runtime.batching import call_in_chunks

_COALITIONS = 2**12  # the largest number of coalitions that are valued at once


def as_shapiq_game(
    value_function: AbstractValueFunction, function: Any, x: object, *, groups: object = None, output: int | None = None
) -> Any:
    """Return the game of one prediction as a ``shapiq.Game``.

    shapiq's approximators, its ``ExactComputer`` and its plots take it; `Explanation.from_shapiq` reads what they
    return. The game is not normalized, so the value of the empty coalition is the base value.

    Args:
        value_function: The value function.
        function: The function to explain, without draws: an `RKHSFunction`, or another function of points that the
            value function accepts.
        x: The point to explain, (d,) or (1, d).
        groups: Features that form one player, a mapping from names to features; see `as_players`.
        output: The position of the output to explain, if the function has several.

    Returns:
        The game, with one player for each feature or group.

    Raises:
        ImportError: If shapiq is not installed.
        ValueError: If `x` is not one point, the function has draws, or `output` does not fit.
    """
    points = np.asarray(as_points(np.atleast_2d(np.asarray(x))))
    if len(points) != 1:
        raise ValueError(f"`x` must be one point, (d,) or (1, d), got shape {points.shape}; make one game for each")
    if isinstance(function, RKHSFunction) and function.batch_shape:
        raise ValueError(
            f"`function` must have no draws, got the draws {function.batch_shape}; make one game for each draw, or one "
            "for a function that returns their mean"
        )
    players = as_players(groups, points.shape[1])
    game = _Values(value_function, function, points, players, output)
    game(np.ones((1, players.num_players), dtype=bool))
    return _game_class()(game)


@dataclasses.dataclass(frozen=True)
class _Values:
    """The values of coalitions of players for one point and one output."""

    value_function: AbstractValueFunction
    function: Any
    points: Float[np.ndarray, "1 d"]
    players: Players
    output: int | None

    def __call__(self, coalitions: Bool[np.ndarray, "c g"]) -> Float[np.ndarray, " c"]:
        return call_in_chunks(self._chunk, coalitions, _COALITIONS)[0]

    def _chunk(self, coalitions: Bool[np.ndarray, "k g"]) -> Float[np.ndarray, " k"]:
        values = np.asarray(self.value_function(self.function, self.points, self.players.expand(coalitions)))
        if values.shape[:2] != (len(coalitions), 1) or values.ndim > 3:
            raise ValueError(f"`function` must have no draws, got values of shape {values.shape} for one point")
        if values.ndim == 2:
            if self.output is not None:
                raise ValueError(f"`output` must be None for a function with a single output, got {self.output!r}")
            return values[:, 0]
        if self.output not in range(values.shape[2]):
            raise ValueError(f"`output` must be a position from 0 to {values.shape[2] - 1}, got {self.output!r}")
        return values[:, 0, self.output]


@functools.cache
def _game_class() -> type:
    """Return the class of the games, which exists only where shapiq is installed."""
    try:
        import shapiq
    except ImportError as error:
        raise ImportError(f"`as_shapiq_game` needs shapiq, which is an extra: {extra('peers')}") from error

    class ValueFunctionGame(shapiq.Game):  # type: ignore[misc]
        """The values of coalitions of features for one prediction."""

        def __init__(self, values: _Values) -> None:
            self.values = values
            names = list(values.players.names)
            super().__init__(len(names), normalize=False, player_names=names)

        def value_function(self, coalitions: Bool[np.ndarray, "c g"]) -> Float[np.ndarray, " c"]:
            return self.values(np.asarray(coalitions, dtype=bool))

    return ValueFunctionGame
