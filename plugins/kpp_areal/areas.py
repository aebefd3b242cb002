"""Areas as bags of raster cells with weights, joint draws of the field, and their summaries over areas and as maps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from scipy import linalg, sparse

import kpp
from kpp.foundation.validation import probability as check_probability
from kpp.kernels import AbstractKernel, Linear
from kpp.runtime.random import numpy_generator
from kpp.typing import Numbers, RngKey
from kpp_areal.cells import Cells, read_areas, read_raster, refuse_areas, refuse_overlaps

WEIGHT = "weight"  # the name of the feature by which the kernel multiplies the field


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class AreaBags:
    r"""Areas as bags of the cells of a raster, with weights; built by `area_bags`.

    The average of a field f over area j is :math:`\sum_i a_{ji} f(x_i)` with :math:`a_{ji} = w_{ji} / e_j`, where
    :math:`w_{ji}` is the weight of the piece of cell i in area j and the `exposure` :math:`e_j` is their sum. Bags
    average with equal weights. Therefore the points have a last feature, ``weight``, that is :math:`n_j a_{ji}` in a
    bag of :math:`n_j` points and 1 in `points`, and `kernel` multiplies the field by it.

    Args:
        bags: The bags for aggregate models, in the order of the areas.
        points: The cells, n rows, at which a fit predicts the field.
        labels: The index of the areas, N of them.
        shares: The weights of pieces, (N, n), a sparse matrix.
        cells: The cells of the raster.
        tolerance: As for `area_bags`.
    """

    bags: kpp.Bags
    points: pd.DataFrame
    labels: pd.Index
    shares: sparse.csr_array
    cells: Cells
    tolerance: float

    def __repr__(self) -> str:
        return f"AreaBags({len(self.labels)} areas, {len(self.points)} cells of {list(self.points)}, {self.crs})"

    @property
    def crs(self) -> Any:
        """The coordinate reference system of the raster, in which everything is computed."""
        return self.cells.crs

    @property
    def exposure(self) -> Float[np.ndarray, " N"]:
        """The sum of the weights of each area: people, or square units of the CRS (square metres for degrees)."""
        return np.asarray(self.shares.sum(axis=1))

    @property
    def averages(self) -> sparse.csr_array:
        """The matrix of the areas' averages, (N, n), a sparse matrix whose rows sum to 1."""
        return _averages(self.shares)

    def kernel(self, kernel: AbstractKernel) -> AbstractKernel:
        """Return the kernel of the weighted points for a kernel of the field.

        Args:
            kernel: The kernel of the field, on the features except the last one, ``weight``.

        Returns:
            The kernel times the product of the weights, for models of `bags`.
        """
        return kernel.on(tuple(range(self.points.shape[1] - 1))) * Linear(1.0).on(WEIGHT)

    def draws(
        self,
        rng_key: RngKey,
        fit: kpp.Fit,
        num_draws: int = 200,
        *,
        averages: Numbers | None = None,
        max_posteriors: int = 50,
    ) -> Float[np.ndarray, "S n"]:
        r"""Draw the latent field at all cells jointly from the posterior.

        With `averages` z each draw f is corrected by kriging of its residual, which conditions the field with the
        posterior covariance C on its averages:

        .. math:: f + C A^\top (A C A^\top)^{+} (z - A f)

        Where the posterior does not vary, the rest is spread in proportion to the weights, so that Af = z always.

        Args:
            rng_key: A JAX random key.
            fit: A fit of a model of `bags` with the kernel of `kernel`.
            num_draws: S, the number of draws.
            averages: z, (N,), on the scale of the field: every draw keeps them exactly. None to draw from the posterior
                of the field, which noise of the targets keeps away from them. For counts see `counts`.
            max_posteriors: How many draws of the hyperparameters at most are used; each needs a matrix (n, n).

        Returns:
            The draws, (S, n). For rates of counts take the exponential of them.

        Raises:
            ValueError: If there is not one finite average per area.
        """
        prediction = fit.thin(min(num_draws, max_posteriors))[0].predict(self.points, covariance=True)
        size = len(self.points)
        means = np.asarray(prediction["mean"]).reshape(-1, size)
        covariances = np.asarray(prediction["latent_covariance"]).reshape(-1, size, size)
        matrix, z = self.averages, None if averages is None else np.asarray(averages, dtype=float)
        if z is not None and (z.shape != self.labels.shape or not np.isfinite(z).all()):
            raise ValueError(f"`averages` must be {len(self.labels)} finite numbers, one per area, got shape {z.shape}")
        normals = np.asarray(jax.random.normal(rng_key, (num_draws, size), dtype=float))
        found = np.empty((num_draws, size))
        for number, (mean, covariance) in enumerate(zip(means, covariances, strict=True)):
            rows = slice(number, None, len(means))
            values, vectors = np.linalg.eigh((covariance + covariance.T) / 2.0)
            found[rows] = mean + normals[rows] * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
            if z is not None:
                cross = matrix @ covariance
                gain = cross.T @ linalg.pinvh(cross @ matrix.T, rtol=1e-10)
                found[rows] += (z - found[rows] @ matrix.T) @ gain.T
        if z is not None:
            dense = matrix.toarray()
            found += np.linalg.lstsq(dense, (z - found @ dense.T).T, rcond=None)[0].T
        return found

    def counts(self, rng_key: RngKey, rates: Numbers, totals: Numbers) -> xr.DataArray:
        r"""Draw the counts of all pieces of cells, given draws of the rates and the count of each area.

        Counts that are Poisson given the rates :math:`\lambda_i` are multinomial given their sum over an area: piece i
        of area j has the probability :math:`w_{ji} \lambda_i / \sum_l w_{jl} \lambda_l`.

        Args:
            rng_key: A JAX random key.
            rates: Draws of the rates at the cells up to a factor, (S, n), such as the exponential of `draws`.
            totals: The count of each area, (N,), which every draw keeps.

        Returns:
            The counts, with the dims ``sample`` and ``piece``, and for each piece the coordinates ``area``, its label,
            and ``cell``, its row in `points`; ``groupby("cell").sum()`` gives the counts of cells.

        Raises:
            ValueError: If rates are not positive, or totals are not whole numbers of at least 0, one per area.
        """
        values, wanted = self._values(rates, "rates"), np.asarray(totals, dtype=float)
        if (values <= 0).any():
            raise ValueError(f"`rates` must be positive, got {values.min():g}; give the exponential of log rates")
        are_counts = (wanted >= 0) & np.isfinite(wanted) & (wanted == np.round(wanted))
        if wanted.shape != self.labels.shape or not are_counts.all():
            raise ValueError(f"`totals` must be {len(self.labels)} whole numbers of at least 0, got {wanted}")
        generator, parts = numpy_generator(rng_key), []
        for total, start, stop in zip(wanted, self.shares.indptr, self.shares.indptr[1:], strict=False):
            shares = values[:, self.shares.indices[start:stop]] * self.shares.data[start:stop]
            parts.append(generator.multinomial(int(total), shares / shares.sum(axis=1, keepdims=True)))
        area = np.repeat(self.labels, np.diff(self.shares.indptr))
        places = {"area": ("piece", area), "cell": ("piece", self.shares.indices)}
        return xr.DataArray(np.concatenate(parts, axis=1), places, ("sample", "piece"))

    def over(self, draws: Numbers, areas: object = None, *, total: bool = False, probability: float = 0.95) -> Any:
        """Summarize draws of a field over areas, which may be parts of the areas of the bags, or overlap.

        Args:
            draws: Values at the cells, (S, n), such as those of `draws` or the exponential of them.
            areas: A GeoDataFrame of polygons on the raster. None for the areas of the bags, without geometry.
            total: Whether to sum the values times the weights, such as cases of all people, in place of averages.
            probability: The probability of the intervals.

        Returns:
            The areas with the columns ``exposure``, ``mean``, ``sd``, ``lower`` and ``upper``, a GeoDataFrame, or a
            DataFrame if `areas` is None.

        Raises:
            ValueError: If areas are invalid, or lie outside the complete cells by more than the tolerance.
        """
        values = self._values(draws)
        shares = (
            self.shares if areas is None else _shares(self.cells, read_areas(areas, self.cells), areas, self.tolerance)
        )
        found = _summary(values @ (shares if total else _averages(shares)).T, probability)
        table: Any = pd.DataFrame(index=self.labels) if areas is None else areas
        return table.assign(exposure=np.asarray(shares.sum(axis=1)), **found)

    def map(self, draws: Numbers, *, probability: float = 0.95) -> xr.Dataset:
        """Summarize draws of a field at each cell, as a map with the coordinates and the CRS of the raster.

        Args:
            draws: Values at the cells, (S, n).
            probability: The probability of the intervals.

        Returns:
            The maps ``mean``, ``sd``, ``lower`` and ``upper``, NaN at cells that are not points;
            ``map.rio.to_raster(path)`` writes them as bands of a GeoTIFF.
        """
        maps = {}
        for name, column in _summary(self._values(draws), probability).items():
            full = np.full(self.cells.mask.shape, np.nan)
            full[self.cells.mask.values] = column
            maps[name] = self.cells.mask.copy(data=full).rio.write_nodata(np.nan)
        found = xr.Dataset(maps, attrs={"probability": float(probability)})
        return found.rio.write_crs(self.crs)

    def _values(self, draws: Numbers, name: str = "draws") -> np.ndarray:
        values = np.asarray(draws, dtype=float)
        if values.ndim != 2 or values.shape[1] != len(self.points) or not np.isfinite(values).all():
            raise ValueError(f"`{name}` must be finite, of shape (S, {len(self.points)}), got shape {values.shape}")
        return values


