r"""Draws of Shapley values from their whole posterior: hyperparameters and function.

Under one draw of the hyperparameters the Shapley values of all explained points are jointly Gaussian. The mean differs
from draw to draw, and so does the covariance. Of few rows it is computed for every draw. Otherwise it costs as much as
explaining many functions, and a few draws that spread over the posterior stand for all others.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from kpp import GPPosterior
from kpp.explanations import Law
from kpp.explanations.toolkit import LawOfDraws, Representatives
from kpp.features import Nystrom, landmarks
from kpp.games import AbstractImputation, Interventional, Observational, shapley_covariance
from kpp.games.toolkit import num_nodes, shapley_root
from kpp.kernels.toolkit import has_product_terms
from kpp.linalg.toolkit import symmetric_root
from kpp.runtime.batching import in_blocks
from kpp.runtime.threads import num_cores
from kpp.typing import AnyArray
from kpp_rkhs_shap.projected_law import (
    Target,
    choose_landmarks,
    imputed_rows,
    projected_posterior,
    projected_steps,
    share_left_out,
)

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
# Up to this number of products of kernel factors covariances are exact, or of each draw, without any thought.
_CHEAP = 2e9
# The covariances of all draws have at most this many entries.
_MAX_ENTRIES = 2**25
# The share of the prior variance that does not matter, and the largest share that a projected posterior may lack.
_NEGLIGIBLE, _MAX_LEFT_OUT = 0.005, 0.2


class Method(NamedTuple):
    """How the law of the values is computed."""

    steps: float  # the products of kernel factors that it takes
    law: Callable[[GPPosterior], Law]  # from a posterior at one value of the hyperparameters
    is_exact: bool = False  # whether it is the exact law of all points together
    left_out: float = 0.0  # the share of the variance that it lacks under the first posterior


def affordable_laws(
    value_function: AbstractImputation, drawn: Representatives, x: Float[AnyArray, "p d"], target: Target, **shown: Any
) -> LawOfDraws | None:
    """Compute the law of the values under each draw of the hyperparameters, as precisely as is affordable.

    Each draw has a covariance of its own if exact covariances of all draws take at most 2e9 products of kernel factors.
    Otherwise it has that of the nearest representative, if those of all representatives take at most 4e10 products. If
    not, all draws have that of the most central one. The result is None if `affordable_method` returns None.
    """
    first, num_draws = next(drawn.each()).shared, len(drawn.nearest)
    method = affordable_method(value_function, first, x, target, **shown)
    if method is None:
        return None
    num_entries = num_draws * (x.shape[0] * target.num_values) ** 2
    if drawn.has_all and method.is_exact and num_draws * method.steps <= _CHEAP and num_entries <= _MAX_ENTRIES:
        covariances = np.asarray(shapley_covariance(value_function, drawn.posterior.shared, x, x, **target.options()))
        size = np.shape(value_function.background)[0]
        each = covariances.reshape(num_draws, *covariances.shape[len(drawn.posterior.batch_shape) :])
        laws = tuple(Law.of_covariance(one, size) for one in each)
        return LawOfDraws(_of_outputs(laws, drawn.posterior, np.arange(num_draws)), np.arange(num_draws))
    if len(drawn.chosen) * method.steps > Law.affordable_products:
        laws = _of_outputs((method.law(first),), drawn.posterior, drawn.chosen[:1])
        return LawOfDraws(laws, np.zeros(num_draws, int))
    laws = tuple(method.law(posterior.shared) for posterior in drawn.each())
    return LawOfDraws(_of_outputs(laws, drawn.posterior, drawn.chosen), drawn.nearest)


def _of_outputs(laws: tuple[Law, ...], posterior: GPPosterior, draws: Int[np.ndarray, " k"]) -> tuple[Law, ...]:
    """Return laws, each of one draw of a posterior, with the covariance between its outputs, if it has several."""
    if posterior.output_covariance is None:
        return laws
    between = np.asarray(posterior.output_covariance)
    roots = symmetric_root(between.reshape(-1, *between.shape[-2:])[draws])
    return tuple(dataclasses.replace(law, outputs=root) for law, root in zip(laws, roots, strict=True))


def affordable_method(
    value_function: AbstractImputation, posterior: GPPosterior, x: Float[AnyArray, "p d"], target: Target, **shown: Any
) -> Method | None:
    """Choose how to compute the law of the values of all points, as precisely as is affordable.

    The covariance of the values of all points is exact if it takes at most 2e9 products of kernel factors, or if the
    kernel is `kpp.features.Nystrom`. Otherwise the posterior is projected onto at most 800 landmarks (see
    `kpp_rkhs_shap.projected_law`), if the projection lacks at most half a percent of the prior variance.

    Otherwise the covariance of the values of each point is exact if it takes at most 4e10 products; if not, a
    background of `Interventional` is represented by 100 landmarks. The correlation of the values of different points
    takes 64, 32 or 16 landmarks of the background. Where it is not affordable, points are drawn independently.

    A projection in an observational game with landmarks takes 2000, 1000 or 500 rows of a background that is too large.

    If not even the covariance of each point is affordable, a projection may lack up to a fifth of the variance; if it
    lacks more, or is not affordable either, there is no method. A method takes the landmarks of this posterior for all
    others.
    """
    num_pairs = x.shape[0] * (x.shape[0] + 1) // 2
    size = np.shape(value_function.background)[0]
    joint = x.shape[0] * target.num_values <= _MAX_ROWS
    steps = num_pairs * _steps(value_function, posterior, target, size, True)
    if joint and steps <= min(_CHEAP, Law.affordable_products):
        exactly = functools.partial(_of_pairs, value_function, value_function, x=x, target=target, **shown)
        return Method(steps, exactly, is_exact=True)
    if isinstance(posterior.mean.kernel, Nystrom):

        def of_features(process: GPPosterior) -> Law:
            return Law(shapley_root(value_function, process, x, **target.options()), size, is_joint=True)

        return Method(projected_steps(value_function, posterior.mean.unfold(), x.shape[0], target), of_features)
    projected = _projected_law(value_function, posterior, x, target)
    if projected is not None and projected.left_out <= _NEGLIGIBLE:
        return projected
    within = _affordable_game(value_function, posterior, target, x.shape[0], across=False)
    if within is None:
        return projected
    across = _affordable_game(value_function, posterior, target, num_pairs, across=True) if joint else None
    games = within[0], None if across is None else across[0]
    steps = within[1] + (0.0 if across is None else across[1])
    return Method(steps, functools.partial(_of_pairs, *games, x=x, target=target, **shown))


def _of_pairs(
    within: AbstractImputation,
    across: AbstractImputation | None,
    posterior: GPPosterior,
    *,
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
    value_function: AbstractImputation, posterior: GPPosterior, x: Float[AnyArray, "p d"], target: Target
) -> Method | None:
    """Return the law under posteriors of finite rank, if it is affordable and lacks little."""
    function = posterior.mean.unfold()
    for game in _with_fewer_rows(value_function):
        steps = projected_steps(game, function, x.shape[0], target)
        if steps <= Law.affordable_products:
            break
    else:
        return None
    rows = imputed_rows(game, function, np.asarray(x), target.players)
    landmarks, left_out = choose_landmarks(posterior.mean.kernel, rows)
    if left_out > _MAX_LEFT_OUT:
        return None

    def law(process: GPPosterior) -> Law:
        lacks = left_out if process is posterior else share_left_out(process.mean.kernel, rows, landmarks)
        root = shapley_root(game, projected_posterior(process, landmarks), x, **target.options())
        return Law(root, np.shape(game.background)[0], is_joint=True, left_out=lacks)

    return Method(steps, law, left_out=left_out)


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
    value_function: AbstractImputation, posterior: GPPosterior, target: Target, num_pairs: int, *, across: bool
) -> tuple[AbstractImputation, float] | None:
    """Return the game itself, or with landmarks as its background, and its steps, if these are affordable."""
    sizes = [np.shape(value_function.background)[0]]
    if isinstance(value_function, Interventional):
        fewer = _REFERENCES_ACROSS if across else (*sizes, _REFERENCES)
        sizes = sorted({min(sizes[0], size) for size in fewer}, reverse=True)
    for size in sizes:
        steps = num_pairs * _steps(value_function, posterior, target, size, across)
        if steps <= Law.affordable_products:
            return _with_references(value_function, posterior, size), steps
    return None


def _steps(
    value_function: AbstractImputation, posterior: GPPosterior, target: Target, size: int, across: bool
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


def posterior_of(predictor: Any, at: str) -> GPPosterior:
    """Return the Gaussian posterior of a `kpp.Fit` at the "mean" of its draws or all "draws", or a posterior itself."""
    if isinstance(predictor, GPPosterior):
        return predictor
    if not hasattr(predictor, "function_posterior"):
        raise TypeError(
            "`covariance` needs the posterior of a Gaussian process: explain a kpp.Fit of one, or a kpp.GPPosterior; "
            f"`predictor` is a {type(predictor).__name__}"
        )
    return predictor.function_posterior(at=at)


def covariance_of_values(
    value_function: Any,
    posterior: GPPosterior,
    x: Float[AnyArray, "p d"],
    target: Target,
    *,
    joint: bool,
    draws: tuple[int, ...],
    instances_at_once: int,
    progress: bool,
) -> Float[np.ndarray, "..."]:
    """Compute the covariance of the Shapley values at each point, (*draws, p, g, g), in blocks of points.

    If it is `joint`, it is that of all points together, (*draws, p, p, g, g). The covariance of a posterior without
    draws is used for each draw.
    """
    if joint:
        covariances = np.asarray(shapley_covariance(value_function, posterior, x, x, **target.options()))
    else:
        covariances = in_blocks(
            lambda process, rows: shapley_covariance(value_function, process, rows, **target.options()),
            posterior,
            x,
            instances_at_once=instances_at_once,
            label="covariance",
            progress=progress,
            threads=num_cores(),
        )
    return np.broadcast_to(covariances, (*draws, *covariances.shape[len(posterior.batch_shape) :]))
