"""The arguments of a model that hold one entry per row, as the columns of one table of points."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from kpp.data.tables import Schema, is_table
from kpp.typing import AnyArray


@dataclasses.dataclass(frozen=True)
class RowInputs:
    """How the columns of points (n, d) become arguments of a model."""

    names: tuple[str, ...]  # of the arguments
    widths: tuple[int | None, ...]  # columns of each argument; None for one of shape (n,)
    dtypes: tuple[np.dtype, ...]
    schema: Schema  # of the columns
    rows: Float[np.ndarray, "n d"]  # of training

    @classmethod
    def read(
        cls,
        data: Mapping[str, Any],
        inputs: str | Sequence[str],
        feature_names: Sequence[str] | None,
        levels: Mapping[str, Sequence[Any]],
    ) -> RowInputs:
        """Read the arguments with which a model was run: arrays with the same rows, and text only with levels."""
        names = (inputs,) if isinstance(inputs, str) else tuple(inputs)
        missing = [name for name in names if name not in data]
        if missing or not names:
            raise ValueError(
                f"`inputs` must name arguments in `data` with one entry per row, got {names}; `data` holds "
                f"{sorted(data)}"
            )
        arguments = [_Argument.read(name, data[name], levels) for name in names]
        lengths = {argument.name: len(argument.columns) for argument in arguments}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"`data` must hold as many rows for all `inputs`, got {lengths}")
        schema = _schema(arguments, feature_names, levels)
        rows = schema.read(np.concatenate([argument.columns for argument in arguments], axis=1), "data")
        widths = tuple(argument.columns.shape[1] if argument.is_matrix else None for argument in arguments)
        return cls(names, widths, tuple(argument.dtype for argument in arguments), schema, rows)

    @property
    def num_rows(self) -> int:
        """The number of training rows, n."""
        return len(self.rows)

    def arguments(self, rows: Float[AnyArray, "p d"]) -> dict[str, Any]:
        """Return the arguments of the model for some rows."""
        found, start = {}, 0
        for name, width, dtype in zip(self.names, self.widths, self.dtypes, strict=True):
            values = rows[:, start] if width is None else rows[:, start : start + width]
            found[name] = jnp.asarray(values).astype(jax.dtypes.canonicalize_dtype(dtype))
            start += 1 if width is None else width
        return found

    def check(self, rows: Float[np.ndarray, "p d"]) -> None:
        """Raise ValueError if numbers for an argument of integers are not integers."""
        start = 0
        for name, width, dtype in zip(self.names, self.widths, self.dtypes, strict=True):
            columns = rows[:, start : start + (width or 1)]
            if dtype.kind in "iub" and (columns != np.rint(columns)).any():
                wrong = columns[columns != np.rint(columns)][0]
                raise ValueError(
                    f"`x` must hold integers for the argument {name!r} of the model, got {wrong:g}; `levels` tells "
                    "explainers that a column holds codes of a category"
                )
            start += width or 1


@dataclasses.dataclass(frozen=True)
class _Argument:
    """One argument: its columns (n, k) as numbers, their names, and the type of its entries."""

    name: str
    columns: np.ndarray
    features: tuple[str, ...]
    dtype: np.dtype
    is_matrix: bool

    @classmethod
    def read(cls, name: str, value: Any, levels: Mapping[str, Sequence[Any]]) -> _Argument:
        if is_table(value):
            features = tuple(str(column) for column in value.columns)
            columns = [_codes(np.asarray(value[column]), column, levels) for column in features]
            return cls(name, np.stack(columns, axis=1), features, np.dtype(float), True)
        array = np.asarray(value)
        if array.ndim == 1:
            own = getattr(value, "name", None)
            feature = own if isinstance(own, str) else name
            codes = _codes(array, feature, levels)
            return cls(name, codes[:, None], (feature,), codes.dtype, False)
        if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "fiub":
            raise ValueError(
                f"`data` must hold numbers of shape (n,) or (n, k) for the input {name!r}, got {array.dtype} of shape "
                f"{array.shape}"
            )
        return cls(name, array, tuple(f"{name}{j}" for j in range(array.shape[1])), array.dtype, True)


def _codes(column: np.ndarray, feature: str, levels: Mapping[str, Sequence[Any]]) -> np.ndarray:
    """Return the numbers of a column; text is replaced by the positions of its levels."""
    if column.dtype.kind in "fiub":
        return column
    if feature not in levels:
        raise ValueError(
            f"`data` holds text in column {feature!r}; `levels` must give its levels in the order of the codes with "
            f"which the model was run: levels={{{feature!r}: [level of code 0, level of code 1, ...]}}"
        )
    positions = {level: code for code, level in enumerate(levels[feature])}
    unknown = sorted({str(value) for value in column.tolist() if value not in positions})
    if unknown:
        raise ValueError(f"`levels` lacks {unknown} of column {feature!r}; it has {list(levels[feature])}")
    return np.array([positions[value] for value in column.tolist()])


def _schema(
    arguments: Sequence[_Argument], feature_names: Sequence[str] | None, levels: Mapping[str, Sequence[Any]]
) -> Schema:
    own = [feature for argument in arguments for feature in argument.features]
    names = own if feature_names is None else [str(name) for name in feature_names]
    if len(names) != len(own):
        raise ValueError(f"`feature_names` must have one name for each of the {len(own)} columns, got {len(names)}")
    kinds = [argument.dtype.kind for argument in arguments for _ in argument.features]
    booleans = tuple(name for name, kind in zip(names, kinds, strict=True) if kind == "b")
    return Schema(tuple(names), {name: tuple(entries) for name, entries in levels.items()}, booleans)
