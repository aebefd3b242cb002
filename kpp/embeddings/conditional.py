r"""The conditional mean embedding, and the choice of its regularization."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp import linalg
from kpp.embeddings.base import AbstractEmpiricalEmbedding
from kpp.kernels import RBF, AbstractKernel, check_non_negative, parameter
from kpp.typing import Leaf, RngKey
from kpp.validation import as_targets, check_rng_key, check_same_rows

__all__ = ["ConditionalMeanEmbedding", "SelectedRegularization", "select_regularization"]

_GRID = np.logspace(-7, 0, 15)


class ConditionalMeanEmbedding(AbstractEmpiricalEmbedding):
    r"""The embedding of the distribution of Z given X = x, from a sample of pairs.

    .. math:: \hat\mu_{Z|x} = \sum_i w_i(x)\, k(z_i, \cdot), \qquad w(x) = (K_X + n \lambda I)^{-1} k_X(X, x)

    It is kernel ridge regression of :math:`k(Z, \cdot)` on X: it minimises
    :math:`\frac1n \sum_i \|k(z_i, \cdot) - \mu(x_i)\|^2 + \lambda \|\mu\|^2`.

    Args:
        kernel: The kernel k of the space that the embeddings lie in.
        input_kernel: The kernel :math:`k_X` of the condition.
        inputs: X, the n values of the condition: an array (n, d), or a batch of what `input_kernel` takes.
        points: Z, the n points: an array (n, d'), or a batch of what `kernel` takes.
        regularization: :math:`\lambda`, at least 0; it is multiplied by n. `select_regularization` chooses it.

    References:
        Song, Huang, Smola and Fukumizu, Hilbert space embeddings of conditional distributions, 2009, equation (6);
        Muandet et al., Kernel mean embedding of distributions, 2017, equation (4.6).
    """

    kernel: AbstractKernel
    input_kernel: AbstractKernel
    inputs: Any
    points: Any
    regularization: Leaf

    def __init__(
        self, kernel: AbstractKernel, input_kernel: AbstractKernel, inputs: Any, points: Any, regularization: Leaf
    ) -> None:
        self.kernel = kernel
        self.input_kernel = input_kernel
        self.inputs, self.points = jax.tree.map(jnp.asarray, (inputs, points))
        self.regularization = parameter("regularization")(regularization)

    def __check_init__(self) -> None:
        """Refuse a negative regularization, and inputs and points that are no pairs."""
        check_non_negative(self.regularization, "regularization")
        for leaf in jax.tree.leaves((self.inputs, self.points)):
            if leaf.shape[:1] in ((), (0,)):
                raise ValueError(
                    f"`inputs` and `points` must hold at least one pair, got an array of shape {leaf.shape}"
                )
            check_same_rows(self._num_pairs, leaf.shape[0], "inputs", "points")

    def weights(self, query: Any = None) -> Float[Array, "n p"]:
        """Return the weights of the points for each value of the condition.

        Args:
            query: The p values, rows as those of `inputs`.

        Returns:
            The weights, (n, p). They need not be positive, nor sum to 1.

        Raises:
            ValueError: If there is no query.
        """
        if query is None:
            raise ValueError("`query` must hold values of the condition, one row each, got None")
        factor = linalg.cholesky(self._regularized_gram(), what="the regularized kernel matrix of `inputs`")
        return linalg.cho_solve(factor, self.input_kernel(self.inputs, query))

    def leave_one_out_losses(self) -> Float[Array, " n"]:
        r"""Return how far each point is from what the other pairs say about it.

        .. math::

            \ell_i = \bigl\|k(z_i, \cdot) - \hat\mu^{(-i)}_{Z|x_i}\bigr\|^2 = \frac{(A G A)_{ii}}{A_{ii}^2}, \qquad
            A = (K_X + n\lambda I)^{-1}, \quad G = k(Z, Z)

        The embedding without the pair i keeps the number :math:`n\lambda` on its diagonal.

        Returns:
            The squared distances in the RKHS, (n,).
        """
        inverse = self._inverse()
        residuals = inverse / jnp.diagonal(inverse)[:, None]
        return jnp.sum((residuals @ self.kernel.gram(self.points)) * residuals, axis=1)

    def held_out_losses(self, folds: Any) -> Float[Array, " n"]:
        r"""Return how far each point is from what the pairs outside its fold say about it.

        .. math:: k(z_i, \cdot) - \hat\mu^{(-I)}_{Z|x_i} = \sum_j \bigl[A_{II}^{-1} A_{I,\cdot}\bigr]_{ij} k(z_j, \cdot)

        Args:
            folds: Index arrays that split 0, ..., n - 1.

        Returns:
            The squared distances in the RKHS, (n,), in the order of the points.
        """
        inverse, gram = self._inverse(), self.kernel.gram(self.points)
        losses = jnp.zeros(self._num_pairs, dtype=gram.dtype)
        for fold in folds:
            factor = linalg.cholesky(inverse[jnp.ix_(fold, fold)], what="the inverse over a fold")
            residuals = linalg.cho_solve(factor, inverse[fold])
            losses = losses.at[fold].set(jnp.sum((residuals @ gram) * residuals, axis=1))
        return losses

    @property
    def _num_pairs(self) -> int:
        return jax.tree.leaves(self.inputs)[0].shape[0]

    def _regularized_gram(self) -> Float[Array, "n n"]:
        return linalg.add_diagonal(self.input_kernel.gram(self.inputs), self._num_pairs * self.regularization)

    def _inverse(self) -> Float[Array, "n n"]:
        gram = self._regularized_gram()
        return linalg.cho_inverse(linalg.cholesky(gram, what="the regularized kernel matrix of `inputs`"))

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[ConditionalMeanEmbedding, Any]]:
        """Yield small embeddings and their queries for the conformance suite."""
        inputs, points = jax.random.normal(rng_key, (6, 3)), jax.random.normal(rng_key, (6, 2)) + 0.3
        yield cls(RBF(jnp.array([0.8, 1.5])), RBF(1.2), inputs, points, 0.01), inputs[:3] - 0.2


class SelectedRegularization(NamedTuple):
    """The outcome of `select_regularization`.

    Attributes:
        embedding: The embedding with the regularization of the lowest loss.
        grid: The regularizations tried.
        losses: The mean loss of each.
    """

    embedding: ConditionalMeanEmbedding
    grid: np.ndarray
    losses: np.ndarray


def select_regularization(
    embedding: ConditionalMeanEmbedding,
    grid: Any = None,
    *,
    num_folds: int | None = None,
    rng_key: RngKey | None = None,
) -> SelectedRegularization:
    r"""Choose the regularization of a conditional mean embedding by cross-validation.

    Args:
        embedding: The embedding; its own regularization plays no part.
        grid: The values to try, positive; by default 15 from 1e-7 to 1.
        num_folds: How many folds; by default each pair is one, which takes no more time.
        rng_key: A JAX random key for the split into folds; without folds nothing is random.

    Returns:
        The embedding with the best value, and the mean loss of each.

    Raises:
        ValueError: If a value is not positive, or `num_folds` is not between 2 and the number of pairs.
    """
    values = as_targets(_GRID if grid is None else grid, name="grid")
    if not bool((values > 0).all()):
        raise ValueError(f"`grid` must hold positive numbers, got {float(values.min()):g} among them")
    folds = None if num_folds is None else _split(embedding._num_pairs, num_folds, rng_key)
    losses = _mean_losses(embedding, values, folds)
    if not bool(jnp.isfinite(losses).all()):
        raise linalg.FactorizationError(f"the kernel matrix of `inputs` is singular with {float(values.min()):g}")
    best = eqx.tree_at(lambda tree: tree.regularization, embedding, values[jnp.argmin(losses)])
    return SelectedRegularization(best, np.asarray(values), np.asarray(losses))


@eqx.filter_jit
def _mean_losses(embedding: ConditionalMeanEmbedding, grid: Array, folds: Any) -> Float[Array, " values"]:
    def loss(value: Array) -> Array:
        changed = eqx.tree_at(lambda tree: tree.regularization, embedding, value)
        return jnp.mean(changed.leave_one_out_losses() if folds is None else changed.held_out_losses(folds))

    return jax.lax.map(loss, grid)


def _split(num_pairs: int, num_folds: int, rng_key: RngKey | None) -> list[Array]:
    if not 2 <= num_folds <= num_pairs:
        raise ValueError(f"`num_folds` must be between 2 and the number of pairs, {num_pairs}, got {num_folds}")
    order = np.asarray(jax.random.permutation(check_rng_key(rng_key), num_pairs))
    return [jnp.asarray(fold) for fold in np.array_split(order, num_folds)]
