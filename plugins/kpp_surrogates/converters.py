"""Converters of the fields that the explainers of this package share."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from kpp.typing import RngKey
from kpp.validation import as_points, check_rng_key

__all__ = ["as_background", "as_optional_float", "freeze_features", "required_key"]


def as_background(value: ArrayLike) -> Float[np.ndarray, "m d"]:
    """Convert the field `background` of an explainer."""
    return np.asarray(as_points(value, "background"))


def as_optional_float(value: float | int | None) -> float | None:
    """Convert a number to a float, and return None unchanged."""
    return None if value is None else float(value)


def freeze_features(features: int | str | Iterable[int | str]) -> tuple[int | str, ...]:
    """Convert a field that names some features, by name or position, to a tuple."""
    return (features,) if isinstance(features, (int, str)) else tuple(features)


def required_key(rng_key: RngKey | None, explainer: str) -> RngKey:
    """Return the random key of an explainer that samples.

    Raises:
        TypeError: If `rng_key` is None.
    """
    if rng_key is None:
        raise TypeError(f"`rng_key` must be given, since {explainer!r} samples; write `rng_key=jax.random.key(0)`")
    return check_rng_key(rng_key)
