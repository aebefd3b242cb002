r"""Draws of Shapley values from their whole posterior: hyperparameters and function.

Under one draw of the hyperparameters the Shapley values of all explained points are jointly Gaussian. The mean differs
from draw to draw. The covariance is computed once, at the mean of the hyperparameters, because it costs as much as
explaining many functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from kpp import GPPosterior
from kpp.explanations import Law
from kpp.features import Nystrom, landmarks
from kpp.games import (
    AbstractImputation,
    Interventional,
    Observational,
    has_product_terms,
    num_nodes,
    shapley_root,
)
from kpp.linalg import symmetric_root
from kpp.typing import AnyArray
from kpp_rkhs_shap.projected_law import projected_posterior, projected_steps
from kpp_rkhs_shap.shapley_covariance import covariance_of_values
from kpp_rkhs_shap.target import Target

__all__ = ["affordable_law"]

# A background that is too large to be affordable is represented by this many landmarks. On standardized medical data
# with 442 rows they change standard deviations by 1 % on average.
_REFERENCES = 100
# The correlation between points is computed with the largest of these numbers of references that is affordable.
_REFERENCES_ACROSS = (64, 32, 16)
# The largest number of rows of a matrix of all values of all points; its root takes some ten seconds.
_MAX_ROWS = 4096
# The law of an observational game with landmarks takes the whole background, or the first of these numbers of its rows
# that is affordable.
_ROWS = (2000, 1000, 500)
# Landmarks are chosen among at most this many rows of a background, taken at even distances.
_MAX_SAMPLE = 4000
# Up to this number of products of kernel factors a covariance is exact without any thought.
_CHEAP = 2e9
# The share of the prior variance that does not matter, and the largest share that a projected posterior may lack.
_NEGLIGIBLE, _MAX_LEFT_OUT = 0.005, 0.2


def affordable_law(
    value_function: AbstractImputation,
    posterior: GPPosterior,
    x: Float[AnyArray, "p d"],
    target: Target,
    *,
    instances_at_once: int,
    progress: bool,
) -> Law | None:
    """Compute the law of the values of all points, as precisely as is affordable.

    The covariance of the values of all points is exact if it takes at most 2e9 products of kernel factors, or if the
    kernel is `kpp.features.Nystrom`. Otherwise the posterior is projected onto at most 800 landmarks (see
    `kpp_rkhs_shap.projected_law`), if the projection lacks at most half a percent of the prior variance.

    Otherwise the covariance of the values of each point is exact if it takes at most 4e10 products; if not, a
    background of `Interventional` is represented by 100 landmarks. The correlation of the values of different points
    takes 64, 32 or 16 landmarks of the background. Where it is not affordable, points are drawn independently.

    A projection in an observational game with landmarks takes 2000, 1000 or 500 rows of a background that is too large.

    If not even the covariance of each point is affordable, a projection may lack up to a fifth of the variance.

    Args:
        value_function: The game.
        posterior: The posterior at one value of the hyperparameters.
        x: The points, (p, d).
        target: The values.
        instances_at_once: How many points are worked on at once.
        progress: Whether to show a bar.

    Returns:
        The law, or None if that is not affordable either, or the projection lacks more than a fifth of the variance.
    """
    shown: dict[str, Any] = {"instances_at_once": instances_at_once, "progress": progress}
    num_pairs = x.shape[0] * (x.shape[0] + 1) // 2
    size = np.shape(value_function.background)[0]
    joint = x.shape[0] * target.num_values <= _MAX_ROWS
    if joint and num_pairs * _steps(value_function, posterior, target, size, True) <= min(
        _CHEAP, Law.affordable_products
    ):
        return _of_pairs(value_function, value_function, posterior, x, target, **shown)
    if isinstance(posterior.mean.kernel, Nystrom):
        return Law(shapley_root(value_function, posterior, x, **target.options()), size, is_joint=True)
    projected = _projected_law(value_function, posterior, x, target)
    if projected is not None and (projected.left_out or 0.0) <= _NEGLIGIBLE:
        return projected
    within = _affordable_game(value_function, posterior, target, x.shape[0], across=False)
    if within is None:
        return projected
    across = _affordable_game(value_function, posterior, target, num_pairs, across=True) if joint else None
    return _of_pairs(within, across, posterior, x, target, **shown)


def _of_pairs(
    within: AbstractImputation,
    across: AbstractImputation | None,
    posterior: GPPosterior,
    x: Float[AnyArray, "p d"],
    target: Target,
    **shown: Any,
) -> Law:
    """Return the law with the covariance of each point in one game, and the correlation across points in another."""
    size = np.shape(within.background)[0]
    covariance = covariance_of_values(within, posterior, x, target, joint=False, draws=(), **shown)
    if across is None or x.shape[0] == 1:
        return Law.of_covariance(covariance, size)
    joint = covariance_of_values(across, posterior, x, target, joint=True, draws=(), **shown)
    return Law.of_covariance(_match_points(joint, covariance), size)


def _projected_law(
    value_function: AbstractImputation,
    posterior: GPPosterior,
    x: Float[AnyArray, "p d"],
    target: Target,
) -> Law | None:
    """Return the law under a posterior of finite rank, if it is affordable and lacks little."""
    function = posterior.mean.unfold()
    for game in _with_fewer_rows(value_function):
        if projected_steps(game, function, x.shape[0], target) <= Law.affordable_products:
            break
    else:
        return None
    projected, left_out = projected_posterior(game, posterior, x, target.players)
    if left_out > _MAX_LEFT_OUT:
        return None
    root = shapley_root(game, projected, x, **target.options())
    return Law(root, np.shape(game.background)[0], is_joint=True, left_out=left_out)


def _with_fewer_rows(value_function: AbstractImputation) -> Iterator[AbstractImputation]:
    """Yield the game, and an observational game with landmarks also with parts of its background, at even steps."""
    yield value_function
    if isinstance(value_function, Observational) and value_function.landmarks is not None:
        background = np.asarray(value_function.background)
        for size in _ROWS:
            if size < len(background):
                yield dataclasses.replace(
                    value_function, background=background[np.arange(size) * len(background) // size]
                )


def _affordable_game(
    value_function: AbstractImputation,
    posterior: GPPosterior,
    target: Target,
    num_pairs: int,
    *,
    across: bool,
) -> AbstractImputation | None:
    """Return the game itself, or with landmarks as its background, if the covariances of pairs are affordable."""
    sizes = [np.shape(value_function.background)[0]]
    if isinstance(value_function, Interventional):
        fewer = _REFERENCES_ACROSS if across else (*sizes, _REFERENCES)
        sizes = sorted({min(sizes[0], size) for size in fewer}, reverse=True)
    for size in sizes:
        if num_pairs * _steps(value_function, posterior, target, size, across) <= Law.affordable_products:
            return _with_references(value_function, posterior, size)
    return None


def _steps(
    value_function: AbstractImputation,
    posterior: GPPosterior,
    target: Target,
    size: int,
    across: bool,
) -> float:
    """Return how many products of kernel factors the covariance of a pair of points takes."""
    kernel, num_players = posterior.mean.kernel, target.players.num_players
    if target.has_integral and isinstance(value_function, Interventional) and has_product_terms(kernel):
        nodes = num_nodes(num_players) ** 2 * (1 if across else 0.5)
        return float(len(kernel.product_terms()) * nodes * (size * num_players) ** 2)
    return target.num_coalitions() ** 2 * size**2 * num_players


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
    scale = symmetric_root(covariance) @ symmetric_root(joint[positions, positions], inverse=True)
    matched = np.einsum("pij,pqjk,qlk->pqil", scale, joint, scale, optimize=True)
    matched[positions, positions] = covariance
    return matched
