r"""The error of a value function as a prediction of the function that it stands in for.

The value of a coalition predicts f(x) from the present features. The best prediction is the conditional expectation
:math:`E[f(X) \mid X_S = x_S]`, which observational value functions estimate. The mean squared error is the error of the
best prediction, the same for all value functions, plus the mean squared distance from it. So of two value functions the
one with the smaller error is closer to the conditional expectations, although these are unknown.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Bool, Int

from kpp.data.tables import is_table
from kpp.foundation.validation import as_points, count, one_of
from kpp.functions import RKHSFunction
from kpp.games.estimators.game import Game
from kpp.games.estimators.sampled.sampling import coalition_generator
from kpp.games.players.players import Players, as_players
from kpp.games.values.abstract import AbstractValueFunction
from kpp.games.values.imputation import predict_groups
from kpp.runtime.memory import check_count
from kpp.typing import RngKey


def value_error(
    value_function: AbstractValueFunction,
    function: Any,
    x: Any,
    *,
    groups: object = None,
    weights: str = "uniform",
    num_coalitions: int = 512,
    rng_key: RngKey | None = None,
) -> xr.Dataset:
    r"""Estimate the mean squared error of a value function over coalitions and points.

    .. math::

        \mathrm{MSE}_v = \sum_{s=1}^{g-1} w_s \frac{1}{\binom{g}{s}} \sum_{|S| = s} \frac{1}{p} \sum_{i=1}^p
        \bigl(f(x_i) - v(S; x_i)\bigr)^2

    The standard errors hold for p independent points of the distribution of the features, and include the sampling of
    coalitions. The points must not belong to the background of the value function, because it would know them.

    Args:
        value_function: The value function.
        function: The function that is explained: an `RKHSFunction`, or any function that the value function accepts.
        x: The points, (p, d) with at least two rows; the columns of a data frame name the features.
        groups: Features that form one player, as for `as_players`.
        weights: "uniform" gives each proper coalition the same weight, :math:`w_s \propto \binom{g}{s}`; "shapley"
            gives it the weight of the Shapley kernel, :math:`w_s \propto 1 / (s (g - s))`.
        num_coalitions: How many proper coalitions may be valued. If there are more, equally many of each size are
            drawn without repetition.
        rng_key: A JAX random key, needed if coalitions are drawn.

    Returns:
        ``mean_squared_error`` and its ``standard_error``, led by draws, with the outputs last; both also for each size
        of a coalition (``by_size``, ``by_size_standard_error``, from the empty to the full one), and for each coalition
        (``by_coalition``, ``by_coalition_standard_error``, whose players are in ``coalitions``); the errors of each
        point, ``by_instance``; and the ``weight`` of each size.

    Raises:
        ValueError: If there are fewer than two points or players, or an option is invalid.
        TypeError: If coalitions must be drawn and `rng_key` is None.

    References:
        Frye, de Mijolla, Begley, Cowton, Stanley and Feige, Shapley explainability on the data manifold, 2021, section
        3.3; Olsen, Glad, Jullum and Aas, A comparative study of methods for estimating model-agnostic Shapley value
        explanations, 2024, equation (12).
    """
    one_of(weights, "weights", ("uniform", "shapley"))
    game = _read(value_function, function, x, groups)
    proper, everything = sample_coalitions_by_size(game.num_players, count(num_coalitions, "num_coalitions"), rng_key)
    ends = np.array([[False], [True]]).repeat(game.num_players, axis=1)
    coalitions = np.concatenate([ends[:1], proper, ends[1:]])
    squares = _squared_errors(game, coalitions)
    found = _summarize(squares, _weights(game.num_players, weights), _shares_left_out(coalitions))
    found["coalitions"] = xr.DataArray(coalitions, dims=("coalition", "feature"))
    return found.assign_coords(feature=list(game.players.names)).assign_attrs(
        value_function=type(value_function).__name__,
        num_points=game.x.shape[0],
        num_coalitions=len(proper),
        all_coalitions=int(everything),
        weights=weights,
    )


def _read(value_function: AbstractValueFunction, function: Any, x: Any, groups: object) -> Game:
    num_features = function.num_features if isinstance(function, RKHSFunction) else None
    points = as_points(x, num_features=num_features)
    if points.shape[0] < 2:
        raise ValueError(f"`x` must have at least 2 points for a standard error, got shape {points.shape}")
    names = [str(column) for column in x.columns] if is_table(x) else None
    players: Players = as_players(groups, points.shape[1], names)
    if players.num_players < 2:
        raise ValueError(f"`x` must have at least two players for a proper coalition, got {list(players.names)}")
    return Game(value_function, function, points, players, np.ones(players.num_players, dtype=bool))


def _squared_errors(game: Game, coalitions: Bool[np.ndarray, "c g"]) -> xr.DataArray:
    """Return the squared errors by coalition, point, draws and outputs."""
    table, num_draw_axes = game.table(coalitions)
    predictions, axis = predict_groups(game.function, jnp.expand_dims(game.x, 1))
    predictions = np.moveaxis(np.asarray(predictions).squeeze(axis + 1), axis, 0)
    squares = (np.asarray(table) - predictions[None]) ** 2
    draws = _numbered("draw", num_draw_axes) if num_draw_axes != 2 else ["chain", "draw"]
    outputs = _numbered("output", squares.ndim - 2 - num_draw_axes)
    array = xr.DataArray(squares, dims=("coalition", "instance", *draws, *outputs))
    return array.assign_coords(coalition_size=("coalition", coalitions.sum(axis=1)))


def _numbered(name: str, num_axes: int) -> list[str]:
    return [name] if num_axes == 1 else [f"{name}_{number}" for number in range(num_axes)]


def _weights(num_players: int, weights: str) -> xr.DataArray:
    """Return the weight of each size; 0 for the empty and the full coalition."""
    proper = range(1, num_players)
    if weights == "uniform":
        totals = [math.comb(num_players, size) for size in proper]
        found = [total / sum(totals) for total in totals]
    else:
        masses = [1 / (size * (num_players - size)) for size in proper]
        found = [mass / sum(masses) for mass in masses]
    return xr.DataArray([0.0, *found, 0.0], dims="size", coords={"size": np.arange(num_players + 1)})


def _shares_left_out(coalitions: Bool[np.ndarray, "c g"]) -> xr.DataArray:
    """Return for each size the share of its coalitions that were not drawn."""
    num_players = coalitions.shape[1]
    drawn = np.bincount(coalitions.sum(axis=1), minlength=num_players + 1).tolist()
    shares = [1 - num / math.comb(num_players, size) for size, num in enumerate(drawn)]
    return xr.DataArray(shares, dims="size")


def _summarize(squares: xr.DataArray, weight: xr.DataArray, left_out: xr.DataArray) -> xr.Dataset:
    """Return means with standard errors; the variance over coalitions counts where not all coalitions were drawn."""
    num_points = squares.sizes["instance"]
    by_coalition = squares.mean("instance")
    of_sizes = [squares[squares["coalition_size"] == size] for size in weight["size"]]
    of_points = xr.concat([part.mean("coalition") for part in of_sizes], dim=weight["size"])
    drawn = [_variance_of_mean(part.mean("instance"), "coalition") for part in of_sizes]
    from_coalitions = left_out * xr.concat(drawn, dim=weight["size"])
    by_instance = (weight * of_points).sum("size")
    variances = {
        "standard_error": _variance_of_mean(by_instance, "instance") + (weight**2 * from_coalitions).sum("size"),
        "by_size_standard_error": _variance_of_mean(of_points, "instance") + from_coalitions,
        "by_coalition_standard_error": squares.var("instance", ddof=1) / num_points,
    }
    means = {
        "mean_squared_error": by_instance.mean("instance"),
        "by_size": of_points.mean("instance"),
        "by_coalition": by_coalition,
        "by_instance": by_instance,
        "weight": weight,
    }
    found = xr.Dataset(means | {name: np.sqrt(variance) for name, variance in variances.items()})
    draws = [str(dim) for dim in found.dims if str(dim).startswith(("chain", "draw"))]
    return found.transpose(*draws, "size", "coalition", "instance", ..., missing_dims="ignore")


def _variance_of_mean(values: xr.DataArray, dim: str) -> xr.DataArray:
    """Return the variance of a mean along a dimension; 0 for one value, which is the only one of its kind."""
    size = values.sizes[dim]
    return values.var(dim, ddof=1) / size if size > 1 else values.isel({dim: 0}, drop=True) * 0.0


# Up to this number of coalitions per requested one are listed; of more, random ones are drawn until enough differ.
_LISTED = 4


def sample_coalitions_by_size(
    num_players: int, num_coalitions: int, rng_key: RngKey | None
) -> tuple[Bool[np.ndarray, "c g"], bool]:
    """Draw proper coalitions, equally many of each size; all coalitions of a size if there are not more.

    They are ordered by size, and come with whether they are all. If they are not, a random key is needed, and at least
    two for each size.
    """
    needed = 2 * (num_players - 1)
    everything = 2**num_players - 2 <= num_coalitions
    if not everything and num_coalitions < needed:
        raise ValueError(
            f"`num_coalitions` must be at least {needed}, two for each size of a coalition of {num_players} players, "
            f"got {num_coalitions}"
        )
    if not everything:
        check_count(num_coalitions, "num_coalitions", num_players)
    available = [math.comb(num_players, size) for size in range(1, num_players)]
    taken = _share(np.array([min(total, num_coalitions) for total in available]), num_coalitions)
    generator = np.random.default_rng(0) if everything else coalition_generator(rng_key)
    parts = [_draw(generator, num_players, size, num) for size, num in enumerate(taken.tolist(), start=1)]
    return np.concatenate(parts), everything


def _share(available: Int[np.ndarray, " sizes"], budget: int) -> Int[np.ndarray, " sizes"]:
    """Share a budget evenly among sizes; what a size cannot use goes to the others."""
    taken = np.zeros_like(available)
    while (unfilled := np.count_nonzero(taken < available)) and (share := (budget - taken.sum()) // unfilled):
        taken = np.minimum(available, taken + share)
    return taken


def _draw(generator: np.random.Generator, num_players: int, size: int, num: int) -> Bool[np.ndarray, "num g"]:
    """Draw different coalitions of one size, uniformly."""
    total = math.comb(num_players, size)
    if total <= _LISTED * num:
        listed = np.array(list(itertools.combinations(range(num_players), size)))
        members = listed[np.sort(generator.choice(total, num, replace=False))]
    else:
        found: dict[tuple[int, ...], None] = {}
        while len(found) < num:
            drawn = generator.choice(num_players, size, replace=False)
            found[tuple(np.sort(drawn).tolist())] = None
        members = np.array(list(found))
    coalitions = np.zeros((num, num_players), dtype=bool)
    np.put_along_axis(coalitions, members, True, axis=1)
    return coalitions
