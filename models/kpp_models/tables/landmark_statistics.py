"""Sums over the rows of a table from which least squares with landmarks are solved."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["LandmarkSystem", "Statistics"]

_TILES = 4  # of the symmetric matrix of products only the upper triangle of so many times as many tiles is computed


class Statistics(eqx.Module):
    r"""Sums over rows with weights :math:`w_i`, targets :math:`z_i` and sections :math:`k_i = k(Z, x_i)`.

    Args:
        tiles: The tiles of :math:`\sum_i w_i k_i k_i^\top` on and above the diagonal, row by row.
        sections: :math:`\sum_i w_i k_i`, (m,).
        moments: :math:`\sum_i w_i z_i k_i`, (m,).
        totals: :math:`\sum_i w_i (1, z_i, z_i^2)`, (3,).
    """

    tiles: tuple[Float[Array, "_ _"], ...]
    sections: Float[Array, " m"]
    moments: Float[Array, " m"]
    totals: Float[Array, " 3"]

    @classmethod
    def empty(cls, num_landmarks: int) -> Statistics:
        """Return the sums over no rows."""
        tiles = tuple(
            jnp.zeros((row.stop - row.start, column.stop - column.start)) for row, column in _tiles(num_landmarks)
        )
        return cls(tiles, jnp.zeros(num_landmarks), jnp.zeros(num_landmarks), jnp.zeros(3))

    @eqx.filter_jit(donate="all")
    def add(
        self, sections: Float[Array, "m b"], weights: Float[Array, " b"], targets: Float[Array, " b"]
    ) -> Statistics:
        """Return the sums with the rows of a block."""
        weighted = sections * weights[None]
        tiles = tuple(
            tile + weighted[row] @ sections[column].T
            for tile, (row, column) in zip(self.tiles, _tiles(sections.shape[0]), strict=True)
        )
        products = weights[:, None] * jnp.stack([jnp.ones_like(targets), targets, targets**2], axis=1)
        return Statistics(
            tiles,
            self.sections + jnp.sum(weighted, axis=1),
            self.moments + weighted @ targets,
            self.totals + jnp.sum(products, axis=0),
        )

    def products(self) -> Float[Array, "m m"]:
        r"""Return :math:`\sum_i w_i k_i k_i^\top`."""
        m = self.sections.shape[0]
        upper = jnp.zeros((m, m))
        for tile, place in zip(self.tiles, _tiles(m), strict=True):
            upper = upper.at[place].set(tile)
        return jnp.triu(upper) + jnp.triu(upper, 1).T


def _tiles(num: int) -> list[tuple[slice, slice]]:
    size = -(-num // _TILES)
    parts = [slice(start, min(start + size, num)) for start in range(0, num, size)]
    return [(row, column) for i, row in enumerate(parts) for column in parts[i:]]


class LandmarkSystem(NamedTuple):
    r"""The system of least squares with landmarks, in the basis in which its matrix is diagonal.

    .. math:: \min_{u, b} \sum_i w_i (z_i - b - \phi_i^\top u)^2 + \rho \|u\|^2, \qquad \phi_i = R\, k_i, \quad
        R K_{ZZ} R^\top = I

    Attributes:
        whitener: R, (m, m).
        values: The eigenvalues of the centred matrix of products of the features, (m,).
        vectors: Its eigenvectors, (m, m).
        moments: The centred moments in this basis, (m,).
        mean: The mean of the features, (m,).
        target: The mean of the targets.
        square: The centred sum of squares of the targets.
    """

    whitener: Float[Array, "m m"]
    values: Float[Array, " m"]
    vectors: Float[Array, "m m"]
    moments: Float[Array, " m"]
    mean: Float[Array, " m"]
    target: Float[Array, ""]
    square: Float[Array, ""]

    @classmethod
    def of(cls, statistics: Statistics, whitener: Float[Array, "m m"]) -> LandmarkSystem:
        """Return the system of some sums."""
        total, first, second = statistics.totals
        mean, target = whitener @ statistics.sections / total, first / total
        centred = whitener @ statistics.products() @ whitener.T - total * jnp.outer(mean, mean)
        values, vectors = jnp.linalg.eigh((centred + centred.T) / 2)
        moments = vectors.T @ (whitener @ statistics.moments - total * target * mean)
        return cls(whitener, jnp.maximum(values, 0.0), vectors, moments, mean, target, second - total * target**2)

    def solve(self, ridge: Float[Array, ""] | float) -> tuple[Float[Array, " m"], Float[Array, ""]]:
        r"""Return the coefficients :math:`R^\top u` of the sections at the landmarks, and the intercept b."""
        weights = self.vectors @ (self.moments / (self.values + ridge))
        return self.whitener.T @ weights, self.target - self.mean @ weights

    def residual(self, ridge: Float[Array, ""] | float) -> Float[Array, ""]:
        r"""Return the weighted sum of the squared residuals."""
        shrunk = self.moments / (self.values + ridge)
        return self.square - 2.0 * shrunk @ self.moments + jnp.sum(self.values * shrunk**2)

    def log_evidence(self, ridge: Float[Array, ""] | float, num_rows: int) -> Float[Array, ""]:
        r"""Return the log evidence of n centred targets, :math:`z \sim N(0, \sigma^2(\Phi \Phi^\top / \rho + I))`.

        The scale :math:`\sigma^2` has its best value, so that the evidence depends on the ratio :math:`\rho` only.
        """
        explained = jnp.sum(self.moments**2 / (self.values + ridge))
        scale = (self.square - explained) / num_rows
        log_determinant = jnp.sum(jnp.log1p(self.values / ridge))
        return -0.5 * (num_rows * (jnp.log(2 * jnp.pi * scale) + 1.0) + log_determinant)