def area_bags(
    areas: object,
    raster: object,
    *,
    variables: Sequence[str] | None = None,
    coordinates: bool = True,
    weights: str | None = None,
    tolerance: float = 1e-3,
) -> AreaBags:
    """Put the cells of a raster into bags, one for each area, with the weights of the pieces inside the area.

    A piece of a cell has the share of the cell's area that is inside, times the weight of the cell: its area, or the
    layer `weights`. Areas with another CRS than the raster are reprojected to that of the raster.

    Args:
        areas: A GeoDataFrame of polygons with a CRS; its index names the areas.
        raster: A Dataset or DataArray with the dims y and x, or latitude and longitude, and a CRS. Cells end halfway
            between their centers.
        variables: The variables of the raster that are features of the points; by default all except `weights`.
        coordinates: Whether the coordinates are features too, x and y; they come first.
        weights: The variable that holds an amount per cell, such as people, which is the exposure of counts. By
            default it is the area of the cell; with degrees as coordinates, its area on the sphere.
        tolerance: The share of an area that may overlap with another area, and that may lie outside the raster or in
            cells with a missing variable, which are left out.

    Returns:
        The bags, with one bag per area in the order of the rows.

    Raises:
        TypeError: If `areas` or `raster` is of another kind.
        ValueError: If a CRS is missing, if polygons are invalid or overlap, or if the raster does not cover an area.
        ImportError: If GeoPandas or rioxarray is missing.

    Example:
        >>> from kpp_areal import area_bags
        >>> cells = area_bags(districts, raster, weights="people")
        >>> cells.bags.sizes.tolist()  # two cells lie in both
        [4, 6]
    """
    kpp_cells = read_raster(raster, variables, coordinates, weights)
    if WEIGHT in kpp_cells.features:
        raise ValueError(f"`variables` must not have the name {WEIGHT!r}, which the weights of points have: rename it")
    polygons = read_areas(areas, kpp_cells)
    refuse_overlaps(polygons, areas.index, tolerance)  # type: ignore[attr-defined]
    shares = _shares(kpp_cells, polygons, areas, tolerance)
    sizes = np.diff(shares.indptr)
    bag = np.repeat(np.arange(len(sizes)), sizes)
    rows = kpp_cells.features.iloc[shares.indices].assign(**{WEIGHT: _averages(shares).data * sizes[bag]})
    labels: pd.Index = areas.index  # type: ignore[attr-defined]
    points = kpp_cells.features.assign(**{WEIGHT: 1.0})
    return AreaBags(kpp.Bags.create(rows, bag), points, labels, shares, kpp_cells, tolerance)


