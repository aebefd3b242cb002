"""The two sides of a regression in an RKHS: elements, and the inputs that they are regressed on."""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kpp.data.bags import Bags
from kpp.features import AbstractFeatureKernel
from kpp.kernels import AbstractKernel
from kpp.typing import Points

_BATCH = 512  # rows of a Gram matrix that are formed at the same time


class PointSections(eqx.Module):
    """Sections of a kernel at n points, as a `kpp.linalg.ridge.GramMatrix`."""

    kernel: AbstractKernel
    points: PyTree[Array]

    def gram(self) -> Float[Array, "n n"]:
        """Return the kernel matrix of the points."""
        return self.kernel.gram(self.points)

    def moments(self, v: Float[Array, "n q"]) -> tuple[Float[Array, " n"], Float[Array, "n q"]]:
        """Return the diagonal of the kernel matrix and its product with v, computed in blocks of rows."""
        diagonal = self.kernel.diagonal(self.points)
        if isinstance(self.kernel, AbstractFeatureKernel):
            return diagonal, self.kernel.combine_sections(self.points, self.points, v)

        def row(point: PyTree[Array]) -> Array:
            return self.kernel(jax.tree.map(lambda leaf: leaf[None], point), self.points)[0] @ v

        return diagonal, jax.lax.map(row, self.points, batch_size=_BATCH)

    def combine(self, x: Points, weights: Float[Array, "n q"]) -> Float[Array, "q p"]:
        """Return the values of weighted sums of the sections at p points."""
        return self.kernel.combine_sections(x, self.points, weights).T

    def spread(self, weights: Float[Array, "n q"]) -> Float[Array, "n q"]:
        """Return the weights of the points, those of the sections."""
        return weights

    def reduce(self, values: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
        """Return values at the points, one for each section."""
        return values


class BagMeans(eqx.Module):
    """Means of kernel sections over bags, as a `kpp.linalg.ridge.GramMatrix`."""

    kernel: AbstractKernel
    bags: Bags

    def gram(self) -> Float[Array, "n n"]:
        """Return the inner products of the means."""
        return self.bags.gram(self.kernel)

    def moments(self, v: Float[Array, "n q"]) -> tuple[Float[Array, " n"], Float[Array, "n q"]]:
        """Return the diagonal of the Gram matrix and its product with v."""
        gram = self.gram()
        return jnp.diagonal(gram), gram @ v

    def combine(self, x: Points, weights: Float[Array, "n q"]) -> Float[Array, "q p"]:
        """Return the values of weighted sums of the means at p points."""
        return weights.T @ self.bags.sections(self.kernel, x)

    def spread(self, weights: Float[Array, "n q"]) -> Float[Array, "m q"]:
        """Return the weights of the m points of all bags."""
        return self.bags.spread(weights)

    def reduce(self, values: Float[Array, "m *k"]) -> Float[Array, "n *k"]:
        """Return means over the bags of values at the points."""
        return self.bags.means(values)


class AbstractRegressors(eqx.Module):
    """N inputs, represented by their inner products with each other and with queries."""

    @property
    @abc.abstractmethod
    def number(self) -> int:
        """N."""

    @abc.abstractmethod
    def gram(self) -> Float[Array, "N N"]:
        """Return the inner products of the inputs."""

    @abc.abstractmethod
    def sections(self, query: Points | None) -> Float[Array, "N p"]:
        """Return the inner products of the inputs and p queries."""

    @abc.abstractmethod
    def features(self, query: Points | None = None) -> Float[Array, "p q"] | None:
        """Return features of queries, or of the inputs, with these inner products; None if there are no features."""


class KernelSections(AbstractRegressors):
    """Inputs of a kernel; the features of a kernel from `kpp.features` are used."""

    kernel: AbstractKernel
    inputs: PyTree[Array]

    @property
    def number(self) -> int:
        return jax.tree.leaves(self.inputs)[0].shape[0]

    def gram(self) -> Float[Array, "N N"]:
        return self.kernel.gram(self.inputs)

    def sections(self, query: Points | None) -> Float[Array, "N p"]:
        return self.kernel(self.inputs, query)

    def features(self, query: Points | None = None) -> Float[Array, "p q"] | None:
        if not isinstance(self.kernel, AbstractFeatureKernel):
            return None
        return self.kernel.feature_map(self.inputs if query is None else query)
