"""Converters of the fields that the explainers of this package share."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from kpp.data.tables import Schema
from kpp.foundation.validation import as_points, check_rng_key, positive
from kpp.typing import RngKey


def as_background(value: ArrayLike) -> Float[np.ndarray, "m d"]:
    """Convert the field `background` of an explainer."""
    return np.asarray(as_points(value, "background"))


def as_float(name: str) -> Callable[[float | int | None], float | None]:
    """Return the converter of a field that holds a positive and finite number or None."""

    def convert(value: float | int | None) -> float | None:
        return None if value is None else float(positive(value, name))

    return convert


def freeze_features(features: int | str | Iterable[int | str]) -> tuple[int | str, ...]:
    """Convert the field `categorical`, which names some features by name or position, to a tuple."""
    found = (features,) if isinstance(features, (int, str)) or not np.iterable(features) else tuple(features)
    for feature in found:
        if isinstance(feature, bool) or not isinstance(feature, (int, str, np.integer)):
            raise TypeError(f"`categorical` must hold names or positions of features, got {feature!r}")
    return found


def categorical_positions(features: Iterable[int | str], schema: Schema) -> set[int]:
    """Return the positions of the features that hold categories, the given ones and those with known levels."""
    given = {schema.index(feature) if isinstance(feature, str) else feature for feature in features}
    beyond = sorted(j for j in given if not 0 <= j < schema.num_features)
    if beyond:
        raise ValueError(f"`categorical` must hold positions from 0 to {schema.num_features - 1}, got {beyond}")
    return given | {schema.index(name) for name in schema.levels}


def required_key(rng_key: RngKey | None, explainer: str) -> RngKey:
    """Return the random key of an explainer that samples, or raise TypeError if it is None."""
    if rng_key is None:
        raise TypeError(f"`rng_key` must be given, since {explainer!r} samples; write `rng_key=jax.random.key(0)`")
    return check_rng_key(rng_key)
