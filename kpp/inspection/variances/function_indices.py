"""Sensitivity indices of a function or of a posterior of functions, by the method that fits its form."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.games import AbstractValueFunction
from kpp.games.toolkit import Players
from kpp.inspection.variances.coalition_variances import coalition_indices
from kpp.inspection.variances.finite_draws import FiniteDraws, shares_left_out
from kpp.inspection.variances.product_variances import Sections, prior_indices, section_indices
from kpp.inspection.variances.sampled_variances import (
    Predict,
    draw_product,
    fits_grid,
    grid_indices,
    levels_of,
    sampled_indices,
)
from kpp.kernels.toolkit import has_product_terms
from kpp.runtime.batching import call_in_chunks, progress_bar
from kpp.typing import PointFunction

# The products of kernel factors that all draws of the hyperparameters may take, some 7 seconds of one core, and the
# smallest number of these draws.
_AFFORDABLE, _FEWEST = 5e10, 8
# A draw of a function is represented by its values at points, as many as leave out at most this share of the posterior
# variance, between the least and the largest number. On three features standard deviations of indices were 2 % too
# small at a share of .05, and 7 % at .15. Where the rest does not add its mean, the share is smaller.
_LEFT_OUT, _LEFT_OUT_WITHOUT_MEAN, _FEWEST_POINTS, _MOST_POINTS = 0.05, 0.01, 20, 800
# With 442 rows of ten features it takes some 400 points.
_USUAL_POINTS = 400
# The share left out is measured at this number of points.
_CHECKED = 500


class Question(NamedTuple):
    """What is asked of a function."""

    rows: Float[np.ndarray, "m d"]  # they give the law of the features
    players: Players
    value_function: AbstractValueFunction | None  # the game of dependent features
    num_rows: int  # pairs of rows that are sampled where nothing exact applies
    generator: np.random.Generator
    progress: bool


class Indices(NamedTuple):
    """Indices in units of variance."""

    values: Float[np.ndarray, "3 s g"]
    method: str
    errors: Float[np.ndarray, "3 s g"] | None = None  # of the sampling of rows
    mean: Float[np.ndarray, "3 g"] | None = None  # the exact posterior means, if they are known
    left_out: float | None = None  # the share of the posterior variance that the draws lack
    used: tuple[int, int] | None = None  # how many draws of the hyperparameters, of how many
    batch_shape: tuple[int, ...] = ()


def indices_of_posterior(predictor: Any, function: RKHSFunction, question: Question, num_draws: int) -> Indices:
    """Compute indices of draws of the function of a Gaussian process."""
    available = math.prod(function.batch_shape)
    chosen = _evenly(available, _num_affordable(function, question, num_draws))
    per_draw = -(-num_draws // len(chosen))
    found: list[Indices] = []
    points, checked = (_random_rows(question, num) for num in (_MOST_POINTS, _CHECKED))
    with progress_bar(len(chosen), "sensitivity", unit="draw", show=question.progress) as bar:
        for posterior in _posteriors(predictor, function, chosen):
            if not found:
                shares = np.asarray(shares_left_out(posterior, points, checked))
                most = _LEFT_OUT if _is_closed(posterior.mean, question) else _LEFT_OUT_WITHOUT_MEAN
                points = points[: max(_FEWEST_POINTS, np.count_nonzero(shares > most) + 1)]
            found.append(_of_posterior(FiniteDraws.of(posterior, points, checked), question, per_draw))
            bar.update()
    means = [part.mean for part in found if part.mean is not None]
    return _joined(found)._replace(
        mean=np.mean(means, axis=0) if means else None,
        left_out=float(np.mean([part.left_out for part in found])),
        used=(len(chosen), available),
    )


def indices_of_functions(function: RKHSFunction, question: Question, num_draws: int) -> Indices:
    """Compute indices of an RKHS function, or of some of its draws."""
    available = math.prod(function.batch_shape)
    chosen = _evenly(available, _num_affordable(function, question, num_draws))
    places = [_place(int(position), function.batch_shape) for position in chosen]
    draws = [function.at_draw(place) if place else function for place in places]
    found = [_of_outputs(draw, np.asarray(draw.coefficients)[:, None], question) for draw in draws]
    return _joined(found)._replace(used=(len(chosen), available) if function.batch_shape else None)


def indices_of_callable(function: PointFunction, question: Question) -> Indices:
    """Compute indices of any function of points, whose predictions may have draws."""
    values, axis = call_in_chunks(function, question.rows[:1])
    if values.ndim > axis + 1:
        raise ValueError(
            f"`predictor` must have one output, got {values.shape[axis + 1 :]} outputs; give a function that returns "
            "one of them"
        )

    def predict(rows: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "s k"]:
        return call_in_chunks(function, rows)[0].reshape(-1, len(rows)).astype(float)

    return _of_predictions(function, predict, question)._replace(batch_shape=values.shape[:axis])


def _of_posterior(draws: FiniteDraws, question: Question, num: int) -> Indices:
    """Compute the indices of draws under one value of the hyperparameters; the rest of the function adds its mean."""
    mean = np.asarray(draws.mean.coefficients)[:, None]
    columns = np.concatenate([mean, draws.draw(num, question.generator)], axis=1)
    if not _is_closed(draws.mean, question):
        return _of_outputs(draws.mean, columns[:, 1:], question)._replace(left_out=draws.left_out)
    covariance = np.stack([root @ root.T for root in (draws.root, draws.basis)])
    sections = Sections(draws.mean.kernel, draws.mean.points, columns, covariance)
    indices, moments = section_indices(sections, question.rows, question.players)
    reduction, drawn = moments[:, 0], moments[:, 1]
    prior = prior_indices(draws.mean.kernel, question.rows, question.players)
    values = indices[:, 1:] + np.maximum(prior - reduction - drawn, 0.0)[:, None]
    return Indices(values, "closed form", mean=indices[:, 0] + prior - reduction, left_out=draws.left_out)


def _is_closed(function: RKHSFunction, question: Question) -> bool:
    """Return whether indices of functions with the kernel of a function have a closed form."""
    return question.value_function is None and has_product_terms(function.kernel)


def _of_outputs(function: RKHSFunction, columns: Float[np.ndarray, "N s"], question: Question) -> Indices:
    """Compute the indices of functions with the kernel and the points of one function."""
    intercept = jnp.broadcast_to(function.intercept, columns.shape[1:])
    drawn = RKHSFunction(function.kernel, function.points, columns, intercept).unfold()
    if _is_closed(drawn, question):
        none = np.zeros((0, drawn.num_points, drawn.num_points))
        sections = Sections(drawn.kernel, drawn.points, np.asarray(drawn.coefficients), none)
        return Indices(section_indices(sections, question.rows, question.players)[0], "closed form")
    return _of_predictions(drawn, lambda rows: call_in_chunks(drawn, rows)[0].T.astype(float), question)


def _of_predictions(function: PointFunction, predict: Predict, question: Question) -> Indices:
    rows, players = question.rows, question.players
    if question.value_function is not None:
        return Indices(coalition_indices(question.value_function, function, rows, players), "coalitions")
    levels = levels_of(rows, players)
    if fits_grid(levels, len(predict(rows[:1]))):
        return Indices(grid_indices(predict, levels, players), "grid")
    values, errors = sampled_indices(predict, rows, players, question.num_rows, question.generator)
    return Indices(values, f"{question.num_rows} pairs of rows", errors)


def _joined(found: list[Indices]) -> Indices:
    """Join the draws of several values of the hyperparameters."""
    errors = [part.errors for part in found if part.errors is not None]
    values = np.concatenate([part.values for part in found], axis=1)
    return Indices(values, found[0].method, np.concatenate(errors, axis=1) if errors else None)


def _random_rows(question: Question, num: int) -> Float[np.ndarray, "num d"]:
    """Draw points where the indices need the function: with independent players, or rows."""
    if question.value_function is None:
        return draw_product(
            question.rows, question.players, question.generator.random((num, question.players.num_players))
        )
    return question.generator.permutation(question.rows)[:num]


def _posteriors(predictor: Any, function: RKHSFunction, chosen: np.ndarray) -> Iterator[GPPosterior]:
    """Yield the posteriors at some draws of the hyperparameters."""
    posterior = predictor if isinstance(predictor, GPPosterior) else predictor.function_posterior(at=chosen)
    if not posterior.batch_shape:
        yield posterior
        return
    places = chosen if isinstance(predictor, GPPosterior) else range(len(chosen))
    for position in places:
        yield posterior.at_draw(_place(int(position), posterior.batch_shape))


def _num_affordable(function: RKHSFunction, question: Question, num_draws: int) -> int:
    products = (function.num_points + _USUAL_POINTS) ** 2 * question.rows.size
    return max(1, min(num_draws, max(_FEWEST, int(_AFFORDABLE / products))))


def _evenly(available: int, wanted: int) -> np.ndarray:
    return np.linspace(0, available - 1, min(available, wanted)).round().astype(int)


def _place(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(int, np.unravel_index(position, shape))) if shape else ()
