r"""Conjugate gradients for several right-hand sides and several shifts of one positive definite matrix.

Each iteration is one product with the matrix, for all right-hand sides together. The shifts cost no further products,
because the Krylov spaces of A and of :math:`A + s I` are the same. (`lineax.CG` takes one right-hand side and one
matrix, and does not return the coefficients from which the shifted solutions are made.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kpp.typing import AnyArray

_SLACK = 10  # the residual that is computed anew may exceed the tolerance by this factor, because of rounding


class ShiftedSolutions(NamedTuple):
    """The result of `conjugate_gradients`."""

    value: Float[Array, "s n k"]  # NaN if the iterations did not converge
    steps: Int[Array, ""]
    residual: Float[Array, ""]  # the largest, computed anew for the least shift, relative to its right-hand side


class _State(NamedTuple):
    step: Array
    residual: Array  # (n, k), of A itself
    direction: Array  # (n, k)
    square: Array  # (k,), the squared norms of `residual`
    solutions: Array  # (s, n, k)
    directions: Array  # (s, n, k)
    sizes: Array  # (s, k), the residual of each shift in units of `residual`
    ratios: Array  # (s, k), the last change of `sizes`
    alpha: Array  # (k,), the last length of a step
    beta: Array  # (k,), the last change of `square`


def conjugate_gradients(
    multiply: Callable[[Array], Array],
    right: Float[AnyArray, "n k"],
    shifts: Float[AnyArray, " s"],
    *,
    tolerance: float,
    max_steps: int,
) -> ShiftedSolutions:
    r"""Solve :math:`(A + s_j I)\, x = b_i` for all shifts and right-hand sides.

    A is given by its product with columns, and is symmetric and positive definite; shifts are at least 0. The
    iterations end when no residual of A has a norm above the tolerance, at least 100 times the rounding unit, times the
    norm of its right-hand side. The residuals of the shifted matrices are smaller. JAX cannot differentiate the
    solutions in reverse mode.

    References:
        Jegerlehner, Krylov space solvers for shifted linear systems, 1996, section 2.3.
    """
    right, shifts = jnp.asarray(right), jnp.asarray(shifts)[:, None]
    tolerance = max(tolerance, 100 * float(jnp.finfo(right.dtype).eps))
    size = jnp.sum(right**2, axis=0)

    def unfinished(state: _State) -> Array:
        return (state.step < max_steps) & jnp.any(state.square > tolerance**2 * size)

    def advance(state: _State) -> _State:
        product = multiply(state.direction)
        alpha = _quotient(state.square, jnp.sum(state.direction * product, axis=0))
        residual = state.residual - alpha[None] * product
        square = jnp.sum(residual**2, axis=0)
        beta = _quotient(square, state.square)
        before = alpha * _quotient(state.beta, state.alpha)
        ratios = 1 / (1 + shifts * alpha[None] + before[None] * (1 - state.ratios))
        sizes = state.sizes * ratios  # the residuals of shifted systems stay parallel to that of A
        solutions = state.solutions + (alpha[None] * ratios)[:, None] * state.directions
        directions = sizes[:, None] * residual[None] + (beta[None] * ratios**2)[:, None] * state.directions
        direction = residual + beta[None] * state.direction
        return _State(
            state.step + 1, residual, direction, square, solutions, directions, sizes, ratios, alpha, beta
        )  # fmt: skip

    start = jnp.broadcast_to(right, (shifts.shape[0], *right.shape))
    ones = jnp.ones((shifts.shape[0], right.shape[1]), right.dtype)
    found = jax.lax.while_loop(
        unfinished,
        advance,
        _State(
            jnp.asarray(0), right, right, size, jnp.zeros_like(start), start, ones, ones, jnp.ones_like(size),
            jnp.zeros_like(size),
        ),
    )  # fmt: skip
    last = found.solutions[jnp.argmin(shifts[:, 0])]  # the least shift converges last
    # Computed anew: the residual of the recursion drifts by rounding.
    remainder = right - multiply(last) - jnp.min(shifts) * last
    residual = jnp.max(jnp.sqrt(_quotient(jnp.sum(remainder**2, axis=0), size)))
    value = jnp.where(residual <= _SLACK * tolerance, found.solutions, jnp.nan)
    return ShiftedSolutions(value, found.step, residual)


def solve_by_conjugate_gradients(
    multiply: Callable[[Array], Array], right: Float[AnyArray, "n k"], *, tolerance: float, max_steps: int
) -> Float[Array, "n k"]:
    r"""Return :math:`A^{-1} b`, which JAX can differentiate in both modes and any number of times.

    Each derivative is the solution of a further system with the matrix. The solutions are NaN if the iterations did not
    converge.
    """

    def solve(matrix: Callable[[Array], Array], columns: Array) -> Array:
        zero = jnp.zeros(1, columns.dtype)
        return conjugate_gradients(matrix, columns, zero, tolerance=tolerance, max_steps=max_steps).value[0]

    # Reverse mode cannot pass through a `while_loop`.
    return jax.lax.custom_linear_solve(multiply, jnp.asarray(right), solve, symmetric=True)


def _quotient(numerator: Array, denominator: Array) -> Array:
    """Return a quotient, and 0 where the denominator is 0: a column whose residual is 0 no longer moves."""
    zero = denominator == 0
    return jnp.where(zero, 0.0, numerator / jnp.where(zero, 1.0, denominator))
