"""Predictions as maps, and scores of a map against the truth."""

from __future__ import annotations

from statistics import NormalDist
from typing import Protocol, runtime_checkable

import numpy as np
import xarray as xr

from kpp.foundation.validation import count, positive
from kpp.foundation.validation import probability as check_probability
from kpp.metrics import structural_similarity
from kpp.runtime.batching import map_blocks, progress_bar
from kpp_models.aggregates.grids.points import GridPoints

_SAMPLE_DIMS = ("chain", "draw")


@runtime_checkable
class Predictor(Protocol):
    """A fit: the posterior mean and variance of a field at points."""

    def predict(self, points: np.ndarray, /) -> xr.Dataset:
        """Return ``mean`` and ``latent_variance`` with the dimensions (chain, draw, instance)."""


def predict_map(
    fit: Predictor,
    grid: GridPoints,
    *,
    probability: float = 0.95,
    noise: bool = True,
    center: float = 0.0,
    scale: float = 1.0,
    rows: int = 16384,
    progress: bool = True,
) -> xr.Dataset:
    r"""Predict a field at the pixels of a grid, averaged over the draws of the posterior.

    .. math::

        \bar m = E[m_r], \qquad s^2 = E[v_r] + \mathrm{Var}[m_r], \qquad
        \bar m \pm \Phi^{-1}\bigl(\tfrac{1 + p}{2}\bigr)\, s

    with the mean :math:`m_r` and the variance :math:`v_r` of the field under draw r. The interval is that of a normal
    distribution with the mean and variance of the mixture; with one draw (MAP) it is exact for a Gaussian posterior.

    Args:
        fit: A `kpp.Fit`, or any object with a method ``predict(points)`` that returns ``mean`` and ``latent_variance``
            with the dimensions (chain, draw, instance).
        grid: The pixels; they have the features of the fit, standardized like the training data.
        probability: p, the probability of the interval.
        noise: Whether the intervals are of the values at the pixels, with the ``noise_variance`` of the predictions,
            which is the variation of places around the field; otherwise of the field, so that they hold fewer values.
        center: The number that was subtracted from the targets to standardize them: the maps are center + scale times
            the prediction.
        scale: The positive number that the targets were divided by.
        rows: How many pixels are predicted at once; memory grows with this number times the number of draws, but not
            with the number of pixels.
        progress: Whether to show a progress bar.

    Returns:
        The maps ``mean``, ``sd``, ``lower`` and ``upper`` with the coordinates of the grid, NaN at pixels that are not
        points. The attributes are ``probability`` and ``interval_of``: "values at places", or "the field", which is all
        that the intervals are of if the model has no variation of places around it.

    Raises:
        ValueError: If the probability is not between 0 and 1, or `scale` or `rows` is not positive.
    """
    check_probability(probability, "probability")
    positive(scale, "scale")
    count(rows, "rows")
    size = min(rows, grid.num_points)
    with progress_bar(-(-grid.num_points // size), "pixels", show=progress) as bar:
        moments = map_blocks(lambda block: _average(fit.predict(block)), grid.points, size, bar=bar)
    mean, variance, around = moments
    varies = noise and bool(around.any())
    mean, sd = center + scale * mean, scale * np.sqrt(variance + around * varies)
    width = NormalDist().inv_cdf((1.0 + probability) / 2.0) * sd
    values = {"mean": mean, "sd": sd, "lower": mean - width, "upper": mean + width}
    maps = {name: grid.to_map(value, name=name) for name, value in values.items()}
    interval_of = "values at places" if varies else "the field"
    return xr.Dataset(maps, attrs={"probability": float(probability), "interval_of": interval_of})


def map_scores(truth: xr.DataArray, estimate: xr.DataArray, *, data_range: float | None = None) -> dict[str, float]:
    """Compare a map with the true one.

    Args:
        truth: The true map.
        estimate: The estimate, with the same dimensions and coordinates.
        data_range: As for `kpp.metrics.structural_similarity`; by default the range of the true map.

    Returns:
        ``rmse`` and ``mae`` in the units of the maps, the rank correlation ``spearman``, and ``ssim``. Pixels at which
        either map is missing are left out of the first three; ``ssim`` is NaN if there are such pixels.

    Raises:
        ValueError: If the maps are on different grids, or fewer than two pixels are in both.

    Example:
        >>> from kpp_models.aggregates import grids
        >>> field = xr.DataArray(np.arange(144.0).reshape(12, 12), dims=("lat", "lon"))
        >>> grids.map_scores(field, field + 1)["rmse"]
        1.0
    """
    from scipy.stats import spearmanr

    try:
        truth, estimate = xr.align(truth, estimate, join="exact")
    except ValueError as error:
        raise ValueError(f"`truth` and `estimate` must have the same coordinates: {error}") from None
    if set(truth.dims) != set(estimate.dims):
        raise ValueError(f"`estimate` must have the dimensions {list(truth.dims)}, got {list(estimate.dims)}")
    first, second = np.asarray(truth, float), np.asarray(estimate.transpose(*truth.dims), float)
    both = np.isfinite(first) & np.isfinite(second)
    if both.sum() < 2:
        raise ValueError(f"`truth` and `estimate` must share two pixels at least, got {int(both.sum())}")
    difference = (second - first)[both]
    span = float(np.ptp(first[both])) if data_range is None else data_range
    complete = both.all() and both.ndim == 2
    return {
        "rmse": float(np.sqrt(np.mean(difference**2))),
        "mae": float(np.mean(np.abs(difference))),
        "spearman": float(spearmanr(first[both], second[both]).statistic),
        "ssim": structural_similarity(first, second, data_range=span) if complete else float("nan"),
    }


def _average(prediction: xr.Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean and the variance of the field over the draws at each point, and the variance around it."""
    dims = [dim for dim in _SAMPLE_DIMS if dim in prediction["mean"].dims]
    mean, total = prediction["mean"].mean(dims), prediction["latent_variance"].mean(dims) + prediction["mean"].var(dims)
    around = prediction["noise_variance"].mean(dims) if "noise_variance" in prediction else xr.zeros_like(mean)
    return mean.values, total.values, around.values
