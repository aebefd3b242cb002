r"""Kernels on pairs of items, for preference functions :math:`g(a, b) = -g(b, a)`.

`Preferential` has a utility behind it, :math:`g(a, b) = f(a) - f(b)`, so that items can be ranked.
`GeneralizedPreferential` has no utility: it covers all skew-symmetric functions, including those with preference
cycles. With the base kernel k + c it contains both,

.. math:: (k + c)(k + c) - (k + c)(k + c) = \text{GeneralizedPreferential}(k) + c\, \text{Preferential}(k)
"""

# No `from __future__ import annotations`: Equinox must see the annotation `AbstractVar` itself, not a string.

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.kernels.base import AbstractBatchKernel, AbstractKernel
from kpp.kernels.checks import example_points
from kpp.kernels.pairs.oriented import Oriented, check_pairs, orient, stack_items
from kpp.kernels.parts import as_kernel, features_of_product
from kpp.kernels.points.stationary import RBF, Matern32
from kpp.typing import AnyArray, Coefficients, OutputValues, Points, RngKey


class AbstractPreferenceKernel(AbstractBatchKernel):
    """A kernel on pairs of items that changes its sign exactly when the items of one pair are exchanged.

    Law: ``k(p, q) == -k(p[:, ::-1], q)``, and 0 for a pair of an item with itself. Points are pairs of any items that
        the inner kernel accepts: an array (m, 2, d), or a pytree whose arrays lead with (m, 2).
    """

    kernel: eqx.AbstractVar[AbstractKernel]

    @abstractmethod
    def _combine(self, aa: Array, bb: Array, ab: Array, ba: Array) -> Array:
        """Combine the inner kernel's matrices: first items with first, second with second, first with second."""

    @abstractmethod
    def _pair_features(self, first: Array, second: Array) -> Array:
        """Return the features of m pairs from the inner kernel's features (m, r) of the first and the second items."""

    def _couples(self, pairs: Points) -> Any:
        """Return the two points of the inner kernel that belong to each pair, in arrays that lead with (m, 2)."""
        return pairs

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        """Evaluate the kernel at every two of m1 and m2 pairs, usually arrays (m1, 2, d) and (m2, 2, d)."""
        first, second = orient(x1, self, "x1"), orient(x2, self, "x2")
        points = (stack_items(self._couples(oriented.pairs)) for oriented in (first, second))
        return self._skew(self.kernel(*points), first, second)

    def gram(self, x: Points) -> Float[Array, "n n"]:
        oriented = orient(x, self, "x")
        return self._skew(self.kernel.gram(stack_items(self._couples(oriented.pairs))), oriented, oriented)

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        oriented = orient(x, self, "x")
        blocks = jax.vmap(self.kernel.gram)(self._couples(oriented.pairs))
        values = self._combine(blocks[:, 0, 0], blocks[:, 1, 1], blocks[:, 0, 1], blocks[:, 1, 0])
        return oriented.skew(values) * oriented.signs.astype(values.dtype)

    def finite_features(self, x: Points) -> Float[Array, "n q"] | None:
        """Return features of m pairs if the inner kernel has finitely many, skew-symmetric without rounding errors."""
        oriented = orient(x, self, "x")
        features = self.kernel.finite_features(stack_items(self._couples(oriented.pairs)))
        if features is None:
            return None
        first, second = jnp.split(features, 2)
        return oriented.skew(self._pair_features(first, second))

    def product_terms(self) -> NoReturn:
        """Raise TypeError, because the features of the two items enter as differences."""
        raise TypeError(
            f"{type(self).__name__} is not a sum of product kernels: it compares two items, and the explainer "
            '"pref-shap" computes exact Shapley values of comparisons'
        )

    def _skew(self, matrix: Array, first: Oriented, second: Oriented) -> Float[Array, "n1 n2"]:
        (aa, ab), (ba, bb) = (jnp.split(half, 2, axis=1) for half in jnp.split(matrix, 2))
        return second.skew(first.skew(self._combine(aa, bb, ab, ba)), axis=1)


