r"""Scalers in front of a kernel method, absorbed into its kernel and points.

Let the kernel take u = (x - c) / s and depend on differences only. Then lengthscales multiplied by s, and points
converted back to the units of x, give the same function of x.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from kpp.functions import RKHSFunction
from kpp.kernels import (
    RBF,
    AbstractKernel,
    Constant,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Product,
    ProductKernel,
    RationalQuadratic,
    Scaled,
    Selected,
    Sum,
)

__all__ = ["absorb_scaler"]

_ADVICE = (
    "convert the last step alone, as_rkhs_function(pipeline[-1]), and explain it at transformed points, "
    "pipeline[:-1].transform(x)"
)


def absorb_scaler(function: RKHSFunction, scaler: Any) -> RKHSFunction:
    """Return the function of x that equals `function` of the scaled x.

    The scaler is a fitted StandardScaler, MinMaxScaler, MaxAbsScaler or RobustScaler of scikit-learn. Raises ValueError
    if it has another type, or the kernel does not depend on differences of its inputs only.
    """
    center, scale = _center_and_scale(scaler, function.points.shape[-1])
    points = np.asarray(function.points) * scale + center
    kernel, draws = _rescale(function.kernel, scale, len(function.batch_shape)), function.batch_shape
    return RKHSFunction(kernel, points, function.coefficients, function.intercept, draws)


def _center_and_scale(scaler: Any, num_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return c and s, (d,) each, of a scaler that maps x to (x - c) / s."""
    name = type(scaler).__name__ if type(scaler).__module__.startswith("sklearn.") else None
    if name == "StandardScaler":
        center, scale = scaler.mean_ if scaler.with_mean else None, scaler.scale_
    elif name == "RobustScaler":
        center, scale = scaler.center_, scaler.scale_
    elif name == "MaxAbsScaler":
        center, scale = None, scaler.scale_
    elif name == "MinMaxScaler" and not scaler.clip:
        center, scale = -scaler.min_ / scaler.scale_, 1.0 / scaler.scale_
    else:
        raise ValueError(f"the step {scaler!r} of the pipeline can't be absorbed exactly; {_ADVICE}")
    center = np.zeros(num_features) if center is None else np.asarray(center, dtype=float)
    scale = np.ones(num_features) if scale is None else np.asarray(scale, dtype=float)
    return center, scale


def _rescale(kernel: AbstractKernel, scale: np.ndarray, draws: int) -> AbstractKernel:
    """Return the kernel of x that equals `kernel` of x / scale; its arrays lead with some axes of draws."""
    if isinstance(kernel, (RBF, Matern12, Matern32, Matern52, RationalQuadratic)):
        return eqx.tree_at(lambda k: k.lengthscale, kernel, _times(kernel.lengthscale, scale, draws))
    if isinstance(kernel, Periodic):
        return eqx.tree_at(lambda k: k.period, kernel, _times(kernel.period, scale, draws))
    if isinstance(kernel, Constant):
        return kernel
    if isinstance(kernel, Scaled):
        return Scaled(_rescale(kernel.kernel, scale, draws), kernel.variance)
    if isinstance(kernel, Selected):
        selected = scale[[int(feature) for feature in kernel.features]]
        return Selected(_rescale(kernel.kernel, selected, draws), kernel.features)
    if isinstance(kernel, (Sum, Product)):
        return type(kernel)(tuple(_rescale(part, scale, draws) for part in kernel.kernels))
    if isinstance(kernel, ProductKernel):
        parts = zip(kernel.kernels, scale, strict=True)
        return ProductKernel(tuple(_rescale(part, width[None], draws) for part, width in parts))
    raise ValueError(
        f"a {type(kernel).__name__} kernel behind a scaler is not the same kernel of unscaled points; {_ADVICE}"
    )


def _times(values: Any, scale: np.ndarray, draws: int) -> jax.Array:
    """Return one value per feature; for one feature a number, because some kernels do not take an array there."""
    values = np.asarray(values)
    values = values[..., None] if values.ndim == draws else values
    scaled = values * scale
    return jnp.asarray(scaled[..., 0] if scaled.shape[-1] == 1 else scaled)
