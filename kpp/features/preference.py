r"""Explicit features of the kernels that compare items, for many matches.

The kernel of an item is one of finite rank, :math:`k(x, x') = \phi(x)^\top \phi(x')`, by random Fourier features or by
Nyström's method; the kernels on pairs then have the features of this module, and a linear model on them is a
preference function.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.features.base import AbstractFeatureKernel
from kpp.features.nystrom import Nystrom
from kpp.kernels import RBF, AbstractKernel, GeneralizedPreferential, Preferential
from kpp.kernels.pairs.oriented import orient, stack_items
from kpp.kernels.pairs.preference import example_pairs
from kpp.typing import AnyArray, Coefficients, OutputValues, Points, RngKey


def _as_feature_kernel(kernel: object) -> AbstractFeatureKernel:
    if not isinstance(kernel, AbstractFeatureKernel):
        raise TypeError(
            f"`kernel` must be a kernel with features, such as RandomFourier or Nystrom, got {type(kernel).__name__}"
        )
    return kernel


class PreferentialFeatures(AbstractFeatureKernel):
    r"""The preferential kernel of a kernel with features.

    .. math:: \psi(a, b) = \phi(a) - \phi(b)

    These r features have the inner product of the 2r features :math:`(\psi, -\psi) / \sqrt2`. A linear model on them is
    a difference of utilities, :math:`w^\top \psi(a, b) = w^\top \phi(a) - w^\top \phi(b)`.

    Args:
        kernel: The kernel of one item, with r features :math:`\phi`; its parameters may be priors.
    """

    kernel: AbstractFeatureKernel = eqx.field(converter=_as_feature_kernel)

    def feature_map(self, x: Points) -> Float[Array, "n q"]:
        """Return the features of m pairs, (m, r), skew-symmetric exactly, without rounding errors."""
        features = Preferential(self.kernel).finite_features(x)
        assert features is not None
        return features

    def unfold(self, points: Points, coefficients: Coefficients) -> tuple[AbstractKernel, Points, AnyArray]:
        return Preferential(self.kernel), points, coefficients

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        yield cls(_example_kernel(rng_key)), example_pairs(rng_key, 2)


class GeneralizedPreferentialFeatures(AbstractFeatureKernel):
    r"""The generalized preferential kernel of a kernel with features.

    .. math:: \psi_{jl}(a, b) = \phi_j(a) \phi_l(b) - \phi_l(a) \phi_j(b), \qquad j < l

    These r (r - 1) / 2 features are the entries of the skew-symmetric matrix
    :math:`(\phi(a) \phi(b)^\top - \phi(b) \phi(a)^\top) / \sqrt2` that are independent of each other, so scaled that
    the inner product is the same.

    Args:
        kernel: The kernel of one item, with r features :math:`\phi`; its parameters may be priors.
    """

    kernel: AbstractFeatureKernel = eqx.field(converter=_as_feature_kernel)

    def feature_map(self, x: Points) -> Float[Array, "n q"]:
        """Return the features of m pairs, (m, r (r - 1) / 2), skew-symmetric exactly, without rounding errors."""
        features = GeneralizedPreferential(self.kernel).finite_features(x)
        assert features is not None
        return features

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        return GeneralizedPreferential(self.kernel)(x1, x2)

    def gram(self, x: Points) -> Float[Array, "n n"]:
        return GeneralizedPreferential(self.kernel).gram(x)

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return GeneralizedPreferential(self.kernel).diagonal(x)

    def combine_sections(self, x: Points, points: Points, coefficients: Coefficients) -> OutputValues:
        r"""Evaluate a function spanned by sections as :math:`\phi(a)^\top M \phi(b)`, M being skew, (r, r)."""
        oriented = orient(x, self, "x")
        (a, b), (c, d) = (
            jnp.split(self.kernel.feature_map(stack_items(pairs)), 2) for pairs in (oriented.pairs, points)
        )
        half = jnp.einsum("ij,i...,il->jl...", c, coefficients, d)
        table = half - jnp.swapaxes(half, 0, 1)
        return oriented.skew(jnp.einsum("ij,jl...,il->i...", a, table, b))

    def unfold(self, points: Points, coefficients: Coefficients) -> tuple[AbstractKernel, Points, AnyArray]:
        """Write a function with the generalized preferential kernel, unfolded itself where the kernel of an item is."""
        return GeneralizedPreferential(self.kernel).unfold(points, coefficients)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        yield cls(_example_kernel(rng_key)), example_pairs(rng_key, 2)


def _example_kernel(rng_key: RngKey) -> AbstractFeatureKernel:
    return Nystrom(RBF(jnp.array([0.7, 1.5]), 1.3), jax.random.normal(rng_key, (6, 2)))
