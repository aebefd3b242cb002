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

_MATERN: dict[float, type[AbstractKernel]] = {0.5: Matern12, 1.5: Matern32, 2.5: Matern52, math.inf: RBF}


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
    features = tuple(int(feature) for feature in kernel.active_dims)
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


def _rbf(kernel: Any, num_features: int) -> AbstractKernel:
    return RBF(lengthscale=_lengthscale(kernel))


def _matern(kernel: Any, num_features: int) -> AbstractKernel:
    return _MATERN[float(kernel.nu)](lengthscale=_lengthscale(kernel))  # type: ignore[call-arg]


def _rational_quadratic(kernel: Any, num_features: int) -> AbstractKernel:
    return RationalQuadratic(lengthscale=_lengthscale(kernel), alpha=number(kernel.alpha))


def _periodic(kernel: Any, num_features: int) -> AbstractKernel:
    return Periodic(lengthscale=np.sqrt(_lengthscale(kernel)), period=_per_feature(kernel.period_length))


def _linear(kernel: Any, num_features: int) -> AbstractKernel:
    return Linear(variance=np.broadcast_to(_per_feature(kernel.variance), (num_features,)))


def _polynomial(kernel: Any, num_features: int) -> AbstractKernel:
    return Polynomial(degree=int(kernel.power), offset=number(kernel.offset))


def _constant(kernel: Any, num_features: int) -> AbstractKernel:
    return Constant(number(kernel.constant))


def _categorical(kernel: Any, num_features: int) -> AbstractKernel:
    r"""BoTorch divides by the number of features, :math:`\exp(-\frac1d \sum_j 1\{x_j \ne x'_j\} / \ell_j)`."""
    return Categorical(correlation=np.exp(-1.0 / (num_features * _lengthscale(kernel))))


def _scaled(kernel: Any, num_features: int) -> AbstractKernel:
    """Its base kernel's `active_dims` are not used: ScaleKernel copies them and calls the base kernel's `forward`."""
    base = kernel.base_kernel
    return Scaled(find_rule(base, _RULES, "kernel")(base, num_features), number(kernel.outputscale))


def _sum(kernel: Any, num_features: int) -> AbstractKernel:
    return Sum(tuple(kernel_from_gpytorch(part, num_features) for part in kernel.kernels))


def _product(kernel: Any, num_features: int) -> AbstractKernel:
    return Product(tuple(kernel_from_gpytorch(part, num_features) for part in kernel.kernels))


_RULES: dict[str, Callable[[Any, int], AbstractKernel]] = {
    "botorch.CategoricalKernel": _categorical,
    "gpytorch.AdditiveKernel": _sum,
    "gpytorch.ConstantKernel": _constant,
    "gpytorch.LinearKernel": _linear,
    "gpytorch.MaternKernel": _matern,
    "gpytorch.PeriodicKernel": _periodic,
    "gpytorch.PolynomialKernel": _polynomial,
    "gpytorch.ProductKernel": _product,
    "gpytorch.RBFKernel": _rbf,
    "gpytorch.RQKernel": _rational_quadratic,
    "gpytorch.ScaleKernel": _scaled,
}
