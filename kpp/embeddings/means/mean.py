r"""The mean embedding of a sample."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.embeddings.means.embedding import AbstractEmpiricalEmbedding
from kpp.foundation.validation import finite_arrays
from kpp.kernels import RBF, AbstractKernel
from kpp.typing import Points, RngKey


class MeanEmbedding(AbstractEmpiricalEmbedding):
    r"""The kernel mean embedding of an empirical distribution.

    .. math:: \hat\mu = \frac{1}{n} \sum_{i=1}^n k(z_i, \cdot)

    Args:
        kernel: The kernel k.
        points: The sample :math:`z_i`: an array (n, d), or a batch of inputs of the kernel.

    Example:
        >>> embedding = kpp.embeddings.MeanEmbedding(kpp.kernels.RBF(1.0), np.array([[0.0], [2.0]]))
        >>> embedding.weights().tolist()
        [[0.5], [0.5]]

    References:
        Muandet et al. (2017), "Kernel mean embedding of distributions: a review and beyond", equation 3.2.
    """

    kernel: AbstractKernel
    points: Points = eqx.field(converter=functools.partial(finite_arrays, name="points"))

    def __check_init__(self) -> None:
        sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(self.points)}
        if len(sizes) != 1 or sizes <= {(), (0,)}:
            shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(self.points)]
            raise ValueError(
                f"`points` must hold at least one point, the same number in each array, got shapes {shapes}"
            )

    def weights(self, query: Points | None = None) -> Float[Array, "n p"]:
        """Return the weight 1/n of each point, (n, 1); `query` must be None, since there is no condition."""
        if query is not None:
            raise ValueError("`query` must be None: a MeanEmbedding embeds one distribution, without a condition")
        first = jax.tree.leaves(self.points)[0]
        dtype = first.dtype if jnp.issubdtype(first.dtype, jnp.floating) else jnp.result_type(float)
        return jnp.full((first.shape[0], 1), 1.0 / first.shape[0], dtype=dtype)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[MeanEmbedding, None]]:
        yield cls(RBF(lengthscale=jnp.array([0.8, 1.5])), jax.random.normal(rng_key, (5, 2))), None
        yield cls(RBF(lengthscale=1.2, variance=2.0), jax.random.normal(rng_key, (1, 3))), None
