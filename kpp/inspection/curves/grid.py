"""The values of one or two features at which a curve is computed."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from kpp.data.tables import Schema
from kpp.foundation.validation import as_targets, count


class Grid(NamedTuple):
    """The values of a feature, or the pairs of values of two features."""

    column: int | Int[np.ndarray, "2"]  # the position of the feature, or those of both
    values: Float[np.ndarray, "p *pair"]  # as the model takes them, codes for a category
    labels: list[Any]  # as the table has them
    data: Float[np.ndarray, "n *pair"]  # of the rows
    is_category: bool  # or a boolean; of two features whether one is

    def at(self, rows: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "p m d"]:
        """Return rows with each of the values in the column."""
        points = np.repeat(rows[None], len(self.values), axis=0)
        points[:, :, self.column] = self.values[:, None]
        return points


def read_pair(grid: Any, rows: Float[np.ndarray, "n d"], schema: Schema, features: tuple[str, ...], num: int) -> Grid:
    """Read the values of two features, or choose some number of each, and return all pairs of them."""
    grids = grid if isinstance(grid, tuple) else (num if grid is None else grid,) * 2
    if len(features) != 2 or features[0] == features[1]:
        raise ValueError(f"`feature` must name one feature, or two different ones, got {features}")
    if len(grids) != 2:
        raise ValueError(f"`grid` must be a number, or hold a grid for each of {features}, got {len(grids)}")
    pair = [read_grid(own, rows, schema, feature) for own, feature in zip(grids, features, strict=True)]
    first, second = np.meshgrid(*(part.values for part in pair), indexing="ij")
    return Grid(
        np.array([part.column for part in pair]),
        np.stack([first.ravel(), second.ravel()], axis=1),
        list(itertools.product(*(part.labels for part in pair))),
        np.stack([part.data for part in pair], axis=1),
        any(part.is_category for part in pair),
    )


def read_grid(grid: Any, rows: Float[np.ndarray, "n d"], schema: Schema, feature: str) -> Grid:
    """Read the values of a feature, or choose as many as a number says: quantiles at even steps, or all levels.

    Raises ValueError if the feature is unknown or constant, or values are invalid.
    """
    try:
        column = schema.index(feature)
    except ValueError as error:
        raise ValueError(f"`feature`: {error}") from None
    data = rows[:, column]
    if feature in schema.categories:
        levels = list(schema.levels.get(feature, (False, True)))
        labels = levels if isinstance(grid, int) and not isinstance(grid, bool) else list(_several(grid))
        unknown = [label for label in labels if label not in levels]
        if unknown:
            raise ValueError(f"`grid` must hold levels of {feature!r}, {levels}, got {unknown[:5]}")
        return Grid(column, np.array([float(levels.index(label)) for label in labels]), labels, data, True)
    if not isinstance(grid, (list, tuple)) and np.ndim(grid) == 0:
        places = np.linspace(0.0, 1.0, count(grid, "grid", 2))
        values = np.unique(np.quantile(data, places, method="inverted_cdf"))
        if len(values) < 2:
            raise ValueError(
                f"`x` must have at least two values of {feature!r} to choose a grid, got only {values[0]:g}; give the "
                "values in `grid`"
            )
    else:
        values = np.asarray(as_targets(grid, name="grid"), dtype=float)
        if len(values) < 2 or (np.diff(values) <= 0).any():
            raise ValueError("`grid` must hold at least two values in increasing order")
        _warn_outside(values, data, feature)
    return Grid(column, values, values.tolist(), data, False)


def _several(grid: Any) -> Iterable[Any]:
    if isinstance(grid, (str, bytes)) or not isinstance(grid, Iterable):
        raise ValueError(f"`grid` must be a number of values or a list of values, got {grid!r}")
    return grid


def _warn_outside(values: np.ndarray, data: np.ndarray, feature: str) -> None:
    """Warn of values outside of the data, where a curve is an extrapolation."""
    low, high, near = data.min(), data.max(), data.std()
    outside = values[(values < low) | (values > high)]
    if len(outside) and len(data) > 1:
        closest = max(float((abs(data - value) <= near).mean()) for value in outside)
        warnings.warn(
            f"`grid` has {len(outside)} of {len(values)} values outside of {feature!r} in `x`, from {low:g} to "
            f"{high:g}: at most {closest:.1%} of the rows lie within a standard deviation of such a value, and the "
            "curve there is an extrapolation",
            UserWarning,
            stacklevel=5,
        )
