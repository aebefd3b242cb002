r"""Kernel logistic regression of the outcomes of many matches between fewer items."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.gp import refuse_below, refuse_priors_in, scalar_field
from kpp.inference import ConvergenceError
from kpp.kernels import AbstractKernel
from kpp.preferences import ItemFunction, Matches, preference_terms
from kpp.typing import Leaf
from kpp_models.preferences.pair_solver import PairSolver, count_field

__all__ = ["PreferenceLogistic"]

_MAX_NEWTON = 50
_HALVINGS = 12  # of a step
_TOLERANCE = 1e-8  # of the last change of the log-odds
# Residual of conjugate gradients: the right-hand side exceeds the step that it belongs to by up to the largest
# eigenvalue of the system, 1e4 say, and a step must be known to a part of itself.
_SOLVED = 1e-8


class PreferenceLogistic(eqx.Module):
    r"""Kernel logistic regression of matches, for tens of thousands of them.

    .. math:: \min_g \frac1N \sum_i \bigl[w_i \log(1 + e^{-g_i}) + l_i \log(1 + e^{g_i})\bigr]
        + \frac\lambda2 \|g\|^2, \qquad g_i = g(x_{a_i}, x_{b_i})

    over the N matches, w of which a pair's first item won and l it lost, a tie counting half for both. The coefficients
    of :math:`g = \sum_i \alpha_i k_E(\cdot, p_i)` satisfy :math:`N \lambda\, \alpha_i = w_i - (w_i + l_i) \sigma(g_i)`.
    It is `kpp_models.KernelLogistic` on single matches, and the mode of a preference process with kernel
    :math:`k_E / (N \lambda)`, by Newton's method whose steps are found by conjugate gradients with matrices of items:
    the Gram matrix of the pairs is never made.

    Args:
        kernel: :math:`k_E`, as for `PreferenceRidge`.
        regularization: :math:`\lambda`, multiplied by the number of matches; greater than 0.
        preconditioner_rank: As for `PreferenceRidge`.
        max_steps: The largest number of steps of conjugate gradients for a step of Newton's method.

    Raises:
        ValueError: If `regularization` is not one finite number greater than 0, or a whole number is below 1.
        TypeError: If a leaf is a prior, or the kernel no sum of preferential kernels.

    References:
        Rasmussen and Williams (2006), algorithm 3.1.
    """

    kernel: AbstractKernel
    regularization: Leaf = scalar_field("regularization")
    preconditioner_rank: int = count_field("preconditioner_rank", default=400)
    max_steps: int = count_field("max_steps", default=1000)

    def __check_init__(self) -> None:
        """Refuse priors, a regularization that is not positive, and other kernels."""
        refuse_priors_in(self, "kpp_models.PreferenceGP")
        refuse_below(self.regularization, "regularization", zero_allowed=False)
        preference_terms(self.kernel)

    def fit(self, matches: Matches) -> ItemFunction:
        """Fit to matches.

        Args:
            matches: The matches, without contexts.

        Returns:
            The log-odds g that the first item of a pair wins, a callable on pairs, so that ``jax.nn.sigmoid(g(pairs))``
            are probabilities; its `function` is an `RKHSFunction`.

        Raises:
            ValueError: If the matches have contexts, or features that the kernel names are missing.
            kpp.inference.ConvergenceError: If conjugate gradients or Newton's method do not converge.
        """
        solver = PairSolver.of(self, matches, tolerance=_SOLVED)
        counts, wins = matches.counts, matches.wins + matches.ties / 2
        coefficients = latent = jnp.zeros_like(counts)
        tolerance = max(_TOLERANCE, 100 * float(jnp.finfo(latent.dtype).eps))
        for _ in range(_MAX_NEWTON):
            direction = _direction(solver, counts, wins, coefficients, latent)
            move = solver.multiply(direction)
            size, change = _step_size(counts, wins, coefficients, latent, direction, move)
            coefficients, latent = coefficients + size * direction, latent + size * move
            if change <= tolerance:
                return solver.function(coefficients / solver.ridge)
        raise ConvergenceError(
            f"Newton's method has not converged in {_MAX_NEWTON} steps; the last would change the log-odds by up to "
            f"{float(change):.1e}: raise `regularization`"
        )


def _direction(
    solver: PairSolver, counts: Array, wins: Array, coefficients: Array, latent: Array
) -> Float[Array, " m"]:
    r"""Return what Newton's method adds to the coefficients a of :math:`f = K a`, :math:`K = K_E / (N \lambda)`.

    .. math:: (I + W K)^{-1} e = e - W^{1/2} (I + W^{1/2} K W^{1/2})^{-1} W^{1/2} K e, \qquad
        e = w - c\, \sigma(f) - a, \quad W = \mathrm{diag}(c\, \sigma(f)\, \sigma(-f))
    """
    chance = jax.nn.sigmoid(latent)
    residual = wins - counts * chance - coefficients
    root = jnp.sqrt(counts * chance * jax.nn.sigmoid(-latent))
    return residual - root * solver.solve(root, root * solver.multiply(residual))


@jax.jit
def _step_size(
    counts: Array, wins: Array, coefficients: Array, latent: Array, direction: Array, move: Array
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return how far to go, 1 unless that lowers the concave objective, and the largest move of a full step."""

    def objective(size: Array) -> Array:
        f = latent + size * move
        likelihood = jnp.sum(wins * jax.nn.log_sigmoid(f) + (counts - wins) * jax.nn.log_sigmoid(-f))
        return likelihood - 0.5 * jnp.dot(coefficients + size * direction, f)

    sizes = 0.5 ** jnp.arange(_HALVINGS, dtype=latent.dtype)
    values = jax.vmap(objective)(sizes)
    present = objective(jnp.zeros((), latent.dtype))
    slack = 100 * jnp.finfo(latent.dtype).eps * (1.0 + jnp.abs(present))
    return jnp.where(values[0] >= present - slack, 1.0, sizes[jnp.argmax(values)]), jnp.max(jnp.abs(move))
