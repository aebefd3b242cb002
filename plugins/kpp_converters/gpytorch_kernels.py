"""Kernels of GPyTorch, and the categorical kernel of BoTorch, as kpp kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from kpp.kernels import (
    RBF,
    AbstractKernel,
    Categorical,
    Constant,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Polynomial,
    Product,
    RationalQuadratic,
    Scaled,
    Sum,
)
from kpp_converters.rules import find_rule

_MATERN: dict[float, Any] = {0.5: Matern12, 1.5: Matern32, 2.5: Matern52, math.inf: RBF}


def kernel_from_gpytorch(kernel: Any, num_features: int) -> AbstractKernel:
    r"""Convert a kernel of GPyTorch of d features.

    GPyTorch's lengthscale of `PeriodicKernel` is the square of kpp's.

    Args:
        kernel: An RBFKernel, MaternKernel, RQKernel, PeriodicKernel, LinearKernel, PolynomialKernel, ConstantKernel, a
            ScaleKernel, AdditiveKernel or ProductKernel of them, or BoTorch's CategoricalKernel; each with
            ``ard_num_dims`` and ``active_dims``, without batches.
        num_features: d.

    Returns:
        The kernel, with the same values at any two points.

    Raises:
        ValueError: If a part has no exact counterpart, or the parameters have batches.
    """
    rule = find_rule(kernel, _RULES, "kernel")
    if tuple(kernel.batch_shape):
        raise ValueError(
            f"the kernel {type(kernel).__name__} has parameters of batch shape {tuple(kernel.batch_shape)}; convert a "
            "model of one output without batches (in BoTorch: `model.subset_output([0])`)"
        )
    if kernel.active_dims is None:
        return rule(kernel, num_features)
    features = tuple(int(feature) for feature in kernel.active_dims)  # a buffer of the module, hence a tensor
    return rule(kernel, len(features)).on(features)


def numbers(tensor: Any) -> Float[np.ndarray, "..."]:
    """Return a tensor as an array of float64."""
    return np.asarray(tensor.detach().cpu().numpy(), dtype=float)


def number(tensor: Any) -> float:
    """Return a tensor of one element as a number."""
    return numbers(tensor).item()


def _per_feature(tensor: Any) -> Any:
    """Return parameters of shape (1, d): one per feature, or one number."""
    values = numbers(tensor).reshape(-1)
    return values[0] if values.size == 1 else values


def _lengthscale(kernel: Any) -> Any:
    return _per_feature(kernel.lengthscale)


def _periodic(kernel: Any, num_features: int) -> AbstractKernel:
    # GPyTorch divides the squared sine by the lengthscale itself, not by its square.
    return Periodic(lengthscale=np.sqrt(_lengthscale(kernel)), period=_per_feature(kernel.period_length))


def _categorical(kernel: Any, num_features: int) -> AbstractKernel:
    r"""BoTorch divides by the number of features, :math:`\exp(-\frac1d \sum_j 1\{x_j \ne x'_j\} / \ell_j)`."""
    return Categorical(correlation=np.exp(-1.0 / (num_features * _lengthscale(kernel))))


def _scaled(kernel: Any, num_features: int) -> AbstractKernel:
    """Its base kernel's `active_dims` are not used: ScaleKernel copies them and calls the base kernel's `forward`."""
    base = kernel.base_kernel
    return Scaled(find_rule(base, _RULES, "kernel")(base, num_features), number(kernel.outputscale))


def _parts(kernel: Any, num_features: int) -> tuple[AbstractKernel, ...]:
    return tuple(kernel_from_gpytorch(part, num_features) for part in kernel.kernels)


_RULES: dict[str, Callable[[Any, int], AbstractKernel]] = {
    "botorch.CategoricalKernel": _categorical,
    "gpytorch.AdditiveKernel": lambda kernel, d: Sum(_parts(kernel, d)),
    "gpytorch.ConstantKernel": lambda kernel, d: Constant(number(kernel.constant)),
    "gpytorch.LinearKernel": lambda kernel, d: Linear(variance=np.broadcast_to(_per_feature(kernel.variance), (d,))),
    "gpytorch.MaternKernel": lambda kernel, d: _MATERN[float(kernel.nu)](lengthscale=_lengthscale(kernel)),
    "gpytorch.PeriodicKernel": _periodic,
    "gpytorch.PolynomialKernel": lambda kernel, d: Polynomial(int(kernel.power), offset=number(kernel.offset)),
    "gpytorch.ProductKernel": lambda kernel, d: Product(_parts(kernel, d)),
    "gpytorch.RBFKernel": lambda kernel, d: RBF(lengthscale=_lengthscale(kernel)),
    "gpytorch.RQKernel": lambda kernel, d: RationalQuadratic(_lengthscale(kernel), alpha=number(kernel.alpha)),
    "gpytorch.ScaleKernel": _scaled,
}
