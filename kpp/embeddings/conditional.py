"""The conditional mean embedding of a sample of pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.embeddings.regression import AbstractConditionalEmbedding
from kpp.embeddings.ridge import PointOutputs
from kpp.kernels import RBF, AbstractKernel, check_non_negative, parameter
from kpp.typing import Leaf, RngKey
from kpp.validation import check_same_rows

__all__ = ["ConditionalMeanEmbedding"]


class ConditionalMeanEmbedding(AbstractConditionalEmbedding):
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

    An `input_kernel` of q features (`kpp.features`), at most n, takes :math:`O(n q^2)` time and no matrix (n, n):
    :math:`w(x) = \Phi (\Phi^\top \Phi + n \lambda I)^{-1} \phi(x)`.

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
            check_same_rows(self.num_inputs, leaf.shape[0], "inputs", "points")

    def weights(self, query: Any = None) -> Float[Array, "n p"]:
        """Return the weights of the points for each value of the condition.

        Args:
            query: The p values, rows as those of `inputs`.

        Returns:
            The weights, (n, p). They need not be positive, nor sum to 1.

        Raises:
            ValueError: If there is no query.
        """
        return self.input_weights(query)

    @property
    def outputs(self) -> PointOutputs:
        """The sections of the kernel at the points."""
        return PointOutputs(self.kernel, self.points)

    @property
    def ridge(self) -> Float[Array, ""]:
        r""":math:`n \lambda`."""
        return self.num_inputs * self.regularization

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[ConditionalMeanEmbedding, Any]]:
        """Yield small embeddings and their queries for the conformance suite."""
        inputs, points = jax.random.normal(rng_key, (6, 3)), jax.random.normal(rng_key, (6, 2)) + 0.3
        yield cls(RBF(jnp.array([0.8, 1.5])), RBF(1.2), inputs, points, 0.01), inputs[:3] - 0.2
