"""The pixels of a grid as points with features, and the conversion of values at points back to the grid."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from kpp.foundation.wording import unknown_feature
from kpp.typing import Numbers

# Numbers in place of missing values in files: attributes that name them, sizes that no measurement has (the largest
# float32, netCDF's 9.97e36, 1e20 of climate models), and numbers that count as such if they are far from all others.
_FILL_ATTRIBUTES = ("_FillValue", "missing_value", "nodata")
_LARGEST = 1e19
_USUAL_FILLS = (-999.0, -9999.0, -32768.0, -99999.0)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class GridPoints:
    """Pixels of a grid as points, in the order of the grid's dimensions; built by `grid_points`.

    Args:
        points: One row per complete pixel, (n, d), after subtracting `center` and dividing by `scale`.
        feature_names: The names of the columns: first coordinates, then variables.
        mask: Which pixels of the grid are among the points; its dimensions and coordinates are those of the maps.
        center: The numbers subtracted from the columns, (d,), zeros if they are not standardized.
        scale: The numbers by which the columns were divided, (d,), ones if they are not standardized.
    """

    points: Float[np.ndarray, "n d"]
    feature_names: tuple[str, ...]
    mask: xr.DataArray
    center: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]

    @property
    def num_points(self) -> int:
        """The number of pixels that are points, n."""
        return self.points.shape[0]

    @property
    def num_dropped(self) -> int:
        """The number of pixels of the grid that are not points."""
        return self.mask.size - self.num_points

    @property
    def dims(self) -> tuple[Hashable, ...]:
        """The dimensions of the grid."""
        return self.mask.dims

    def __repr__(self) -> str:
        size = " x ".join(f"{name}: {length}" for name, length in self.mask.sizes.items())
        return f"GridPoints({size}; {self.num_points} points of {self.feature_names}, {self.num_dropped} dropped)"

    def values(self, array: xr.DataArray) -> Float[np.ndarray, " n"]:
        """Return the values of a variable at the points.

        Args:
            array: The variable, on this grid.

        Returns:
            Its values in the order of the points, (n,); NaN where they are missing.

        Raises:
            ValueError: If the variable is on another grid.
        """
        array = _on_grid(without_fill_values(array), self.mask)
        return _numbers(array, str(array.name))[self.mask.values]

    def to_map(
        self, values: Numbers | xr.DataArray | xr.Dataset, *, name: str | None = None
    ) -> xr.DataArray | xr.Dataset:
        """Put values at the points back on the grid.

        Args:
            values: One value per point, (n,), or with axes in front; or a DataArray or Dataset whose last dimension is
                ``instance``, such as `Fit.predict` returns.
            name: The name of the map; a labeled array keeps its own by default.

        Returns:
            A DataArray with the axes in front and the dimensions and coordinates of the grid, NaN where a pixel is not
            a point; a Dataset of these for a Dataset.

        Raises:
            ValueError: If the length of the last axis is not the number of points.
        """
        if isinstance(values, xr.Dataset):
            return values.map(self.to_map)
        labeled = values if isinstance(values, xr.DataArray) else None
        if labeled is not None and "instance" in labeled.dims:
            labeled = labeled.transpose(..., "instance")
        flat = np.asarray(values if labeled is None else labeled, dtype=float)
        if flat.ndim == 0 or flat.shape[-1] != self.num_points:
            raise ValueError(f"`values` must have shape (..., {self.num_points}), one a point, got {flat.shape}")
        full = np.full((*flat.shape[:-1], *self.mask.shape), np.nan)
        full[..., self.mask.values] = flat
        if labeled is None:
            return xr.DataArray(full, dict(self.mask.coords), (*_lead_dims(flat.ndim - 1), *self.dims), name)
        lead = labeled.dims[:-1]
        coords = {dim: labeled.coords[dim] for dim in lead if dim in labeled.coords} | dict(self.mask.coords)
        chosen = labeled.name if name is None else name
        return xr.DataArray(full, coords, (*lead, *self.dims), chosen, labeled.attrs)

    def read(self, dataset: object) -> GridPoints:
        """Return the pixels of another grid as points with the same features, center and scale.

        Args:
            dataset: A Dataset (or a DataArray) with the same dimensions and variables.

        Returns:
            Its points.

        Raises:
            ValueError: As for `grid_points`.
        """
        variables = [name for name in self.feature_names if name not in self.dims]
        other = grid_points(dataset, variables, coordinates=len(variables) < len(self.feature_names))
        points = (other.points - self.center) / self.scale
        return dataclasses.replace(other, points=points, center=self.center, scale=self.scale)

    def keep(self, rows: Bool[np.ndarray, " n"]) -> GridPoints:
        """Return some of the points, on the same grid.

        Args:
            rows: Whether each point stays, (n,).

        Returns:
            Those points.
        """
        mask = self.mask.copy(data=self.mask.values)
        mask.values[self.mask.values] = rows
        return dataclasses.replace(self, points=self.points[rows], mask=mask)

    def standardize(self) -> GridPoints:
        """Return the points with columns of mean 0 and standard deviation 1; a constant column is only centered."""
        center, scale = self.points.mean(axis=0), self.points.std(axis=0)
        scale = np.where(scale > 1e-12 * np.abs(center), scale, 1.0)  # less is the rounding error of a constant
        points = (self.points - center) / scale
        return dataclasses.replace(
            self, points=points, center=self.center + self.scale * center, scale=self.scale * scale
        )


def grid_points(
    dataset: object, variables: Sequence[str] | None = None, *, coordinates: bool = True, standardize: bool = False
) -> GridPoints:
    """Return the pixels of a grid as points.

    Args:
        dataset: A Dataset (or a DataArray) whose variables are on one grid: all have the same dimensions, such as lat
            and lon.
        variables: Which variables are features; by default all.
        coordinates: Whether the coordinates along the dimensions are features too; they come first.
        standardize: Whether to center and scale the features, so that their means over the points are 0 and their
            standard deviations 1. The transformation is stored, and `GridPoints.read` applies it to other grids.

    Returns:
        The points. Pixels with a missing variable (NaN, or the value that an attribute ``_FillValue``,
            ``missing_value`` or ``nodata`` names) are left out; ``num_dropped`` counts them.

    Raises:
        ValueError: If a variable or a coordinate is unknown or on other dimensions, not numbers, or infinite, if values
            are those that files have for missing ones (-3.4e38, -9999), if there are no features, or if no pixel is
            complete.
    """
    dataset = as_dataset(dataset)
    names = [str(name) for name in dataset.data_vars] if variables is None else list(variables)
    for name in names:
        if name not in dataset.data_vars:
            raise ValueError(unknown_feature(name, [str(known) for known in dataset.data_vars]))
    if not names and not coordinates:
        raise ValueError("`variables` must name a variable where `coordinates` is False, got none")
    template = grid_template(dataset, dataset[names[0]].dims if names else tuple(dataset.sizes))
    grid = read_pixels(dataset, template, names, coordinates)
    if not grid.num_points:
        raise ValueError(f"`dataset` must have a pixel where no variable is missing, got NaN at all {template.size}")
    return grid.standardize() if standardize else grid


def read_pixels(dataset: xr.Dataset, template: xr.DataArray, names: Sequence[str], coordinates: bool) -> GridPoints:
    """Return the pixels at which none of the given variables is missing; there may be no pixels, and no features."""
    fields = [_coordinate(template, dim) for dim in template.dims] if coordinates else []
    fields += [_numbers(_on_grid(dataset[name], template), name) for name in names]
    columns = np.stack([field.ravel() for field in fields], axis=1) if fields else np.zeros((template.size, 0))
    complete = ~np.isnan(columns).any(axis=1)
    features = tuple(str(dim) for dim in template.dims if coordinates) + tuple(names)
    mask = template.copy(data=complete.reshape(template.shape))
    return GridPoints(columns[complete], features, mask, np.zeros(len(features)), np.ones(len(features)))


def as_dataset(grid: object, name: str = "dataset") -> xr.Dataset:
    """Return a grid without fill values as a Dataset, a DataArray as its one variable, "value" without a name."""
    if isinstance(grid, xr.DataArray):
        grid = grid.to_dataset(name="value" if grid.name is None else grid.name)
    if not isinstance(grid, xr.Dataset):
        raise TypeError(f"`{name}` must be an xarray Dataset or DataArray, got {type(grid).__name__}")
    return grid.assign({name: without_fill_values(array) for name, array in grid.data_vars.items()})


def without_fill_values(array: xr.DataArray) -> xr.DataArray:
    """Return a variable with NaN in place of the values that its attributes name as missing."""
    for attribute in _FILL_ATTRIBUTES:
        if attribute in array.attrs:
            array = array.where(array != array.attrs[attribute])
    return array


def grid_template(dataset: xr.Dataset, dims: Sequence[Hashable]) -> xr.DataArray:
    """Return an array of a grid's shape with only its coordinates along the dimensions."""
    if not dims:
        raise ValueError("`dataset` must have variables with dimensions, got none")
    coords = {dim: dataset.coords[dim].variable for dim in dims if dim in dataset.coords}
    shape = tuple(dataset.sizes[dim] for dim in dims)
    return xr.DataArray(np.zeros(shape, dtype=bool), coords=coords, dims=dims)


