"""Two grids as bags: the fine pixels in each coarse cell, with the covariates of the cell."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Int

from kpp.data.bags import Bags
from kpp.foundation.validation import one_of
from kpp.foundation.wording import unknown_feature
from kpp.typing import Numbers
from kpp_models.aggregates.grids.points import (
    GridPoints,
    as_dataset,
    grid_points,
    grid_template,
    read_pixels,
    without_fill_values,
)

_MOST_SHIFTED = 0.05  # pixels of the cell at the seam of a globe, which are left out


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class GridBags:
    """Bags of fine pixels, one for each coarse cell with pixels; built by `bags_from_grid`.

    Args:
        bags: The bags, N of them, in the order of the coarse points.
        fine: The fine pixels as points, n of them, including those outside all cells: the points for predictions.
        coarse: The coarse cells as points, N of them; their features are the covariates of the bags.
        cell: The bag of each fine point, (n,), -1 for a point in no bag.
        num_empty: The number of coarse cells left out because they hold no pixel.
    """

    bags: Bags
    fine: GridPoints
    coarse: GridPoints
    cell: Int[np.ndarray, " n"]
    num_empty: int

    @property
    def num_outside(self) -> int:
        """The number of fine points in no bag: outside all cells, or in a cell with missing covariates."""
        return int(np.sum(self.cell < 0))

    def __repr__(self) -> str:
        sizes = np.asarray(self.bags.sizes)
        counts = f"{sizes.min()}" if sizes.min() == sizes.max() else f"{sizes.min()} to {sizes.max()}"
        left = self.coarse.num_dropped - self.num_empty
        return (
            f"GridBags({self.bags.num_bags} bags of {counts} pixels; {self.num_outside} pixels in no bag, "
            f"{self.fine.num_dropped} missing; {self.num_empty} cells without pixels, {left} without covariates)"
        )

    def means(self, array: xr.DataArray) -> Float[np.ndarray, " N"]:
        r"""Average a variable on the fine grid over the pixels of each bag, :math:`\frac{1}{n_j} \sum_i v(x_j^i)`.

        Args:
            array: The variable v, on the fine grid.

        Returns:
            The means, (N,), NaN if the variable is missing at one of the bag's pixels.
        """
        values, inside = self.fine.values(array), self.cell >= 0
        # A missing pixel is NaN, and so is the mean of its bag: a mean over fewer pixels is another quantity.
        sums = np.bincount(self.cell[inside], weights=values[inside], minlength=self.bags.num_bags)
        return sums / np.asarray(self.bags.sizes)


def bags_from_grid(
    fine: object,
    coarse: object = None,
    *,
    blocks: Mapping[Any, int] | int | None = None,
    variables: Sequence[str] | None = None,
    covariates: Sequence[str] = (),
    coordinates: bool = True,
    standardize: bool = False,
    edges: Mapping[Any, Any] | None = None,
    boundary: str = "exact",
    empty: str = "drop",
) -> GridBags:
    """Put the pixels of a fine grid into bags, one per cell of a coarse grid.

    If the coarse grid is given, coordinates determine the cell of each pixel. Unless `edges` are given, cells end
    halfway between their centers, and the outer cells are symmetric about their centers; a pixel on an edge belongs to
    the cell with the larger coordinate. Otherwise cells are equal `blocks` of pixels, and the coarse grid is
    ``coarsen(fine, blocks)``. All pixels of a cell have the same weight; their areas on the globe are ignored.

    Args:
        fine: A Dataset (or a DataArray) of variables on the fine grid.
        coarse: A Dataset (or a DataArray) of variables on the coarse grid, with the same dimensions and one-dimensional
            coordinates.
        blocks: The numbers of pixels of a block along each dimension, or one number for all.
        variables: The variables of `fine` that are features of the points; by default all.
        covariates: The variables of the coarse grid that are covariates of the bags.
        coordinates: Whether coordinates are features of the points and covariates of the bags; they come first.
        standardize: Whether to center and scale the features over all pixels and the covariates over all bags.
        edges: For some dimensions the k + 1 edges of the k coarse cells, in the order of the cells.
        boundary: The treatment of pixels that do not fill a block: raise an error ("exact"), leave them out ("trim"),
            or make smaller blocks ("pad"); as in xarray's `coarsen`.
        empty: Whether coarse cells without pixels are left out, "drop", or raise an error, "raise".

    Returns:
        The bags, the points of both grids, and the numbers of pixels and cells that were left out. Pixels with a
        missing variable are in no bag, nor are pixels in a coarse cell whose covariates are missing.

    Raises:
        ValueError: If not exactly one of `coarse` and `blocks` is given, if grids, variables or blocks do not fit, or
            if no pixel lies in any cell.
    """
    if (coarse is None) == (blocks is None):
        raise ValueError("exactly one of `coarse` and `blocks` must be given")
    one_of(empty, "empty", ("drop", "raise"))
    fine = as_dataset(fine, "fine")
    pixels = grid_points(fine, variables, coordinates=coordinates, standardize=standardize)
    if blocks is not None:
        sizes = _block_sizes(blocks, pixels.mask)
        cells_grid = coarsen(fine, sizes, boundary=boundary)
        places = [_block_places(pixels.mask.sizes[dim], sizes.get(dim, 1), boundary) for dim in pixels.dims]
    else:
        cells_grid = as_dataset(coarse, "coarse")
        places = [_places(pixels.mask, cells_grid, dim, (edges or {}).get(dim)) for dim in pixels.dims]
    for name in covariates:
        if name not in cells_grid.data_vars:
            raise ValueError(f"`covariates`: {unknown_feature(name, [str(known) for known in cells_grid.data_vars])}")
    cells = read_pixels(cells_grid, grid_template(cells_grid, pixels.dims), covariates, coordinates)
    return _group(pixels, cells, _flat(places, cells.mask.shape)[pixels.mask.values], standardize, empty)


def coarsen(dataset: Any, blocks: Mapping[Any, int] | int, *, boundary: str = "exact") -> Any:
    """Return the means of blocks of pixels as a coarse grid; its coordinates are the means of the pixels' coordinates.

    It is xarray's ``coarsen(blocks, boundary=boundary).mean()``: missing values are left out of the means.

    Args:
        dataset: A Dataset (or a DataArray) of variables on a grid.
        blocks: The numbers of pixels of a block along each dimension, or one number for all.
        boundary: The treatment of pixels that do not fill a block: "exact", "trim" or "pad".

    Returns:
        The coarse grid, a Dataset or DataArray like `dataset`.

    Raises:
        ValueError: If a dimension is unknown, or with "exact" is not a multiple of its block.

    Example:
        >>> from kpp_models.aggregates import grids
        >>> field = xr.DataArray(np.arange(16.0).reshape(4, 4), dims=("lat", "lon"))
        >>> grids.coarsen(field, 2).values
        array([[ 2.5,  4.5],
               [10.5, 12.5]])
    """
    one_of(boundary, "boundary", ("exact", "trim", "pad"))
    sizes = _block_sizes(blocks, dataset)
    for dim, size in sizes.items():
        if boundary == "exact" and dataset.sizes[dim] % size:
            raise ValueError(
                f"`blocks` must divide the {dataset.sizes[dim]} pixels along {dim!r}, got {size}; or say "
                "`boundary='trim'` or `boundary='pad'`"
            )
    grid: Any = as_dataset(dataset) if isinstance(dataset, xr.Dataset) else without_fill_values(dataset)
    return grid.coarsen(sizes, boundary=boundary).mean()


def _group(pixels: GridPoints, cells: GridPoints, flat: np.ndarray, standardize: bool, empty: str) -> GridBags:
    """Number the cells that have pixels and covariates, and group the points by them."""
    occupied = np.bincount(flat[flat >= 0], minlength=cells.mask.size) > 0
    if empty == "raise" and not occupied.all():
        count, first = int(np.sum(~occupied)), _describe_cell(cells.mask, int(np.argmin(occupied)))
        raise ValueError(f"every coarse cell must hold a pixel, got {count} without, such as that at {first}")
    known = cells.mask.values.ravel()
    kept = occupied & known
    if not kept.any():
        raise ValueError("a coarse cell with covariates must hold a pixel of `fine`, got none: compare the coordinates")
    cells = cells.keep(occupied[known])
    cells = cells.standardize() if standardize else cells
    number = np.where(kept, np.cumsum(kept) - 1, -1)
    cell = np.where(flat >= 0, number[flat], -1)
    points = pd.DataFrame(pixels.points[cell >= 0], columns=list(pixels.feature_names))
    table = pd.DataFrame(cells.points, columns=list(cells.feature_names)) if cells.feature_names else None
    return GridBags(Bags.create(points, cell[cell >= 0], table), pixels, cells, cell, int(np.sum(~occupied)))


def _describe_cell(mask: xr.DataArray, flat: int) -> str:
    place = np.unravel_index(flat, mask.shape)
    named = {
        dim: mask.coords[dim].values[i] if dim in mask.coords else i for dim, i in zip(mask.dims, place, strict=True)
    }
    return ", ".join(f"{dim} = {value:g}" for dim, value in named.items())


def _flat(places: Sequence[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Return for each pixel of the fine grid the number of its cell, -1 for none."""
    grids = np.meshgrid(*places, indexing="ij")
    outside = np.any([place < 0 for place in grids], axis=0)
    return np.where(outside, -1, np.ravel_multi_index([np.maximum(place, 0) for place in grids], shape))


