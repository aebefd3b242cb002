r"""Functions of a reproducing kernel Hilbert space, one or a whole posterior of them.

A kernel method ends in a function :math:`f(x) = \sum_i \alpha_i k(x, x_i) + b`. `RKHSFunction` holds its kernel,
points, coefficients and intercept, so that an explainer can take it apart. It may hold many draws of f at once, say
(chain, draw): then coefficients, intercept and every array of the kernel lead with those axes, while the points are
shared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PyTree

from kpp.foundation.arguments import guard_exports
from kpp.foundation.validation import as_floats, as_point_arrays, is_concrete
from kpp.kernels import AbstractKernel, AbstractProductKernel
from kpp.kernels.base import has_product_terms
from kpp.kernels.extended_points import ExtendedPoints
from kpp.typing import AnyArray, Numbers, PointFunction, Points


class WithFunction(AbstractKernel):
    r"""A kernel k and a function g, of which :math:`\sum_i \alpha_i k(\cdot, z_i) + g` is a function as any other.

    Between points of the kernel it is k; between a point x and `ExtendedPoints` it is the section at x, or g(x). It has
    no product terms, because g need not have any: see `kpp.RKHSFunction.product_parts`.
    """

    kernel: AbstractKernel
    function: Any

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
        values = jnp.reshape(self.function(x1), (-1, 1))
        return jnp.where(x2.shares[None] > 0, values, self.kernel(x1, x2.points))

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


class RKHSFunction(eqx.Module):
    r"""A function spanned by kernel sections, plus a constant.

    .. math:: f_o(x) = \sum_{i=1}^n \alpha_{io}\, k(x, x_i) + b_o

    Args:
        kernel: The kernel k. With draws, all its array leaves lead with ``batch_shape``, also those with fixed values
            (`over_draws` broadcasts them).
        points: The n points :math:`x_i`: an array (n, d), or another batch of points that the kernel accepts. With
            draws they are shared by all, or lead with ``(*batch_shape, n)``.
        coefficients: :math:`\alpha`, of shape (*batch_shape, n), or (*batch_shape, n, outputs) for several outputs.
        intercept: b, of shape batch_shape, or (*batch_shape, outputs); a single number is used for all.
        batch_shape: The shape of the draws: () for one function, (chain, draw) for a posterior.

    Raises:
        ValueError: If the shapes do not fit each other, or numbers are NaN or infinite (traced arrays are trusted).

    Example:
        >>> function = kpp.RKHSFunction(kpp.kernels.RBF(1.0), points=np.zeros((1, 2)), coefficients=np.array([2.0]))
        >>> function(np.array([[0.0, 0.0], [0.0, 1.0]])).round(2).tolist()
        [2.0, 1.21]
    """

    kernel: AbstractKernel
    points: Any
    coefficients: Float[Array, "..."]
    intercept: Float[Array, "..."]
    batch_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        kernel: AbstractKernel,
        points: Points,
        coefficients: Numbers,
        intercept: Numbers = 0.0,
        batch_shape: tuple[int, ...] = (),
    ) -> None:
        self.kernel = kernel
        self.points = as_point_arrays(points, "points")
        self.coefficients = as_floats(coefficients, "coefficients")
        self.batch_shape = tuple(batch_shape)
        batch = len(self.batch_shape)
        intercept = as_floats(intercept, "intercept").astype(self.coefficients.dtype)
        shape = self.coefficients.shape[:batch] + self.coefficients.shape[batch + 1 :]
        self.intercept = jnp.broadcast_to(intercept, shape) if intercept.ndim == 0 else intercept

    def __check_init__(self) -> None:
        batch, shape = self.batch_shape, self.coefficients.shape
        if shape[: len(batch)] != batch or len(shape) - len(batch) not in (1, 2):
            raise ValueError(
                "`coefficients` must have shape (*batch_shape, n) or (*batch_shape, n, outputs) with batch_shape "
                f"{batch}, got shape {shape}"
            )
        expected = batch + shape[len(batch) + 1 :]
        if self.intercept.shape != expected:
            raise ValueError(f"`intercept` must be a number or have shape {expected}, got shape {self.intercept.shape}")
        for leaf in jax.tree.leaves(self.points):
            if leaf.shape[:1] != (self.num_points,) and not self._has_own_points():
                raise ValueError(
                    f"`points` must have as many rows as `coefficients`, {self.num_points}, got shape {leaf.shape}"
                )
        for path, leaf in jax.tree.leaves_with_path(eqx.filter(self.kernel, eqx.is_array)):
            if leaf.shape[: len(batch)] != batch:
                name = jax.tree_util.keystr(path, simple=True, separator=".")
                raise ValueError(
                    f"`kernel` must lead with batch_shape {batch} in every array, got shape {leaf.shape} in {name}; "
                    "`RKHSFunction.over_draws` broadcasts what all draws share"
                )

    @classmethod
    def over_draws(
        cls,
        kernel: AbstractKernel,
        points: Points,
        coefficients: Float[AnyArray, "..."],
        intercept: Numbers = 0.0,
        *,
        batch_shape: tuple[int, ...],
    ) -> RKHSFunction:
        """Build a posterior of functions, broadcasting all parts that the draws share.

        An array of the kernel, the coefficients or the intercept that does not lead with `batch_shape` is assumed to be
        the same for all draws.

        Args:
            kernel: The kernel, with or without leading draw axes in each of its arrays.
            points: The points, shared.
            coefficients: (*batch_shape, n[, outputs]).
            intercept: A number, (outputs,) or (*batch_shape[, outputs]).
            batch_shape: The shape of the draws.
        """
        batch_shape = tuple(batch_shape)

        def spread(leaf: Array) -> Any:
            if not eqx.is_array(leaf) or leaf.shape[: len(batch_shape)] == batch_shape:
                return leaf
            return jnp.broadcast_to(leaf, batch_shape + leaf.shape)

        kernel = jax.tree.map(spread, kernel)
        coefficients = spread(as_floats(coefficients, "coefficients"))
        constant = spread(as_floats(intercept, "intercept"))
        outputs = coefficients.shape[len(batch_shape) + 1 :]
        if outputs and constant.shape == batch_shape:
            constant = jnp.broadcast_to(constant[..., None], batch_shape + outputs)
        return cls(kernel, points, coefficients, constant, batch_shape)

    @property
    def num_points(self) -> int:
        """The number of points, n."""
        return self.coefficients.shape[len(self.batch_shape)]

    @property
    def num_features(self) -> int | None:
        """The number of columns of the points; None if the kernel has points of another form than an array."""
        points = self.spanned.points
        return points.shape[-1] if eqx.is_array(points) else None

    @property
    def output_shape(self) -> tuple[int, ...]:
        """() for a scalar function, (outputs,) for one with several outputs."""
        return self.coefficients.shape[len(self.batch_shape) + 1 :]

    @property
    def spanned(self) -> RKHSFunction:
        """The function without what was added to it from outside of the RKHS: itself, if nothing was."""
        if not isinstance(self.kernel, WithFunction):
            return self
        batch = (slice(None),) * len(self.batch_shape)
        last = (*(batch if self._has_own_points() else ()), slice(-1))
        points = jax.tree.map(lambda leaf: leaf[last], self.points.points)
        coefficients = self.coefficients[(*batch, slice(-1))]
        return RKHSFunction(self.kernel.kernel, points, coefficients, self.intercept, self.batch_shape)

    def with_spanned(self, spanned: RKHSFunction) -> RKHSFunction:
        """Return another function of the RKHS, plus what was added to this one: `spanned` itself, if nothing was."""
        if not isinstance(self.kernel, WithFunction):
            return spanned
        shape, batch, added = spanned.batch_shape, (slice(None),) * len(self.batch_shape), self.kernel.function
        if self.batch_shape != shape:  # of a function without draws, which all draws share
            arrays, static = eqx.partition(added, eqx.is_array)
            added = eqx.combine(jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, shape + leaf.shape), arrays), static)
        points = ExtendedPoints.of(spanned.points, len(shape) if spanned._has_own_points() else 0)
        one = jnp.broadcast_to(self.coefficients[(*batch, slice(-1, None))], (*shape, 1, *spanned.output_shape))
        coefficients = jnp.concatenate([spanned.coefficients, one], axis=len(shape))
        return RKHSFunction(WithFunction(spanned.kernel, added), points, coefficients, spanned.intercept, shape)

    @property
    def has_product_parts(self) -> bool:
        """Whether `product_parts` exists: the kernel is a sum of product kernels, as is that of an added function."""
        if not isinstance(self.kernel, WithFunction):
            return has_product_terms(self.kernel)
        added = self.kernel.function
        return has_product_terms(self.kernel.kernel) and isinstance(added, RKHSFunction) and added.has_product_parts

    def product_parts(self) -> list[tuple[AbstractProductKernel, RKHSFunction]]:
        """Return product kernels, each with a function of it; their sum is this function without its intercept.

        The function must have no draws.

        Raises:
            TypeError: If the kernel is not a sum of product kernels.
        """
        if not isinstance(self.kernel, WithFunction):
            return [(term, self) for term in self.kernel.product_terms()]
        parts, added = self.spanned.product_parts(), self.kernel.function
        for term, part in added.product_parts():
            coefficients = jnp.tensordot(part.coefficients, self.coefficients[-1], axes=0)
            parts.append((term, RKHSFunction(part.kernel, part.points, coefficients)))
        return parts

    def __call__(self, x: Points) -> Float[Array, "..."]:
        """Evaluate at p points.

        Args:
            x: The points, (p, d), or another batch that the kernel accepts.

        Returns:
            The values, (*batch_shape, p[, outputs]).

        Raises:
            ValueError: If points hold NaN or infinity; traced arrays are trusted.
        """
        x = as_point_arrays(x, "x")
        # A kernel of bags checks their lengths, which are integers: they are not compiled.
        known = all(map(is_concrete, jax.tree.leaves((self, x))))
        if self.batch_shape or (known and all(map(eqx.is_inexact_array, jax.tree.leaves(x)))):
            return _evaluate_draws(self, x)
        return self._evaluate(x)

    def map_draws(self, f: Callable[..., Any], *others: PyTree, batch_size: int | None = None) -> Any:
        """Apply a function of one draw to all draws; use this instead of a loop over draws.

        Args:
            f: A function of an `RKHSFunction` with ``batch_shape`` () and the entries of `others` for the same draw. It
                returns a pytree of arrays and must be traceable by JAX.
            *others: Pytrees of arrays led by ``batch_shape``.
            batch_size: How many draws are worked on at once (`jax.lax.map`); one after another by default.

        Returns:
            The results of `f`, each array led by ``batch_shape``.
        """
        if not self.batch_shape:
            return f(self, *others)
        batch = len(self.batch_shape)
        own_points = self._has_own_points()
        arrays, static = eqx.partition(self.kernel, eqx.is_array)
        mapped = (arrays, self.points if own_points else None, self.coefficients, self.intercept, others)
        flat = jax.tree.map(lambda leaf: leaf.reshape(math.prod(self.batch_shape), *leaf.shape[batch:]), mapped)

        def apply(draw: PyTree) -> Any:
            kernel, points, coefficients, intercept, further = draw
            points = points if own_points else self.points
            return f(RKHSFunction(eqx.combine(kernel, static), points, coefficients, intercept), *further)

        results = jax.lax.map(apply, flat, batch_size=batch_size)
        return jax.tree.map(lambda leaf: leaf.reshape(*self.batch_shape, *leaf.shape[1:]), results)

    def take_draws(self, draws: Numbers | slice) -> RKHSFunction:
        """Select draws, the same in each chain.

        Args:
            draws: Positions along the last of the draw axes, (s,).

        Returns:
            The function whose ``batch_shape`` ends in s.
        """
        axis = len(self.batch_shape) - 1
        if axis < 0:
            raise ValueError("`take_draws` needs a function with draws; this one has none")

        def take(leaf: Any) -> Any:
            return jnp.take(leaf, np.asarray(draws), axis=axis) if eqx.is_array(leaf) else leaf

        points = jax.tree.map(take, self.points) if self._has_own_points() else self.points
        parts = jax.tree.map(take, (self.kernel, self.coefficients, self.intercept))
        return RKHSFunction(parts[0], points, parts[1], parts[2], (*self.batch_shape[:-1], len(np.asarray(draws))))

    def at_draw(self, position: tuple[int, ...]) -> RKHSFunction:
        """Return the function of one draw, at a position with one number for each axis of ``batch_shape``."""

        def take(leaf: Any) -> Any:
            # NumPy's indexing compiles nothing.
            return jnp.asarray(np.asarray(leaf)[position]) if eqx.is_array(leaf) else leaf

        points = jax.tree.map(take, self.points) if self._has_own_points() else self.points
        return RKHSFunction(jax.tree.map(take, self.kernel), points, take(self.coefficients), take(self.intercept))

    def unfold(self) -> RKHSFunction:
        """Write the function with a simpler kernel, if its kernel allows this: see `AbstractKernel.unfold`.

        Returns:
            The same function, draw by draw, with a kernel that explainers can decompose; the same object if its kernel
            does not unfold.
        """
        unfolded: list[Any] = []  # whether the kernel unfolds, and the parts of the new one that are not arrays

        def of_one_draw(function: RKHSFunction) -> Any:
            kernel, points, coefficients = function.kernel.unfold(function.points, function.coefficients)
            arrays, static = eqx.partition(kernel, eqx.is_array)
            unfolded[:] = kernel is not function.kernel, static
            return arrays, points, coefficients

        jax.eval_shape(lambda: self.map_draws(of_one_draw))
        if not unfolded[0]:
            return self
        arrays, points, coefficients = self.map_draws(of_one_draw)
        kernel = eqx.combine(arrays, unfolded[1])
        firsts = jax.tree.map(lambda leaf: leaf[(0,) * len(self.batch_shape)], points)
        pairs = zip(jax.tree.leaves(points), jax.tree.leaves(firsts), strict=True)
        if all(is_concrete(leaf) and bool((np.asarray(leaf) == np.asarray(first)).all()) for leaf, first in pairs):
            points = firsts  # the same for all draws
        return RKHSFunction(kernel, points, coefficients, self.intercept, self.batch_shape)

    def __add__(self, other: ArrayLike | PointFunction) -> RKHSFunction:
        """Add a number or a function of points, which need not be in the RKHS; functions are added without draws.

        A module with a method ``as_rkhs_function`` is added as the `RKHSFunction` that it returns.
        """
        other = other.as_rkhs_function() if hasattr(other, "as_rkhs_function") else other
        if not callable(other):
            return self._replace(self.coefficients, self.intercept + other)
        if self.batch_shape or getattr(other, "batch_shape", ()):
            raise ValueError("a function can only be added to a function without draws; use `map_draws`")
        constant = other.intercept if isinstance(other, RKHSFunction) else 0.0
        kernel = WithFunction(self.kernel, other - constant if isinstance(other, RKHSFunction) else other)
        coefficients = jnp.concatenate([self.coefficients, jnp.ones_like(self.coefficients[:1])])
        return RKHSFunction(kernel, ExtendedPoints.of(self.points), coefficients, self.intercept + constant)

    def __sub__(self, constant: ArrayLike) -> RKHSFunction:
        """Subtract a number from the function."""
        return self._replace(self.coefficients, self.intercept - constant)

    def __mul__(self, factor: ArrayLike) -> RKHSFunction:
        """Multiply the function by a number."""
        return self._replace(self.coefficients * factor, self.intercept * factor)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> RKHSFunction:
        """Return the function with the opposite sign."""
        return self * -1.0

    def _replace(self, coefficients: Array, intercept: Array) -> RKHSFunction:
        return RKHSFunction(self.kernel, self.points, coefficients, intercept, self.batch_shape)

    def _evaluate(self, x: Points) -> Float[Array, "..."]:
        values = self.kernel.combine_sections(x, self.points, self.coefficients)
        return values + jnp.broadcast_to(self.intercept, values.shape)

    def _has_own_points(self) -> bool:
        """Return whether the points lead with the draw axes, by the shapes and ranks of all leaves together."""
        leading = (*self.batch_shape, self.num_points)
        leaves = jax.tree.leaves(self.points)
        return (
            bool(self.batch_shape)
            and all(leaf.shape[: len(leading)] == leading for leaf in leaves)
            and any(leaf.ndim > len(leading) for leaf in leaves)
        )


@eqx.filter_jit
def _evaluate_draws(function: RKHSFunction, x: Points) -> Float[Array, "..."]:
    """Evaluate all draws, or the only one, by one compiled program; operation by operation there would be dozens."""
    return function.map_draws(lambda draw: draw._evaluate(x))


guard_exports(globals())
