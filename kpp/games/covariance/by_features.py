r"""Covariances of Shapley values under a process of finite rank, from the Shapley values of its features.

Under Nyström's kernel a function is a combination of finitely many features, :math:`f = \mu + w^\top \varphi` with
independent standard normal weights before the data, each feature a function of the RKHS of the base kernel. With the
Shapley values :math:`\Phi_x` of the features,

.. math:: \mathrm{Cov}(\phi(x), \phi(x')) = \Phi_x \Phi_{x'}^\top - \Phi_x B B^\top \Phi_{x'}^\top, \qquad
    B = \varphi(X)^\top R,

whatever the number of rows that the model was fitted to, and for any game that explains the base kernel.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.features import Nystrom
from kpp.games.estimators.exact import shapley_values
from kpp.games.players.players import Players
from kpp.games.values.abstract import AbstractValueFunction
from kpp.games.values.null_players import is_product_game
from kpp.posteriors import GPPosterior

__all__ = ["feature_covariance"]


def feature_covariance(
    value_function: AbstractValueFunction,
    process: GPPosterior,
    x: Float[Array, "p d"],
    x_other: Float[Array, "q d"] | None,
    players: Players,
) -> Float[Array, "..."]:
    """Compute the covariances of Shapley values under a posterior whose kernel is `kpp.features.Nystrom`.

    Args:
        value_function: The game.
        process: The posterior, perhaps with draws.
        x: The points to explain, (p, d).
        x_other: Other points, (q, d), for covariances across points, or None for those of each point alone.
        players: The players.

    Returns:
        The covariances, (*draws, p, g, g), or across points (*draws, p, q, g, g).
    """

    def of_draw(draw: GPPosterior) -> Array:
        kernel = draw.mean.kernel
        assert isinstance(kernel, Nystrom)  # as the caller made sure
        told = jnp.matmul(kernel.feature_map(draw.mean.points).T, draw.root, precision="highest")
        first = _values(value_function, kernel, x, players)
        second = first if x_other is None else _values(value_function, kernel, x_other, players)
        pattern = "pgr,phr->pgh" if x_other is None else "pgr,qhr->pqgh"
        prior = jnp.einsum(pattern, first, second, precision="highest")
        return prior - jnp.einsum(pattern, first @ told, second @ told, precision="highest")

    return process.map_draws(of_draw)


def _values(
    value_function: AbstractValueFunction, kernel: Nystrom, x: Array, players: Players
) -> Float[Array, "p g r"]:
    """Return the Shapley values of the features."""
    features = kernel.function(jnp.eye(kernel.landmarks.shape[0]))
    method = "quadrature" if is_product_game(value_function, features) else "enumeration"
    return shapley_values(value_function, features, x, method=method, groups=players)
