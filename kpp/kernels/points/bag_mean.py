r"""A kernel between distributions observed as bags of points: the inner product of their mean embeddings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kpp.foundation.validation import is_concrete
from kpp.kernels.base import AbstractBatchKernel, AbstractKernel
from kpp.kernels.checks import example_points
from kpp.kernels.parts import as_kernel
from kpp.kernels.points.stationary import RBF
from kpp.typing import AnyArray, Points, RngKey

_ENTRIES = 2**24  # the largest number of kernel values in memory at a time


class PaddedBags(NamedTuple):
    """Bags of points in arrays; or pairs of bags, with an axis of length 2 after the first one.

    Attributes:
        points: The points of n bags, (n, L, d), with any numbers beyond the length of a bag.
        lengths: The numbers of points, (n,).
    """

    points: Float[AnyArray, "*n L d"]
    lengths: Int[AnyArray, "*n"]

    @staticmethod
    def pair(first: PaddedBags, second: PaddedBags) -> PaddedBags:
        """Return pairs of bags: points (n, 2, L, d), L being the larger of both lengths, and lengths (n, 2).

        Raises:
            ValueError: If the numbers of bags, or of features, differ.
        """
        shapes = [np.shape(bags.points) for bags in (first, second)]
        if shapes[0][0] != shapes[1][0] or shapes[0][2] != shapes[1][2]:
            raise ValueError(f"`first` and `second` must be as many bags with the same features, got shapes {shapes}")
        longest = max(shapes[0][1], shapes[1][1])
        points = [
            np.pad(np.asarray(bags.points), ((0, 0), (0, longest - bags.points.shape[1]), (0, 0)))
            for bags in (first, second)
        ]
        lengths = [np.asarray(bags.lengths) for bags in (first, second)]
        return PaddedBags(jnp.asarray(np.stack(points, axis=1)), jnp.asarray(np.stack(lengths, axis=1)))


class BagMean(AbstractBatchKernel):
    r"""The mean of a kernel over the points of two bags.

    .. math:: k_B(A, C) = \frac{1}{|A| |C|} \sum_{a \in A} \sum_{c \in C} k(a, c) = \langle \hat\mu_A, \hat\mu_C \rangle

    Bags come as a tuple ``(points (n, L, d), lengths (n,))``, L being the length of the longest; `pad_bags` makes one.
    Rows beyond the length of a bag are ignored. Pairs of bags, for the kernels that compare, are ``(points
    (m, 2, L, d), lengths (m, 2))``.

    Args:
        kernel: k, the kernel of one point; its parameters may be priors.

    Example:
        >>> bags = kernels.pad_bags([np.ones((2, 1)), 2 * np.ones((3, 1))])
        >>> kernels.BagMean(kernels.Linear()).gram(bags)
        Array([[1., 2.],
               [2., 4.]], dtype=float64)

    References:
        Muandet, Fukumizu, Dinuzzo and Scholkopf, Learning from distributions via support measure machines, 2012.
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        """Evaluate the kernel at every two of n1 and n2 bags, tuples of points (n, L, d) and lengths (n,)."""
        (points, weights), (others, other_weights) = self._read(x1, "x1"), self._read(x2, "x2")
        flat = others.reshape(-1, others.shape[2])

        def row(bag: tuple[Array, Array]) -> Array:
            means = bag[1] @ self.kernel(bag[0], flat)
            return jnp.sum(means.reshape(other_weights.shape) * other_weights, axis=1)

        return _map(row, (points, weights), points.shape[1] * flat.shape[0])

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        points, weights = self._read(x, "x")
        return _map(lambda bag: bag[1] @ self.kernel.gram(bag[0]) @ bag[1], (points, weights), points.shape[1] ** 2)

    def _read(self, bags: Points, name: str) -> tuple[Float[Array, "n L d"], Float[Array, "n L"]]:
        """Return the points and their weights; rows beyond the length of a bag repeat its first point."""
        points, lengths = _check_bags(bags, name)
        inside = jnp.arange(points.shape[1])[None, :] < lengths[:, None]
        weights = inside.astype(points.dtype) / lengths[:, None].astype(points.dtype)
        return jnp.where(inside[:, :, None], points, points[:, :1]), weights

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        points = example_points(rng_key, 2, 18).reshape(6, 3, 2)
        yield cls(RBF(0.8, 1.3)), (points, jnp.array([1, 2, 3, 3, 2, 1]))


def pad_bags(bags: Sequence[Any]) -> PaddedBags:
    """Put bags of different lengths into one array.

    Args:
        bags: n bags, arrays of shape (length, d) with at least one point each.

    Returns:
        The points (n, L, d), zeros beyond the length of a bag, and the lengths (n,).

    Raises:
        ValueError: If a bag is empty or is not a matrix, or the numbers of features differ.

    Example:
        >>> kernels.pad_bags([x[:2], x]).lengths
        Array([2, 3], dtype=int64)
    """
    arrays = [np.asarray(bag, dtype=float) for bag in bags]
    if not arrays or any(bag.ndim != 2 or bag.shape[0] == 0 or bag.shape[1] != arrays[0].shape[-1] for bag in arrays):
        raise ValueError(
            "`bags` must hold arrays of shape (length, d) with at least one point each and the same d, got shapes "
            f"{[bag.shape for bag in arrays]}"
        )
    lengths = np.array([len(bag) for bag in arrays])
    points = np.zeros((len(arrays), lengths.max(), arrays[0].shape[1]))
    for row, bag in zip(points, arrays, strict=True):
        row[: len(bag)] = bag
    return PaddedBags(jnp.asarray(points), jnp.asarray(lengths))


def _map(function: Callable[[tuple[Array, Array]], Array], bags: Points, entries_each: int) -> Array:
    """Map a function over bags in batches that fit into memory; reverse mode computes the values again."""
    return jax.lax.map(jax.checkpoint(function), bags, batch_size=max(1, _ENTRIES // entries_each))


def _check_bags(bags: Points, name: str) -> tuple[Array, Array]:
    shapes = [leaf.shape for leaf in jax.tree.leaves(bags)]
    if not isinstance(bags, tuple) or [len(shape) for shape in shapes] != [3, 1] or shapes[0][:1] != shapes[1]:
        raise ValueError(
            f"`{name}` must be bags for BagMean, the tuple (points (n, L, d), lengths (n,)), got arrays of shapes "
            f"{shapes}; `pad_bags` makes one of arrays (length, d)"
        )
    points, lengths = bags
    if is_concrete(lengths) and not bool(np.all((np.asarray(lengths) >= 1) & (np.asarray(lengths) <= shapes[0][1]))):
        raise ValueError(
            f"`{name}` must hold lengths from 1 to {shapes[0][1]}, got from {np.min(lengths)} to {np.max(lengths)}"
        )
    return points, lengths
