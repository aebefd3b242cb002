r"""The evidence of Gaussian-process regression without a kernel matrix in memory.

Products with the kernel matrix are computed by tiles. A kernel approximation by the rows of some landmarks,
:math:`P = \Phi \Phi^\top + D`, is the preconditioner. With the noise variances D, :math:`\Psi = D^{-1/2} \Phi` and
:math:`L L^\top = I + \Psi^\top \Psi`, it has a root that needs triangular matrices of the size of the features only:

.. math:: P = D^{1/2} R R^\top D^{1/2}, \qquad R = I + \Psi (I + L)^{-1} \Psi^\top, \qquad
    R^{-1} = I - \Psi (I + L)^{-\top} L^{-1} \Psi^\top.

Conjugate gradients solve systems with the matrix :math:`A = R^{-1} D^{-1/2} (K + D) D^{-1/2} R^{-\top}`. Its
eigenvalues lie between 1 and :math:`\Lambda = 1 + \sum_i r_i / D_i`, where r are the variances that the landmarks do
not explain. The log determinant is that of P plus :math:`\log\det A`, a trace, which fixed random vectors w estimate:

.. math:: \log\det A = \mathrm{E}\, w^\top \log(A)\, w, \qquad
    \log A = \int_0^1 \tfrac1t \bigl(I - B_t^{-1}\bigr) dt, \quad B_t = (1 - t) I + t A.

The systems with all :math:`B_t` have one Krylov space. The integral is computed at Gauss-Legendre nodes of
:math:`\log(1 + t (\Lambda - 1))`. So the estimate is a smooth function of the hyperparameters. Its exact derivative
needs no further systems: it is :math:`-\tfrac t2 u^\top dA\, u`, with :math:`u = B_t^{-1} w`, for each
:math:`\tfrac12 w^\top B_t^{-1} w`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp import linalg
from kpp.foundation.validation import count, positive
from kpp.gp.inducing.features import inducing_features
from kpp.gp.laws.normal import LOG_TWO_PI
from kpp.kernels import AbstractKernel
from kpp.linalg.conjugate_gradients import conjugate_gradients, solve_by_conjugate_gradients
from kpp.runtime.batching import even_size, split_rows, split_weights
from kpp.storage.serialization import data_class
from kpp.typing import AnyArray, Points

_SIDE = 512  # rows of a tile of the matrix, 2 MB, which the caches of a core can hold


@data_class
class IterativeSettings(eqx.Module):
    """The settings of conjugate gradients and of the estimate of the log determinant.

    Args:
        num_probes: The number of random vectors. The standard deviation of the log determinant decreases with its root.
        rank: The number of landmarks of the preconditioner. More landmarks need fewer steps and make the estimate more
            precise.
        tolerance: The largest norm of the residual of a system, in units of the norm of its right-hand side.
        max_steps: The largest number of steps of conjugate gradients.
        num_nodes: The number of nodes of the integral in the log determinant.
        seed: The seed of the random vectors and of the landmarks, which are rows of the data drawn at random.

    Raises:
        ValueError: If a number is out of range.
    """

    num_probes: int = eqx.field(static=True, default=8)
    rank: int = eqx.field(static=True, default=500)
    tolerance: float = eqx.field(static=True, default=1e-6)
    max_steps: int = eqx.field(static=True, default=500)
    num_nodes: int = eqx.field(static=True, default=12)
    seed: int = eqx.field(static=True, default=0)

    def __check_init__(self) -> None:
        for name in ("num_probes", "rank", "max_steps", "num_nodes"):
            count(getattr(self, name), name)
        count(self.seed, "seed", 0)
        positive(self.tolerance, "tolerance")

    @property
    def num_columns(self) -> int:
        """The number of columns of the matrices with n rows that are held in memory."""
        return self.rank + (self.num_nodes + 1) * (self.num_probes + 1)

    def probes(self, num_rows: int, dtype: Any) -> Float[Array, "n k"]:
        """Return the random vectors, whose entries are 1 or -1."""
        key = jax.random.fold_in(jax.random.key(self.seed), 0)
        # Among independent probes, signs have the smallest variance (Hutchinson, 1990).
        return jax.random.rademacher(key, (num_rows * self.num_probes,), dtype).reshape(num_rows, self.num_probes)

    def landmarks(self, points: Points) -> Points:
        """Return the landmarks: different rows of the points, drawn at random."""
        num_rows = jax.tree.leaves(points)[0].shape[0]
        key = jax.random.fold_in(jax.random.key(self.seed), 1)
        rows = jax.random.permutation(key, num_rows)[: self.rank]
        return jax.tree.map(lambda leaf: leaf[rows], points)


class IterativeSystem(eqx.Module):
    r"""The matrix K + D of n rows, of which only products are computed.

    Args:
        kernel: k.
        points: The n points.
        noise: D, (n,), positive.
        features: :math:`\Psi`, (n, m).
        factor: L, (m, m).
        bound: :math:`\Lambda`.
        settings: The settings of conjugate gradients.
    """

    kernel: AbstractKernel
    points: Points
    noise: Float[Array, " n"]
    features: Float[Array, "n m"]
    factor: Float[Array, "m m"]
    bound: Float[Array, ""]
    settings: IterativeSettings

    @classmethod
    def create(
        cls, kernel: AbstractKernel, points: Points, noise: AnyArray | float, settings: IterativeSettings
    ) -> IterativeSystem:
        """Build the preconditioner."""
        _, features, rest = inducing_features(kernel, settings.landmarks(points), points)
        variances = jnp.broadcast_to(jnp.asarray(noise, features.dtype), rest.shape)
        features = features / jnp.sqrt(variances)[:, None]
        matrix = linalg.add_diagonal(features.T @ features, 1.0)
        factor = linalg.cholesky(matrix, what="the matrix of the preconditioner")
        # The nodes of the integral need an interval that is not empty.
        bound = jnp.maximum(1 + jnp.sum(rest / variances), 2.0)
        return cls(kernel, points, variances, features, factor, bound, settings)

    def multiply(self, columns: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return the product of A with columns."""
        spread = self.unwhiten(columns)
        return self.whiten(kernel_product(self.kernel, self.points, spread) + self.noise[:, None] * spread)

    def whiten(self, columns: Float[Array, "n k"]) -> Float[Array, "n k"]:
        r"""Return :math:`R^{-1} D^{-1/2} b`."""
        scaled = columns / jnp.sqrt(self.noise)[:, None]
        inner = linalg.solve_lower(self.factor, self.features.T @ scaled)
        return scaled - self.features @ jax.scipy.linalg.solve_triangular(self._shifted, inner, trans=1, lower=True)

    def unwhiten(self, columns: Float[Array, "n k"]) -> Float[Array, "n k"]:
        r"""Return :math:`D^{-1/2} R^{-\top} b`."""
        inner = linalg.solve_lower(self._shifted, self.features.T @ columns)
        inner = jax.scipy.linalg.solve_triangular(self.factor, inner, trans=1, lower=True)
        return (columns - self.features @ inner) / jnp.sqrt(self.noise)[:, None]

    def solve(
        self, white: Float[Array, "n k"], multiply: Callable[[Array], Array] | None = None
    ) -> Float[Array, "n k"]:
        """Return the product of the inverse of A, or of a relative, with columns; NaN if it does not converge."""
        tolerance, max_steps = self.settings.tolerance, self.settings.max_steps
        return solve_by_conjugate_gradients(
            self.multiply if multiply is None else multiply, white, tolerance=tolerance, max_steps=max_steps
        )

    def preconditioner_log_determinant(self) -> Float[Array, ""]:
        r"""Return :math:`\log\det P`."""
        return jnp.sum(jnp.log(self.noise)) + 2 * linalg.half_log_determinant(self.factor)

    @property
    def _shifted(self) -> Float[Array, "m m"]:
        return linalg.add_diagonal(self.factor, 1.0)


