r"""Skew-symmetric kernels that are constructed from any kernel on pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.kernels.base import AbstractBatchKernel, AbstractKernel
from kpp.kernels.pairs.oriented import check_pairs
from kpp.kernels.pairs.preference import AbstractPreferenceKernel, example_pairs
from kpp.kernels.parts import as_kernel, features_of_product
from kpp.kernels.points.stationary import RBF, Matern32
from kpp.typing import Points, RngKey


class PairProduct(AbstractBatchKernel):
    r"""The tensor product of two kernels, as a kernel on ordered pairs, for functions of two items without symmetry.

    .. math:: \kappa((a, b), (c, d)) = k_1(a, c)\, k_2(b, d)

    Args:
        first: :math:`k_1`, the kernel of the first item; its parameters may be priors.
        second: :math:`k_2`, the kernel of the second item; None for the same kernel with the same parameters.
    """

    first: AbstractKernel = eqx.field(converter=lambda kernel: as_kernel(kernel, "first"))
    second: AbstractKernel | None = eqx.field(
        converter=lambda kernel: None if kernel is None else as_kernel(kernel, "second"), default=None
    )

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        """Evaluate the kernel at every two of m1 and m2 pairs, usually arrays (m1, 2, d) and (m2, 2, d)."""
        (a, b), (c, d) = self._items(x1, "x1"), self._items(x2, "x2")
        return self.first(a, c) * self._second(b, d)

    def gram(self, x: Points) -> Float[Array, "n n"]:
        a, b = self._items(x, "x")
        return self.first.gram(a) * self._second.gram(b)

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        a, b = self._items(x, "x")
        return self.first.diagonal(a) * self._second.diagonal(b)

    def finite_features(self, x: Points) -> Float[Array, "n q"] | None:
        return features_of_product((self.first, self._second), self._items(x, "x"))

    @property
    def _second(self) -> AbstractKernel:
        return self.first if self.second is None else self.second

    def _items(self, pairs: Points, name: str) -> tuple[Any, Any]:
        check_pairs(pairs, self, name)
        first, second = (jax.tree.map(lambda leaf, i=i: leaf[:, i], pairs) for i in (0, 1))
        return first, second

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        yield cls(RBF(0.8, 1.3), Matern32(1.2)), example_pairs(rng_key, 2)


class SkewSymmetrized(AbstractPreferenceKernel):
    r"""The kernel of the skew-symmetric part of a function of pairs, for any kernel on pairs.

    .. math::

        k_E(p, q) = \tfrac12 \bigl[\kappa(p, q) - \kappa(\tilde p, q) - \kappa(p, \tilde q)
        + \kappa(\tilde p, \tilde q)\bigr], \qquad p = (a, b), \quad \tilde p = (b, a)

    It is the covariance of :math:`(h(a, b) - h(b, a)) / \sqrt2`, h being a Gaussian process with kernel
    :math:`\kappa`. With ``PairProduct(k)`` it is `GeneralizedPreferential(k)`.

    Args:
        kernel: :math:`\kappa`, a kernel on pairs; its parameters may be priors.

    References:
        Pahikkala, Waegeman, Tsivtsivadze, Salakoski and De Baets, Learning intransitive reciprocal relations with
        kernel methods, 2010.
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)

    def _couples(self, pairs: Points) -> Any:
        return jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[:, ::-1]], axis=1), pairs)

    def _combine(self, aa: Array, bb: Array, ab: Array, ba: Array) -> Array:
        return 0.5 * ((aa + bb) - (ab + ba))

    def _pair_features(self, first: Array, second: Array) -> Array:
        return np.sqrt(0.5) * (first - second)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        yield cls(PairProduct(RBF(0.8, 1.3), Matern32(1.2))), example_pairs(rng_key, 2)