def _places(fine: xr.DataArray, coarse: xr.Dataset, dim: Hashable, edges: Numbers | None) -> np.ndarray:
    """Return the position along one dimension of the cell of each fine coordinate, -1 for none."""
    for name, grid in {"fine": fine, "coarse": coarse}.items():
        if dim not in grid.coords or grid.coords[dim].ndim != 1:
            raise ValueError(f"`{name}` must have a one-dimensional coordinate along {dim!r}; or say `blocks`")
    pixels = np.asarray(fine.coords[dim].values, dtype=float)
    centers = np.asarray(coarse.coords[dim].values, dtype=float)
    edges = _edges(centers, dim) if edges is None else np.asarray(edges, dtype=float)
    if edges.shape != (len(centers) + 1,):
        raise ValueError(f"`edges` must have {len(centers) + 1} numbers along {dim!r}, got shape {edges.shape}")
    _require_monotone(edges, f"`edges` along {dim!r}")
    backwards = edges[0] > edges[-1]
    ordered = edges[::-1] if backwards else edges
    _refuse_other_longitudes(pixels, ordered, dim)
    place = np.searchsorted(ordered, pixels, side="right") - 1  # a pixel on an edge belongs to the cell above
    place = np.where(pixels == ordered[-1], len(centers) - 1, place)  # the last cell holds both its edges
    inside = (place >= 0) & (place < len(centers))
    return np.where(inside, len(centers) - 1 - place if backwards else place, -1)


