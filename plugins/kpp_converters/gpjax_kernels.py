"""Kernels of GPJax as kpp kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kpp.kernels import (
    RBF,
    AbstractKernel,
    Constant,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Polynomial,
    Product,
    RationalQuadratic,
    Sum,
)
from kpp_converters.rules import find_rule


def kernel_from_gpjax(kernel: Any, num_features: int) -> AbstractKernel:
    r"""Convert a kernel of GPJax of d features.

    GPJax's lengthscale of `Periodic` is half of kpp's.

    Args:
        kernel: An RBF, Matern12, Matern32, Matern52, RationalQuadratic, Periodic, Linear, Polynomial or Constant
            kernel, or sums and products of them; each with ``active_dims``.
        num_features: d.

    Returns:
        The kernel, with the same values at any two points.

    Raises:
        ValueError: If a part has no exact counterpart.
    """
    rule = find_rule(kernel, _RULES, "kernel")
    engine = type(kernel.compute_engine).__name__
    if engine != "DenseKernelComputation":
        raise ValueError(
            f"the kernel {type(kernel).__name__} has the compute engine {engine}, whose matrices are not those of the "
            "kernel function; only DenseKernelComputation has an exact counterpart"
        )
    columns = np.arange(num_features)[kernel.active_dims]
    if len(columns) == num_features and (columns == np.arange(num_features)).all():
        return rule(kernel, num_features)
    return rule(kernel, len(columns)).on(tuple(columns.tolist()))


def value(parameter: Any) -> Any:
    """Return the value of a parameter in its own range: an array (d,), or a number if it has one element."""
    from gpjax.parameters import val

    array = np.asarray(val(parameter), dtype=float)
    return array.item() if array.size == 1 else array


def _stationary(cls: Callable[..., AbstractKernel]) -> Callable[[Any, int], AbstractKernel]:
    def convert(kernel: Any, num_features: int) -> AbstractKernel:
        return cls(lengthscale=value(kernel.lengthscale), variance=value(kernel.variance))

    return convert


def _rational_quadratic(kernel: Any, num_features: int) -> AbstractKernel:
    lengthscale, variance = value(kernel.lengthscale), value(kernel.variance)
    return RationalQuadratic(lengthscale=lengthscale, variance=variance, alpha=value(kernel.alpha))


def _periodic(kernel: Any, num_features: int) -> AbstractKernel:
    lengthscale, variance = 2.0 * value(kernel.lengthscale), value(kernel.variance)
    return Periodic(lengthscale=lengthscale, variance=variance, period=value(kernel.period))


def _polynomial(kernel: Any, num_features: int) -> AbstractKernel:
    lengthscale = 1.0 / np.sqrt(value(kernel.variance))
    return Polynomial(degree=int(kernel.degree), lengthscale=lengthscale, offset=value(kernel.shift))


def _parts(kernel: Any, num_features: int) -> tuple[AbstractKernel, ...]:
    return tuple(kernel_from_gpjax(part, num_features) for part in kernel.kernels)


_RULES: dict[str, Callable[[Any, int], AbstractKernel]] = {
    "gpjax.Constant": lambda kernel, d: Constant(value(kernel.constant)),
    "gpjax.Linear": lambda kernel, d: Linear(variance=np.full(d, value(kernel.variance))),
    "gpjax.Matern12": _stationary(Matern12),
    "gpjax.Matern32": _stationary(Matern32),
    "gpjax.Matern52": _stationary(Matern52),
    "gpjax.Periodic": _periodic,
    "gpjax.Polynomial": _polynomial,
    "gpjax.ProductKernel": lambda kernel, d: Product(_parts(kernel, d)),
    "gpjax.RBF": _stationary(RBF),
    "gpjax.RationalQuadratic": _rational_quadratic,
    "gpjax.SumKernel": lambda kernel, d: Sum(_parts(kernel, d)),
}
