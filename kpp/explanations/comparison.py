"""Comparison of explanations of the same points, with each other and with the predictor.

Within measures of quality arrays of contributions are (s, p, o, d): draws, instances, outputs, features. An axis that
the explanation does not have has length 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int
from scipy.special import comb

from kpp.data.tables import Schema, is_table
from kpp.explanations.explanation import Explanation
from kpp.explanations.functions.estimator_functions import EstimatorFunction, is_estimator
from kpp.explanations.parts.build import SAMPLE_DIMS
from kpp.explanations.predictors import check_features, read_function
from kpp.foundation.validation import count
from kpp.games import AbstractValueFunction, Interventional, all_coalitions, sample_coalition_pairs
from kpp.typing import PointFunction, RngKey

# The largest difference between two computations of one prediction, in roots of eps times the largest prediction.
_PREDICTION_UNITS = 10.0


def compare(
    explanations: Mapping[str, Explanation],
    predictor: Any = None,
    background: Any = None,
    *,
    num_coalitions: int = 1024,
    neighbors: int = 5,
    rng_key: RngKey | None = None,
) -> xr.Dataset:
    r"""Compare explanations of the same points, with each other and with the predictor that they explain.

    Draws are replaced by their mean. For the contributions :math:`\phi, \phi'` of two explanations to one prediction,

    .. math:: \mathrm{distance} = \Bigl(\sum_j (\phi_j - \phi'_j)^2\Bigr)^{1/2}

    With a predictor there are measures of quality. The value v(S) of a coalition S of features, at an instance, is that
    of a game. With :math:`S_r` the r features of the largest contributions, of d,

    .. math::

        \text{deletion}_r = v(S_r^c), \qquad \text{insertion}_r = v(S_r), \qquad
        \text{infidelity} = \mathrm E_S \Bigl(\sum_{j \notin S} \phi_j - (v(\Omega) - v(S))\Bigr)^2, \qquad
        \text{stability} = \max_{i'} \frac{\|\phi(x) - \phi(x_{i'})\|}{\|x - x_{i'}\|}.

    S is drawn by the Shapley kernel, so Shapley values of the same game have the least infidelity of all contributions
    that add up. The :math:`x_{i'}` are the nearest explained instances, at distances in standard deviations of the
    background; a different level of a category counts as 1. These measures keep the draws of an explanation: each draw
    has its own order and errors. If the predictor has the same draws, each is compared with its own function, which is
    the posterior mean of a Gaussian process.

    Args:
        explanations: The explanations by name, at least two (one with a predictor), of the same points and features.
        predictor: What was explained, as for `kpp.explain`; None for no measures of quality.
        background: Rows, (m, d) or a data frame, whose features replace absent ones; or a value function.
        num_coalitions: The largest number of coalitions S for the infidelity; if there are more, a sample.
        neighbors: How many nearest instances the stability compares.
        rng_key: A JAX random key, for the sample of coalitions.

    Returns:
        ``values`` (explanation, instance, feature[, output]) and ``base_values`` (explanation, instance[, output]);
        ``importance`` (explanation, feature[, output]), the mean absolute contributions; and for each two explanations
        ``difference`` (explanation, explanation_other, feature[, output]), the mean over instances of
        :math:`\phi_j - \phi'_j`, and (explanation, explanation_other, instance[, output]) ``distance`` and
        ``correlation`` over the features, which is 0 if one of the two is constant. `kpp.plots.comparison` draws
        the values. With a predictor ``deletion`` and ``insertion`` (explanation, [chain, draw,] instance, step[,
        output]), ``infidelity`` and ``stability`` (explanation, [chain, draw,] instance[, output]), NaN without another
        instance; `kpp.plots.credible_interval` gives intervals.

    Raises:
        TypeError: If the predictor is not a function of points, or a key is needed.
        ValueError: If there are fewer than two, their points, features or outputs differ, or the predictor predicts
            other numbers than those explained (tested without draws) or has other draws.

    References:
        Petsiuk, Das and Saenko, RISE, 2018 (deletion, insertion); Yeh, Hsieh, Suggala, Inouye and Ravikumar, On the
        (in)fidelity and sensitivity of explanations, 2019, definition 2.1; Alvarez-Melis and Jaakkola, On the
        robustness of interpretability methods, 2018, equation (3).
    """
    if len(explanations) < (2 if predictor is None else 1):
        raise ValueError(f"`explanations` must be at least two, by name, got {list(explanations)}")
    means = {name: explanation.mean() for name, explanation in explanations.items()}
    first = next(iter(means.values()))
    for name, mean in means.items():
        _check_same_points(first, mean, name)
    names = xr.DataArray(list(means), dims="explanation", name="explanation")
    values = xr.concat([mean.values for mean in means.values()], dim=names)
    bases = [mean.base_values.broadcast_like(mean.predictions) for mean in means.values()]
    others = values.rename(explanation="explanation_other")
    gaps = values - others
    parts = {
        "values": values,
        "base_values": xr.concat(bases, dim=names),
        "importance": abs(values).mean("instance"),
        "difference": gaps.mean("instance"),
        "distance": (gaps**2).sum("feature") ** 0.5,
        "correlation": _correlation(values, others),
    }
    leading = ("explanation", "explanation_other", "instance", "feature")
    ordered = {
        name: part.transpose(*(dim for dim in leading if dim in part.dims), ...).drop_attrs()
        for name, part in parts.items()
    }
    if predictor is None:
        return xr.Dataset(ordered)
    arguments = (predictor, background, num_coalitions, neighbors, rng_key)
    measured = [_quality(each.dataset, each.schema, *arguments) for each in explanations.values()]
    return xr.Dataset({**ordered, **xr.concat(measured, dim=names)})


def _check_same_points(first: Explanation, other: Explanation, name: str) -> None:
    for dim in ("instance", "feature", "output"):
        labels = [list(mean.values.coords[dim].values) if dim in mean.values.dims else None for mean in (first, other)]
        if labels[0] != labels[1]:
            raise ValueError(f"`explanations` must have the same {dim}s, got {labels[0]} and, in {name!r}, {labels[1]}")
    if not np.array_equal(first.data.values, other.data.values, equal_nan=True):
        raise ValueError(f"`explanations` must be of the same points; the data of {name!r} differ from the first one's")


def _correlation(values: xr.DataArray, others: xr.DataArray) -> xr.DataArray:
    centered = [array - array.mean("feature") for array in (values, others)]
    product = xr.dot(*centered, dim="feature")
    scale = np.sqrt(xr.dot(centered[0], centered[0], dim="feature") * xr.dot(centered[1], centered[1], dim="feature"))
    return xr.where(scale > 0, product / scale.where(scale > 0, 1.0), 0.0)


def _quality(
    dataset: xr.Dataset,
    schema: Schema,
    predictor: Any,
    background: Any,
    num_coalitions: int,
    neighbors: int,
    rng_key: RngKey | None,
) -> xr.Dataset:
    """Return deletion, insertion, infidelity and stability; see `compare`."""
    count(num_coalitions, "num_coalitions", 2)
    count(neighbors, "neighbors")
    x, array = dataset["data"].values, dataset["values"]
    if np.isnan(x).any():
        raise ValueError("`explanations` need one value of every feature, but some features stand for several columns")
    outputs = [dim for dim in array.dims if dim == "output"]
    draws = tuple(array.sizes[dim] for dim in SAMPLE_DIMS if dim in array.dims)
    values = array.transpose(..., "instance", *outputs, "feature").values
    values = values.reshape(-1, len(x), array.sizes.get("output", 1), x.shape[1])
    game, function = _read_game(schema, predictor, background, x)
    present, weights = _proper_coalitions(x.shape[1], num_coalitions, rng_key)

    coalitions, nested, proper = _places(values, present)
    tables, found = _tables(game, function, x, coalitions, tuple(array.sizes[dim] for dim in outputs))
    if draws != found and 1 not in (len(values), len(tables)):
        raise ValueError(f"`predictor` must have the draws of the explanation, (chain, draw) = {draws}, got {found}")
    curves = np.take_along_axis(tables, nested, axis=-1)
    drops = curves[..., :1] - np.take_along_axis(tables, proper, axis=-1)
    predicted = curves[..., 0].mean(axis=0)
    gap = np.abs(dataset["predictions"].values.reshape(-1, *predicted.shape)[0] - predicted).max()
    allowed = _PREDICTION_UNITS * np.finfo(values.dtype).eps ** 0.5 * max(1.0, np.abs(predicted).max())
    if not draws and gap > allowed:  # draws of a law have predictions of their own
        raise ValueError(f"`predictor` must predict what was explained, got predictions that differ by up to {gap:.3g}")
    gaps = values @ (~present).T.astype(values.dtype) - drops
    stability = _stability(values, x, getattr(game, "background", x), schema, neighbors)

    def labeled(numbers: np.ndarray, *last: str) -> xr.DataArray:
        lead = draws if len(numbers) == len(values) else found
        dims = [*SAMPLE_DIMS[: len(lead)], "instance", *outputs, *last]
        sizes = [len(x), *(numbers.shape[2:3] if outputs else ()), *numbers.shape[3:]]
        coords = {dim: dataset.coords[dim] for dim in ("instance", *outputs)}
        return xr.DataArray(numbers.reshape(*lead, *sizes), dims=dims, coords=coords).transpose(..., *outputs)

    deletion, insertion = np.split(curves, 2, axis=-1)
    measures = {"infidelity": labeled(gaps**2 @ weights), "stability": labeled(stability)}
    return xr.Dataset({"deletion": labeled(deletion, "step"), "insertion": labeled(insertion, "step"), **measures})


def _read_game(
    schema: Schema, predictor: Any, background: Any, x: Float[np.ndarray, "p d"]
) -> tuple[AbstractValueFunction, PointFunction]:
    """Read a predictor, and a background or a value function."""
    if is_estimator(predictor):
        predictor = EstimatorFunction.create(predictor, background if is_table(background) else None)
    function = read_function(predictor, "callable")
    check_features(function, x)
    if isinstance(background, AbstractValueFunction):
        return background, function
    return Interventional(schema.read(background, "background")), function


def _proper_coalitions(
    num_features: int, num_coalitions: int, rng_key: RngKey | None
) -> tuple[Bool[np.ndarray, "c d"], Float[np.ndarray, " c"]]:
    """Return coalitions with the weights of the Shapley kernel, which sum to 1: all, or a sample of them."""
    if num_features == 1:
        return np.zeros((1, 1), dtype=bool), np.ones(1)
    if 2**num_features - 2 <= num_coalitions:
        present = all_coalitions(num_features)[1:-1]
        size = present.sum(axis=1)
        weights = 1.0 / (comb(num_features, size) * size * (num_features - size))
    else:
        half, counts = sample_coalition_pairs(rng_key, num_features, num_coalitions // 2)
        present, weights = np.concatenate([half, ~half]), np.tile(counts, 2).astype(float)
    return present, weights / weights.sum()


def _places(
    values: Float[np.ndarray, "s p o d"], present: Bool[np.ndarray, "c d"]
) -> tuple[list[Bool[np.ndarray, "_ d"]], Int[np.ndarray, "s p o steps"], Int[np.ndarray, "1 p 1 c"]]:
    """Return the different coalitions needed at each instance, and the places of the nested and the given ones."""
    ranks = np.argsort(np.argsort(-values, axis=-1, kind="stable"), axis=-1)  # 0 for the largest contribution
    kept = ranks[..., None, :] >= np.arange(values.shape[-1] + 1)[:, None]
    nested = np.concatenate([kept, ~kept], axis=3)
    by_instance = np.moveaxis(nested, 1, 0).reshape(len(nested[0]), -1, nested.shape[-1])
    found = [np.unique(np.concatenate([rows, present]), axis=0, return_inverse=True) for rows in by_instance]
    places, split = np.stack([inverse.ravel() for _, inverse in found]), -len(present)
    steps = np.moveaxis(places[:, :split].reshape(len(places), len(nested), *nested.shape[2:4]), 1, 0)
    return [coalitions for coalitions, _ in found], steps, places[None, :, None, split:]


def _tables(
    game: AbstractValueFunction,
    function: PointFunction,
    x: Float[np.ndarray, "p d"],
    coalitions: list[Bool[np.ndarray, "_ d"]],
    outputs: tuple[int, ...],
) -> tuple[Float[np.ndarray, "f p o k"], tuple[int, ...]]:
    """Value the coalitions of each instance; also return the shape (chain, draw) of the function's draws, or ()."""
    # Repeating the last coalition up to a power of two gives all instances the same compiled program.
    numbers = np.arange(2 ** max((len(rows) - 1).bit_length() for rows in coalitions))
    found = [
        np.asarray(game(function, point[None], rows[np.minimum(numbers, len(rows) - 1)]))
        for point, rows in zip(x, coalitions, strict=True)
    ]
    table = np.concatenate(found, axis=-1 - len(outputs))
    shape = table.shape[: -2 - len(outputs)]
    if len(shape) not in (0, 2) or table.shape != (*shape, len(numbers), len(x), *outputs):
        raise ValueError(f"`predictor` must have the outputs of the explanation, got values of shape {table.shape}")
    table = table.reshape(-1, len(numbers), len(x), *(outputs or (1,)))
    return np.moveaxis(table, 1, -1), shape


def _stability(
    values: Float[np.ndarray, "s p o d"], x: Float[np.ndarray, "p d"], background: Any, schema: Schema, neighbors: int
) -> Float[np.ndarray, "s p o"]:
    """Return the largest change of the contributions per distance, from each instance to its nearest others."""
    categorical = np.array([name in schema.levels for name in schema.feature_names])
    spread = np.asarray(background).std(axis=0)
    differences = (x[:, None] - x) / np.where(spread > 0, spread, 1.0)
    distances = np.linalg.norm(np.where(categorical, differences != 0, differences), axis=-1)
    rates = []
    for i, row in enumerate(distances):
        nearest = [k for k in np.argsort(row) if row[k] > 0][:neighbors]  # neither the instance itself nor its copies
        changes = np.linalg.norm(values[:, nearest] - values[:, i : i + 1], axis=-1) / row[nearest][:, None]
        rates.append(changes.max(axis=1) if nearest else np.full_like(values[:, i, :, 0], np.nan))
    return np.stack(rates, axis=1)
