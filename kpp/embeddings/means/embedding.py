r"""Embeddings: elements of a reproducing kernel Hilbert space, stored as weights of support points.

The mean embedding of a distribution P is :math:`\mu_P = E_{X \sim P}\, k(X, \cdot)`; a conditional one is such an
element for each value of the condition. All estimates of these are weighted sums of kernel sections,
:math:`\hat\mu_q = \sum_i w_i(q)\, k(z_i, \cdot)`, so an embedding defines its support points and its weights, and all
other methods follow.
"""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

import abc
import functools
import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.foundation.modules import AbstractModule
from kpp.foundation.validation import as_finite_array, finite_arrays, is_concrete
from kpp.functions import RKHSFunction
from kpp.kernels import AbstractKernel
from kpp.typing import Numbers, Points

# Methods whose arguments are points and queries, which subclasses define.
_OF_POINTS = ("weights", "input_weights", "evaluate")


def _of_finite_points(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method of an embedding raise ValueError if an argument does not hold finite real numbers."""
    names = tuple(inspect.signature(method).parameters)[1:]

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        read = tuple(_read(self, points, name) for points, name in zip(args, names, strict=False))
        kwargs = {name: _read(self, points, name) for name, points in kwargs.items()}
        return method(self, *read, *args[len(read) :], **kwargs)

    return checked


def _read(embedding: Any, points: Points, name: str) -> Any:
    """Convert points or queries to arrays; queries must have the form of the inputs of the embedding, if it has any."""
    arrays = finite_arrays(np.asarray(points) if isinstance(points, list) else points, name)
    if name != "query" or not isinstance(arrays, jax.Array):
        return arrays
    inputs = getattr(embedding, "inputs", arrays)
    if arrays.ndim < 2 or (isinstance(inputs, jax.Array) and arrays.shape[1:] != inputs.shape[1:]):
        needed = "(p, d)" if inputs is arrays else f"(p, {', '.join(map(str, inputs.shape[1:]))})"
        raise ValueError(f"`query` must have shape {needed}, one row per query, got shape {arrays.shape}")
    return arrays


class AbstractEmbedding(AbstractModule):
    r"""An element of an RKHS for each query.

    .. math:: \mu_q = \sum_{i=1}^n w_i(q)\, k(z_i, \cdot)

    Subclasses have the fields `kernel` (k) and `points` (the n support points :math:`z_i`, a batch of inputs of the
    kernel) and one method, `weights`. The law, checked by `kpp.testing.check_embedding`: ``evaluate(x, query)`` equals
    ``weights(query).T @ kernel(points, x)``.
    """

    kernel: eqx.AbstractVar[AbstractKernel]
    points: eqx.AbstractVar[Points]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make the methods of a subclass refuse points and queries that hold NaN or infinity."""
        super().__init_subclass__(**kwargs)
        for name in _OF_POINTS:
            member = cls.__dict__.get(name)
            if member is not None and not getattr(member, "__isabstractmethod__", False):
                setattr(cls, name, _of_finite_points(member))

    @property
    def space(self) -> AbstractKernel:
        """The kernel of the RKHS in which inner products are expectations and distances are computed.

        It is `kernel`, except for elements that are weighted sums of sections of a smoother kernel.
        """
        return self.kernel

    @abc.abstractmethod
    def weights(self, query: Points | None = None) -> Float[Array, "n p"]:
        """Return the weights of the support points for each query.

        Args:
            query: The p queries, one row each; None for an embedding without queries, and then p = 1.

        Returns:
            The weights, (n, p).
        """

    @_of_finite_points
    def evaluate(self, x: Points, query: Points | None = None) -> Float[Array, "p n"]:
        r"""Evaluate the elements at points, :math:`\mu_q(x) = \sum_i w_i(q)\, k(z_i, x)`.

        Args:
            x: The n points.
            query: The p queries, or None.

        Returns:
            The values, (p, n).
        """
        return self.kernel.combine_sections(x, self.points, self.weights(query)).T

    def expectation(self, values: RKHSFunction | Numbers, query: Points | None = None) -> Float[Array, "..."]:
        r"""Return the inner product with a function of the RKHS, which is its expectation.

        .. math:: \langle f, \mu_q \rangle = \sum_i \alpha_i\, \mu_q(x_i), \qquad f = \sum_i \alpha_i k(x_i, \cdot)

        Args:
            values: The function, an `RKHSFunction` with the kernel of the space of the elements. Its intercept is added
                unchanged.
            query: The p queries, or None.

        Returns:
            The expectations, (p,); the draw axes of the function come first, its output axis last.

        Raises:
            TypeError: If `values` is not an `RKHSFunction`.
        """
        if not isinstance(values, RKHSFunction):
            raise TypeError(
                f"`values` must be an RKHSFunction for {type(self).__name__}, whose support points are not a sample; "
                f"got {type(values).__name__}"
            )

        def of_one_draw(function: RKHSFunction) -> Array:
            found = self.evaluate(function.points, query) @ function.coefficients
            return found + jnp.broadcast_to(function.intercept, found.shape)

        return values.map_draws(of_one_draw)

    def inner(
        self, other: "AbstractEmbedding", query: Points | None = None, other_query: Points | None = None
    ) -> Float[Array, "p other_p"]:
        r"""Return the inner products with the elements of another embedding in the same space.

        .. math:: \langle \mu_q, \nu_r \rangle = \sum_{ij} w_i(q)\, k(z_i, z'_j)\, w'_j(r)

        Args:
            other: The other embedding; its `space` must be the same.
            query: The p queries of this embedding, or None.
            other_query: The p' queries of the other embedding, or None.

        Returns:
            The inner products, (p, p').

        Raises:
            ValueError: If the spaces differ.
        """
        self._check_same_space(other)
        return self._coordinates(query).T @ self._reduce(other.evaluate(self.points, other_query).T)

    def mmd_squared(
        self, other: "AbstractEmbedding", query: Points | None = None, other_query: Points | None = None
    ) -> Float[Array, "p other_p"]:
        r"""Return the squared maximum mean discrepancies to the elements of another embedding.

        .. math::

            \|\mu_q - \nu_r\|^2
            = \langle\mu_q, \mu_q\rangle - 2 \langle\mu_q, \nu_r\rangle + \langle\nu_r, \nu_r\rangle

        For two `MeanEmbedding` this is the V-statistic: it includes the pairs of a point with itself, is never
        negative, and has a bias of order 1/n for n points.

        Args:
            other: The other embedding; its `space` must be the same.
            query: The p queries of this embedding, or None.
            other_query: The p' queries of the other embedding, or None.

        Returns:
            The squared distances, (p, p').

        Raises:
            ValueError: If the spaces differ.

        References:
            Gretton et al. (2012), "A kernel two-sample test", JMLR 13, equation 5.
        """
        cross = self.inner(other, query, other_query)
        distances = self._squared_norms(query)[:, None] - 2 * cross + other._squared_norms(other_query)[None, :]
        return jnp.maximum(distances, 0.0)  # rounding may make the distance of equal elements slightly negative

    def _coordinates(self, query: Points | None) -> Float[Array, "r p"]:
        """Return the weights of the rows of `_reduce`; fewer than `weights` if several points share one weight."""
        return self.weights(query)

    def _reduce(self, values: Float[Array, "n *k"]) -> Float[Array, "r *k"]:
        """Sum values over the support points that share a weight; by default no points do."""
        return values

    def _squared_norms(self, query: Points | None) -> Float[Array, " p"]:
        weights = self.weights(query)
        return jnp.sum(weights * self.kernel.combine_sections(self.points, self.points, weights), axis=0)

    def _check_same_space(self, other: "AbstractEmbedding") -> None:
        """Raise ValueError if the other embedding has a different space."""
        check_same_kernel(other.space, self.space, "other")


class AbstractEmpiricalEmbedding(AbstractEmbedding):
    r"""An embedding whose support points are a sample: expectations need only a function's values at these points."""

    def expectation(self, values: RKHSFunction | Numbers, query: Points | None = None) -> Float[Array, "..."]:
        r"""Return the weighted sums of a function's values at the support points.

        .. math:: \hat E_q f = \sum_i w_i(q)\, f(z_i)

        Args:
            values: The values of f at the n support points, (n,) or (n, outputs), or f itself as an `RKHSFunction`.
            query: The p queries, or None.

        Returns:
            The expectations, (p,) or (p, outputs); the draw axes of an `RKHSFunction` come first.

        Raises:
            ValueError: If the number of rows of `values` is not the number of support points.
        """
        coordinates = self._coordinates(query)
        if isinstance(values, RKHSFunction):
            return values.map_draws(lambda function: coordinates.T @ self._reduce(function(self.points)))
        values = as_finite_array(values, "values")
        num_points = jax.tree.leaves(self.points)[0].shape[0]
        if values.shape[:1] != (num_points,):
            raise ValueError(
                f"`values` must have one row for each of the {num_points} support points, got shape {values.shape}"
            )
        return jnp.tensordot(coordinates, self._reduce(values), axes=(0, 0))


def check_same_kernel(kernel: AbstractKernel, expected: AbstractKernel, name: str) -> None:
    """Raise ValueError, naming the argument that has the kernel, unless it equals the expected one or is traced."""
    same = jax.tree.structure(kernel) == jax.tree.structure(expected)
    leaves = jax.tree.leaves(kernel), jax.tree.leaves(expected)
    if same and all(is_concrete(leaf) for leaf in (*leaves[0], *leaves[1])):  # NumPy: JAX would trace it
        same = all(np.array_equal(leaf, other_leaf) for leaf, other_leaf in zip(*leaves, strict=True))
    if not same:
        raise ValueError(f"`{name}` must have the same kernel, got {kernel!r} and not {expected!r}")
