"""The probability that a contribution is positive, or larger than another: from draws, a Gaussian law, or both."""

from __future__ import annotations

import numpy as np
import scipy.special
import xarray as xr

from kpp.explanations.parts.build import SAMPLE_DIMS
from kpp.explanations.parts.uncertainty import check_uncertain, drawn_independently, own_instances, variance
from kpp.foundation.wording import unknown_feature

# Replaces a divisor of zero.
_TINY = 1e-200
# At this many standard deviations from the mean, the tail of a Gaussian underflows.
_FAR = 40.0


def probability_positive(dataset: xr.Dataset) -> xr.DataArray:
    """Return the probability that each contribution is positive; see `Explanation.probability_positive`."""
    check_uncertain(dataset)
    return _expected(_positive(dataset["values"], variance(dataset)))


def probability_of_direction(dataset: xr.Dataset) -> xr.DataArray:
    """Return the probability of each contribution's more probable sign; see `Explanation.probability_of_direction`."""
    check_uncertain(dataset)
    values, within = dataset["values"], variance(dataset)
    up, down = (_expected(_positive(signed, within)) for signed in (values, -values))
    return xr.where(up > down, up, down)


def probability_greater(dataset: xr.Dataset, a: str, b: str, absolute: bool, dim: str | None) -> xr.DataArray:
    """Return the probability that one contribution is larger; see `Explanation.probability_greater`."""
    check_uncertain(dataset)
    _check_comparison(dataset, a, b, absolute, dim)
    values = dataset["values"]
    first, second = (values.sel(feature=name, drop=True) for name in (a, b))
    if "covariance" not in dataset:
        first, second = (abs(part) if absolute else part for part in (first, second))
        difference = first - second
        return _expected(_positive(difference if dim is None else difference.mean(dim), None))
    names = values.coords["feature"]
    minus = (names == a).astype(float) - (names == b).astype(float)
    if dim is not None:
        return _expected(_positive((first - second).mean(dim), _variance_of_mean(dataset["covariance"], minus)))
    covariance = own_instances(dataset["covariance"])
    if not absolute:
        return _expected(_positive(first - second, _bilinear(covariance, minus, minus)))
    return _expected(_same_sign(first - second, first + second, covariance, minus, abs(minus)))


def _check_comparison(dataset: xr.Dataset, a: str, b: str, absolute: bool, dim: str | None) -> None:
    names = [str(name) for name in dataset.coords["feature"].values]
    for name in (a, b):
        if name not in names:
            raise ValueError(unknown_feature(name, names))
    if a == b:
        raise ValueError(f"`a` and `b` must be different features, got {a!r} twice")
    if dim not in (None, "instance"):
        raise ValueError(f"`dim` must be None or 'instance', got {dim!r}")
    if "variance" in dataset:
        raise ValueError("the explanation holds only variances, which do not say how two features vary together")
    if dim is not None and drawn_independently(dataset):
        raise ValueError(
            "`dim` 'instance' needs draws of all instances together, and these were drawn independently of each other; "
            "explain fewer instances at once, or group features"
        )
    if dim is not None and absolute and "covariance" in dataset:
        raise ValueError("no formula averages absolute values under a Gaussian law; call `sample(rng_key, n)` first")


def _expected(probability: xr.DataArray) -> xr.DataArray:
    """Average over draws, if there are any."""
    return probability.mean([dim for dim in SAMPLE_DIMS if dim in probability.dims]).rename("probability")


def _positive(mean: xr.DataArray, spread: xr.DataArray | None) -> xr.DataArray:
    """Return the probability that a Gaussian is above zero; without a variance it is a number."""
    certain = (mean > 0).astype(float)
    if spread is None:
        return certain
    return xr.where(spread > 0, scipy.special.ndtr(_in_deviations(mean, spread)), certain)


def _in_deviations(mean: xr.DataArray, spread: xr.DataArray) -> xr.DataArray:
    scale = np.sqrt(np.maximum(spread, 0.0))
    return (mean / np.maximum(scale, _TINY)).clip(-_FAR, _FAR)


def _bilinear(covariance: xr.DataArray, first: xr.DataArray, second: xr.DataArray) -> xr.DataArray:
    """Return the covariance of two linear combinations of the contributions, given their weights (feature)."""
    return xr.dot(covariance, first, second.rename(feature="feature_other"), dim=["feature", "feature_other"])


def _variance_of_mean(covariance: xr.DataArray, weights: xr.DataArray) -> xr.DataArray:
    """Return the variance of the mean over instances, which are independent unless their covariance is given."""
    spread = _bilinear(covariance, weights, weights)
    if "instance_other" in spread.dims:
        return spread.mean(["instance", "instance_other"])
    return spread.mean("instance") / spread.sizes["instance"]


def _same_sign(
    u: xr.DataArray, w: xr.DataArray, covariance: xr.DataArray, minus: xr.DataArray, plus: xr.DataArray
) -> xr.DataArray:
    r"""Return the probability that two jointly Gaussian numbers are both positive or both negative.

    With standardized means h and k, correlation :math:`\rho` and Owen's T,

    .. math:: P(uw > 0) = 1 - 2\,T\Bigl(h, \tfrac{k - \rho h}{h \sqrt{1-\rho^2}}\Bigr)
        - 2\,T\Bigl(k, \tfrac{h - \rho k}{k \sqrt{1-\rho^2}}\Bigr) - 1_{hk < 0}.

    References:
        Owen, Tables for computing bivariate normal probabilities, 1956.
    """
    spreads = _bilinear(covariance, minus, minus), _bilinear(covariance, plus, plus)
    scales = [np.sqrt(np.maximum(spread, 0.0)) for spread in spreads]
    h, k = (_in_deviations(mean, spread) for mean, spread in zip((u, w), spreads, strict=True))
    product = scales[0] * scales[1]
    rho = (_bilinear(covariance, minus, plus) / np.maximum(product, _TINY)).clip(-1.0, 1.0)
    never = ((scales[0] == 0) & (u == 0)) | ((scales[1] == 0) & (w == 0))
    return xr.where(never, 0.0, xr.apply_ufunc(_quadrants, h, k, rho))


def _quadrants(h: np.ndarray, k: np.ndarray, rho: np.ndarray) -> np.ndarray:
    # The limit at 0, by which the arguments of Owen's T are divided.
    h, k = (np.where(np.abs(mean) < _TINY, _TINY, mean) for mean in (h, k))
    root = np.maximum(np.sqrt((1.0 - rho) * (1.0 + rho)), np.finfo(float).eps)
    tails = [scipy.special.owens_t(p, (q - rho * p) / p / root) for p, q in ((h, k), (k, h))]
    return np.clip(1.0 - 2.0 * (tails[0] + tails[1]) - (h * k < 0), 0.0, 1.0)
