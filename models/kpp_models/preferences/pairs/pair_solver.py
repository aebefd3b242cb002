r"""Weighted linear systems with the Gram matrix of many pairs, by preconditioned conjugate gradients.

.. math:: (I + R K_E R / \rho)\, \beta = b, \qquad R = \mathrm{diag}(r)

Its eigenvalues are at least 1. The preconditioner approximates the kernel by its leading features,
:math:`M = I + R \Psi \Psi^\top R / \rho`, and its systems are solved by Woodbury's identity.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float, Int

from kpp.inference import ConvergenceError
from kpp.kernels import AbstractKernel
from kpp.linalg.toolkit import FeatureRidge
from kpp.preferences import ItemFunction, Matches
from kpp.preferences.toolkit import distinct_contexts
from kpp.typing import Leaf
from kpp_models.preferences.pairs.pair_gram import PairGram


class PairSolver(eqx.Module):
    r"""Solves systems with :math:`K_E / \rho` and any weights."""

    pairs: ItemFunction  # the pairs and the kernel, as the function 0
    gram: PairGram  # K_E
    features: Float[Array, "m r"]  # Psi, of the preconditioner
    ridge: Float[Array, ""]  # rho
    max_steps: int = eqx.field(static=True)  # of conjugate gradients for a system

    @classmethod
    def of(
        cls, kernel: AbstractKernel, regularization: Leaf, matches: Matches, preconditioner_rank: int, max_steps: int
    ) -> PairSolver:
        r"""Prepare for a kernel and the settings of a model, with :math:`\rho = N \lambda`. Not traceable by JAX.

        The kernel must have names of features resolved and fit the matches. Raises ValueError if there are too many
        different contexts.
        """
        contexts, numbers = None, None
        if matches.contexts is not None:
            contexts, numbers = map(jax.device_put, distinct_contexts(matches.contexts))
        gram = PairGram.of(kernel, matches.items, matches.pairs, contexts, numbers)
        pairs = ItemFunction(kernel, matches.items, matches.pairs, jnp.zeros_like(matches.counts), contexts, numbers)
        ridge = matches.num_matches * regularization
        return cls(pairs, gram, gram.leading_features(preconditioner_rank), ridge, max_steps)

    def multiply(self, vector: Float[Array, " m"]) -> Float[Array, " m"]:
        r"""Return :math:`K_E v / \rho`, (m,)."""
        return _multiply(self.gram, vector) / self.ridge

    def solve(self, root: Float[Array, " m"], right: Float[Array, " m"], tolerance: float) -> Float[Array, " m"]:
        r"""Return :math:`\beta = (I + R K_E R / \rho)^{-1} b` for the roots r of the weights. Not traceable by JAX.

        The tolerance is for the largest entry of the residual and of the last change, for a right-hand side of largest
        entry 1; in float32 it is at least 1e-5. Raises `kpp.inference.ConvergenceError` if the iterations do not
        converge.
        """
        tolerance = max(tolerance, 100 * float(jnp.finfo(right.dtype).eps))
        limits = (jnp.asarray(tolerance, right.dtype), jnp.asarray(self.max_steps))
        value, steps, residual = _solve(self.gram, self.features, root / jnp.sqrt(self.ridge), right, *limits)
        if not residual <= 10 * tolerance:  # false also for NaN
            raise ConvergenceError(
                f"conjugate gradients on {right.shape[0]} pairs ended after {int(steps)} steps with a relative "
                f"residual of {float(residual):.1e}, which must be below {10 * tolerance:g}: raise `max_steps`, "
                f"`preconditioner_rank` (it gave {self.features.shape[1]} features) or `regularization`"
            )
        return value


# The kernel is not an argument and the numbers are arrays, so that all fits of equal shapes share the programs.
_multiply = eqx.filter_jit(PairGram.multiply)


@eqx.filter_jit
def _solve(
    gram: PairGram,
    features: Float[Array, "m r"],
    root: Float[Array, " m"],
    right: Float[Array, " m"],
    tolerance: Float[Array, ""],
    max_steps: Int[Array, ""],
) -> tuple[Float[Array, " m"], Int[Array, ""], Float[Array, ""]]:
    """Solve, and return the number of steps and the largest entry of the residual for a right-hand side of size 1."""
    preconditioner = FeatureRidge.create(root[:, None] * features, 1.0, what="the preconditioner")

    def multiply(vector: Array) -> Array:
        return vector + root * gram.multiply(root * vector)

    shape = jax.eval_shape(lambda: right)
    operator, inverse = (
        lx.FunctionLinearOperator(function, shape, lx.positive_semidefinite_tag)
        for function in (multiply, preconditioner.solve)
    )
    size = jnp.max(jnp.abs(right))
    scaled = right / jnp.where(size > 0, size, 1.0)
    method = lx.CG(rtol=tolerance, atol=tolerance, max_steps=max_steps)
    solution = lx.linear_solve(operator, scaled, method, options={"preconditioner": inverse}, throw=False)
    # The method also ends, and reports success, if rounding makes the preconditioner indefinite.
    residual = jnp.max(jnp.abs(scaled - multiply(solution.value)))
    return solution.value * size, solution.stats["num_steps"], residual