def iterative_log_density(
    system: IterativeSystem, residual: Float[Array, " n"], probes: Float[Array, "n k"] | None = None
) -> Float[Array, ""]:
    r"""Return an unbiased estimate of the log density of a Gaussian vector, a smooth function of all arguments.

    .. math:: \log N(r;\, 0,\, K + D)

    Its derivatives are those of the estimate, not further estimates. Only the log determinant is estimated, by the mean
    of k numbers :math:`w^\top \log(A)\, w`.

    Args:
        system: K + D.
        residual: r, (n,).
        probes: w, (n, k), whose second moments are those of independent variables of mean 0 and variance 1; by default
            those of the settings. The columns of :math:`\sqrt n I` give the log determinant itself.

    Returns:
        The estimate; NaN if conjugate gradients do not converge.

    References:
        Gardner, Pleiss, Bindel, Weinberger and Wilson, GPyTorch: Blackbox matrix-matrix Gaussian process inference,
        2018, section 4; Wenger, Pleiss, Hennig, Cunningham and Gardner, Preconditioning for scalable Gaussian process
        hyperparameter optimization, 2022, section 3.
    """
    num_rows, settings = residual.shape[0], system.settings
    if probes is None:
        probes = settings.probes(num_rows, residual.dtype)
    nodes, weights = _nodes(system.bound, settings.num_nodes)
    white = system.whiten(residual[:, None])
    halves = _half_quadratics(system, nodes, probes, white)
    explained = jnp.sum(probes**2) - 2 * jnp.sum(halves[:-1].reshape(settings.num_nodes, -1), axis=1)
    trace = jnp.sum(weights / nodes * explained) / probes.shape[1]
    log_determinant = system.preconditioner_log_determinant() + trace
    return -halves[-1] - 0.5 * (log_determinant + num_rows * LOG_TWO_PI)