def _on_grid(array: xr.DataArray, template: xr.DataArray) -> xr.DataArray:
    """Return a variable with the template's order of dimensions; raise ValueError if it is on another grid."""
    what = f"the variable {array.name!r}" if array.name is not None else "the variable"
    if set(array.dims) != set(template.dims):
        raise ValueError(f"{what} must have the dimensions {list(template.dims)}, got {list(array.dims)}")
    array = array.transpose(*template.dims)
    if array.shape != template.shape:
        raise ValueError(f"{what} must have the shape {template.shape}, got {array.shape}")
    for dim in template.dims:
        both = dim in array.coords and dim in template.coords
        if both and not array.indexes[dim].equals(template.indexes[dim]):
            raise ValueError(f"{what} must have the coordinates of the grid along {dim!r}; see xarray's `reindex_like`")
    return array


def _coordinate(template: xr.DataArray, dim: Hashable) -> np.ndarray:
    """Return the coordinate along a dimension at every pixel."""
    if dim not in template.coords:
        raise ValueError(f"`dataset` has no coordinate along {dim!r}; assign one, or say `coordinates=False`")
    column = _numbers(template.coords[dim], str(dim))
    along = [-1 if other == dim else 1 for other in template.dims]
    return np.broadcast_to(column.reshape(along), template.shape)


