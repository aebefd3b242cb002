"""scikit-learn's scalers as affine transformations."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from kpp_converters.scikit_learn.names import sklearn_name


def center_and_scale(scaler: Any) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]] | None:
    """Return c and s of a scaler that maps x to (x - c) / s: numbers, or one per feature, (d,).

    None stands for another type than a fitted StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler or
    FunctionTransformer without functions, which changes nothing; and for a scaler that clips.
    """
    name = sklearn_name(scaler)
    if name == "StandardScaler":
        center, scale = scaler.mean_ if scaler.with_mean else None, scaler.scale_
    elif name == "RobustScaler":
        center, scale = scaler.center_, scaler.scale_
    elif name == "MaxAbsScaler":
        center, scale = None, scaler.scale_
    elif name == "MinMaxScaler" and not scaler.clip:
        center, scale = -scaler.min_ / scaler.scale_, 1.0 / scaler.scale_  # it maps x to x * scale_ + min_
    elif name == "FunctionTransformer" and scaler.func is None and scaler.inverse_func is None:
        center, scale = None, None
    else:
        return None
    return np.asarray(0.0 if center is None else center), np.asarray(1.0 if scale is None else scale)