def _nodes(bound: Float[Array, ""], num: int) -> tuple[Float[Array, " j"], Float[Array, " j"]]:
    r"""Return nodes and weights of an integral over t from 0 to 1, by :math:`t = (\Lambda^x - 1) / (\Lambda - 1)`."""
    points, weights = (jnp.asarray(part, bound.dtype) for part in np.polynomial.legendre.leggauss(num))
    rate = jnp.log(bound)
    powers = jnp.exp(rate * 0.5 * (points + 1))
    return (powers - 1) / (bound - 1), 0.5 * weights * rate * powers / (bound - 1)


@eqx.filter_custom_jvp
def _half_quadratics(
    system: IterativeSystem, nodes: Float[Array, " j"], probes: Float[Array, "n k"], white: Float[Array, "n 1"]
) -> Float[Array, " c"]:
    r"""Return :math:`\tfrac12 w^\top B_t^{-1} w` for all nodes and probes, then :math:`\tfrac12 b^\top A^{-1} b`."""
    _, columns = _columns(nodes, probes, white)
    return 0.5 * jnp.sum(columns * _solutions(system, nodes, probes, white), axis=0)


@_half_quadratics.def_jvp
def _half_quadratics_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    solutions = _solutions(*primals)

    def energies(system: IterativeSystem, nodes: Array, probes: Array, white: Array) -> Array:
        # Its derivative with respect to the solutions is 0, so they are held fixed.
        times, columns = _columns(nodes, probes, white)
        return jnp.sum(solutions * (columns - 0.5 * _between(system, times, solutions)), axis=0)

    _, columns = _columns(*primals[1:])
    return 0.5 * jnp.sum(columns * solutions, axis=0), eqx.filter_jvp(energies, primals, tangents)[1]


@eqx.filter_custom_jvp
def _solutions(
    system: IterativeSystem, nodes: Float[Array, " j"], probes: Float[Array, "n k"], white: Float[Array, "n 1"]
) -> Float[Array, "n c"]:
    r"""Return :math:`B_t^{-1} w` for all nodes and probes, then :math:`A^{-1} b`."""
    shifts = jnp.append((1 - nodes) / nodes, 0.0)  # B_t / t = A + ((1 - t) / t) I
    found = conjugate_gradients(
        system.multiply,
        jnp.concatenate([probes, white], axis=1),
        shifts,
        tolerance=system.settings.tolerance,
        max_steps=system.settings.max_steps,
    ).value
    inner = found[:-1, :, :-1] / nodes[:, None, None]
    return jnp.concatenate([jnp.moveaxis(inner, 0, 1).reshape(probes.shape[0], -1), found[-1, :, -1:]], axis=1)


@_solutions.def_jvp
def _solutions_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    solutions, system = _solutions(*primals), primals[0]
    times, _ = _columns(*primals[1:])

    def residuals(system: IterativeSystem, nodes: Array, probes: Array, white: Array) -> Array:
        times, columns = _columns(nodes, probes, white)
        return columns - _between(system, times, solutions)

    moved = eqx.filter_jvp(residuals, primals, tangents)[1]
    return solutions, system.solve(moved, lambda columns: _between(system, times, columns))


def _columns(nodes: Array, probes: Array, white: Array) -> tuple[Float[Array, " c"], Float[Array, "n c"]]:
    """Return t and the right-hand side of each system."""
    times = jnp.append(jnp.repeat(nodes, probes.shape[1]), 1.0)
    return times, jnp.concatenate([jnp.tile(probes, (1, nodes.shape[0])), white], axis=1)


def _between(system: IterativeSystem, times: Float[Array, " c"], columns: Float[Array, "n c"]) -> Float[Array, "n c"]:
    r"""Return :math:`B_t` times each column, with its own t."""
    return columns + times[None] * (system.multiply(columns) - columns)


def kernel_product(kernel: AbstractKernel, points: Points, columns: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Return the product of the kernel matrix with columns, by square tiles of the matrix.

    Each tile above the diagonal is computed once, and used for the tile below the diagonal, too. JAX can differentiate
    the product any number of times; the derivatives compute the tiles anew.
    """
    num_rows = columns.shape[0]
    side = even_size(num_rows, _SIDE)
    rows = split_rows(points, side)
    parts = split_weights(columns, side)  # 0 for the copies of the last point that fill up the last tile

    def block(number: Array) -> Points:
        return jax.tree.map(lambda leaf: leaf[number], rows)

    @jax.checkpoint  # otherwise derivatives would keep all tiles
    def multiply_tile(i: Array, j: Array) -> tuple[Array, Array]:
        tile = kernel(block(i), block(j))
        return tile @ parts[j], jnp.where(i == j, 0.0, tile.T @ parts[i])  # a tile on the diagonal counts once

    def add_tile(total: Array, pair: tuple[Array, ...]) -> tuple[Array, None]:
        i, j = pair
        above, below = multiply_tile(i, j)
        return total.at[i].add(above).at[j].add(below), None

    pairs = tuple(jnp.asarray(numbers) for numbers in np.triu_indices(parts.shape[0]))
    total = jax.lax.scan(add_tile, jnp.zeros_like(parts), pairs)[0]
    return total.reshape(-1, columns.shape[1])[:num_rows]
