r"""Kernels on pairs taken apart: by which kernels of single items and of contexts each of their terms compares."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp import RKHSFunction
from kpp.kernels import AbstractKernel, Contextual, GeneralizedPreferential, Preferential, Scaled, Sum

__all__ = ["Comparison", "check_preference", "comparisons", "split_points"]


class Comparison(NamedTuple):
    r"""One term of a kernel on pairs, :math:`s\, k_E(p, q)\, k_z(z, z')`.

    Attributes:
        kernel: The kernel k of single items that :math:`k_E` is made of.
        is_general: Whether :math:`k_E` is `GeneralizedPreferential`; it is `Preferential` otherwise.
        scales: Numbers whose product is s.
        context_kernel: :math:`k_z`, or None.
    """

    kernel: AbstractKernel
    is_general: bool
    scales: tuple[Any, ...] = ()
    context_kernel: AbstractKernel | None = None

    @property
    def pair_kernel(self) -> AbstractKernel:
        r"""The kernel :math:`k_E`."""
        return (GeneralizedPreferential if self.is_general else Preferential)(self.kernel)

    def scale(self, values: Float[Array, "*rest"]) -> Float[Array, "*rest"]:
        """Multiply values by s."""
        for factor in self.scales:
            values = jnp.asarray(factor, values.dtype) * values
        return values


def comparisons(kernel: AbstractKernel) -> tuple[Comparison, ...]:
    """Return the terms of a kernel on pairs.

    Args:
        kernel: `GeneralizedPreferential`, `Preferential`, `Contextual` of them, or sums and multiples of those.

    Returns:
        The terms.

    Raises:
        TypeError: If the kernel is made of anything else.
    """
    if isinstance(kernel, GeneralizedPreferential | Preferential):
        return (Comparison(kernel.kernel, isinstance(kernel, GeneralizedPreferential)),)
    if isinstance(kernel, Sum):
        return tuple(term for part in kernel.kernels for term in comparisons(part))
    if isinstance(kernel, Scaled):
        return tuple(term._replace(scales=(*term.scales, kernel.variance)) for term in comparisons(kernel.kernel))
    if isinstance(kernel, Contextual):
        return tuple(term._replace(context_kernel=kernel.context_kernel) for term in comparisons(kernel.kernel))
    raise TypeError(
        "the kernel of a preference function must be GeneralizedPreferential, Preferential or Contextual, or a sum or "
        f"multiple of such, got {type(kernel).__name__}"
    )


def split_points(points: Any) -> tuple[Any, Any]:
    """Return pairs and contexts of a batch of points, the contexts None where there are none."""
    return points if isinstance(points, tuple) else (points, None)


def check_preference(function: Any, *, contextual: bool = False) -> RKHSFunction:
    """Return a function of pairs as it came, or refuse what cannot be explained.

    Args:
        function: The function.
        contextual: Whether it must depend on contexts.

    Returns:
        The function.

    Raises:
        TypeError: If it is no `RKHSFunction` of pairs with one output, or lacks contexts.
    """
    if not isinstance(function, RKHSFunction):
        raise TypeError(f"`function` must be a kpp.RKHSFunction on pairs of items, got {type(function).__name__}")
    if function.output_shape:
        raise TypeError(f"`function` must have one output, got {function.output_shape[0]}")
    terms = comparisons(function.kernel)
    pairs, _ = split_points(function.points)
    if not isinstance(pairs, jax.Array):
        raise TypeError(f"`function` must have points that are arrays (m, 2, d), got {type(pairs).__name__}")
    if contextual and any(term.context_kernel is None for term in terms):
        raise TypeError(
            "`function` must depend on contexts to explain what they contribute: its kernel needs to be Contextual, "
            f"got {type(function.kernel).__name__}"
        )
    return function
