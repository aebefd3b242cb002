"""Variances, intervals and draws of an explanation's dataset."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import scipy.special
import xarray as xr

from kpp.explanations.parts.build import SAMPLE_DIMS
from kpp.foundation.validation import count
from kpp.linalg.toolkit import clean_spectrum
from kpp.plots.intervals import IntervalKind, check_probability, credible_interval
from kpp.runtime.random import standard_normal
from kpp.typing import RngKey

# Bisection halves the bracket of a quantile; 60 halvings reach the rounding error of float64.
_HALVINGS = 60
# Replaces a standard deviation of zero in a division.
_NO_SPREAD = 1e-200
# The allowed rounding error of the sum of the parts of a variance, in units of eps times the largest variance.
_PARTS_UNITS = 1e4


def variance(dataset: xr.Dataset) -> xr.DataArray | None:
    """Return the variances of the Gaussian law, with the dimensions of ``values``, or None."""
    if "variance" in dataset:
        return dataset["variance"]
    if "covariance" not in dataset:
        return None
    diagonal = _diagonal(own_instances(dataset["covariance"]), "feature")
    return diagonal.transpose(*dataset["values"].dims).clip(min=0.0).rename("variance")


def check_parts(dataset: xr.Dataset) -> None:
    """Raise ValueError unless the parts of a variance add up to it."""
    if "variance_parts" not in dataset:
        return
    whole, total = variance(dataset), dataset["variance_parts"].sum("part")
    assert whole is not None  # the variance is the sum of the parts if nothing else was given
    unit = max(np.finfo(array.dtype).eps for array in (whole, total))
    gap, largest = float(abs(total - whole).max()), float(max(total.max(), whole.max()))
    if gap > _PARTS_UNITS * unit * largest:
        raise ValueError(f"`variance_parts` must add up to the variance, got sums that miss it by up to {gap:.3g}")


def check_effects(dataset: xr.Dataset) -> None:
    """Raise ValueError unless the parts of contributions add up to them."""
    if "effects" not in dataset:
        return
    gap = float(abs(dataset["effects"].sum("effect") - dataset["values"]).max())
    if gap > np.sqrt(np.finfo(dataset["values"].dtype).eps) * float(abs(dataset["effects"]).max()):
        raise ValueError(f"`effects` must add up to `values`, got sums that miss them by up to {gap:.3g}")


def own_instances(covariance: xr.DataArray) -> xr.DataArray:
    """Return the covariance within each instance."""
    return _diagonal(covariance, "instance") if "instance_other" in covariance.dims else covariance


def _diagonal(array: xr.DataArray, dim: str) -> xr.DataArray:
    positions = xr.DataArray(np.arange(array.sizes[dim]), dims=dim)
    chosen = array.isel({dim: positions, f"{dim}_other": positions})
    return chosen.drop_vars(f"{dim}_other", errors="ignore")


def is_uncertain(dataset: xr.Dataset) -> bool:
    """Return whether the dataset holds draws or a law."""
    return "chain" in dataset["values"].dims or "variance" in dataset or "covariance" in dataset


def drawn_independently(dataset: xr.Dataset) -> bool:
    """Return whether the draws of instances are independent of each other, although their errors are not."""
    return bool(dataset.attrs.get("instances_drawn") == "independently")


def check_uncertain(dataset: xr.Dataset) -> None:
    """Raise ValueError unless a dataset has draws, a variance or a covariance."""
    if not is_uncertain(dataset):
        raise ValueError(
            "the explanation holds no draws, variance or covariance, so nothing is uncertain; "
            "explain a fit with draws (kpp.NUTS), or ask the explainer for a covariance"
        )


def total_covariance(dataset: xr.Dataset) -> xr.DataArray:
    """Return the covariance of the contributions over draws and law together; see `Explanation.total_covariance`."""
    check_uncertain(dataset)
    if "variance" in dataset:
        raise ValueError("the explanation holds only variances, which do not say how features vary together")
    values = dataset["values"]
    within = dataset["covariance"] if "covariance" in dataset else None
    if "chain" not in values.dims:
        assert within is not None
        return within
    across = within is not None and "instance_other" in within.dims
    deviations = values - values.mean(SAMPLE_DIMS)
    names = {dim: f"{dim}_other" for dim in (("feature", "instance") if across else ("feature",))}
    size = values.sizes["chain"] * values.sizes["draw"]
    between = xr.dot(deviations, deviations.rename(names), dim=list(SAMPLE_DIMS)) / size
    dims = ("instance", *(("instance_other",) if across else ()), "feature", "feature_other")
    between = between.transpose(*dims, *(["output"] if "output" in between.dims else []))
    total = between if within is None else within.mean(SAMPLE_DIMS) + between
    return total.rename("covariance")


def standard_deviation(dataset: xr.Dataset) -> xr.DataArray:
    """Return the standard deviations over draws and law together (law of total variance)."""
    within = variance(dataset)
    values = dataset["values"]
    if "chain" not in values.dims:
        if within is None:
            raise ValueError("the explanation holds neither draws nor a variance")
        return within**0.5
    between = values.var(SAMPLE_DIMS)
    return (between if within is None else between + within.mean(SAMPLE_DIMS)) ** 0.5


def interval(dataset: xr.Dataset, probability: float, kind: IntervalKind) -> xr.DataArray:
    """Return credible intervals of ``values``; see `Explanation.interval`."""
    check_probability(probability, kind)
    values, within = dataset["values"], variance(dataset)
    draws = "chain" in values.dims
    check_uncertain(dataset)
    if within is None:
        return credible_interval(values, probability, kind)
    if draws and kind == "hdi":
        raise ValueError(
            "`kind` 'hdi' needs draws alone, and each draw holds a Gaussian law; call `sample(rng_key, n)` first"
        )
    tails = ((1.0 - probability) / 2.0, (1.0 + probability) / 2.0)
    quantile = _mixture_quantile if draws else _gaussian_quantile
    lower, upper = (quantile(values, within**0.5, tail) for tail in tails)
    bounds = xr.concat([lower, upper], dim="bound")
    bounds = bounds.assign_coords(bound=["lower", "upper"]).transpose(..., "bound").rename("values")
    return bounds.assign_attrs(kind=kind, probability=float(probability))


def _gaussian_quantile(mean: xr.DataArray, scale: xr.DataArray, tail: float) -> xr.DataArray:
    return mean + float(scipy.special.ndtri(tail)) * scale


def _mixture_quantile(mean: xr.DataArray, scale: xr.DataArray, tail: float) -> xr.DataArray:
    """Return a quantile of the equal mixture of one Gaussian per draw, by bisection between its parts' quantiles."""
    kept = [dim for dim in mean.dims if dim not in SAMPLE_DIMS]
    centers, scales = (array.transpose(*SAMPLE_DIMS, *kept).values for array in (mean, scale))
    parts = centers + scipy.special.ndtri(tail) * scales
    low, high = parts.min(axis=(0, 1)), parts.max(axis=(0, 1))
    scales = np.maximum(scales.astype(float), _NO_SPREAD)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        below = scipy.special.ndtr((middle - centers) / scales).mean(axis=(0, 1)) < tail
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return xr.DataArray((low + high) / 2.0, dims=kept, coords={dim: mean.coords[dim] for dim in kept})


