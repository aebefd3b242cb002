r"""Kernel ridge regression of the outcomes of many matches between fewer items."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp

from kpp.gp import refuse_below, refuse_priors_in, scalar_field
from kpp.kernels import AbstractKernel
from kpp.preferences import ItemFunction, Matches, preference_terms
from kpp.typing import Leaf
from kpp_models.preferences.pair_solver import PairSolver, count_field

__all__ = ["PreferenceRidge"]


class PreferenceRidge(eqx.Module):
    r"""Kernel ridge regression of matches, for tens of thousands of them.

    .. math:: \min_g \frac1N \sum_i \bigl[w_i (1 - g_i)^2 + l_i (-1 - g_i)^2 + t_i g_i^2\bigr] + \lambda \|g\|^2, \qquad
        g_i = g(x_{a_i}, x_{b_i})

    over the N matches, w of which a pair's first item won, l it lost and t were ties. With the counts c = w + l + t
    and the mean outcomes :math:`\bar y = (w - l) / c`, the coefficients of
    :math:`g = \sum_i \alpha_i k_E(\cdot, p_i)` solve :math:`(K_E + N \lambda C^{-1})\, \alpha = \bar y`. It is
    `kpp_models.KernelRidge` on single matches of outcome 1 and -1, by conjugate gradients with matrices of items: the
    Gram matrix of the pairs is never made.

    Args:
        kernel: :math:`k_E`: `kpp.kernels.GeneralizedPreferential`, `kpp.kernels.Preferential`, or a sum of multiples of
            them, with numbers for leaves. For many thousands of items let it be that of a kernel of finite rank,
            ``GeneralizedPreferential(Nystrom(kernel, landmarks))``; otherwise the n x n matrix of the items is
            decomposed.
        regularization: :math:`\lambda`, multiplied by the number of matches; greater than 0.
        preconditioner_rank: How many leading features of each term of the kernel precondition; memory is that of so
            many numbers a pair.
        max_steps: The largest number of steps of conjugate gradients.

    Raises:
        ValueError: If `regularization` is not one finite number greater than 0, or a whole number is below 1.
        TypeError: If a leaf is a prior, or the kernel no sum of preferential kernels.
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
            The fitted function g, a callable on pairs, about 1 where the first item always wins and -1 where it always
            loses; its `function` is an `RKHSFunction`.

        Raises:
            ValueError: If the matches have contexts, or features that the kernel names are missing.
            kpp.inference.ConvergenceError: If conjugate gradients do not converge.
        """
        solver = PairSolver.of(self, matches, tolerance=1e-10)
        root = jnp.sqrt(matches.counts)
        solution = solver.solve(root, (matches.wins - matches.losses) / root)
        return solver.function(root * solution / solver.ridge)
