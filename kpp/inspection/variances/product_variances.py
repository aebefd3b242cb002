r"""Variances of conditional expectations of functions in the RKHS of product kernels, in closed form.

Players are independent, each with the empirical law of its columns in m rows. The factors of a player at the rows,
:math:`F_j` (m, N), have means :math:`\mu_j` and covariances :math:`D_j` (N, N). For one product term

.. math:: \mathrm{Var}(E[f \mid x_S]) + E[f]^2
    = \alpha^\top \Bigl(\prod_{j \in S} (\mu_j \mu_j^\top + D_j) \prod_{j \notin S} \mu_j \mu_j^\top \Bigr) \alpha,

so that all three indices of a player are one polynomial in t,

.. math:: q_j(t) = \alpha^\top \Bigl(D_j \prod_{l \ne j} (\mu_l \mu_l^\top + t D_l)\Bigr) \alpha:

the first-order index is :math:`q_j(0)`, the total index :math:`q_j(1)`, and the Shapley effect
:math:`\int_0^1 q_j(t)\,dt`, for which :math:`\lceil g/2 \rceil` Gauss-Legendre nodes are exact.

References:
    Sobol', Sensitivity estimates for nonlinear mathematical models, 1993;
    Owen, Sobol' indices and Shapley value, 2014;
    Durrande, Ginsbourger, Roustant and Carraro, ANOVA kernels and RKHS of zero mean functions, 2013.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from kpp.games import gauss_legendre
from kpp.games.toolkit import Players, num_nodes
from kpp.kernels import AbstractKernel, AbstractProductKernel
from kpp.runtime.batching import rows_that_fit
from kpp.typing import AnyArray, Points

# The largest number of entries of the factors of all terms at some rows, and of the products for some points, and the
# least number of these points: the factors are computed again for each block of points if they are not kept.
_MAX_FACTORS, _MAX_PRODUCTS, _FEWEST_POINTS = 2**26, 2**19, 32

#: The indices: the first axis of every array of indices.
MEASURES = ("first_order", "total", "shapley")


class Sections(NamedTuple):
    """Functions that are spanned by sections of one kernel, and second moments of further ones."""

    kernel: AbstractKernel  # a sum of product kernels
    points: Points
    coefficients: Float[np.ndarray, "N s"]  # one column for each of s functions
    moments: Float[np.ndarray, "k N N"]  # second moments of the coefficients of random functions


def section_indices(
    sections: Sections, rows: Float[AnyArray, "m d"], players: Players
) -> tuple[Float[np.ndarray, "3 s g"], Float[np.ndarray, "3 k g"]]:
    """Compute the indices of functions, and the expected ones of random functions, in the order of `MEASURES`."""
    coefficients, size = sections.coefficients, len(sections.coefficients)
    indices = np.zeros((3, coefficients.shape[1], players.num_players))
    moments = np.zeros((3, len(sections.moments), players.num_players))
    terms = sections.kernel.product_terms()
    tables = [_Table.of(term, rows, sections.points, players, _MAX_FACTORS // len(terms)) for term in terms]
    for first, second in itertools.combinations_with_replacement(tables, 2):
        active = np.flatnonzero(first.varies & second.varies)
        if active.size == 0:  # terms that share no player are uncorrelated
            continue
        step = max(_FEWEST_POINTS, rows_that_fit(size, active.size * size, _MAX_PRODUCTS))
        for start in range(0, size, step):
            # The matrices of a term with itself are symmetric: entries before the block count twice. Those of two terms
            # all count twice, because each pair comes once.
            block, width = slice(start, start + step), min(start + step, size) if first is second else size
            counts = np.where(np.arange(width) < (start if first is second else size), 2.0, 1.0)
            matrices = first.scale * second.scale * counts * _matrices(first, second, active, block, width)
            own = (matrices @ coefficients[:width]) * coefficients[block]
            indices[:, :, active] += np.moveaxis(own.sum(axis=2), 1, 2)
            moments[:, :, active] += np.einsum(
                "kbn,tabn->tka", sections.moments[:, block, :width], matrices, optimize=True
            )
    return indices, moments


def prior_indices(kernel: AbstractKernel, rows: Float[AnyArray, "m d"], players: Players) -> Float[np.ndarray, "3 g"]:
    """Compute the expected indices of a process with mean 0 and a sum of product kernels as covariance, (3, g)."""
    total = np.zeros((3, players.num_players))
    for term in kernel.product_terms():
        table = _Table.of(term, rows, rows, players, _MAX_FACTORS)
        same, across = np.asarray(_own_factors(term, rows, players)).mean(axis=1), table.means.mean(axis=1)
        covariance = np.where(table.varies, same - across, 0.0)
        total += table.scale * _leave_one_out(covariance[:, None, None], across[:, None, None], 1.0)[..., 0, 0]
    return total


class _Table(NamedTuple):
    """The factors of a product term between rows and points, in chunks of the rows."""

    term: AbstractProductKernel
    chunks: list[np.ndarray]  # of the rows
    points: Points
    players: Players
    means: Float[np.ndarray, "g N"]  # of each factor over the rows
    varies: np.ndarray  # whether a player's factors vary over the rows
    scale: float
    kept: np.ndarray | None  # the factors minus their means, if there is only one chunk

    @classmethod
    def of(cls, term: AbstractProductKernel, rows: AnyArray, points: Points, players: Players, most: int) -> _Table:
        """Compute the means of the factors, and keep the factors if they have at most a number of entries."""
        rows = np.asarray(rows)
        size = rows_that_fit(len(rows), rows.shape[1] * points.shape[0], most)
        chunks = [rows[start : start + size] for start in range(0, len(rows), size)]
        factors = _factors(term, chunks[0], points, players)
        sums, first = factors.sum(axis=1), factors[:, :1]
        varies = (factors != first).any(axis=(1, 2))
        kept = factors - sums[:, None] / len(rows) if len(chunks) == 1 else None
        for chunk in chunks[1:]:
            factors = _factors(term, chunk, points, players)
            sums, varies = sums + factors.sum(axis=1), varies | (factors != first).any(axis=(1, 2))
        return cls(term, chunks, points, players, sums / len(rows), varies, float(term.scale), kept)

    def centered(self, active: np.ndarray) -> Iterator[Float[np.ndarray, "a b N"]]:
        """Yield the factors of some players minus their means, chunk by chunk of the rows."""
        if self.kept is not None:
            yield self.kept if len(active) == len(self.kept) else self.kept[active]
            return
        for chunk in self.chunks:
            yield _factors(self.term, chunk, self.points, self.players)[active] - self.means[active, None]


def _matrices(
    first: _Table, second: _Table, active: np.ndarray, block: slice, width: int
) -> Float[np.ndarray, "3 a b w"]:
    """Return for the active players the matrices whose quadratic forms are the indices, some of their entries."""
    num_rows = sum(map(len, first.chunks))
    covariance = sum(
        np.matmul(np.swapaxes(one[:, :, block], 1, 2), two[:, :, :width])
        for one, two in zip(first.centered(active), second.centered(active), strict=True)
    )
    absent = first.means[:, block, None] * second.means[:, None, :width]
    rest = np.prod(np.delete(absent, active, axis=0), axis=0)
    return _leave_one_out(np.asarray(covariance) / num_rows, absent[active], rest)


def _leave_one_out(
    covariance: Float[np.ndarray, "a b N"], absent: Float[np.ndarray, "a b N"], rest: np.ndarray | float
) -> Float[np.ndarray, "3 a b N"]:
    """Return the polynomial q of each player at t = 0, at t = 1, and its integral over t."""
    nodes, weights = gauss_legendre(num_nodes(len(covariance)))  # exact: q has degree g - 1
    integral = sum(
        weight * _others(absent + node * covariance, rest) for node, weight in zip(nodes, weights, strict=True)
    )
    ends = [_others(absent, rest), _others(absent + covariance, rest)]
    return covariance * np.stack([*ends, np.asarray(integral)])


def _others(factors: Float[np.ndarray, "a b N"], rest: np.ndarray | float) -> Float[np.ndarray, "a b N"]:
    """Return the products of all factors but one, without division: factors may be 0."""
    before, after = np.empty_like(factors), np.ones_like(factors)
    before[0] = rest
    for player in range(1, len(factors)):
        before[player] = before[player - 1] * factors[player - 1]
        after[-1 - player] = after[-player] * factors[-player]
    return before * after


def _factors(term: AbstractProductKernel, rows: AnyArray, points: Points, players: Players) -> np.ndarray:
    return np.asarray(_compiled_factors(term, rows, points, players), dtype=float)


@eqx.filter_jit
def _compiled_factors(
    term: AbstractProductKernel, rows: AnyArray, points: Points, players: Players
) -> Float[Array, "g m N"]:
    return players.multiply(term.factors(rows, points))


@eqx.filter_jit
def _own_factors(term: AbstractProductKernel, rows: AnyArray, players: Players) -> Float[Array, "g m"]:
    return players.multiply(jax.vmap(lambda row: term.evaluate_factors(row, row), out_axes=1)(rows))
