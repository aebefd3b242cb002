"""The values whose covariance an explanation needs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from kpp.games.toolkit import Players, asymmetric_weights

# Above the coalitions of this many players a covariance is not enumerated.
_MAX_ENUMERATED = 12


class Target(NamedTuple):
    """The values whose covariance is computed.

    Attributes:
        players: The players.
        order: The order of asymmetric values, or None.
        effects: Whether the values are the direct effects and then the indirect ones.
    """

    players: Players
    order: Any = None
    effects: bool = False

    @property
    def num_values(self) -> int:
        """The number of values per point."""
        return self.players.num_players * (2 if self.effects else 1)

    @property
    def has_integral(self) -> bool:
        """Whether values of product games are computed by quadrature."""
        return self.order is None and not self.effects

    def num_coalitions(self) -> float:
        """Return how many coalitions are enumerated; infinity if they are too many."""
        if (self.players.membership < 0).any():
            return math.inf
        num_players = self.players.num_players
        if self.order is not None:
            number = float(len(asymmetric_weights(self.order, self.players)[0]))
        else:
            number = 2.0**num_players * (1 + num_players / 2 if self.effects else 1)
        return number if number <= 2**_MAX_ENUMERATED else math.inf

    def options(self) -> dict[str, Any]:
        """Return the options of `kpp.games.shapley_covariance`."""
        return {"groups": self.players, "order": self.order, "effects": self.effects}
