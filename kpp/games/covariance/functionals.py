r"""Shapley values as linear functionals of the function that is explained.

With `GPPosterior.of` they have a joint law over points, coalitions and features, and so have their contrasts: the
difference between the contributions of two features, or between those of one feature at two points.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.foundation.validation import as_points
from kpp.functionals import AbstractFunctional
from kpp.functions import RKHSFunction
from kpp.games.covariance.by_enumeration import enumeration_representer, solution_of_values
from kpp.games.covariance.shapley_covariance import exact_values, shapley_covariance
from kpp.games.players.players import Players, as_players
from kpp.games.values.imputation import AbstractImputation
from kpp.kernels import AbstractKernel
from kpp.typing import Numbers, PointFunction


class ShapleyValues(AbstractFunctional):
    r"""The Shapley values :math:`\phi_j(x_i)` at points, those of the first point before those of the second.

    Args:
        game: The game, an `AbstractImputation`.
        x: The points, (p, d).
        groups: Groups of features that form one player each, as in `as_players`; each feature by default. There are
            q = p g values.

    Raises:
        ValueError: If the points do not fit the game, or groups are invalid.

    Example:
        >>> law = posterior.of(kpp.games.ShapleyValues(kpp.games.Interventional(x), x[:1]))
        >>> law.mean.round(2)
        Array([[[ 0.27, -0.03]]], dtype=float64)
    """

    game: AbstractImputation
    x: Float[Array, "p d"]
    players: Players = eqx.field(static=True)

    def __init__(self, game: AbstractImputation, x: Numbers, groups: object = None) -> None:
        self.game = game
        self.x = as_points(x, num_features=game.background.shape[1])
        self.players = as_players(groups, self.x.shape[1], None)

    @property
    def num_values(self) -> int:
        """The number of points times the number of players."""
        return self.x.shape[0] * self.players.num_players

    def apply(self, function: PointFunction) -> Float[Array, "q *outputs"]:
        """Return the Shapley values of an `RKHSFunction`, exactly."""
        if not isinstance(function, RKHSFunction):
            raise TypeError(f"`function` must be an RKHSFunction, got {type(function).__name__}")
        values = exact_values(self.game, self.players, None, False)(function, self.x)
        return values.reshape(-1, *values.shape[2:])

    def representer(self, kernel: AbstractKernel) -> PointFunction:
        """Return sums of sections at the imputed rows of all coalitions, an `RKHSFunction`."""
        rows, weights = enumeration_representer(self.game, kernel, self.x, solution_of_values(self.players))
        return RKHSFunction(kernel, rows, weights.reshape(len(rows), -1))

    def prior_covariance(self, kernel: AbstractKernel, other: AbstractFunctional | None = None) -> Float[Array, "q r"]:
        """Return the covariance under the prior; with values of the same game, as `kpp.games.shapley_covariance`."""
        columns = self if other is None else other
        if not isinstance(columns, ShapleyValues) or columns.game is not self.game or columns.players != self.players:
            return super().prior_covariance(kernel, other)
        covariance = shapley_covariance(self.game, kernel, self.x, columns.x, groups=self.players)
        return jnp.moveaxis(covariance, 1, 2).reshape(self.num_values, columns.num_values)
