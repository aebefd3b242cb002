"""Values of coalitions as linear functionals of the function that is explained."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.foundation.validation import as_points
from kpp.functionals import AbstractFunctional
from kpp.functions import RKHSFunction
from kpp.games.covariance.by_enumeration import enumeration_representer, solution_of
from kpp.games.players.players import as_coalitions, as_players
from kpp.games.values.imputation import AbstractImputation
from kpp.kernels import AbstractKernel
from kpp.typing import Numbers, PointFunction


class CoalitionValues(AbstractFunctional):
    r"""The values :math:`v(S)` of coalitions at points: all points of the first coalition before those of the second.

    Args:
        game: The game, an `AbstractImputation`.
        x: The points, (p, d).
        coalitions: The coalitions, booleans (c, d). There are q = c p values.

    Raises:
        ValueError: If points or coalitions do not fit the game.
    """

    game: AbstractImputation
    x: Float[Array, "p d"]
    coalitions: tuple[tuple[bool, ...], ...] = eqx.field(static=True)

    def __init__(self, game: AbstractImputation, x: Numbers, coalitions: object) -> None:
        self.game = game
        self.x = as_points(x, num_features=game.background.shape[1])
        read = as_coalitions(coalitions, self.x.shape[1])
        self.coalitions = tuple(map(tuple, np.asarray(read).tolist()))

    @property
    def num_values(self) -> int:
        """The number of coalitions times the number of points."""
        return len(self.coalitions) * self.x.shape[0]

    def apply(self, function: PointFunction) -> Float[Array, "q *outputs"]:
        values = self.game(function, self.x, np.array(self.coalitions))
        return values.reshape(-1, *values.shape[2:])

    def representer(self, kernel: AbstractKernel) -> PointFunction:
        players = as_players(None, self.x.shape[1], None)
        solution = solution_of(players, np.array(self.coalitions), np.eye(len(self.coalitions)))
        rows, weights = enumeration_representer(self.game, kernel, self.x, solution)
        return RKHSFunction(kernel, rows, jnp.swapaxes(weights, 1, 2).reshape(len(rows), -1))
