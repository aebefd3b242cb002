r"""Kernel ridge and logistic regression of the outcomes of many matches between fewer items."""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.gp import refuse_priors_in, scalar_field, step_size
from kpp.inference import ConvergenceError
from kpp.kernels import AbstractKernel, check_positive
from kpp.modules import AbstractModule
from kpp.preferences import ItemFunction, Matches, preference_terms
from kpp.typing import Leaf
from kpp.validation import count
from kpp_models.preferences.pair_solver import PairSolver

__all__ = ["PreferenceLogistic", "PreferenceRidge"]

_MAX_NEWTON = 50
_TOLERANCE = 1e-8  # the tolerance of the last change of the log-odds
# Tolerances for residuals of conjugate gradients. In Newton's method the right-hand side may exceed the step by a
# factor of up to the largest eigenvalue of the system, for example 1e4, and only the relative error of a step matters.
_NEWTON_RESIDUAL, _RESIDUAL = 1e-8, 1e-10


def _count_field(name: str, *, default: int) -> Any:
    """Return a static Equinox field that holds an integer of at least 1."""
    return eqx.field(converter=lambda value: count(value, name), static=True, default=default)


class AbstractPreferenceMachine(AbstractModule):
    r"""A regularized regression g of the outcomes of matches, solved by linear systems with matrices of items.

    A final class has the fields below and computes the coefficients of :math:`g = \sum_i \alpha_i k_E(\cdot, p_i)`.
    """

    kernel: eqx.AbstractVar[AbstractKernel]
    regularization: eqx.AbstractVar[Leaf]
    preconditioner_rank: eqx.AbstractVar[int]
    max_steps: eqx.AbstractVar[int]

    def __check_init__(self) -> None:
        """Raise an error if a leaf is a prior, the regularization is not positive, or the kernel is of another kind."""
        refuse_priors_in(self, "kpp_models.PreferenceGP")
        check_positive(self.regularization, "regularization", infinity_allowed=False)
        preference_terms(self.kernel)

    def fit(self, matches: Matches) -> ItemFunction:
        """Fit to matches.

        Args:
            matches: The matches, without contexts.

        Returns:
            The fitted function g, a callable on pairs; the class describes its values. Its `function` is an
            `RKHSFunction`.

        Raises:
            ValueError: If the matches have contexts, or features that the kernel names are missing.
            kpp.inference.ConvergenceError: If the iterations do not converge.
        """
        solver = PairSolver.of(self, matches)
        return solver.function(self.coefficients(solver, matches))

    @abstractmethod
    def coefficients(self, solver: PairSolver, matches: Matches) -> Float[Array, " m"]:
        r"""Return the coefficients :math:`\alpha` of the pairs, (m,)."""


class PreferenceRidge(AbstractPreferenceMachine):
    r"""Kernel ridge regression of matches, for tens of thousands of them.

    .. math:: \min_g \frac1N \sum_i \bigl[w_i (1 - g_i)^2 + l_i (-1 - g_i)^2 + t_i g_i^2\bigr] + \lambda \|g\|^2, \qquad
        g_i = g(x_{a_i}, x_{b_i})

    over the N matches. For each pair, w, l and t are the numbers of wins, losses and ties of the first item. g is about
    1 if the first item always wins, and about -1 if it always loses. With the counts c = w + l + t and the mean
    outcomes :math:`\bar y = (w - l) / c`, the coefficients of :math:`g = \sum_i \alpha_i k_E(\cdot, p_i)` solve
    :math:`(K_E + N \lambda C^{-1})\, \alpha = \bar y`. It is `kpp_models.KernelRidge` on single matches of outcome 1
    and -1, by conjugate gradients with matrices of items: the Gram matrix of the pairs is never computed.

    Args:
        kernel: :math:`k_E`: `kpp.kernels.GeneralizedPreferential`, `kpp.kernels.Preferential`, or a sum of multiples of
            them, with numbers for leaves. For many thousands of items use a kernel of finite rank,
            ``GeneralizedPreferential(Nystrom(kernel, landmarks))``; otherwise the n x n matrix of the items is
            decomposed.
        regularization: :math:`\lambda`, multiplied by the number of matches; greater than 0.
        preconditioner_rank: The number of leading features of each term of the kernel in the preconditioner, which
            stores this many numbers per pair.
        max_steps: The largest number of steps of conjugate gradients.

    Raises:
        ValueError: If `regularization` is not one finite number greater than 0, or a whole number is below 1.
        TypeError: If a leaf is a prior, or the kernel is not a sum of preferential kernels.
    """

    kernel: AbstractKernel
    regularization: Leaf = scalar_field("regularization")
    preconditioner_rank: int = _count_field("preconditioner_rank", default=400)
    max_steps: int = _count_field("max_steps", default=1000)

    def coefficients(self, solver: PairSolver, matches: Matches) -> Float[Array, " m"]:
        """Solve one linear system."""
        root = jnp.sqrt(matches.counts)
        solution = solver.solve(root, (matches.wins - matches.losses) / root, _RESIDUAL)
        return root * solution / solver.ridge