def _refuse_other_longitudes(pixels: np.ndarray, edges: np.ndarray, dim: Hashable) -> None:
    """Raise ValueError if degrees from 0 to 360 meet degrees from -180 to 180, so that cells get no pixels."""
    low, high = min(pixels.min(), edges[0]), max(pixels.max(), edges[-1])
    shifted = edges[0] + (pixels - edges[0]) % 360.0
    found = (shifted != pixels) & (shifted < edges[-1])
    if low < 0 and 180 < high and high - low <= 720 and found.mean() > _MOST_SHIFTED:
        raise ValueError(
            f"`fine` and `coarse` must have the same degrees along {dim!r}, got {pixels.min():g} to {pixels.max():g} "
            f"and {edges[0]:g} to {edges[-1]:g}: {int(found.sum())} of {len(pixels)} pixels lie in a cell after a turn "
            f"of 360 degrees; write grid.assign_coords({dim}=grid[{str(dim)!r}] % 360).sortby({str(dim)!r}) for both"
        )


def _edges(centers: np.ndarray, dim: Hashable) -> np.ndarray:
    """Return the midpoints between the centers, and the outer ends, for which the outer cells are symmetric."""
    if len(centers) < 2:
        raise ValueError(f"`coarse` has one cell along {dim!r}: give its ends as `edges`")
    _require_monotone(centers, f"the coordinate of `coarse` along {dim!r}")
    between = (centers[1:] + centers[:-1]) / 2.0
    return np.concatenate([[2.0 * centers[0] - between[0]], between, [2.0 * centers[-1] - between[-1]]])


def _require_monotone(values: np.ndarray, name: str) -> None:
    steps = np.diff(values)
    if not ((steps > 0).all() or (steps < 0).all()):
        raise ValueError(f"{name} must increase or decrease from one cell to the next")


def _block_sizes(blocks: Mapping[Any, int] | int, grid: xr.Dataset | xr.DataArray) -> dict[Hashable, int]:
    sizes = dict(blocks) if isinstance(blocks, Mapping) else {dim: blocks for dim in grid.sizes}
    unknown = [dim for dim in sizes if dim not in grid.sizes]
    if unknown:
        raise ValueError(f"`blocks` must name dimensions of the grid, {list(grid.sizes)}, got {unknown}")
    wrong = {dim: size for dim, size in sizes.items() if not isinstance(size, int) or size < 1}
    if wrong:
        raise ValueError(f"`blocks` must be at least 1 along each dimension, whole numbers, got {wrong}")
    return sizes


def _block_places(length: int, size: int, boundary: str) -> np.ndarray:
    place = np.arange(length) // size
    return np.where(place < length // size, place, -1) if boundary == "trim" else place
