"""Both items and the context of a duel in one row, so that the estimators of `kpp.games` play with them."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp import RKHSFunction
from kpp.games import AbstractValueFunction, Players
from kpp_pref_shap.comparisons import split_points
from kpp_pref_shap.context_game import PreferentialContext
from kpp_pref_shap.item_game import PreferentialItems

__all__ = ["SideBySide", "pack_rows"]


class SideBySide(AbstractValueFunction):
    """A game of preferences whose points are rows (p, 2 d) or, with contexts, (p, 2 d + c).

    Args:
        game: The game.
        function: The function on pairs; the function that a call is given is the same one of such rows.
    """

    game: PreferentialItems | PreferentialContext
    function: RKHSFunction

    def __call__(self, function: Any, x: Any, coalitions: Any) -> Float[Array, "*draws c p"]:
        """Value coalitions of the columns that play."""
        return self.game(self.function, self.unpack(x), coalitions[:, self._columns])

    def base(self, function: Any) -> Float[Array, "*draws"]:
        """Return the value of the empty coalition, where all rows have the same."""
        return self.game.base(self.function)

    def players(self, players: Players) -> Players:
        """Return players of features of an item as those of both items' columns, and so for contexts."""
        d = self._num_features
        shifts = (0, d) if self._about_items else (2 * d,)
        groups = tuple(tuple(j + shift for shift in shifts for j in group) for group in players.groups)
        return Players(players.names, groups, self._num_columns)

    def split(self, rows: Float[Array, "p columns"]) -> tuple[Float[Array, "p 2 d"], Float[Array, "p c"] | None]:
        """Return the pairs and, if the game takes them from the rows, the contexts."""
        d = self._num_features
        pairs, contexts = rows[:, : 2 * d].reshape(-1, 2, d), rows[:, 2 * d :]
        averaged = isinstance(self.game, PreferentialItems) and self.game.contexts is not None
        return pairs, None if averaged or not contexts.shape[1] else contexts

    def unpack(self, rows: Float[Array, "p columns"]) -> Any:
        """Return the points of rows as the game takes them."""
        pairs, contexts = self.split(rows)
        if isinstance(self.game, PreferentialContext):
            return contexts if self.game.matches is not None else (pairs, contexts)
        items = pairs if self.game.opponents is None else pairs[:, 0]
        return items if contexts is None else (items, contexts)

    def predictions(self, x: Any) -> Float[Array, "*draws p"]:
        """Return what is explained at points of the game: the exact value of all features, whatever the references."""
        name = "background" if self._about_items else "contexts"
        any_reference = {name: getattr(self.game, name)[:1]}
        exact = dataclasses.replace(self.game, conditional="interventional", end_points="exact", **any_reference)
        num_players = self._num_features if self._about_items else self._num_columns - 2 * self._num_features
        return exact(self.function, x, np.ones((1, num_players), dtype=bool))[..., 0, :]

    @property
    def _about_items(self) -> bool:
        return isinstance(self.game, PreferentialItems)

    @property
    def _num_features(self) -> int:
        return split_points(self.function.points)[0].shape[-1]

    @property
    def _num_columns(self) -> int:
        contexts = split_points(self.function.points)[1]
        return 2 * self._num_features + (0 if contexts is None else contexts.shape[-1])

    @property
    def _columns(self) -> slice:
        """The columns that tell whether a feature is in a coalition: those of the first item, or of the context."""
        return slice(0, self._num_features) if self._about_items else slice(2 * self._num_features, None)


def pack_rows(
    function: RKHSFunction, first: Any, second: Any, contexts: Any, num_rows: int
) -> Float[Array, "p columns"]:
    """Return rows of what is there: items (p, d) and contexts (p, c), zeros where a game has none of its points.

    Args:
        function: The function on pairs.
        first: The first items, or None.
        second: The second items, or None.
        contexts: The contexts, or None.
        num_rows: p.

    Returns:
        The rows, (p, 2 d), or (p, 2 d + c) for a function with contexts.
    """
    pairs, own_contexts = split_points(function.points)
    parts = [(first, pairs.shape[-1]), (second, pairs.shape[-1])]
    parts += [] if own_contexts is None else [(contexts, own_contexts.shape[-1])]
    return jnp.concatenate(
        [jnp.zeros((num_rows, width)) if part is None else jnp.asarray(part) for part, width in parts], axis=1
    )
