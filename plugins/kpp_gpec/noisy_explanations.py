"""Explanations as observations of a process: arrays of values with the variance of their noise, from any source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float

from kpp.explanations import Explanation
from kpp.foundation.validation import at_least, check_rng_key, count
from kpp.typing import RngKey

#: The possible sources of the variance of the noise, which may also be a number.
NOISES = ("explainer", "repeats")

_SAMPLE_DIMS = ("chain", "draw")


class Observations(NamedTuple):
    """Explanations with noise."""

    values: Float[np.ndarray, "n d outputs"]
    noise: Float[np.ndarray, "n d outputs"]  # the variances of the errors
    source: str  # of the variances, in words


def check_noise(noise: str | float, num_repeats: int, least: float) -> None:
    """Raise ValueError for invalid settings of the noise."""
    if isinstance(noise, str) and noise not in NOISES:
        raise ValueError(f"`noise` must be a number or one of {NOISES}, got {noise!r}")
    if not isinstance(noise, str):
        at_least(noise, "noise", 0, infinity_allowed=False)
    count(num_repeats, "num_repeats", 2 if noise == "repeats" else 1)
    at_least(least, "min_noise_variance", 0, infinity_allowed=False)


def repeat_keys(noise: str | float, num_repeats: int, rng_key: RngKey | None) -> list[Any]:
    """Return the random keys for explanations: one per repeat, or a single one, which may be None."""
    if noise != "repeats":
        return [rng_key]
    return list(jax.random.split(check_rng_key(rng_key), num_repeats))


def observe(explanations: Sequence[Explanation], noise: str | float, least: float = 0.0) -> Observations:
    r"""Compute values and noise, at least `least`, from one explanation or repeated explanations of the same points.

    Draws of a posterior are averaged, and by the law of total variance their variance is part of the noise:

    .. math:: U = \mathrm{Var}_s\, \mathrm E[\phi \mid s] + \mathrm E_s\, \mathrm{Var}[\phi \mid s]

    Of repeated explanations the mean and the variance of this mean are used. With the noise "explainer" it is the
    explainer's variance, otherwise its squared standard errors, otherwise 0; with "repeats" the variance between the
    explanations; a number is the variance itself.
    """
    if noise == "repeats":
        repeats = np.stack([_average(explanation.values) for explanation in explanations])
        values, variance = repeats.mean(axis=0), repeats.var(axis=0, ddof=1) / len(repeats)  # of the mean
        source = f"{len(repeats)} repeats"
    else:
        values = _average(explanations[0].values)
        variance, source = _own_variance(explanations[0])
        if not isinstance(noise, str):
            variance, source = np.full(values.shape, float(noise)), f"given as {float(noise):g}"
    return Observations(values, np.maximum(variance, least), source)


def _own_variance(explanation: Explanation) -> tuple[np.ndarray, str]:
    """Return the variance that an explanation itself holds, and its name."""
    words, variance = [], np.zeros(_average(explanation.values).shape)
    if explanation.has_draws:
        words.append("draws")
        variance = variance + _arranged(explanation.values.var(_SAMPLE_DIMS))
    squares = None if explanation.standard_errors is None else explanation.standard_errors**2
    for name, within in (("variance", explanation.variance), ("standard errors", squares)):
        if within is not None:
            words.append(name)
            return variance + _average(within), " and ".join(words)
    return variance, " and ".join(words) or "none"


def _average(array: xr.DataArray) -> np.ndarray:
    """Return the mean over draws, if there are any, as (n, d, outputs)."""
    return _arranged(array.mean([dim for dim in _SAMPLE_DIMS if dim in array.dims]))


def _arranged(array: xr.DataArray) -> np.ndarray:
    values = array.transpose("instance", "feature", ...).values.astype(float)
    return values if values.ndim == 3 else values[:, :, None]
