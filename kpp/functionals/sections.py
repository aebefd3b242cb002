r"""Sections of a kernel and of its derivatives, for functions that derivatives have been observed of.

A Gaussian process that is conditioned on derivatives has a posterior mean with sections :math:`\partial_j k(\cdot, z)`
beside :math:`k(\cdot, z)`. `WithDerivatives` takes both as points, so that such a mean is an `RKHSFunction`, and is a
product over the features if k is one.

References:
    Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 9.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kpp.kernels import AbstractKernel, AbstractProductKernel
from kpp.typing import Points


class DirectedPoints(NamedTuple):
    """Points z, (m, d), each with a direction: of 0 it stands for the section at z, else for the derivative there."""

    points: Float[Array, "*m d"]
    directions: Float[Array, "*m d"]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the points."""
        return self.points.shape

    @property
    def dtype(self) -> Any:
        """The type of the points."""
        return self.points.dtype


class WithDerivatives(AbstractKernel):
    """A kernel whose points may be derivatives along a feature, `DirectedPoints`; at arrays it is unchanged."""

    kernel: AbstractKernel

    def evaluate(self, x1: Points, x2: Points) -> Float[Array, ""]:
        return _along(self.kernel.evaluate, x1, x2, jnp.any)

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        derived = isinstance(x1, DirectedPoints) or isinstance(x2, DirectedPoints)
        return super().__call__(x1, x2) if derived else self.kernel(x1, x2)

    def product_terms(self) -> tuple[AbstractProductKernel, ...]:
        return tuple(map(_TermWithDerivatives, self.kernel.product_terms()))


class _TermWithDerivatives(AbstractProductKernel):
    """A product kernel whose points may be derivatives: the factor of a direction's feature is differentiated."""

    kernel: AbstractProductKernel

    @property
    def scale(self) -> Float[Array, ""]:
        return self.kernel.scale

    def evaluate_factors(self, x1: Points, x2: Points) -> Float[Array, " d"]:
        return _along(self.kernel.evaluate_factors, x1, x2, lambda along: along)


def join_points(parts: Sequence[Points]) -> Points:
    """Concatenate batches of points; as `DirectedPoints`, if some are."""
    if any(isinstance(part, DirectedPoints) for part in parts):
        parts = [
            part if isinstance(part, DirectedPoints) else DirectedPoints(part, jnp.zeros_like(part)) for part in parts
        ]
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *parts)


def _along(
    function: Callable[[Array, Array], Array], x1: Points, x2: Points, select: Callable[[Array], Bool[Array, "*d"]]
) -> Float[Array, "*d"]:
    """Evaluate a function of two points, differentiated along the directions where `select` finds them not to be 0."""

    def of(inner: Callable[[Array], Array], x: Points) -> Array:
        if not isinstance(x, DirectedPoints):
            return inner(x)
        value, slope = jax.jvp(inner, (x.points,), (x.directions,))
        return jnp.where(select(x.directions != 0), slope, value)

    return of(lambda z1: of(lambda z2: function(z1, z2), x2), x1)