def _shares(cells: Cells, polygons: np.ndarray, areas: Any, tolerance: float) -> sparse.csr_array:
    """Return the weights of the pieces, (N, n)."""
    import shapely

    area, cell, shares = cells.pieces(polygons)
    covered = np.bincount(area, shares * shapely.area(cells.boxes[cell]), minlength=len(polygons))
    outside = 1.0 - covered / shapely.area(polygons)
    refuse_areas(areas.index, covered <= 0, "must cover cells of `raster` without missing values, got none for")
    message = f"must lie in complete cells of `raster`, got a share of {outside.max():.3g} outside or in cells with NaN"
    refuse_areas(areas.index, outside > tolerance, f"{message}, more than `tolerance`, for")
    found = sparse.csr_array((shares * cells.amounts[cell], (area, cell)), shape=(len(polygons), len(cells.boxes)))
    found.eliminate_zeros()
    refuse_areas(areas.index, np.asarray(found.sum(axis=1)) <= 0, "must have a positive sum of `weights`, got 0 for")
    return found


def _averages(shares: sparse.csr_array) -> sparse.csr_array:
    # By hand: a product with a diagonal matrix changes the order of the entries, which is that of the bags' points.
    totals = np.repeat(np.asarray(shares.sum(axis=1)), np.diff(shares.indptr))
    return sparse.csr_array((shares.data / totals, shares.indices, shares.indptr), shape=shares.shape)


def _summary(values: np.ndarray, probability: float) -> dict[str, np.ndarray]:
    tail = (1.0 - check_probability(probability, "probability")) / 2.0
    lower, upper = np.quantile(values, [tail, 1.0 - tail], axis=0)
    return {"mean": values.mean(axis=0), "sd": values.std(axis=0), "lower": lower, "upper": upper}
