"""The cells of a raster: their boxes and sizes, and the pieces of them that lie in polygons."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool, Float, Int

from kpp.foundation.distribution import extra

EARTH_RADIUS = 6_371_008.8  # metres, the mean radius of the ellipsoid


@dataclasses.dataclass(frozen=True, eq=False)
class Cells:
    """The complete cells of a raster, n of them, row by row.

    Args:
        mask: Which cells are complete, with the raster's coordinates, CRS and the dims (y, x).
        features: The coordinates and variables at the cells, n rows.
        amounts: The weight of each whole cell, (n,).
        boxes: The cells as polygons of shapely, (n,).
    """

    mask: xr.DataArray
    features: pd.DataFrame
    amounts: Float[np.ndarray, " n"]
    boxes: np.ndarray

    @property
    def crs(self) -> Any:
        """The coordinate reference system of the raster."""
        return self.mask.rio.crs

    def pieces(self, polygons: np.ndarray) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " k"], np.ndarray]:
        """Return the polygon, the cell, and the share of the cell in the polygon, of each pair that meets.

        Args:
            polygons: Polygons of shapely in the raster's CRS.
        """
        import shapely

        shapely.prepare(polygons)
        polygon, cell = shapely.STRtree(self.boxes).query(polygons, predicate="intersects")
        shares = np.ones(len(cell))
        cut = ~shapely.covers(polygons[polygon], self.boxes[cell])
        parts = shapely.intersection(polygons[polygon[cut]], self.boxes[cell[cut]])
        shares[cut] = shapely.area(parts) / shapely.area(self.boxes[cell[cut]])
        return polygon[shares > 0], cell[shares > 0], shares[shares > 0]


def read_raster(raster: object, variables: Sequence[str] | None, coordinates: bool, weights: str | None) -> Cells:
    """Return the complete cells of a raster; the arguments are those of `area_bags`."""
    dataset = _as_dataset(raster)
    known = [str(name) for name in dataset.data_vars]
    names = [name for name in known if name != weights] if variables is None else list(variables)
    read = names + ([] if weights is None else [weights])
    if unknown := [name for name in read if name not in known]:
        raise ValueError(f"`raster` must have the variables that are named, got no {unknown[0]!r} among {known}")
    y, x = dataset.rio.y_dim, dataset.rio.x_dim
    edges = (_edges(dataset, y), _edges(dataset, x))
    layers = {name: _layer(dataset[name], (y, x)) for name in read}
    mask = np.all([~np.isnan(layer) for layer in layers.values()], axis=0) if layers else np.ones((len(dataset[y]), 1))
    mask = np.broadcast_to(mask, (dataset.sizes[y], dataset.sizes[x])).astype(bool)
    if not mask.any():
        raise ValueError("`raster` must have a cell where no variable is missing, got NaN everywhere")
    grids = np.meshgrid(dataset[y].values.astype(float), dataset[x].values.astype(float), indexing="ij")
    places = {str(x): grids[1][mask], str(y): grids[0][mask]} if coordinates else {}
    features = pd.DataFrame(places | {name: layers[name][mask] for name in names})
    if features.columns.empty:
        raise ValueError("`variables` must name a variable where `coordinates` is False, got none")
    amounts = _sizes(*edges, dataset.rio.crs.is_geographic) if weights is None else layers[weights]
    if (amounts[mask] < 0).any():
        raise ValueError(f"`weights` must be at least 0, got {amounts[mask].min():g} in the layer {weights!r}")
    template = xr.DataArray(mask, {y: dataset[y].variable, x: dataset[x].variable}, (y, x))
    return Cells(template.rio.write_crs(dataset.rio.crs), features, amounts[mask], _boxes(*edges)[mask])


def read_areas(areas: object, cells: Cells) -> np.ndarray:
    """Return areas as polygons in the CRS of the cells; raise ValueError if one is missing, empty or invalid."""
    try:
        import geopandas
        import shapely
    except ImportError as error:
        raise ImportError(f"`areas` need GeoPandas: {extra('areal')}") from error
    if not isinstance(areas, geopandas.GeoDataFrame):
        raise TypeError(f"`areas` must be a GeoDataFrame, got {type(areas).__name__}")
    if areas.crs is None:
        raise ValueError("`areas` must have a CRS, got none: set it by areas.set_crs(...)")
    if not len(areas) or not areas.index.is_unique:
        raise ValueError(f"`areas` must have rows with different labels in the index, got {areas.index.tolist()[:5]}")
    polygons = np.asarray(areas.geometry.to_crs(cells.crs).array)
    refuse_areas(areas.index, shapely.area(polygons) <= 0, "must be polygons, got lines, points or nothing for")
    missing = shapely.is_missing(polygons) | ~shapely.is_valid(polygons)
    refuse_areas(areas.index, missing, "must be valid polygons (repair them by areas.make_valid()), got invalid ones:")
    return polygons


def refuse_overlaps(polygons: np.ndarray, labels: pd.Index, tolerance: float) -> None:
    """Raise ValueError if two polygons share more than a share of the smaller one."""
    import shapely

    first, second = shapely.STRtree(polygons).query(polygons, predicate="intersects")
    first, second = first[first < second], second[first < second]
    shared = shapely.area(shapely.intersection(polygons[first], polygons[second]))
    sizes = shapely.area(polygons)
    shares = shared / np.minimum(sizes[first], sizes[second])
    if (shares > tolerance).any():
        worst = int(np.argmax(shares))
        names = f"{labels[first[worst]]!r} and {labels[second[worst]]!r}"
        raise ValueError(
            f"`areas` must not overlap, got {names}, which share {shares[worst]:.3g} of the smaller one; remove the "
            "overlap, or allow it by `tolerance`"
        )


def refuse_areas(labels: pd.Index, wrong: Bool[np.ndarray, " N"], message: str) -> None:
    """Raise ValueError that names the first of the areas that are wrong."""
    if wrong.any():
        shown = ", ".join(repr(label) for label in labels[wrong][:5])
        raise ValueError(f"`areas` {message} {shown}" + (", ..." if wrong.sum() > 5 else ""))


def _as_dataset(raster: object) -> xr.Dataset:
    """Return a raster as a Dataset with the dims y and x and a CRS."""
    try:
        import rioxarray
    except ImportError as error:
        raise ImportError(f"`raster` needs rioxarray: {extra('areal')}") from error
    if isinstance(raster, xr.DataArray):
        crs = raster.rio.crs
        raster = raster.to_dataset(name="value" if raster.name is None else raster.name)
        raster = raster if crs is None else raster.rio.write_crs(crs)
    if not isinstance(raster, xr.Dataset):
        raise TypeError(f"`raster` must be an xarray Dataset or DataArray, got {type(raster).__name__}")
    if raster.rio.crs is None:
        raise ValueError("`raster` must have a CRS, got none: set it by raster.rio.write_crs(...)")
    try:
        places = (raster.rio.y_dim, raster.rio.x_dim)
    except rioxarray.exceptions.MissingSpatialDimensionError as error:
        raise ValueError(
            f"`raster` must have the dims y and x, or latitude and longitude, got {list(raster.sizes)}: name them by "
            "raster.rio.set_spatial_dims(...)"
        ) from error
    further = {str(dim): size for dim, size in raster.sizes.items() if dim not in places}
    if any(size > 1 for size in further.values()):
        raise ValueError(f"`raster` must have the dims {places} only, got also {further}: select one, as by .isel(...)")
    return raster.squeeze(list(further), drop=True)


def _layer(array: xr.DataArray, dims: tuple[Any, Any]) -> np.ndarray:
    """Return a variable as numbers, NaN where it is missing."""
    if array.dtype.kind not in "biuf" or set(array.dims) != set(dims):
        raise ValueError(f"{array.name!r} must hold numbers on {dims}, got dtype {array.dtype} and dims {array.dims}")
    values = array.transpose(*dims).values.astype(float)
    fill = array.rio.nodata
    values = values if fill is None else np.where(values == fill, np.nan, values)
    if np.isinf(values).any():
        raise ValueError(f"{array.name!r} must be finite or missing, got {int(np.isinf(values).sum())} infinite values")
    return values


def _edges(dataset: xr.Dataset, dim: Any) -> np.ndarray:
    """Return the ends of the cells along a dimension, halfway between their centers."""
    centers = np.asarray(dataset[dim].values, dtype=float)
    steps = np.diff(centers)
    if len(centers) < 2 or not ((steps > 0).all() or (steps < 0).all()):
        raise ValueError(f"`raster` must have two or more coordinates in order along {dim!r}, got {centers[:5]}")
    between = (centers[1:] + centers[:-1]) / 2.0
    return np.concatenate([[2.0 * centers[0] - between[0]], between, [2.0 * centers[-1] - between[-1]]])


def _boxes(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    import shapely

    low_y, low_x = np.meshgrid(np.minimum(y[1:], y[:-1]), np.minimum(x[1:], x[:-1]), indexing="ij")
    high_y, high_x = np.meshgrid(np.maximum(y[1:], y[:-1]), np.maximum(x[1:], x[:-1]), indexing="ij")
    return shapely.box(low_x, low_y, high_x, high_y)


def _sizes(y: np.ndarray, x: np.ndarray, is_geographic: bool) -> np.ndarray:
    """Return the areas of the cells, those of degrees on the sphere."""
    if is_geographic:
        y, x = EARTH_RADIUS * np.sin(np.radians(np.clip(y, -90.0, 90.0))), EARTH_RADIUS * np.radians(x)
    return np.abs(np.diff(y))[:, None] * np.abs(np.diff(x))[None, :]
