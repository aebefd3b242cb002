"""How well contributions agree with the predictor: deletion, insertion and infidelity; and how fast they change.

Arrays of contributions are (s, p, o, d) here: draws, instances, outputs, features. An axis that the explanation does
not have has length 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int
from scipy.special import comb

from kpp.data.tables import Schema, is_table
from kpp.explanations.functions.estimator_functions import EstimatorFunction, is_estimator
from kpp.explanations.parts.build import SAMPLE_DIMS
from kpp.explanations.predictors import check_features, read_function
from kpp.foundation.validation import count
from kpp.games import AbstractValueFunction, Interventional, all_coalitions, sample_coalition_pairs
from kpp.typing import PointFunction, RngKey

# The largest difference between two computations of one prediction, in roots of eps times the largest prediction.
_PREDICTION_UNITS = 10.0


def quality(
    dataset: xr.Dataset,
    schema: Schema,
    predictor: Any,
    background: Any,
    num_coalitions: int,
    neighbors: int,
    rng_key: RngKey | None,
) -> xr.Dataset:
    """Return deletion, insertion, infidelity and stability; see `Explanation.quality`."""
    count(num_coalitions, "num_coalitions", 2)
    count(neighbors, "neighbors")
    x, array = dataset["data"].values, dataset["values"]
    if np.isnan(x).any():
        raise ValueError("`quality` needs one value of every feature, but some features stand for several columns")
    outputs = [dim for dim in array.dims if dim == "output"]
    draws = tuple(array.sizes[dim] for dim in SAMPLE_DIMS if dim in array.dims)
    values = array.transpose(..., "instance", *outputs, "feature").values
    values = values.reshape(-1, len(x), array.sizes.get("output", 1), x.shape[1])
    game, function = _read_game(schema, predictor, background, x)
    present, weights = _proper_coalitions(x.shape[1], num_coalitions, rng_key)

    wanted = [_wanted(values[:, i], present) for i in range(len(x))]
    tables, found = _tables(game, function, x, [coalitions for coalitions, *_ in wanted], bool(outputs))
    if draws != found and 1 not in (len(values), len(tables[0])):
        raise ValueError(
            f"the explanation and `predictor` must have the same draws, got (chain, draw) = {draws} and {found}"
        )
    nested = [np.take_along_axis(table, places, axis=2) for table, (_, places, _) in zip(tables, wanted, strict=True)]
    curves = np.stack(nested, axis=1)
    proper = np.stack([table[..., places] for table, (*_, places) in zip(tables, wanted, strict=True)], axis=1)
    if not draws:
        _check_predictions(dataset["predictions"].values, curves[..., 0].mean(axis=0))
    gaps = values @ (~present).T.astype(values.dtype) - (curves[..., :1] - proper)
    distances = _distances(x, getattr(game, "background", x), schema)

    def labeled(numbers: np.ndarray, *last: str) -> xr.DataArray:
        lead = draws if len(numbers) == len(values) else found
        dims = [*SAMPLE_DIMS[: len(lead)], "instance", *outputs, *last]
        sizes = [len(x), *(numbers.shape[2:3] if outputs else ()), *numbers.shape[3:]]
        coords = {dim: dataset.coords[dim] for dim in ("instance", *outputs)}
        return xr.DataArray(numbers.reshape(*lead, *sizes), dims=dims, coords=coords).transpose(..., *outputs)

    deletion, insertion = np.split(curves, 2, axis=-1)
    return xr.Dataset(
        {
            "deletion": labeled(deletion, "step"),
            "insertion": labeled(insertion, "step"),
            "infidelity": labeled(gaps**2 @ weights),
            "stability": labeled(_lipschitz(values, distances, neighbors)),
        }
    )


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


def _wanted(
    values: Float[np.ndarray, "s o d"], present: Bool[np.ndarray, "c d"]
) -> tuple[Bool[np.ndarray, "k d"], Int[np.ndarray, "s o steps"], Int[np.ndarray, " c"]]:
    """Return the different coalitions needed at an instance, and the places of the nested and the given ones."""
    ranks = np.argsort(np.argsort(-values, axis=-1, kind="stable"), axis=-1)  # 0 for the largest contribution
    kept = ranks[:, :, None, :] >= np.arange(values.shape[-1] + 1)[:, None]
    nested = np.concatenate([kept, ~kept], axis=2)
    rows = np.concatenate([nested.reshape(-1, values.shape[-1]), present])
    coalitions, places = np.unique(rows, axis=0, return_inverse=True)
    places = places.ravel()
    return coalitions, places[: -len(present)].reshape(nested.shape[:3]), places[-len(present) :]


def _tables(
    game: AbstractValueFunction,
    function: PointFunction,
    x: Float[np.ndarray, "p d"],
    coalitions: list[Bool[np.ndarray, "_ d"]],
    has_outputs: bool,
) -> tuple[list[Float[np.ndarray, "f o k"]], tuple[int, ...]]:
    """Value the coalitions of each instance; also return the shape (chain, draw) of the function's draws, or ()."""
    # Repeating the last coalition up to a power of two gives all instances the same compiled program.
    size = 2 ** max((len(rows) - 1).bit_length() for rows in coalitions)
    tables, shape = [], ()
    for point, rows in zip(x, coalitions, strict=True):
        padded = rows[np.minimum(np.arange(size), len(rows) - 1)]
        table = np.asarray(game(function, point[None], padded))
        if table.ndim - 2 - has_outputs not in (0, 2):
            raise ValueError(f"`predictor` must have the outputs of the explanation, got values of shape {table.shape}")
        table = table[..., 0, :] if has_outputs else table[..., 0, None]
        shape = table.shape[:-2]
        tables.append(np.swapaxes(table.reshape(-1, *table.shape[-2:]), 1, 2))
    return tables, shape


def _check_predictions(explained: Float[np.ndarray, "..."], found: Float[np.ndarray, "p o"]) -> None:
    """Raise ValueError if a predictor predicts other numbers than those that were explained."""
    gap = np.abs(explained.reshape(found.shape) - found).max()
    eps = max(np.finfo(array.dtype).eps for array in (explained, found))
    if gap > _PREDICTION_UNITS * np.sqrt(eps) * max(1.0, np.abs(found).max()):
        raise ValueError(f"`predictor` must predict what was explained, got predictions that differ by up to {gap:.3g}")


def _distances(x: Float[np.ndarray, "p d"], background: Any, schema: Schema) -> Float[np.ndarray, "p p"]:
    """Return distances in standard deviations of the background; a different level of a category counts as 1."""
    categorical = np.array([name in schema.levels for name in schema.feature_names])
    spread = np.asarray(background).std(axis=0)
    scaled = x / np.where(spread > 0, spread, 1.0)
    differences = scaled[:, None] - scaled[None]
    return np.sqrt((np.where(categorical, differences != 0, differences) ** 2).sum(axis=-1))


def _lipschitz(
    values: Float[np.ndarray, "s p o d"], distances: Float[np.ndarray, "p p"], neighbors: int
) -> Float[np.ndarray, "s p o"]:
    """Return the largest change of the contributions per distance, from each instance to its nearest others."""
    distances = np.where(distances > 0, distances, np.inf)  # the instance itself, and its copies
    rates = []
    for i, row in enumerate(distances):
        nearest = [k for k in np.argsort(row)[:neighbors] if np.isfinite(row[k])]
        changes = np.linalg.norm(values[:, nearest] - values[:, i : i + 1], axis=-1)
        rates.append((changes / row[nearest][:, None]).max(axis=1, initial=np.nan if not nearest else 0.0))
    return np.stack(rates, axis=1)
