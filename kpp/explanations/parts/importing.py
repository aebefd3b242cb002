"""Explanations of shap and of shapiq, as the arguments of `Explanation.create`; neither library is imported here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from kpp.data.tables import Schema, columns_of_text, is_table, read_points
from kpp.explanations.parts.build import finite_array
from kpp.foundation.validation import check_same_rows, positive
from kpp.typing import Numbers

# shapiq's indices whose values of single features are Shapley values, and those whose values of all orders add up.
_SHAPLEY, _ADDING_UP = ("SV", "SII"), ("k-SII", "STII", "FSII")


def read_shap(explanation: Any, base_values: Any, data: Any, error_scale: float) -> dict[str, Any]:
    """Return the arguments of `Explanation.create`; see `Explanation.from_shap`."""
    _check_parts(explanation, "explanation", "shap.Explanation", ("values", "base_values", "data", "feature_names"))
    positive(error_scale, "error_scale")
    given = _required(explanation.data if data is None else data, "data")
    values = finite_array(explanation.values, "values")
    base = _required(explanation.base_values if base_values is None else base_values, "base_values")
    base, errors = finite_array(base, "base_values"), getattr(explanation, "error_std", None)
    errors = None if errors is None else finite_array(errors, "error_std") * error_scale
    if np.ndim(given) == 1:  # a single instance
        values, errors = values[None], None if errors is None else errors[None]
        base = base[None] if base.ndim else base
    points, schema = _read_data(explanation, data)
    if values.ndim < 2 or values.shape[:2] != points.shape:
        raise ValueError(f"`explanation` must have values of its data, {points.shape}, got shape {values.shape}")
    outputs = _output_names(explanation)
    pairs = None
    square = values.ndim == 3 and values.shape[1] == values.shape[2] and base.ndim < 2 and outputs is None
    if values.ndim == 4 or square:  # values of pairs
        pairs, values = _pairs(values), values.sum(axis=2)
    return {
        **_additive(values, base),
        "data": points,
        "schema": schema,
        "output_names": outputs if values.ndim == 3 else None,
        "interactions": pairs,
        "standard_errors": errors,
        "attrs": {"explainer": "shap", **({} if pairs is None else {"interactions": "shap"})},
    }


def read_shapiq(values: Any, data: Any, predictions: Numbers | None, feature_names: Any) -> dict[str, Any]:
    """Return the arguments of `Explanation.create`; see `Explanation.from_shapiq`."""
    rows = [values] if hasattr(values, "interaction_lookup") else list(values)
    for row in rows:
        _check_parts(row, "values", "shapiq.InteractionValues", ("interaction_lookup", "index", "baseline_value"))
    points, schema = read_points(_as_rows(data), "data", feature_names=feature_names)
    check_same_rows(len(points), len(rows), "data", "values")
    index, order = _same(rows, "index"), int(_same(rows, "max_order"))
    if _same(rows, "n_players") != points.shape[1]:
        raise ValueError(f"`data` must have {rows[0].n_players} features, one per player, got shape {points.shape}")
    if max(row.min_order for row in rows) > 1:
        raise ValueError("`values` must have values of single features, got a `min_order` of 2 or more")
    # Sets of features that are left out have the value 0.
    tables = [
        {members: float(row.values[position]) for members, position in row.interaction_lookup.items()} for row in rows
    ]
    single = np.array([[table.get((j,), 0.0) for j in range(points.shape[1])] for table in tables])
    pairs = np.stack([_second_order(table, points.shape[1]) for table in tables]) if order > 1 else None
    shares = single
    if index in _ADDING_UP:
        shares = np.stack([_shared(table, points.shape[1]) for table in tables])
        pairs = None if pairs is None else pairs + single[:, :, None] * np.eye(points.shape[1])
    elif index not in _SHAPLEY and predictions is None:
        raise ValueError(f"`predictions` must be given, since values of the index {index!r} do not add up to them")
    base = np.array([float(row.baseline_value) for row in rows])
    budgets = {row.estimation_budget for row in rows} - {None}
    return {
        **_additive(shares, base),
        **({} if predictions is None else {"predictions": predictions}),
        "data": points,
        "schema": schema,
        "interactions": pairs,
        "attrs": {
            "explainer": "shapiq",
            "index": index,
            "order": order,
            "exact": not any(row.estimated for row in rows),
            **({} if pairs is None else {"interactions": index}),
            **({"coalitions": int(max(budgets))} if budgets else {}),
        },
    }


def _check_parts(value: object, name: str, kind: str, parts: Sequence[str]) -> None:
    if not all(hasattr(value, part) for part in parts):
        raise TypeError(f"`{name}` must be a {kind}, got {type(value).__module__}.{type(value).__name__}")


def _additive(values: Float[np.ndarray, "p d *outputs"], base: np.ndarray) -> dict[str, np.ndarray]:
    """Return values, base values and their sums; one base value for all instances if they have the same."""
    shape = (values.shape[0], *values.shape[2:])
    if base.ndim == 2 and base.shape == (shape[0], 1) and values.ndim == 2:
        base = base[:, 0]
    try:
        base = np.broadcast_to(base, shape)
    except ValueError:
        raise ValueError(f"`base_values` must have shape {shape}, got shape {base.shape}") from None
    common = base[0] if (base == base[0]).all() else base
    return {"values": values, "base_values": common, "predictions": base + values.sum(axis=1)}


def _required(value: Any, name: str) -> Any:
    if value is None:
        raise ValueError(f"`explanation` has no {name}; give `{name}`")
    return value


def _read_data(explanation: Any, data: Any) -> tuple[np.ndarray, Schema]:
    """Read the instances, with the text of categories where the explanation has it."""
    if data is None:
        shown = getattr(explanation, "display_data", None)
        data = explanation.data if shown is None else shown
    if is_table(data):
        return read_points(data, "data", categorical=columns_of_text(data))
    rows = _as_rows(data if hasattr(data, "dtype") else np.asarray(data))
    names = explanation.feature_names
    names = None if names is None else [str(name) for name in names]
    if np.asarray(rows).dtype.kind != "O":
        return read_points(rows, "data", feature_names=names)
    import pandas as pd

    columns = names or [f"x{j}" for j in range(rows.shape[1])]
    frame = pd.DataFrame(rows, columns=columns).infer_objects()
    return read_points(frame, "data", categorical=columns_of_text(frame))


def _as_rows(data: Any) -> Any:
    return np.asarray(data)[None] if np.ndim(data) == 1 else data


def _output_names(explanation: Any) -> list[str] | None:
    """Return the names of the outputs, if there is one list of them."""
    names = getattr(explanation, "output_names", None)
    if names is None or isinstance(names, str) or np.ndim(names) != 1:
        return None
    return [str(name) for name in names]


def _pairs(values: Float[np.ndarray, "p d d *outputs"]) -> np.ndarray:
    """Return shap's interactions, whose pairs are halved between (j, k) and (k, j), with whole pairs in both places."""
    factors = 2.0 - np.eye(values.shape[1])
    return values * factors.reshape(1, *factors.shape, *(1,) * (values.ndim - 3))


def _same(rows: Sequence[Any], name: str) -> Any:
    """Return an attribute that all values must share."""
    found = {getattr(row, name) for row in rows}
    if len(found) != 1:
        raise ValueError(f"`values` must have one `{name}`, got {sorted(found, key=str)}")
    return found.pop()


def _second_order(table: Mapping[tuple[int, ...], float], num_features: int) -> Float[np.ndarray, "d d"]:
    pairs = np.zeros((num_features, num_features))
    for members, value in table.items():
        if len(members) == 2:
            pairs[members], pairs[members[::-1]] = value, value
    return pairs


def _shared(table: Mapping[tuple[int, ...], float], num_features: int) -> Float[np.ndarray, " d"]:
    """Return contributions in which the value of each set is shared equally by its members."""
    shares = np.zeros(num_features)
    for members, value in table.items():
        if members:
            shares[list(members)] += value / len(members)
    return shares
