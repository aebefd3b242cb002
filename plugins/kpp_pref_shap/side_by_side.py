"""Both items and the context of a duel in one row, in the form for the estimators of `kpp.games`."""

from __future__ import annotations

from jaxtyping import Array, Bool, Float

from kpp import RKHSFunction
from kpp.games import AbstractValueFunction
from kpp.games.toolkit import Players
from kpp.typing import AnyArray
from kpp_pref_shap.game import AbstractPreferenceGame
from kpp_pref_shap.pair_functions import PairPoints, as_known, split_points


class SideBySide(AbstractValueFunction):
    """A game of preferences whose points are rows (p, 2 d) or, with contexts, (p, 2 d + c)."""

    game: AbstractPreferenceGame
    function: RKHSFunction  # on pairs; calls receive the same function as a function of rows

    def __call__(
        self, function: RKHSFunction, x: Float[Array, "p columns"], coalitions: Bool[AnyArray, "k columns"]
    ) -> Float[Array, "*draws k p"]:
        return self.game(self.function, self.unpack(x), coalitions[:, self._columns])

    def base(self, function: RKHSFunction) -> Float[Array, "*draws"]:
        return self.game.base(self.function)

    def players(self, players: Players) -> Players:
        """Return players of features of an item as players of both items' columns, or shifted to the contexts."""
        d = self._num_features
        shifts = (2 * d,) if self.game.plays_contexts else (0, d)
        groups = tuple(tuple(j + shift for shift in shifts for j in group) for group in players.groups)
        return Players(players.names, groups, self._num_columns)

    def split(
        self, rows: Float[AnyArray, "p columns"]
    ) -> tuple[Float[AnyArray, "p 2 d"], Float[AnyArray, "p c"] | None]:
        """Return the pairs and, if the function has them, the contexts of rows."""
        d, rows = self._num_features, as_known(rows)
        contexts = rows[:, 2 * d :]
        return rows[:, : 2 * d].reshape(-1, 2, d), contexts if contexts.shape[1] else None

    def unpack(self, rows: Float[AnyArray, "p columns"]) -> PairPoints:
        """Return the points of rows in the form that the game takes."""
        return self.game.points(*self.split(rows))

    @property
    def _num_features(self) -> int:
        return split_points(self.function.points)[0].shape[-1]

    @property
    def _num_columns(self) -> int:
        contexts = split_points(self.function.points)[1]
        return 2 * self._num_features + (0 if contexts is None else contexts.shape[-1])

    @property
    def _columns(self) -> slice:
        """The columns of coalitions that are used: those of the first item, or of the context."""
        return slice(2 * self._num_features, None) if self.game.plays_contexts else slice(0, self._num_features)
