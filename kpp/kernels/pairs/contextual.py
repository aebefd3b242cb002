r"""Kernels for comparisons that depend on a context, such as a user: a kernel on pairs times one on contexts.

If every pair is compared in every context, as in a crowd, the Gram matrix is a Kronecker product. Then neither products
with it nor ridge regression require the full matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from kpp.kernels.base import AbstractKernel
from kpp.kernels.checks import example_points
from kpp.kernels.pairs.preference import GeneralizedPreferential, example_pairs
from kpp.kernels.parameters import check_positive
from kpp.kernels.parts import as_kernel, features_of_product
from kpp.kernels.points.stationary import RBF
from kpp.typing import AnyArray, Points, RngKey


class Kronecker(NamedTuple):
    r"""A Kronecker product :math:`A \otimes B`, stored as its two factors.

    Attributes:
        first: A, (m, m'); for a crowd, the matrix of the pairs.
        second: B, (c, c'); for a crowd, the matrix of the contexts, which change fastest among the rows.

    Example:
        >>> product = kernels.Kronecker(jnp.eye(2), jnp.array([[2.0]]))
        >>> product.multiply(jnp.arange(2.0))
        Array([0., 2.], dtype=float64)
    """

    first: Float[Array, "m m1"]
    second: Float[Array, "c c1"]

    def multiply(self, values: Float[AnyArray, " m1c1"]) -> Float[Array, " mc"]:
        r"""Return :math:`(A \otimes B) v` without the product of the matrices, as iterative solvers need it.

        Args:
            values: v, (m' c',).

        Returns:
            The product, (m c,), in m c' (m' + c) multiplications.
        """
        table = jnp.asarray(values).reshape(self.first.shape[1], self.second.shape[1])
        return (self.first @ table @ self.second.T).reshape(-1)  # vec(A V B^T), rows first

    def solve(self, values: Float[AnyArray, " mc"], ridge: ArrayLike) -> Float[Array, " mc"]:
        r"""Return :math:`(A \otimes B + \lambda I)^{-1} v` for two Gram matrices, by an eigendecomposition of each.

        Args:
            values: v, (m c,).
            ridge: :math:`\lambda`, a positive number, added to the diagonal without scaling.

        Returns:
            The solution, (m c,); the time is of order :math:`m^3 + c^3`, not :math:`(m c)^3`.

        Raises:
            ValueError: If the ridge is not positive.
        """
        check_positive(jnp.asarray(ridge), "ridge")
        (first_values, first), (second_values, second) = map(jnp.linalg.eigh, self)
        # Rounding may make the eigenvalues of a Gram matrix negative.
        eigenvalues = jnp.maximum(first_values, 0)[:, None] * jnp.maximum(second_values, 0)[None, :]
        rotated = Kronecker(first.T, second.T).multiply(values).reshape(eigenvalues.shape)
        return Kronecker(first, second).multiply((rotated / (eigenvalues + ridge)).reshape(-1))


class Contextual(AbstractKernel):
    r"""A kernel on pairs that are compared in a context, such as a user, a place or a time.

    .. math:: k((p, z), (q, z')) = k_E(p, q)\, k_z(z, z')

    Like :math:`k_E`, it is skew-symmetric in each pair. Points are tuples ``(pairs, contexts)`` of arrays (m, 2, d) and
    (m, c). For rankings with contexts, which `kpp_models.RankingGP` takes, items (m, d) are in place of the pairs, and
    :math:`k_E` is a kernel on items.

    Args:
        kernel: :math:`k_E`, a kernel on pairs such as `GeneralizedPreferential`; its parameters may be priors.
        context_kernel: :math:`k_z`, a kernel on contexts, for example `Categorical` for unordered users. With a context
            kernel k + c, a part of the function is shared by all contexts. Only the product of the two variances
            matters: leave one of them at 1.

    Example:
        >>> preference = kernels.GeneralizedPreferential(kernels.RBF(1.0))
        >>> kernel = kernels.Contextual(preference, kernels.RBF(1.0))
        >>> kernel.gram((pairs, np.array([[0.0], [0.0], [3.0]])))[0].round(2)
        Array([ 0.63, -0.63, -0.  ], dtype=float64)
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    context_kernel: AbstractKernel = eqx.field(converter=lambda kernel: as_kernel(kernel, "context_kernel"))

    def evaluate(self, x1: Points, x2: Points) -> Float[Array, ""]:
        """Evaluate the kernel at two contextual pairs, tuples of arrays (2, d) and (c,)."""
        (pair, context), (other_pair, other_context) = _parts(x1, "x1"), _parts(x2, "x2")
        return self.kernel.evaluate(pair, other_pair) * self.context_kernel.evaluate(context, other_context)

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        """Evaluate the kernel at every two of m1 and m2 contextual pairs, tuples of arrays (m, 2, d) and (m, c)."""
        (pairs, contexts), (other_pairs, other_contexts) = _batch(x1, "x1"), _batch(x2, "x2")
        return self.kernel(pairs, other_pairs) * self.context_kernel(contexts, other_contexts)

    def gram(self, x: Points) -> Float[Array, "n n"]:
        pairs, contexts = _batch(x, "x")
        return self.kernel.gram(pairs) * self.context_kernel.gram(contexts)

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        pairs, contexts = _batch(x, "x")
        return self.kernel.diagonal(pairs) * self.context_kernel.diagonal(contexts)

    def finite_features(self, x: Points) -> Float[Array, "n q"] | None:
        return features_of_product((self.kernel, self.context_kernel), _batch(x, "x"))

    def kronecker(self, pairs: Points, contexts: Points) -> Kronecker:
        r"""Return the Gram matrix of every pair in every context, :math:`K_E \otimes K_z`, as its two factors.

        Args:
            pairs: m pairs, (m, 2, d), that all contexts have in common.
            contexts: The contexts, (c, features).

        Returns:
            The Gram matrices of the pairs (m, m) and of the contexts (c, c); their Kronecker product is
            ``gram(Contextual.cross(pairs, contexts))``.
        """
        return Kronecker(self.kernel.gram(pairs), self.context_kernel.gram(contexts))

    @staticmethod
    def cross(pairs: Points, contexts: Points) -> tuple[Any, Any]:
        """Return every pair in every context as one batch; the contexts change fastest.

        Args:
            pairs: m pairs, (m, 2, d).
            contexts: The contexts, (c, features).

        Returns:
            The tuple of pairs and contexts, m c rows each.
        """
        m, c = (jax.tree.leaves(part)[0].shape[0] for part in (pairs, contexts))
        repeated = jax.tree.map(lambda leaf: jnp.repeat(jnp.asarray(leaf), c, axis=0), pairs)
        return repeated, jax.tree.map(lambda leaf: jnp.concatenate([jnp.asarray(leaf)] * m), contexts)

    def features_as_numbers(self, features: Sequence[str]) -> frozenset[str]:
        """Return the features of the items that the kernel on pairs reads as numbers; the contexts have their own."""
        return self.kernel.features_as_numbers(features)

    def product_terms(self) -> NoReturn:
        """Raise TypeError, because the features of the two items enter as differences."""
        raise TypeError(
            "Contextual is not a sum of product kernels: it compares two items, and the explainer "
            '"pref-shap" computes exact Shapley values of comparisons and of their contexts'
        )

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        first, second = jax.random.split(rng_key)
        yield (
            cls(GeneralizedPreferential(RBF(0.8, 1.3)), RBF(1.2) + 0.5),
            (example_pairs(first, 2), example_points(second, 1)),
        )


def _parts(x: Points, name: str) -> tuple[Any, Any]:
    if isinstance(x, tuple) and len(x) == 2:
        return x
    what = f"an array of shape {x.shape}" if isinstance(x, jax.Array) else type(x).__name__
    raise ValueError(f"`{name}` must be the tuple (pairs, contexts) for Contextual, got {what}")


def _batch(x: Points, name: str) -> tuple[Any, Any]:
    pairs, contexts = _parts(x, name)
    counts = [sorted({leaf.shape[:1] for leaf in jax.tree.leaves(part)}) for part in (pairs, contexts)]
    if counts[0] != counts[1]:
        shapes = " and ".join(str([leaf.shape for leaf in jax.tree.leaves(part)]) for part in (pairs, contexts))
        raise ValueError(
            f"`{name}` must hold one context per pair, got arrays of shapes {shapes}; `Contextual.cross` puts "
            "every pair under every context"
        )
    return pairs, contexts
