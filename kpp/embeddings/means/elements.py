"""Elements of an RKHS that are regressed on inputs, represented by their Gram matrix."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kpp.data.bags import Bags
from kpp.features import AbstractFeatureKernel
from kpp.kernels import AbstractKernel

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
