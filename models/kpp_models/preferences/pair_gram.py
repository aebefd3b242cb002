r"""The Gram matrix of a preference kernel at many pairs of fewer items, as an operator, and an approximation of it.

With factors of the matrices of the items, :math:`K = F F^\top`, F of shape (n, q), and the table A of
`kpp.preferences.skew_table`, the product of the Gram matrix of m pairs with a vector :math:`\alpha` is

.. math:: (K_E \alpha)_i = \bigl(F (F^\top A F) F^\top\bigr)_{a_i b_i}

for the generalized preferential kernel, and :math:`(K A 1)_{a_i} - (K A 1)_{b_i}` for the preferential one: the memory
is m and :math:`n^2` numbers, or m q with a kernel of finite rank.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kpp import linalg
from kpp.features import AbstractFeatureKernel
from kpp.kernels import AbstractKernel
from kpp.preferences import entries_at_pairs, multiply_skew, preference_terms, row_sums

__all__ = ["PairGram"]


class PairGram(eqx.Module):
    r"""The Gram matrix of a preference kernel at m pairs of n items, as an operator.

    Args:
        pairs: The item numbers of each pair, (m, 2).
        general: A factor F, (n, q), for each generalized preferential kernel, of orthogonal columns.
        utility: One factor (n, q) for all preferential kernels, or None.
    """

    pairs: Int[Array, "m 2"]
    general: tuple[Float[Array, "n q"], ...]
    utility: Float[Array, "n q"] | None

    @classmethod
    def of(cls, kernel: AbstractKernel, items: Float[Array, "n d"], pairs: Int[Array, "m 2"]) -> PairGram:
        """Factorize the matrices of n items (n, d), for pairs of their numbers (m, 2). Not traceable by JAX.

        With a kernel of items of finite rank, such as `kpp.features.Nystrom`, no matrix (n, n) is computed. Raises
        TypeError if the kernel is not a sum of preferential kernels.
        """
        general, utilities = [], []
        for term in preference_terms(kernel):
            factor = _factor(term.kernel, items)
            if term.has_utility:
                utilities.append(factor * jnp.sqrt(term.scale))
            else:
                general.append(
                    factor * jnp.sqrt(jnp.sqrt(term.scale))
                )  # the kernel is quadratic in the kernel of items
        return cls(pairs, tuple(general), jnp.concatenate(utilities, axis=1) if utilities else None)

    def multiply(self, vector: Float[Array, " m"]) -> Float[Array, " m"]:
        """Return the product of the Gram matrix and a vector, (m,)."""
        total = jnp.zeros_like(vector)
        for factor in self.general:
            table = factor.T @ multiply_skew(self.pairs, vector, factor)
            total += entries_at_pairs(factor @ table, factor, self.pairs)
        if self.utility is not None:
            sums = row_sums(self.pairs, vector, self.utility.shape[0])
            utility = self.utility @ (self.utility.T @ sums)
            total += utility[self.pairs[:, 0]] - utility[self.pairs[:, 1]]
        return total

    def leading_features(self, count: int) -> Float[Array, "m r"]:
        r"""Return features :math:`\Psi` with :math:`\Psi \Psi^\top` near the Gram matrix. Not traceable by JAX.

        For the generalized preferential kernel they are
        :math:`\psi_{jl}(a, b) = F_{aj} F_{bl} - F_{bj} F_{al}` for the pairs of columns of largest
        :math:`|F_j|^2 |F_l|^2`, the eigenvalues of the kernel among all pairs of items. The remainder is positive
        semi-definite, and its eigenvalues are at most the largest omitted product.

        Args:
            count: The largest number of features of each term.

        Returns:
            The features, (m, r).
        """
        pairs = np.asarray(self.pairs)
        features = [_wedges(np.asarray(factor), pairs, count) for factor in self.general]
        if self.utility is not None:
            utility = np.asarray(self.utility)
            leading = utility[:, np.argsort(-np.sum(utility**2, axis=0))[:count]]
            features.append(leading[pairs[:, 0]] - leading[pairs[:, 1]])
        return jax.device_put(np.concatenate(features, axis=1))


@eqx.filter_jit
def _gram(kernel: AbstractKernel, items: Float[Array, "n d"]) -> Float[Array, "n n"]:
    return kernel.gram(items)


@eqx.filter_jit
def _feature_map(kernel: AbstractFeatureKernel, items: Float[Array, "n d"]) -> Float[Array, "n q"]:
    return kernel.feature_map(items)


def _factor(kernel: AbstractKernel, items: Float[Array, "n d"]) -> Float[Array, "n q"]:
    r"""Return F with :math:`K = F F^\top` and orthogonal columns, largest first, without rounding errors."""
    if not isinstance(kernel, AbstractFeatureKernel):
        return linalg.root_of_full_rank(_gram(kernel, items))
    left, singular, _ = np.linalg.svd(np.asarray(_feature_map(kernel, items)), full_matrices=False)
    kept = singular**2 > len(items) * np.finfo(singular.dtype).eps * singular[0] ** 2
    return jax.device_put(left[:, kept] * singular[kept])


def _wedges(factor: Float[np.ndarray, "n q"], pairs: Int[np.ndarray, "m 2"], count: int) -> Float[np.ndarray, "m r"]:
    sizes = np.sum(factor**2, axis=0)
    j, k = np.triu_indices(len(sizes), 1)
    leading = np.argsort(-sizes[j] * sizes[k], kind="stable")[:count]
    j, k = j[leading], k[leading]
    factor = factor[:, : k.max(initial=0) + 1]  # columns are sorted
    first, second = factor[pairs[:, 0]], factor[pairs[:, 1]]
    return first[:, j] * second[:, k] - first[:, k] * second[:, j]
