"""Maps: a field on a grid, and a prediction of one with its uncertainty and its error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from kpp.plots import _colors, _parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def field(
    values: xr.DataArray,
    *,
    limits: tuple[float, float] | None = None,
    diverging: bool = False,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a field on a grid, with its coordinates on the axes and its colors beside it.

    Args:
        values: The field, with two dimensions besides chain and draw, the first upwards; draws are shown by their mean.
            Each pixel is drawn around its coordinates; missing pixels stay gray.
        limits: The values at the ends of the colors; by default the smallest and the largest value, without
            outliers (a color bar that covers the 5th to the 95th percentile says so); with `diverging` they are
            symmetric about 0. Values beyond the limits have the color of the nearer end.
        diverging: Whether the colors run in two directions from white at 0, for differences.
        label: The label of the color scale; by default the field's name and units.
        ax: Where to draw; a new figure by default.

    Raises:
        ValueError: If the field does not have two dimensions, or all its values are missing.

    Example:
        >>> field = xr.DataArray(np.eye(3), dims=("lat", "lon"), name="rain")
        >>> kpp.plots.field(field).get_ylabel()
        'lat'
    """
    values = _parts.average(values)
    if values.ndim != 2:
        raise ValueError(f"`values` must have two dimensions besides chain and draw, got {list(values.dims)}")
    table = np.ma.masked_invalid(np.asarray(values.values, dtype=float))
    if table.count() == 0:
        raise ValueError("`values` must have a value that is not missing, got none")
    low, high = _limits(table, diverging) if limits is None else limits
    rows, columns = values.dims
    ax = _parts.axes_for(ax, 3.6, 6.0)
    ax.set_facecolor(_colors.FAINT)
    colors = _colors.diverging_colormap("kpp-difference") if diverging else "viridis"
    across, upwards = (_places(values, dim) for dim in (columns, rows))
    image = ax.pcolormesh(across, upwards, table, cmap=colors, vmin=low, vmax=high, rasterized=True)
    for axis, dim, places in ((ax.xaxis, columns, across), (ax.yaxis, rows, upwards)):
        if dim in values.coords and not _has_numbers(values, dim):
            axis.set_ticks(places, [str(level) for level in values.coords[dim].values])
    ax.set(xlabel=_name(values.coords.get(columns), str(columns)), ylabel=_name(values.coords.get(rows), str(rows)))
    label = _name(values, "") if label is None else label
    ends = _colors.clipped_ends(table.compressed(), low, high)
    if limits is None and ends != "neither":
        label = f"{label}\n({_colors.PERCENTILES})"
    ax.figure.colorbar(image, ax=ax, aspect=30, pad=0.02, label=label, extend=ends).outline.set_visible(False)
    return ax


def maps(
    prediction: xr.Dataset, truth: xr.DataArray | None = None, *, axes: Sequence[Axes] | None = None
) -> list[Axes]:
    """Plot the mean of a prediction and the width of its intervals; with the truth also this and the error.

    The true field and the mean share one color scale, which covers the values of both. The error is the mean minus the
    truth.

    Args:
        prediction: ``mean``, ``lower`` and ``upper`` on a grid, as returned by `predict_map` (in
            `kpp_models.aggregates.grids`); the attributes say what the intervals are of, and their probability.
        truth: The true field on the same grid.
        axes: Where to draw, one axis per map; a new figure by default.

    Returns:
        The axes: of mean and width; of truth, mean, width and error where the truth is given.

    Raises:
        ValueError: If a map is missing, or the number of axes differs from the number of maps.
    """
    missing = [name for name in ("mean", "lower", "upper") if name not in prediction]
    if missing:
        raise ValueError(f"`prediction` must have the maps mean, lower and upper, got none of {missing}")
    count = 2 if truth is None else 4
    axes = _new_axes(count, prediction["mean"]) if axes is None else list(axes)
    if len(axes) != count:
        raise ValueError(f"`axes` must be {count}, one a map, got {len(axes)}")
    mean, units = prediction["mean"], _units(prediction["mean"] if truth is None else truth)
    panels: list[tuple[str, xr.DataArray, dict[str, Any]]] = [
        ("mean", mean, {}),
        (_width_title(prediction), prediction["upper"] - prediction["lower"], {}),
    ]
    if truth is not None:
        shared = _limits(np.ma.masked_invalid([truth.transpose(*mean.dims).values, mean.values]), False)
        panels[0] = ("mean", mean, {"limits": shared})
        panels = [("truth", truth.transpose(*mean.dims), {"limits": shared}), *panels]
        panels.append(("mean less truth", mean - truth, {"diverging": True}))
    for ax, (title, values, options) in zip(axes, panels, strict=True):
        field(values, ax=ax, label=units, **options).set_title(title)
    return axes


def _new_axes(count: int, values: xr.DataArray) -> list[Axes]:
    """Return the axes of a new figure, two in a row, in the proportions of the grid but not too narrow or flat."""
    import matplotlib.pyplot as plt

    height = 4.6 * float(np.clip(values.shape[-2] / values.shape[-1], 0.4, 1.2))
    _, grid = plt.subplots(count // 2, 2, figsize=(12.0, (height + 0.8) * count / 2), layout="constrained")
    return list(np.ravel(grid))


def _limits(table: Any, diverging: bool) -> tuple[float, float]:
    low, high = _colors.range_without_outliers(table.compressed())
    if not diverging:
        return low, high
    furthest = max(abs(low), abs(high)) or 1.0
    return -furthest, furthest


def _places(values: xr.DataArray, dim: Any) -> np.ndarray:
    """Return the numbers of a coordinate, or positions if it has none."""
    return values.coords[dim].values if _has_numbers(values, dim) else np.arange(values.sizes[dim])


def _has_numbers(values: xr.DataArray, dim: Any) -> bool:
    return dim in values.coords and values.coords[dim].dtype.kind in "fiu"


def _name(array: xr.DataArray | None, default: str) -> str:
    """Return the name of an array or coordinate, with its units."""
    if array is None:
        return default
    name = str(array.attrs.get("long_name", default if array.name is None else array.name))
    units = _units(array)
    return f"{name} [{units}]" if units else name


def _units(array: xr.DataArray) -> str:
    return str(array.attrs.get("units", ""))


def _width_title(prediction: xr.Dataset) -> str:
    probability, what = prediction.attrs.get("probability"), prediction.attrs.get("interval_of")
    title = "width of the interval" if probability is None else f"width of the {100 * probability:g}% interval"
    return title if what is None else f"{title} of {what}"