def _numbers(array: xr.DataArray, name: str) -> np.ndarray:
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name!r} must hold numbers, got dtype {array.dtype}")
    values = np.asarray(array.values, dtype=float)
    if np.isinf(values).any():
        raise ValueError(f"{name!r} must be finite or missing, got {int(np.isinf(values).sum())} infinite values")
    _refuse_fill_values(values[~np.isnan(values)], name)
    return values


def _refuse_fill_values(values: np.ndarray, name: str) -> None:
    """Raise ValueError if numbers are those that files have in place of missing ones."""
    strange = np.abs(values) >= _LARGEST
    for fill in _USUAL_FILLS:
        others = values[values != fill]
        far = 0 < others.size < values.size and others.min() - fill > np.ptp(others)
        strange |= (values == fill) & far
    if strange.any():
        fill = values[strange][0]
        raise ValueError(
            f"{name!r} must be NaN where it is missing, got {fill:.8g} at {int(strange.sum())} of {values.size} "
            "places, as files write missing values; name this value in the attribute `_FillValue`, or write "
            "`array.where(is_valid)`"
        )


def _lead_dims(count: int) -> tuple[str, ...]:
    return ("chain", "draw") if count == 2 else ("draw",) if count == 1 else tuple(f"axis_{i}" for i in range(count))
