"""The value of one coalition of features as a linear functional, at points where its features have different values."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kpp.functionals import AbstractFunctional
from kpp.functions import RKHSFunction
from kpp.games import AbstractImputation
from kpp.kernels import AbstractKernel
from kpp.typing import PointFunction


class CoalitionValues(AbstractFunctional):
    r"""The values of one coalition, weighted sums of a function over imputed rows, :math:`\sum_b w_b(x) f(x_S, z_b)`.

    Args:
        game: The value function.
        points: The points x, (p, d).
        coalition: Which features are present, (d,).
    """

    game: AbstractImputation
    points: Float[Array, "p d"]
    coalition: Bool[Array, " d"]

    @property
    def num_values(self) -> int:
        """The number of points."""
        return self.points.shape[0]

    def apply(self, function: PointFunction) -> Float[Array, "p *outputs"]:
        """Return the values of the coalition."""
        return self.game(function, self.points, self.coalition[None])[0]

    def representer(self, kernel: AbstractKernel) -> RKHSFunction:
        """Return the weighted sums of kernel sections at the imputed rows; the weights may depend on the kernel."""
        section = RKHSFunction(kernel, self.points[:1], jnp.zeros(1))
        rows = self.game.impute(section, self.points, self.coalition[None])[0]
        weights = self.game.imputation_weights(section, self.points, self.coalition[None])[0]
        of_points = weights[:, :, None] * jnp.eye(self.num_values)[:, None, :]
        return RKHSFunction(kernel, rows.reshape(-1, rows.shape[-1]), of_points.reshape(-1, self.num_values))
