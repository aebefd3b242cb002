"""scikit-learn's kernels as kpp kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kpp import kernels
from kpp.kernels import AbstractKernel

_MATERN: dict[float, Any] = {0.5: kernels.Matern12, 1.5: kernels.Matern32, 2.5: kernels.Matern52, math.inf: kernels.RBF}
_MAX_POWER = 16  # a power is a product of as many kernels, so its cost grows with the exponent


def convert_metric(name: str, num_features: int, *, gamma: Any, degree: Any, coef0: Any) -> AbstractKernel:
    r"""Return the kernel of d features with a name from ``sklearn.metrics.pairwise.pairwise_kernels``.

    "rbf" is :math:`\exp(-\gamma |x-x'|^2)`, "laplacian" :math:`\exp(-\gamma |x-x'|_1)`, a product of one Matern12 per
    feature, "linear" :math:`x \cdot x'` and "poly" :math:`(\gamma\, x \cdot x' + c)^q`, with :math:`\gamma = 1/d` if it
    is None. Raises ValueError if the kernel has no exact counterpart.
    """
    gamma = 1.0 / num_features if gamma is None else float(gamma)
    if name == "linear":
        return linear_kernel(num_features)
    if name in ("poly", "polynomial"):
        return _polynomial(gamma, float(degree), float(coef0))
    if name not in ("rbf", "laplacian"):
        raise ValueError(
            f"the kernel {name!r} has no exact counterpart; known are 'rbf', 'linear', 'poly', 'laplacian'"
        )
    if gamma == 0.0:
        return kernels.Constant(1.0)
    if name == "rbf":
        return kernels.RBF(lengthscale=math.sqrt(0.5 / gamma))  # exp(-gamma r^2) = exp(-r^2 / (2 l^2))
    return kernels.ProductKernel(tuple(kernels.Matern12(lengthscale=1.0 / gamma) for _ in range(num_features)))


def convert_gp_kernel(kernel: Any, num_features: int) -> AbstractKernel:
    """Convert a kernel of ``sklearn.gaussian_process.kernels`` of d features, without its noise."""
    converted = _convert(kernel, num_features)
    if converted is None:
        raise ValueError(f"the kernel {kernel} is nothing but noise; the function is constant")
    return converted


def linear_kernel(num_features: int) -> AbstractKernel:
    """Return the linear kernel with one variance per feature; its product terms are known."""
    return kernels.Linear(variance=np.ones(num_features))


def has_noise(kernel: Any) -> bool:
    """Return whether a kernel of ``sklearn.gaussian_process.kernels`` contains a WhiteKernel."""
    parts = [getattr(kernel, name) for name in ("k1", "k2", "kernel") if hasattr(kernel, name)]
    return type(kernel).__name__ == "WhiteKernel" or any(map(has_noise, parts))


def _convert(kernel: Any, num_features: int) -> AbstractKernel | None:
    """Convert a kernel; None stands for zero: a noise kernel is zero between different points."""
    name = type(kernel).__name__
    if type(kernel).__module__ != "sklearn.gaussian_process.kernels" or name not in _RULES:
        raise ValueError(f"the kernel {kernel!r} has no exact counterpart; known are {sorted(_RULES)}")
    return _RULES[name](kernel, num_features)


def _matern(kernel: Any, num_features: int) -> AbstractKernel:
    if kernel.nu in _MATERN:
        return _MATERN[kernel.nu](lengthscale=kernel.length_scale)
    return kernels.Matern(lengthscale=kernel.length_scale, nu=float(kernel.nu))


def _periodic(kernel: Any, num_features: int) -> AbstractKernel:
    if num_features > 1:
        raise ValueError(
            "ExpSineSquared takes the sine of the distance, which is a kernel for one feature only, not for "
            f"{num_features} features (kpp.kernels.Periodic is a product over features)"
        )
    return kernels.Periodic(lengthscale=kernel.length_scale, period=kernel.periodicity)


def _dot_product(kernel: Any, num_features: int) -> AbstractKernel:
    linear = linear_kernel(num_features)
    return kernels.Sum((linear, kernels.Constant(kernel.sigma_0**2))) if kernel.sigma_0 else linear  # x^T x' + s^2


def _sum(kernel: Any, num_features: int) -> AbstractKernel | None:
    parts = [part for side in (kernel.k1, kernel.k2) if (part := _convert(side, num_features)) is not None]
    return kernels.Sum(tuple(parts)) if len(parts) == 2 else (parts[0] if parts else None)


def _product(kernel: Any, num_features: int) -> AbstractKernel | None:
    left, right = _convert(kernel.k1, num_features), _convert(kernel.k2, num_features)
    if left is None or right is None:
        return None
    for constant, other in ((left, right), (right, left)):
        if isinstance(constant, kernels.Constant):
            return kernels.Scaled(other, constant.variance)
    return kernels.Product((left, right))


def _power(kernel: Any, num_features: int) -> AbstractKernel | None:
    power = kernel.exponent
    if power != int(power) or not 1 <= power <= _MAX_POWER:
        raise ValueError(f"Exponentiation is exact for whole exponents from 1 to {_MAX_POWER}, got {power}")
    if type(kernel.kernel).__name__ == "DotProduct":
        return _polynomial(1.0, power, kernel.kernel.sigma_0**2)
    base = _convert(kernel.kernel, num_features)
    return base if base is None or power == 1 else kernels.Product((base,) * int(power))


def _polynomial(gamma: float, degree: Any, offset: Any) -> AbstractKernel:
    if degree != int(degree) or degree < 1:
        raise ValueError(f"a polynomial kernel needs a whole `degree` of at least 1, got {degree}")
    if gamma <= 0 or offset < 0:
        raise ValueError(
            f"a polynomial kernel needs `gamma` above 0 and `coef0` of at least 0, got {gamma} and {offset}"
        )
    return kernels.Polynomial(degree=int(degree), lengthscale=1.0 / math.sqrt(gamma), offset=offset)  # gamma = 1 / l^2


_RULES: dict[str, Callable[[Any, int], AbstractKernel | None]] = {
    "RBF": lambda kernel, d: kernels.RBF(lengthscale=kernel.length_scale),
    "Matern": _matern,
    "RationalQuadratic": lambda kernel, d: kernels.RationalQuadratic(kernel.length_scale, alpha=kernel.alpha),
    "ExpSineSquared": _periodic,
    "DotProduct": _dot_product,
    "ConstantKernel": lambda kernel, d: kernels.Constant(kernel.constant_value),
    "WhiteKernel": lambda kernel, d: None,
    "Sum": _sum,
    "Product": _product,
    "Exponentiation": _power,
}
