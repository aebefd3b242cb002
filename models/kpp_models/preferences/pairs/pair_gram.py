r"""The Gram matrix of a preference kernel at many pairs of fewer items, as an operator, and linear systems with it.

With factors of the matrices of the items, :math:`K = F F^\top`, F of shape (n, q), and the table A of
`kpp.preferences.toolkit.skew_table`, the product of the Gram matrix of m pairs with a vector :math:`\alpha` is

.. math:: (K_E \alpha)_i = \bigl(F (F^\top A F) F^\top\bigr)_{a_i b_i}

for the generalized preferential kernel, and :math:`(K A 1)_{a_i} - (K A 1)_{b_i}` for the preferential one: the memory
is m and :math:`n^2` numbers, or m q with a kernel of finite rank. If there are contexts, whose kernel has the matrix
:math:`\Phi \Phi^\top` at the m pairs, with s columns :math:`\phi_j`, the Gram matrix is
:math:`\sum_j \mathrm{diag}(\phi_j)\, K_E\, \mathrm{diag}(\phi_j)`, and a product with it is s products with
:math:`K_E`.

Weighted linear systems with it are solved by preconditioned conjugate gradients.

.. math:: (I + R K_E R / \rho)\, \beta = b, \qquad R = \mathrm{diag}(r)

Its eigenvalues are at least 1. The preconditioner approximates the kernel by its leading features,
:math:`M = I + R \Psi \Psi^\top R / \rho`, and its systems are solved by Woodbury's identity.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, Float, Int

from kpp.features import AbstractFeatureKernel
from kpp.inference import ConvergenceError
from kpp.kernels import AbstractKernel
from kpp.linalg.toolkit import FeatureRidge, root_of_full_rank
from kpp.preferences import ItemFunction, Matches
from kpp.preferences.toolkit import distinct_contexts, entries_at_pairs, multiply_skew, preference_terms, row_sums
from kpp.typing import Leaf

_MAX_CONTEXTS = 100  # the most different contexts, and features of contexts: each is one more product with K_E


class _Term(eqx.Module):
    r"""One term of the kernel: F, (n, q), of orthogonal columns, the largest first, and :math:`\Phi^\top`, (s, m)."""

    factor: Float[Array, "n q"]
    contexts: Float[Array, "s m"] | None
    has_utility: bool = eqx.field(static=True)

    def multiply(self, pairs: Int[Array, "m 2"], vector: Float[Array, " m"]) -> Float[Array, " m"]:
        """Return the product of the Gram matrix of this term and a vector, (m,)."""
        if self.contexts is None:
            return self._multiply(pairs, vector)

        def add(total: Array, row: Array) -> tuple[Array, None]:
            return total + row * self._multiply(pairs, row * vector), None

        return jax.lax.scan(add, jnp.zeros_like(vector), self.contexts)[0]

    def leading_features(self, pairs: Int[np.ndarray, "m 2"], count: int) -> Float[np.ndarray, "m r"]:
        """Return the features of this term with the largest eigenvalues; see `PairGram.leading_features`."""
        factor = np.asarray(self.factor)
        contexts = np.ones((1, len(pairs))) if self.contexts is None else np.asarray(self.contexts)
        sizes = np.sum(factor**2, axis=0)
        j, k = (np.arange(len(sizes)),) * 2 if self.has_utility else np.triu_indices(len(sizes), 1)
        products = np.outer(sizes if self.has_utility else sizes[j] * sizes[k], np.mean(contexts**2, axis=1)).ravel()
        leading = np.argsort(-products, kind="stable")[:count]
        number, context = np.divmod(leading, len(contexts))
        j, k = j[number], k[number]
        factor = factor[:, : k.max(initial=0) + 1]  # columns are sorted
        first, second = factor[pairs[:, 0]], factor[pairs[:, 1]]
        if self.has_utility:
            return (first - second)[:, j] * contexts[context].T
        return (first[:, j] * second[:, k] - first[:, k] * second[:, j]) * contexts[context].T

    def _multiply(self, pairs: Int[Array, "m 2"], vector: Float[Array, " m"]) -> Float[Array, " m"]:
        factor = self.factor
        if self.has_utility:
            utility = factor @ (factor.T @ row_sums(pairs, vector, factor.shape[0]))
            return utility[pairs[:, 0]] - utility[pairs[:, 1]]
        table = factor.T @ multiply_skew(pairs, vector, factor)
        return entries_at_pairs(factor @ table, factor, pairs)


class PairGram(eqx.Module):
    """The Gram matrix of a preference kernel at m pairs of n items, as an operator."""

    pairs: Int[Array, "m 2"]
    terms: tuple[_Term, ...]

    @classmethod
    def of(
        cls,
        kernel: AbstractKernel,
        items: Float[Array, "n d"],
        pairs: Int[Array, "m 2"],
        contexts: Float[Array, "c f"] | None = None,
        context_numbers: Int[Array, " m"] | None = None,
    ) -> PairGram:
        """Factorize the matrices of n items (n, d), for pairs of their numbers (m, 2). Not traceable by JAX.

        With a kernel of items of finite rank, such as `kpp.features.Nystrom`, no matrix (n, n) is computed. The pairs
        may have contexts: c different ones and the number of the context of each pair. Raises TypeError if the kernel
        is not a sum of preferential kernels, and ValueError if there are too many different contexts.
        """
        terms = []
        for term in preference_terms(kernel):
            # The generalized preferential kernel is quadratic in the kernel of items.
            scale = jnp.sqrt(term.scale) if term.has_utility else jnp.sqrt(jnp.sqrt(term.scale))
            rows = None
            if term.context_kernel is not None and contexts is not None and context_numbers is not None:
                rows = _context_rows(term.context_kernel, contexts, np.asarray(context_numbers))
            terms.append(_Term(_factor(term.kernel, items) * scale, rows, term.has_utility))
        return cls(pairs, tuple(terms))

    def multiply(self, vector: Float[Array, " m"]) -> Float[Array, " m"]:
        """Return the product of the Gram matrix and a vector, (m,)."""
        total = jnp.zeros_like(vector)
        for term in self.terms:
            total += term.multiply(self.pairs, vector)
        return total

    def leading_features(self, count: int) -> Float[Array, "m r"]:
        r"""Return features :math:`\Psi` with :math:`\Psi \Psi^\top` near the Gram matrix, at most `count` of each term.

        For the generalized preferential kernel they are :math:`\psi_{jl}(a, b) = F_{aj} F_{bl} - F_{bj} F_{al}` for the
        pairs of columns of largest :math:`|F_j|^2 |F_l|^2`, the eigenvalues of the kernel among all pairs of items.
        With contexts they are products with a column of :math:`\Phi`, and so are the eigenvalues. The remainder is
        positive semi-definite; without contexts its eigenvalues are at most the largest omitted product. Not traceable
        by JAX.
        """
        pairs = np.asarray(self.pairs)
        return jax.device_put(np.concatenate([term.leading_features(pairs, count) for term in self.terms], axis=1))


_gram = eqx.filter_jit(lambda kernel, items: kernel.gram(items))
_features = eqx.filter_jit(lambda kernel, items: kernel.finite_features(items))


def _factor(kernel: AbstractKernel, items: Float[Array, "n d"]) -> Float[Array, "n q"]:
    r"""Return F with :math:`K = F F^\top` and orthogonal columns, largest first, without rounding errors."""
    if not isinstance(kernel, AbstractFeatureKernel):
        return root_of_full_rank(_gram(kernel, items))
    left, singular, _ = np.linalg.svd(np.asarray(_features(kernel, items)), full_matrices=False)
    kept = _above_rounding(singular, len(items))
    return jax.device_put(left[:, kept] * singular[kept])


def _context_rows(
    kernel: AbstractKernel, contexts: Float[Array, "c f"], numbers: Int[np.ndarray, " m"]
) -> Float[Array, "s m"]:
    r"""Return :math:`\Phi^\top` with orthogonal rows, for the contexts of m pairs, without rounding errors."""
    features = _features(kernel, contexts)
    if features is None and len(contexts) > _MAX_CONTEXTS:
        raise ValueError(
            f"`kernel` must have a kernel of contexts with finitely many features, because there are {len(contexts)} "
            f"different contexts, more than {_MAX_CONTEXTS}; got {type(kernel).__name__}. "
            "kpp.features.Nystrom(context_kernel, landmarks) has one feature per landmark"
        )
    known = np.asarray(root_of_full_rank(_gram(kernel, contexts)) if features is None else features)
    # A rotation makes the rows orthogonal over the pairs, where a context counts as often as it occurs.
    frequency = np.bincount(numbers, minlength=len(contexts))
    _, singular, right = np.linalg.svd(np.sqrt(frequency)[:, None] * known, full_matrices=False)
    rotated = known @ right[_above_rounding(singular, len(contexts))].T
    if rotated.shape[1] > _MAX_CONTEXTS:
        raise ValueError(
            f"`kernel` must have a kernel of contexts with at most {_MAX_CONTEXTS} features, got {rotated.shape[1]} of "
            f"{type(kernel).__name__}"
        )
    return jax.device_put(rotated[numbers].T)


def _above_rounding(singular: Float[np.ndarray, " q"], num_rows: int) -> np.ndarray:
    """Return which singular values of a factor of a matrix are no rounding errors."""
    return singular**2 > num_rows * np.finfo(singular.dtype).eps * singular[0] ** 2


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
