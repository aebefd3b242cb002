r"""The posterior of a Gaussian process, projected onto the span of kernel sections at landmarks.

The covariance of Shapley values by pairs of coalitions takes :math:`4^g` steps. Under a process of r features it takes
the :math:`2^g` steps of explaining r functions. Both the prior and the reduction by the data are projected: with the
orthogonal projection P, the covariance of the values of :math:`P f` given the data of f is exact.

Shapley values depend on the function at imputed rows. So the landmarks are imputed rows, each the one that the others
determine least (pivoted Cholesky factorization).
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kpp import GPPosterior, RKHSFunction
from kpp.features import Nystrom
from kpp.games import AbstractImputation, Interventional, Observational
from kpp.games.toolkit import Players, asymmetric_weights, num_nodes
from kpp.kernels import AbstractKernel
from kpp.kernels.toolkit import has_product_terms

# Above the coalitions of this many players a covariance is not enumerated.
_MAX_ENUMERATED = 12
# The largest number of landmarks, and the number of imputed rows among which they are chosen.
_MAX_LANDMARKS = 800
_NUM_ROWS = 4000
# How many coalitions these rows come from, at most.
_NUM_COALITIONS = 64
# No more landmarks are added when this share of the prior variance is left, on average over the rows.
_TOLERANCE = 1e-3
# The steps of a matrix product are this much faster than products of kernel factors.
_SPEED = 10.0


class Target(NamedTuple):
    """The values whose covariance is computed."""

    players: Players
    order: Any = None  # of asymmetric values, or None
    effects: bool = False  # whether the values are the direct effects and then the indirect ones

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


def projected_steps(value_function: AbstractImputation, mean: RKHSFunction, num_points: int, target: Target) -> float:
    """Return how many products of kernel factors explaining all features would take the time of."""
    size, num_features = value_function.background.shape
    if target.has_integral and isinstance(value_function, Interventional) and has_product_terms(mean.kernel):
        terms, nodes = len(mean.kernel.product_terms()), num_nodes(target.players.num_players)
        return float(terms * nodes * target.players.num_players * num_points * size * _MAX_LANDMARKS)
    coalitions = target.num_coalitions()
    rank = _rank(value_function)
    weights = size**3 / 3 if rank is None else size * rank**2
    if isinstance(value_function, Observational) and (
        has_product_terms(mean.kernel) or value_function.is_embedded(mean)
    ):
        references = num_points if rank is None else rank  # the columns that the background is contracted with
        values = _MAX_LANDMARKS * (size * references + num_points * (_MAX_LANDMARKS + (rank or 0)))
        return coalitions * (weights + values) / _SPEED
    sections = num_points * size * _MAX_LANDMARKS * (num_features + _MAX_LANDMARKS / _SPEED)
    return coalitions * (weights / _SPEED + sections)


def _rank(value_function: AbstractImputation) -> int | None:
    """Return the number of landmarks of an observational game; None if it has none."""
    landmarks = getattr(value_function, "landmarks", None)
    return None if landmarks is None else len(landmarks)


def choose_landmarks(kernel: AbstractKernel, rows: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, "m d"], float]:
    """Choose at most 800 landmarks among imputed rows; also return the share of their prior variance that is left."""
    chosen, left = _pivots(kernel, jnp.asarray(rows), min(_MAX_LANDMARKS, len(rows)))
    chosen = np.asarray(chosen)
    return rows[chosen[chosen >= 0]], float(left)


def share_left_out(
    kernel: AbstractKernel, rows: Float[np.ndarray, "n d"], landmarks: Float[np.ndarray, "m d"]
) -> float:
    """Return the share of the prior variance that the projection onto landmarks lacks, on average over rows."""
    return max(0.0, 1.0 - float(_share_kept(Nystrom(kernel, landmarks), jnp.asarray(rows))))


def projected_posterior(posterior: GPPosterior, landmarks: Float[np.ndarray, "m d"]) -> GPPosterior:
    """Project a posterior at one value of the hyperparameters onto landmarks: its kernel is `kpp.features.Nystrom`."""
    function = posterior.mean
    kernel = Nystrom(function.kernel, landmarks)
    return GPPosterior(RKHSFunction(kernel, function.points, function.coefficients, function.intercept), posterior.root)


def imputed_rows(
    value_function: AbstractImputation, function: RKHSFunction, x: Float[np.ndarray, "p d"], players: Players
) -> Float[np.ndarray, "n d"]:
    """Return rows of random coalitions, whose sizes are uniform as in Shapley values; the points themselves come first.

    The numbers are always the same, so that a key of the user changes draws and not their law.
    """
    rng = np.random.default_rng(0)
    num_players = players.num_players
    sizes = rng.integers(0, num_players, size=(_NUM_COALITIONS, 1))
    present = players.expand(rng.permuted(np.tile(np.arange(num_players), (_NUM_COALITIONS, 1)), axis=1) < sizes)
    num_points = max(1, _NUM_ROWS // _NUM_COALITIONS)

    def of_coalition(mask: np.ndarray) -> np.ndarray:
        points = x[rng.integers(len(x), size=min(len(x), num_points))]
        imputed = np.asarray(value_function.impute(function, points, mask[None]))[0]
        references = rng.integers(imputed.shape[1], size=num_points)
        return imputed[rng.integers(len(points), size=num_points), references]

    return np.unique(np.concatenate([x[:num_points], *map(of_coalition, present)]), axis=0)


@jax.jit
def _share_kept(kernel: Nystrom, rows: Float[Array, "n d"]) -> Float[Array, ""]:
    return jnp.sum(kernel.feature_map(rows) ** 2) / jnp.sum(kernel.kernel.diagonal(rows))


@functools.partial(jax.jit, static_argnums=2)
def _pivots(kernel: AbstractKernel, rows: Float[Array, "n d"], num: int) -> tuple[Int[Array, " num"], Float[Array, ""]]:
    """Return the positions of landmarks, -1 for those that are not needed, and the share of the variance that is left.

    Each pivot is the row with the largest variance that is left; its column of the Cholesky factor is added.
    """
    diagonal = kernel.diagonal(rows)
    total = jnp.sum(diagonal)

    def is_needed(state: tuple[Array, ...]) -> Array:
        count, _, _, left = state
        return (count < num) & (jnp.sum(left) > _TOLERANCE * total)

    def add(state: tuple[Array, ...]) -> tuple[Array, ...]:
        count, chosen, factor, left = state
        pivot = jnp.argmax(left)
        explained = jnp.matmul(factor, factor[pivot], precision="highest")
        column = (kernel(rows, rows[pivot][None])[:, 0] - explained) / jnp.sqrt(left[pivot])
        left = jnp.maximum(left - column**2, 0.0).at[pivot].set(0.0)
        return count + 1, chosen.at[count].set(pivot), factor.at[:, count].set(column), left

    factor = jnp.zeros((rows.shape[0], num), dtype=diagonal.dtype)
    start: tuple[Array, ...] = (jnp.array(0), jnp.full(num, -1), factor, diagonal)
    _, chosen, _, left = jax.lax.while_loop(is_needed, add, start)
    return chosen, jnp.sum(left) / total
