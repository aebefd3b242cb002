"""A kernel with one more section: a function outside of its space, such as the prior mean of a Gaussian process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.kernels.base import AbstractKernel
from kpp.typing import AnyArray, Points


class ExtendedPoints(NamedTuple):
    """Points z, (m, d), each with a share: with 0 it stands for the kernel's section at z, with 1 for the function."""

    points: Points
    shares: Float[Array, " m"]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the points."""
        return self.points.shape

    @property
    def dtype(self) -> Any:
        """The type of the points."""
        return self.points.dtype

    @classmethod
    def of(cls, points: Points, axis: int = 0) -> ExtendedPoints:
        """Return n points and one more, the last along their axis, which stands for the function."""

        def extend(leaf: Array) -> Array:
            return jnp.concatenate([leaf, jax.lax.slice_in_dim(leaf, -1, None, axis=axis)], axis=axis)

        first = jax.tree.leaves(points)[0]
        shares = jnp.zeros((*first.shape[:axis], first.shape[axis] + 1), jnp.result_type(first, jnp.float32))
        return cls(jax.tree.map(extend, points), shares.at[..., -1].set(1.0))


class WithFunction(AbstractKernel):
    r"""A kernel k and a function g, of which :math:`\sum_i \alpha_i k(\cdot, z_i) + g` is a function as any other.

    Between points of the kernel it is k; between a point x and `ExtendedPoints` it is the section at x, or g(x). It has
    no product terms, because g need not have any: see `kpp.RKHSFunction.product_parts`.
    """

    kernel: AbstractKernel
    function: Callable[[Points], Array]

    def evaluate(self, x1: Points, x2: Points) -> Float[Array, ""]:
        one, two = (jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], x) for x in (x1, x2))
        return self(one, two)[0, 0]

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        if isinstance(x1, ExtendedPoints):
            if isinstance(x2, ExtendedPoints):
                raise TypeError("a function outside of the RKHS has no inner product, got it in both arguments")
            return self(x2, x1).T
        if not isinstance(x2, ExtendedPoints):
            return self.kernel(x1, x2)
        shares = x2.shares[None]
        return self.kernel(x1, x2.points) * (1 - shares) + self.function(x1)[:, None] * shares

    def gram(self, x: Points) -> Float[Array, "n n"]:
        return self.kernel.gram(x)

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return self.kernel.diagonal(x)

    def unfold(self, points: Points, coefficients: AnyArray) -> tuple[AbstractKernel, Points, AnyArray]:
        own = jax.tree.map(lambda leaf: leaf[:-1], points.points)
        kernel, own, weights = self.kernel.unfold(own, coefficients[:-1])
        if kernel is self.kernel:
            return self, points, coefficients
        weights = jnp.concatenate([weights, coefficients[-1:]])
        return WithFunction(kernel, self.function), ExtendedPoints.of(own), weights