def sample(dataset: xr.Dataset, rng_key: RngKey, n: int) -> xr.Dataset:
    """Return a dataset with draws from the Gaussian law; see `Explanation.sample`."""
    count(n, "n")
    if "covariance" not in dataset:
        held = "only variances, which do not say how features vary together" if "variance" in dataset else "none"
        raise ValueError(f"`sample` needs the covariance of a Gaussian law; the explanation holds {held}")
    if "chain" not in dataset["values"].dims:
        dataset = dataset.expand_dims(chain=[0], draw=[0])
    values = dataset["values"]
    deviations = _deviations(dataset["covariance"], values, rng_key, n)
    predictions = dataset["predictions"] + deviations.sum("feature")
    base_values = dataset["base_values"].expand_dims(repeat=n)
    drawn = {"values": values + deviations, "predictions": predictions, "base_values": base_values}
    drawn = {name: _merge_repeats(array, dataset[name].dims) for name, array in drawn.items()}
    data = dataset["data"]
    data = data.isel(chain=0, draw=0, drop=True) if "chain" in data.dims else data
    return xr.Dataset({**drawn, "data": data}, attrs=dataset.attrs)


def _deviations(covariance: xr.DataArray, values: xr.DataArray, rng_key: RngKey, n: int) -> xr.DataArray:
    """Draw n Gaussian deviations of each row of features (or of all instances together) around zero."""
    block = ("instance", "feature") if "instance_other" in covariance.dims else ("feature",)
    others = tuple(f"{dim}_other" for dim in block)
    outer = tuple(dim for dim in values.dims if dim not in block)
    size = int(np.prod([values.sizes[dim] for dim in block]))
    outer_shape = tuple(values.sizes[dim] for dim in outer)
    matrices = covariance.transpose(*outer, *block, *others).values.reshape(*outer_shape, size, size)
    noise = np.asarray(standard_normal(rng_key, (n, *outer_shape, size)), dtype=matrices.dtype)
    drawn = np.einsum("...ij,r...j->r...i", _square_root(matrices), noise)
    drawn = drawn.reshape(n, *outer_shape, *(values.sizes[dim] for dim in block))
    coords = {dim: values.coords[dim] for dim in values.dims}
    return xr.DataArray(drawn, dims=("repeat", *outer, *block), coords=coords)


def _square_root(matrices: np.ndarray) -> np.ndarray:
    """Return R with R R^T = matrix, singular ones included (contributions of an unused feature never vary)."""
    eigenvalues, vectors = clean_spectrum(matrices)
    largest = np.abs(eigenvalues).max(axis=-1, keepdims=True)
    if (eigenvalues < -1e-9 * largest).any():  # differences of covariances lose digits
        raise ValueError(f"`covariance` must be positive semi-definite, got the eigenvalue {eigenvalues.min():.3g}")
    return vectors * np.sqrt(np.maximum(eigenvalues, 0.0))[..., None, :]


def _merge_repeats(array: xr.DataArray, dims: tuple[Hashable, ...]) -> xr.DataArray:
    """Make (draw, repeat) one dimension draw."""
    rest = [dim for dim in dims if dim not in SAMPLE_DIMS]
    array = array.transpose("chain", "draw", "repeat", *rest)
    merged = array.values.reshape(array.shape[0], -1, *array.shape[3:])
    coords = {dim: array.coords[dim] for dim in ("chain", *rest)}
    return xr.DataArray(merged, dims=("chain", "draw", *rest), coords={**coords, "draw": np.arange(merged.shape[1])})
