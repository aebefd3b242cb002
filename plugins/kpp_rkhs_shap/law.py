r"""Draws of Shapley values from their whole posterior: hyperparameters and function.

Under one draw of the hyperparameters the Shapley values of all explained points are jointly Gaussian. The mean differs
from draw to draw. The covariance is computed once, at the mean of the hyperparameters, because it costs as much as
explaining many functions.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from kpp import GPPosterior
from kpp.features import Nystrom, landmarks
from kpp.games import AbstractImputation, Interventional, Players, has_product_terms
from kpp.typing import AnyArray, RngKey
from kpp_rkhs_shap.shapley_covariance import covariance_of_values

__all__ = ["Law", "affordable_law"]

# The largest number of products of kernel factors of one covariance: some 25 seconds on two cores.
_AFFORDABLE = 4e10
# A background that is too large to be affordable is represented by this many landmarks. On standardized medical data
# with 442 rows they change standard deviations by 1 % on average.
_REFERENCES = 100
# The correlation between points is computed with the largest of these numbers of references that is affordable.
_REFERENCES_ACROSS = (64, 32, 16)
# The largest number of rows of a matrix of all values of all points; its root takes some ten seconds.
_MAX_ROWS = 4096
# Landmarks are chosen among at most this many rows of a background, taken at even distances.
_MAX_SAMPLE = 4000
# Above this many players coalitions are not enumerated.
_MAX_ENUMERATED = 12
# The draws of a posterior that has only one draw of the hyperparameters.
_NUM_DRAWS = 200


@dataclasses.dataclass(frozen=True)
class Law:
    """The Gaussian law of the deviations of Shapley values from their means under one draw of the hyperparameters.

    Args:
        covariance: The covariance, (p, g, g) if points are independent, or (p, p, g, g) of all points together.
        num_references: The number of references of the covariance.
    """

    covariance: Float[np.ndarray, "..."]
    num_references: int

    @property
    def is_joint(self) -> bool:
        """Whether the values of different points are drawn together."""
        return self.covariance.ndim == 4

    def record(self) -> dict[str, Any]:
        """Return the attributes of an explanation whose values are drawn from this law."""
        return {
            "uncertainty": "full",
            "instances_drawn": "together" if self.is_joint else "independently",
            "covariance_at": "mean",
            "covariance_background_size": self.num_references,
        }

    def draw(self, arrays: dict[str, Any], draws: tuple[int, ...], rng_key: RngKey) -> dict[str, Any]:
        """Replace means of values by draws.

        Args:
            arrays: Arrays of an explanation, led by draws: `values` and `predictions` change, the others are repeated.
            draws: The shape of the draws, (chain, draw) or ().
            rng_key: A JAX random key.

        Returns:
            The arrays with one draw of the values for each draw; `_NUM_DRAWS` draws if there is only one.
        """
        shape = draws or (1, 1)
        if math.prod(shape) == 1:
            shape = (1, _NUM_DRAWS)
        spread = {
            name: None if array is None else np.broadcast_to(array, (*shape, *np.shape(array)[len(draws) :]))
            for name, array in arrays.items()
        }
        deviations = self._deviations(shape, rng_key)
        values, predictions = spread["values"] + deviations, spread["predictions"] + deviations.sum(axis=-1)
        return spread | {"values": values, "predictions": predictions}

    def _deviations(self, shape: tuple[int, ...], rng_key: RngKey) -> Float[np.ndarray, "*draws p g"]:
        num_points, num_players = self.covariance.shape[0], self.covariance.shape[-1]
        noise = np.asarray(jax.random.normal(rng_key, (*shape, num_points, num_players)), self.covariance.dtype)
        if not self.is_joint:
            return np.einsum("pij,...pj->...pi", _symmetric_root(self.covariance), noise)
        size = num_points * num_players
        matrix = np.moveaxis(self.covariance, 1, 2).reshape(size, size)
        return (noise.reshape(*shape, size) @ _symmetric_root(matrix)).reshape(noise.shape)


def affordable_law(
    value_function: AbstractImputation,
    posterior: GPPosterior,
    x: Float[AnyArray, "p d"],
    players: Players,
    *,
    instances_at_once: int,
    progress: bool,
) -> Law | None:
    """Compute the law of the values of all points, as precisely as is affordable.

    The covariance of the values of each point is exact if it takes at most 4e10 products of kernel factors; otherwise
    a background of `Interventional` is represented by 100 landmarks. The correlation of the values of different points
    takes 64, 32 or 16 landmarks of the background. Where it is not affordable, points are drawn independently.

    Args:
        value_function: The game.
        posterior: The posterior at one value of the hyperparameters.
        x: The points, (p, d).
        players: The players.
        instances_at_once: How many points are worked on at once.
        progress: Whether to show a bar.

    Returns:
        The law, or None if not even the covariance of each point is affordable.
    """
    num_points = x.shape[0]
    shown: dict[str, Any] = {"instances_at_once": instances_at_once, "progress": progress}
    within = _affordable_game(value_function, posterior, players, num_points, across=False)
    if within is None:
        return None
    covariance = covariance_of_values(within, posterior, x, players, joint=False, draws=(), **shown)
    size = np.shape(np.asarray(within.background))[0]
    pairs = num_points * (num_points + 1) // 2
    across = _affordable_game(value_function, posterior, players, pairs, across=True)
    if num_points == 1 or across is None or num_points * players.num_players > _MAX_ROWS:
        return Law(covariance, size)
    joint = covariance_of_values(across, posterior, x, players, joint=True, draws=(), **shown)
    return Law(_match_points(joint, covariance), size)


def _affordable_game(
    value_function: AbstractImputation, posterior: GPPosterior, players: Players, num_pairs: int, *, across: bool
) -> AbstractImputation | None:
    """Return the game itself, or with landmarks as its background, if the covariances of pairs are affordable."""
    sizes = [np.shape(value_function.background)[0]]
    if isinstance(value_function, Interventional):
        fewer = _REFERENCES_ACROSS if across else (*sizes, _REFERENCES)
        sizes = sorted({min(sizes[0], size) for size in fewer}, reverse=True)
    for size in sizes:
        if num_pairs * _steps(value_function, posterior, players, size, across) <= _AFFORDABLE:
            return _with_references(value_function, posterior, size)
    return None


def _steps(
    value_function: AbstractImputation, posterior: GPPosterior, players: Players, size: int, across: bool
) -> float:
    """Return how many products of kernel factors the covariance of a pair of points takes."""
    kernel, num_players = posterior.mean.kernel, players.num_players
    if isinstance(kernel, Nystrom):
        return float(size)  # the time of explaining one function for each feature
    if isinstance(value_function, Interventional) and has_product_terms(kernel):
        nodes = math.ceil(num_players / 2) ** 2 * (1 if across else 0.5)
        return float(len(kernel.product_terms()) * nodes * (size * num_players) ** 2)
    if num_players > _MAX_ENUMERATED or (players.membership < 0).any():
        return math.inf
    return 4.0**num_players * size**2 * num_players


def _with_references(value_function: AbstractImputation, posterior: GPPosterior, size: int) -> AbstractImputation:
    background = np.asarray(value_function.background)
    if size == background.shape[0]:
        return value_function
    evenly = background[:: -(-background.shape[0] // _MAX_SAMPLE)]
    return Interventional(landmarks(evenly, size, kernel=posterior.mean.kernel).points)


def _match_points(joint: Float[np.ndarray, "p p g g"], covariance: Float[np.ndarray, "p g g"]) -> np.ndarray:
    """Give each point its own covariance, and keep the correlation between the points.

    With J the covariance of a point in `joint` and C the one that it must have, values are multiplied by
    C^(1/2) J^(-1/2) on the range of J. What C has outside of this range is added, independently for each point.
    """
    positions = np.arange(len(covariance))
    scale = _symmetric_root(covariance) @ _symmetric_root(joint[positions, positions], inverse=True)
    matched = np.einsum("pij,pqjk,qlk->pqil", scale, joint, scale, optimize=True)
    matched[positions, positions] = covariance
    return matched


def _symmetric_root(matrices: Float[np.ndarray, "*batch g g"], *, inverse: bool = False) -> np.ndarray:
    """Return the symmetric roots of covariances, or their pseudo-inverses; rounding errors below 0 count as 0."""
    eigenvalues, vectors = np.linalg.eigh((matrices + np.swapaxes(matrices, -1, -2)) / 2.0)
    largest = np.abs(eigenvalues).max(axis=-1, keepdims=True)
    rounding = 100 * eigenvalues.shape[-1] * np.finfo(matrices.dtype).eps * largest
    kept = np.sqrt(np.where(eigenvalues > rounding, eigenvalues, 0.0))
    if inverse:
        kept = np.divide(1.0, kept, out=np.zeros_like(kept), where=kept > 0)
    return (vectors * kept[..., None, :]) @ np.swapaxes(vectors, -1, -2)
