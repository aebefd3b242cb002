"""Sums over the rows of a table from which least squares with landmarks are solved."""

from __future__ import annotations

import functools
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp import linalg

# Nuggets as fractions of the mean diagonal, by precision; and the largest rounding error as a fraction of the ridge.
# In single precision larger nuggets would leave out functions that double precision keeps.
_NUGGETS, _MOST_ROUNDING = {"float64": (1e-10, 1e-8, 1e-6, 1e-4), "float32": (1e-10, 1e-8)}, 0.1
_TILES = 4  # per axis of the symmetric matrix of products, of which only the upper triangle is computed


class Statistics(eqx.Module):
    """Sums over rows with weights :math:`w_i`, targets :math:`z_i` and sections :math:`k_i = k(Z, x_i) - c`.

    The shift c is near the mean of the sections. Products of shifted sections are smaller, and so are the rounding
    errors of their sums.
    """

    tiles: tuple[Float[Array, "_ _"], ...]  # of the sum of w k k^T, on and above the diagonal, row by row
    sections: Float[Array, " m"]  # the sum of w k
    moments: Float[Array, " m"]  # the sum of w z k
    totals: Float[Array, " 3"]  # the sums of w, w z and w z^2

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
        """Return the sums with the rows of a block.

        The products of a block have the precision of the sections; all other sums have double precision.
        """
        weighted = sections * weights.astype(sections.dtype)[None]
        tiles = tuple(
            tile + jnp.matmul(weighted[row], sections[column].T, precision="highest")
            for tile, (row, column) in zip(self.tiles, _tiles(sections.shape[0]), strict=True)
        )
        products = weights[:, None] * jnp.stack([jnp.ones_like(targets), targets, targets**2], axis=1)
        return Statistics(
            tiles,
            self.sections + jnp.sum(weighted, axis=1, dtype=targets.dtype),
            self.moments + weighted.astype(targets.dtype) @ targets,
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


class Whiteners:
    r"""Matrices R with :math:`R (K_{ZZ} + \delta I) R^\top = I` for growing nuggets :math:`\delta`.

    R amplifies the rounding errors of kernel values, which have a precision, and of their sums over rows by up to
    :math:`1 / \delta`. If they are not small compared to the ridge, a larger nugget is needed. It leaves out functions
    that the kernel sections at the landmarks can represent only by large coefficients of both signs. The mean of the
    columns of :math:`K_{ZZ}` is the shift of the sections.
    """

    def __init__(self, gram: Float[Array, "m m"], precision: str) -> None:
        self.gram, self.shift, self.precision = gram, jnp.mean(gram, axis=1), precision
        self._found: dict[float, Float[Array, "m m"]] = {}

    def system(self, statistics: Statistics, ridge: float) -> LandmarkSystem:
        r"""Return the system of some sums with the smallest nugget that suits a ridge :math:`\rho`, if one does."""
        for nugget in _NUGGETS[self.precision]:
            system = LandmarkSystem.of(statistics, self._whitener(nugget), self.shift)
            error = max(system.rounding, float(statistics.totals[0]) * self._variance_of_rounding(nugget))
            if error <= _MOST_ROUNDING * ridge:
                return system
        raise linalg.FactorizationError(
            f"`regularization` is too small for rounding errors: multiplied by the number of rows it is {ridge:.2g}, "
            f"and sums over rows have errors of {error:.2g}; make it at least {error / _MOST_ROUNDING / ridge:.2g} "
            "times as large, or use `precision` float64"
        )

    def _variance_of_rounding(self, nugget: float) -> float:
        r"""Return the largest variance of a feature by rounding, :math:`\epsilon^2/12 \cdot \overline{k^2} \|R\|^2`."""
        # A rounding error is uniform on an interval of the length eps k, so its variance is (eps k)^2 / 12.
        variance = float(jnp.finfo(self.precision).eps) ** 2 / 12 * float(jnp.mean(self.gram**2))
        return variance / (self._least + nugget * float(jnp.mean(jnp.diagonal(self.gram))))

    @functools.cached_property
    def _least(self) -> float:
        """The least eigenvalue of the kernel matrix."""
        return max(0.0, float(jnp.linalg.eigvalsh(self.gram)[0]))

    def _whitener(self, nugget: float) -> Float[Array, "m m"]:
        if nugget not in self._found:
            diagonal = nugget * jnp.mean(jnp.diagonal(self.gram))
            matrix = linalg.add_diagonal(self.gram, diagonal)
            self._found[nugget] = linalg.whitener(matrix, what="the kernel matrix of the landmarks")
        return self._found[nugget]


class LandmarkSystem(NamedTuple):
    r"""The system of least squares with landmarks, in the basis in which its matrix is diagonal.

    .. math:: \min_{u, b} \sum_i w_i (z_i - b - \phi_i^\top u)^2 + \rho \|u\|^2, \qquad \phi_i = R\, k_i, \quad
        R K_{ZZ} R^\top = I
    """

    whitener: Float[Array, "m m"]  # R
    values: Float[Array, " m"]  # the eigenvalues of the centered matrix of products of the features
    vectors: Float[Array, "m m"]  # its eigenvectors
    moments: Float[Array, " m"]  # the centered moments in this basis
    mean: Float[Array, " m"]  # of the features
    target: Float[Array, ""]  # the mean of the targets
    square: Float[Array, ""]  # the centered sum of squares of the targets
    rounding: float  # minus the least eigenvalue, which exact arithmetic excludes, if it is negative; else 0

    @classmethod
    def of(cls, statistics: Statistics, whitener: Float[Array, "m m"], shift: Float[Array, " m"]) -> LandmarkSystem:
        """Return the system of some sums."""
        total, first, second = statistics.totals
        mean, target = whitener @ statistics.sections / total, first / total
        centered = whitener @ statistics.products() @ whitener.T - total * jnp.outer(mean, mean)  # with an intercept
        values, vectors = jnp.linalg.eigh((centered + centered.T) / 2)  # one decomposition for all ridges
        moments = vectors.T @ (whitener @ statistics.moments - total * target * mean)
        square, rounding = second - total * target**2, max(0.0, -float(values[0]))
        mean = mean + whitener @ shift  # sums are of shifted sections, predictions of whole ones
        return cls(whitener, jnp.maximum(values, 0.0), vectors, moments, mean, target, square, rounding)

    def solve(self, ridge: Float[Array, ""] | float) -> tuple[Float[Array, " m"], Float[Array, ""]]:
        r"""Return the coefficients :math:`R^\top u` of the sections at the landmarks, and the intercept b."""
        weights = self.vectors @ (self.moments / (self.values + ridge))
        return self.whitener.T @ weights, self.target - self.mean @ weights

    def residual(self, ridge: Float[Array, ""] | float) -> Float[Array, ""]:
        r"""Return the weighted sum of the squared residuals."""
        shrunk = self.moments / (self.values + ridge)
        return self.square - 2.0 * shrunk @ self.moments + jnp.sum(self.values * shrunk**2)

    def log_evidence(self, ridge: Float[Array, ""] | float, num_rows: int) -> Float[Array, ""]:
        r"""Return the log evidence of n centered targets, :math:`z \sim N(0, \sigma^2(\Phi \Phi^\top / \rho + I))`.

        The scale :math:`\sigma^2` has its best value, so that the evidence depends on the ratio :math:`\rho` only.
        """
        # The best scale is the mean of the quadratic form, which then is n in the density.
        explained = jnp.sum(self.moments**2 / (self.values + ridge))
        scale = (self.square - explained) / num_rows
        log_determinant = jnp.sum(jnp.log1p(self.values / ridge))
        return -0.5 * (num_rows * (jnp.log(2 * jnp.pi * scale) + 1.0) + log_determinant)