class PreferenceLogistic(AbstractPreferenceMachine):
    r"""Kernel logistic regression of matches, for tens of thousands of them.

    .. math:: \min_g \frac1N \sum_i \bigl[w_i \log(1 + e^{-g_i}) + l_i \log(1 + e^{g_i})\bigr]
        + \frac\lambda2 \|g\|^2, \qquad g_i = g(x_{a_i}, x_{b_i})

    over the N matches. For each pair, w and l are the numbers of wins and losses of the first item, and a tie counts
    half for both. g are the log-odds that the first item of a pair wins, so that ``jax.nn.sigmoid(g(pairs))`` are
    probabilities. The coefficients of :math:`g = \sum_i \alpha_i k_E(\cdot, p_i)` satisfy :math:`N \lambda\, \alpha_i =
    w_i - (w_i + l_i) \sigma(g_i)`. It is `kpp_models.KernelLogistic` on single matches, and the mode of a preference
    process with kernel :math:`k_E / (N \lambda)`, computed by Newton's method, whose steps are solved by conjugate
    gradients with matrices of items: the Gram matrix of the pairs is never computed.

    Args:
        kernel: :math:`k_E`, as for `PreferenceRidge`.
        regularization: :math:`\lambda`, multiplied by the number of matches; greater than 0.
        preconditioner_rank: As for `PreferenceRidge`.
        max_steps: The largest number of steps of conjugate gradients for a step of Newton's method.

    Raises:
        ValueError: If `regularization` is not one finite number greater than 0, or a whole number is below 1.
        TypeError: If a leaf is a prior, or the kernel is not a sum of preferential kernels.

    References:
        Rasmussen and Williams (2006), algorithm 3.1.
    """

    kernel: AbstractKernel
    regularization: Leaf = scalar_field("regularization")
    preconditioner_rank: int = _count_field("preconditioner_rank", default=400)
    max_steps: int = _count_field("max_steps", default=1000)

    def coefficients(self, solver: PairSolver, matches: Matches) -> Float[Array, " m"]:
        """Solve one linear system for each step of Newton's method."""
        counts, wins = matches.counts, matches.wins + matches.ties / 2
        coefficients = latent = jnp.zeros_like(counts)
        tolerance = max(_TOLERANCE, 100 * float(jnp.finfo(latent.dtype).eps))
        for _ in range(_MAX_NEWTON):
            direction = _direction(solver, counts, wins, coefficients, latent)
            move = solver.multiply(direction)
            size, change = _step_size(counts, wins, coefficients, latent, direction, move)
            coefficients, latent = coefficients + size * direction, latent + size * move
            if change <= tolerance:
                return coefficients / solver.ridge
        raise ConvergenceError(
            f"Newton's method has not converged in {_MAX_NEWTON} steps; the last would change the log-odds by up to "
            f"{float(change):.1e}: raise `regularization`"
        )


def _direction(
    solver: PairSolver, counts: Array, wins: Array, coefficients: Array, latent: Array
) -> Float[Array, " m"]:
    r"""Return the step of Newton's method for the coefficients a of :math:`f = K a`, :math:`K = K_E / (N \lambda)`.

    .. math:: (I + W K)^{-1} e = e - W^{1/2} (I + W^{1/2} K W^{1/2})^{-1} W^{1/2} K e, \qquad
        e = w - c\, \sigma(f) - a, \quad W = \mathrm{diag}(c\, \sigma(f)\, \sigma(-f))
    """
    chance = jax.nn.sigmoid(latent)
    residual = wins - counts * chance - coefficients
    root = jnp.sqrt(counts * chance * jax.nn.sigmoid(-latent))
    return residual - root * solver.solve(root, root * solver.multiply(residual), _NEWTON_RESIDUAL)


@jax.jit
def _step_size(
    counts: Array, wins: Array, coefficients: Array, latent: Array, direction: Array, move: Array
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the size of the step, 1 if a full step is an improvement, and the largest change of a full step."""

    def objective(size: Array) -> Array:
        f = latent + size * move
        likelihood = jnp.sum(wins * jax.nn.log_sigmoid(f) + (counts - wins) * jax.nn.log_sigmoid(-f))
        return likelihood - 0.5 * jnp.dot(coefficients + size * direction, f)

    return step_size(objective, latent.dtype), jnp.max(jnp.abs(move))
