r"""Affine transformations around a function: of its inputs, :math:`(x - c) / s`, and of its values, :math:`a f + b`.

Libraries standardize inputs and targets. The function of the original units is again an RKHS function, and its
posterior a Gaussian process: lengthscales are multiplied by s, points are converted back, and variances are multiplied
by a^2.
"""

from __future__ import annotations

from typing import Any, overload

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.kernels import (
    RBF,
    AbstractKernel,
    Categorical,
    Constant,
    Linear,
    Matern,
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
from kpp.typing import Numbers


@overload
def rescale_inputs(function: RKHSFunction, center: Numbers, scale: Numbers) -> RKHSFunction: ...
@overload
def rescale_inputs(function: GPPosterior, center: Numbers, scale: Numbers) -> GPPosterior: ...
def rescale_inputs(function: RKHSFunction | GPPosterior, center: Numbers, scale: Numbers) -> RKHSFunction | GPPosterior:
    r"""Return the function :math:`x \mapsto f((x - c) / s)`.

    Args:
        function: f, an `RKHSFunction` or a `GPPosterior`, on points (n, d). Its kernel depends on differences of inputs
            only; an `RKHSFunction` without draws may also have the kernel `Linear`.
        center: c, one number or shape (d,).
        scale: s, one number or shape (d,), positive.

    Returns:
        The function, of the same type.

    Raises:
        ValueError: If the kernel has another form.
    """
    mean = function.mean if isinstance(function, GPPosterior) else function
    num_features = mean.points.shape[-1]
    shift, widths = (np.broadcast_to(np.asarray(part, dtype=float), num_features) for part in (center, scale))
    if isinstance(function, GPPosterior):
        return GPPosterior(_rescale_stationary(mean, shift, widths), function.root, function.output_covariance)
    if isinstance(mean.kernel, Linear):
        # w^T x + b becomes w / s and b - w^T (c / s).
        moved = mean.kernel.combine_sections((shift / widths)[None], mean.points, mean.coefficients)[0]
        return RKHSFunction(mean.kernel, np.asarray(mean.points) / widths, mean.coefficients, mean.intercept - moved)
    return _rescale_stationary(mean, shift, widths)


@overload
def rescale_outputs(function: RKHSFunction, scale: Numbers, shift: Numbers) -> RKHSFunction: ...
@overload
def rescale_outputs(function: GPPosterior, scale: Numbers, shift: Numbers) -> GPPosterior: ...
def rescale_outputs(function: RKHSFunction | GPPosterior, scale: Numbers, shift: Numbers) -> RKHSFunction | GPPosterior:
    r"""Return the function :math:`x \mapsto a f(x) + b`.

    Args:
        function: f, an `RKHSFunction` or a `GPPosterior`.
        scale: a, one number, or one per output; not 0.
        shift: b, in the same form.

    Returns:
        The function, of the same type.
    """
    factor, constant = jnp.asarray(scale), jnp.asarray(shift)
    if isinstance(function, RKHSFunction):
        coefficients = function.coefficients * jnp.broadcast_to(factor, function.coefficients.shape)
        shifted = function.intercept * factor + constant
        return RKHSFunction(function.kernel, function.points, coefficients, shifted, function.batch_shape)
    if function.output_covariance is not None:
        factors = jnp.broadcast_to(factor, function.mean.output_shape)
        between = function.output_covariance * factors[:, None] * factors[None, :]
        return GPPosterior(rescale_outputs(function.mean, scale, shift), function.root, between)
    # The new kernel is a^2 times the old one, so coefficients and root are divided by a.
    mean, moved = function.mean.spanned, function.mean * factor + constant
    kernel = Scaled(mean.kernel, jnp.broadcast_to(factor**2, mean.batch_shape))
    scaled = RKHSFunction(kernel, mean.points, mean.coefficients / factor, moved.intercept, mean.batch_shape)
    return GPPosterior(moved.with_spanned(scaled), function.root / factor)


def _rescale_stationary(
    function: RKHSFunction, center: Float[np.ndarray, " d"], scale: Float[np.ndarray, " d"]
) -> RKHSFunction:
    draws = function.batch_shape
    kernel = _rescale_kernel(function.kernel, scale, len(draws))
    points = np.asarray(function.points) * scale + center
    return RKHSFunction(kernel, points, function.coefficients, function.intercept, draws)


def _rescale_kernel(kernel: AbstractKernel, scale: Float[np.ndarray, " d"], draws: int) -> AbstractKernel:
    """Return the kernel of x that equals `kernel` of x / scale; its arrays lead with some axes of draws."""
    if isinstance(kernel, (RBF, Matern, Matern12, Matern32, Matern52, RationalQuadratic)):
        return eqx.tree_at(lambda k: k.lengthscale, kernel, _times(kernel.lengthscale, scale, draws))
    if isinstance(kernel, Periodic):
        return eqx.tree_at(lambda k: k.period, kernel, _times(kernel.period, scale, draws))
    if isinstance(kernel, Constant) or (isinstance(kernel, Categorical) and (scale == 1).all()):
        return kernel
    if isinstance(kernel, Scaled):
        return Scaled(_rescale_kernel(kernel.kernel, scale, draws), kernel.variance)
    if isinstance(kernel, Selected):
        return Selected(_rescale_kernel(kernel.kernel, scale[np.asarray(kernel.features)], draws), kernel.features)
    if isinstance(kernel, (Sum, Product)):
        return type(kernel)(tuple(_rescale_kernel(part, scale, draws) for part in kernel.kernels))
    if isinstance(kernel, ProductKernel):
        parts = zip(kernel.kernels, scale, strict=True)
        return ProductKernel(tuple(_rescale_kernel(part, width[None], draws) for part, width in parts))
    raise ValueError(
        f"a {type(kernel).__name__} kernel behind a scaler is not the same kernel of unscaled points; convert the "
        "model without the scaler and explain it at scaled points (for a pipeline of scikit-learn: "
        "as_rkhs_function(pipeline[-1]) and pipeline[:-1].transform(x))"
    )


def _times(values: Any, scale: Float[np.ndarray, " d"], draws: int) -> Array:
    """Return one value per feature; for one feature a number, because some kernels do not take an array there."""
    values = np.asarray(values)
    scaled = (values[..., None] if values.ndim == draws else values) * scale
    return jnp.asarray(scaled[..., 0] if scaled.shape[-1] == 1 else scaled)