class Preferential(AbstractPreferenceKernel):
    r"""The kernel of differences in utility.

    .. math:: k_E((a, b), (c, d)) = k(a, c) + k(b, d) - k(a, d) - k(b, c)

    It is the covariance of :math:`g(a, b) = f(a) - f(b)`, f being a Gaussian process with kernel k.

    Args:
        kernel: k, the kernel of one item, whose parameters may be priors. Apply `on` to this kernel:
            ``Preferential(RBF(1.0).on((0, 2)))`` uses two features of both items.

    Example:
        >>> kernels.Preferential(kernels.Linear()).gram(pairs)
        Array([[ 1., -1., -1.],
               [-1.,  1.,  1.],
               [-1.,  1.,  1.]], dtype=float64)

    References:
        Houlsby, Huszar, Ghahramani and Hernandez-Lobato, Collaborative Gaussian processes for preference learning,
        2012, where it is called the preference kernel.
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)

    def _combine(self, aa: Array, bb: Array, ab: Array, ba: Array) -> Array:
        return (aa + bb) - (ab + ba)  # exactly skew: sums of two numbers do not depend on their order

    def _pair_features(self, first: Array, second: Array) -> Array:
        return first - second

    def combine_sections(self, x: Points, points: Points, coefficients: Coefficients) -> OutputValues:
        """Evaluate a function spanned by sections as a difference of its utility."""
        oriented = orient(x, self, "x")
        kernel, items, weights = self.utility(points, coefficients)
        first, second = jnp.split(kernel.combine_sections(stack_items(oriented.pairs), items, weights), 2)
        return oriented.skew(first - second)

    def utility(self, points: Points, coefficients: Coefficients) -> tuple[AbstractKernel, Any, Any]:
        r"""Return the utility behind a function spanned by sections. The utility is a function of single items.

        .. math::

            \sum_i \alpha_i\, k_E((a, b), (c_i, d_i)) = f(a) - f(b), \qquad
            f = \sum_i \alpha_i \bigl(k(\cdot, c_i) - k(\cdot, d_i)\bigr)

        Args:
            points: The m pairs :math:`(c_i, d_i)`.
            coefficients: :math:`\alpha`, (m,) or (m, outputs).

        Returns:
            The kernel k, the 2m items and their coefficients, the arguments of an `RKHSFunction`.
        """
        return self.kernel, stack_items(points), jnp.concatenate([coefficients, -coefficients])

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        yield cls(RBF(jnp.array([0.8, 1.5]), 1.3)), example_pairs(rng_key, 2)


class GeneralizedPreferential(AbstractPreferenceKernel):
    r"""The kernel of skew-symmetric functions, with or without a utility behind them.

    .. math:: k_E((a, b), (c, d)) = k(a, c)\, k(b, d) - k(a, d)\, k(b, c)

    If k is universal, :math:`k_E` is universal among the skew-symmetric functions. Its variance is the square of the
    variance of k: it is 1 for a pair of distant items if k has variance 1.

    Args:
        kernel: k, the kernel of one item, whose parameters may be priors; k + c adds c times `Preferential(k)`.

    Example:
        >>> kernel = kernels.GeneralizedPreferential(kernels.RBF(1.0))
        >>> kernel.gram(pairs)[0].round(2)
        Array([ 0.63, -0.63, -0.23], dtype=float64)

    References:
        Chau, Gonzalez and Sejdinovic, Learning inconsistent preferences with Gaussian processes, 2022.
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)

    def _combine(self, aa: Array, bb: Array, ab: Array, ba: Array) -> Array:
        return aa * bb - ab * ba

    def _pair_features(self, first: Array, second: Array) -> Array:
        # The triangles differ in signs only: one of them is enough, without the factor 1 / sqrt 2 of the paper.
        j, m = np.triu_indices(first.shape[1], 1)
        return first[:, j] * second[:, m] - first[:, m] * second[:, j]

    def unfold(self, points: Points, coefficients: Coefficients) -> tuple[AbstractKernel, Points, AnyArray]:
        r"""Write a function by sections at pairs of landmarks, if the kernel of an item has finite rank.

        .. math::

            k(\cdot, x) = \sum_j B_j(x)\, k'(\cdot, z_j) \;\Rightarrow\;
            g = \sum_{j < l} M_{jl}\, k'_E(\cdot, (z_j, z_l)), \qquad
            M = \sum_i \alpha_i \bigl(B(c_i) B(d_i)^\top - B(d_i) B(c_i)^\top\bigr)
        """
        items = stack_items(points)
        single = jnp.ones(1, dtype=coefficients.dtype)

        def unfold_item(item: Points) -> tuple[AbstractKernel, Points, AnyArray]:
            return self.kernel.unfold(jax.tree.map(lambda leaf: leaf[None], item), single)

        kernel, landmarks, _ = unfold_item(jax.tree.map(lambda leaf: leaf[0], items))
        if kernel is self.kernel:
            return self, points, coefficients
        first, second = jnp.split(jax.vmap(lambda item: unfold_item(item)[2])(items), 2)
        table = jnp.einsum("ij,i...,il->jl...", first, coefficients, second)
        j, m = np.triu_indices(table.shape[0], 1)
        pairs = jax.tree.map(lambda leaf: jnp.stack([leaf[j], leaf[m]], axis=1), landmarks)
        return GeneralizedPreferential(kernel), pairs, table[j, m] - table[m, j]

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        yield cls(RBF(jnp.array([0.8, 1.5]), 1.3) + 0.5), example_pairs(rng_key, 2)


def example_pairs(rng_key: RngKey, num_features: int, num_pairs: int = 6) -> Float[Array, "m 2 d"]:
    """Draw pairs of standard normal items for the examples of a kernel."""
    return example_points(rng_key, num_features, 2 * num_pairs).reshape(num_pairs, 2, num_features)


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

    Example:
        >>> kernel = kernels.SkewSymmetrized(kernels.PairProduct(kernels.RBF(1.0)))
        >>> kernel.gram(pairs)[0].round(2)
        Array([ 0.63, -0.63, -0.23], dtype=float64)

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
