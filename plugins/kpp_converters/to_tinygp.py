"""kpp kernels as kernels of tinygp."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

import kpp
from kpp.kernels import AbstractKernel

if TYPE_CHECKING:
    import tinygp


def kernel_to_tinygp(kernel: AbstractKernel) -> tinygp.kernels.Kernel:
    """Convert a kernel to one of tinygp, with the same values at any two points.

    Sums, products, multiples and selections of one feature become those of tinygp, and so do the kernels that tinygp
    has. Any other kernel is wrapped: tinygp then evaluates the kpp kernel itself.

    Args:
        kernel: A kernel without priors. Its numbers may be traced, so that a NumPyro model may convert it.

    Returns:
        The kernel of tinygp; `kernel_from_tinygp` converts it back.
    """
    return _convert(kernel, None)


def _convert(kernel: AbstractKernel, num_features: int | None) -> Any:
    """Convert a kernel of points with some number of features, None if it is not known."""
    from tinygp import kernels, transforms

    match kernel:
        case kpp.kernels.Sum() | kpp.kernels.Product():
            join = operator.add if isinstance(kernel, kpp.kernels.Sum) else operator.mul
            return functools.reduce(join, [_convert(part, num_features) for part in kernel.kernels])
        case kpp.kernels.ProductKernel():
            return _product_over_features(kernel.kernels)
        case kpp.kernels.Scaled():
            return kernel.variance * _convert(kernel.kernel, num_features)
        case kpp.kernels.Selected(features=(int(feature),)):
            return transforms.Subspace(feature, _convert(kernel.kernel, 1))
        case kpp.kernels.Constant():
            return kernels.Constant(kernel.variance)
        case kpp.kernels.Linear():
            return transforms.Linear(jnp.atleast_1d(jnp.sqrt(kernel.variance)), kernels.DotProduct())
        case kpp.kernels.Periodic():
            return _periodic(kernel, num_features)
    return _with_lengthscales(kernel)


def _product_over_features(parts: Iterable[AbstractKernel]) -> Any:
    from tinygp import transforms

    converted = [transforms.Subspace(j, _convert(part, 1)) for j, part in enumerate(parts)]
    return functools.reduce(operator.mul, converted)


def _periodic(kernel: kpp.kernels.Periodic, num_features: int | None) -> Any:
    """Convert a periodic kernel to a product over features, if their number is known."""
    from tinygp import kernels

    lengthscale, period = jnp.broadcast_arrays(jnp.asarray(kernel.lengthscale), jnp.asarray(kernel.period))
    if num_features == 1:
        gamma = 2.0 / jnp.square(lengthscale.squeeze())
        return kernel.variance * kernels.ExpSineSquared(scale=period.squeeze(), gamma=gamma)
    if lengthscale.ndim == 0:
        return _wrapper()(kernel)
    parts = [kpp.kernels.Periodic(lengthscale=lengthscale[j], period=period[j]) for j in range(lengthscale.size)]
    return kernel.variance * _product_over_features(parts)


def _with_lengthscales(kernel: Any) -> Any:
    """Convert a kernel with a variance and lengthscales; wrap one that tinygp does not have."""
    from tinygp import kernels, transforms

    euclidean = kernels.distance.L2Distance()
    match kernel:
        case kpp.kernels.RBF():
            base: Any = kernels.ExpSquared()
        case kpp.kernels.Matern12():
            base = kernels.Exp(distance=euclidean)
        case kpp.kernels.Matern32():
            base = kernels.Matern32(distance=euclidean)
        case kpp.kernels.Matern52():
            base = kernels.Matern52(distance=euclidean)
        case kpp.kernels.RationalQuadratic():
            base = kernels.RationalQuadratic(alpha=kernel.alpha, distance=euclidean)
        case kpp.kernels.Polynomial():
            base = kernels.Polynomial(order=kernel.degree, sigma=jnp.sqrt(kernel.offset))
        case _:
            return _wrapper()(kernel)
    # Of shape (1,) or (d,), so that a point that is a number becomes one of shape (1,).
    return kernel.variance * transforms.Linear(jnp.atleast_1d(1.0 / kernel.lengthscale), base)


@functools.cache
def _wrapper() -> type[tinygp.kernels.Kernel]:
    """Return the class of tinygp's kernels that evaluate a kpp kernel; it derives from a class of tinygp."""
    from tinygp.kernels import Kernel

    class KppKernel(Kernel):
        kernel: AbstractKernel

        def evaluate(self, X1: Any, X2: Any) -> Any:
            return self.kernel.evaluate(*jax.tree.map(jnp.atleast_1d, (X1, X2)))

    return KppKernel
