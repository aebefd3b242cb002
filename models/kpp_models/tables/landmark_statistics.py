"""Sums over the rows of a table from which least squares with landmarks are solved."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["LandmarkSystem", "Statistics"]

_TILES = 4  # the symmetric matrix of products is computed in so many bands of its upper triangle


class Statistics(eqx.Module):
    r"""Sums over rows with weights :math:`w_i`, targets :math:`z_i` and sections :math:`k_i = k(Z, x_i)`.

    Args:
        bands: The upper triangle of :math:`\sum_i w_i k_i k_i^\top`, in bands of rows.
        sections: :math:`\sum_i w_i k_i`, (m,).
        moments: :math:`\sum_i w_i z_i k_i`, (m,).
        totals: :math:`\sum_i w_i (1, z_i, z_i^2)`, (3,).
    """

    bands: tuple[Float[Array, "_ _"], ...]
    sections: Float[Array, " m"]
    moments: Float[Array, " m"]
    totals: Float[Array, " 3"]

    @classmethod
    def empty(cls, num_landmarks: int) -> Statistics:
        """Return the sums over no rows."""
        bounds = _bounds(num_landmarks)
        bands = tuple(jnp.zeros((stop - start, num_landmarks - start)) for start, stop in bounds)
        return cls(bands, jnp.zeros(num_landmarks), jnp.zeros(num_landmarks), jnp.zeros(3))

    @eqx.filter_jit(donate="all")
    def add(
        self, sections: Float[Array, "m b"], weights: Float[Array, " b"], targets: Float[Array, " b"]
    ) -> Statistics:
        """Return the sums with the rows of a block."""
        weighted = sections * weights[None]
        bands = tuple(
            band + jnp.matmul(weighted[start:stop], sections[start:].T, precision="highest")
            for band, (start, stop) in zip(self.bands, _bounds(sections.shape[0]), strict=True)
        )
        products = weights[:, None] * jnp.stack([jnp.ones_like(targets), targets, targets**2], axis=1)
        return Statistics(
            bands,
            self.sections + jnp.sum(weighted, axis=1),
            self.moments + weighted @ targets,
            self.totals + jnp.sum(products, axis=0),
        )

    def products(self) -> Float[Array, "m m"]:
        r"""Return :math:`\sum_i w_i k_i k_i^\top`."""
        m = self.sections.shape[0]
        upper = jnp.concatenate([jnp.pad(band, ((0, 0), (m - band.shape[1], 0))) for band in self.bands])
        return jnp.triu(upper) + jnp.triu(upper, 1).T


def _bounds(num: int) -> list[tuple[int, int]]:
    size = -(-num // _TILES)
    return [(start, min(start + size, num)) for start in range(0, num, size)]


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
