r"""Conditional mean embeddings from bags: several points per value of the condition.

A bag j holds :math:`n_j` points drawn given :math:`y_j`. The usual estimator repeats :math:`y_j` for each of them and
solves a system with one unknown per point. Both estimators here solve for one weight per bag instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.data.bags import Bags
from kpp.embeddings.means.conditional import AbstractConditionalEmbedding
from kpp.embeddings.means.elements import BagMeans
from kpp.embeddings.means.embedding import AbstractEmbedding
from kpp.kernels import RBF, AbstractKernel, check_non_negative, parameter
from kpp.typing import Leaf, Points, RngKey


class AbstractBagEmbedding(AbstractConditionalEmbedding):
    r"""A conditional embedding on means of bags.

    .. math:: \hat\mu_{X|y} = \sum_j a_j(y)\, \frac1{n_j} \sum_i k(x_j^i, \cdot)

    Values and inner products are computed from means over the bags, block by block: no matrix of all pairs of points is
    formed. Subclasses differ in `multiplicity`, the number of times that a bag is counted.

    Args:
        kernel: The kernel k of the space of the embeddings.
        input_kernel: The kernel l of the covariates.
        bags: N bags with covariates Y, n points in total.
        regularization: :math:`\lambda`, at least 0; it is multiplied by the sum of the multiplicities.

    Raises:
        ValueError: If the regularization is negative or the bags have no covariates.
    """

    kernel: AbstractKernel
    input_kernel: AbstractKernel
    bags: Bags
    regularization: Leaf

    def __init__(
        self, *, kernel: AbstractKernel, input_kernel: AbstractKernel, bags: Bags, regularization: Leaf
    ) -> None:
        self.kernel = kernel
        self.input_kernel = input_kernel
        self.bags = bags
        self.regularization = parameter("regularization")(regularization)

    @property  # type: ignore[misc]  # Equinox lets a property stand for an AbstractVar
    def points(self) -> Float[Array, "n d"]:
        """The points of all bags, (n, d)."""
        return self.bags.points

    @property  # type: ignore[misc]
    def inputs(self) -> Float[Array, "N dy"]:
        """The covariates of the bags, (N, dy)."""
        return self.bags.covariates  # type: ignore[return-value]  # None is refused

    @property
    def outputs(self) -> BagMeans:
        """The mean embeddings of the bags."""
        return BagMeans(self.kernel, self.bags)

    def __check_init__(self) -> None:
        """Raise ValueError if the regularization is negative or the bags have no covariates."""
        check_non_negative(self.regularization, "regularization")
        if self.bags.covariates is None:
            raise ValueError(
                "`bags` must have covariates, one row per bag, which are the inputs of the embedding, got None"
            )

    def weights(self, query: Points | None = None) -> Float[Array, "n p"]:
        """Return the weights of the points for p values of the covariates, :math:`a_j(y) / n_j`, (n, p)."""
        return self.bags.spread(self.input_weights(query))

    def evaluate(self, x: Points, query: Points | None = None) -> Float[Array, "p n"]:
        """Evaluate the elements at points, (p, n), without the weights of all points."""
        return self.input_weights(query).T @ self.bags.sections(self.kernel, x)

    def inner(
        self, other: AbstractEmbedding, query: Points | None = None, other_query: Points | None = None
    ) -> Float[Array, "p other_p"]:
        """Return the inner products, (p, p'); the Gram matrix of bags that both embeddings share is computed once."""
        if not (isinstance(other, AbstractBagEmbedding) and other.bags is self.bags):
            return AbstractConditionalEmbedding.inner(self, other, query, other_query)
        self._check_same_space(other)
        return self.input_weights(query).T @ self.outputs.gram() @ other.input_weights(other_query)

    def _reduce(self, values: Float[Array, "n *k"]) -> Float[Array, "N *k"]:
        return self.bags.means(values)

    def _squared_norms(self, query: Points | None) -> Float[Array, " p"]:
        weights = self.input_weights(query)
        return jnp.sum(weights * (self.outputs.gram() @ weights), axis=0)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractBagEmbedding, Any]]:
        """Yield small embeddings of four bags and their queries for the conformance suite."""
        points = jax.random.normal(rng_key, (7, 2))
        bags = Bags.create(points, np.array([0, 0, 1, 2, 2, 2, 3]), points[jnp.array([0, 2, 3, 6]), :1] + 0.5)
        kernels = {"kernel": RBF(jnp.array([0.8, 1.5])), "input_kernel": RBF(1.2)}
        yield cls(**kernels, bags=bags, regularization=0.01), jnp.array([[-0.4], [0.3], [1.0]])


class ShrinkageConditionalMeanEmbedding(AbstractBagEmbedding):
    r"""The shrinkage estimator: regression of the bags' mean embeddings, where each bag is counted once.

    .. math::

        \hat\mu_{X|y} = \sum_j a_j(y)\, \hat\mu_j, \qquad a(y) = (L + N \lambda I)^{-1} l(Y, y), \qquad
        \hat\mu_j = \frac1{n_j} \sum_i k(x_j^i, \cdot)

    It minimises :math:`\frac1N \sum_j \|\hat\mu_j - \mu(y_j)\|^2 + \lambda \|\mu\|^2`. For bags of equal sizes it is
    the estimator on repeated covariates, but with N unknowns instead of n.

    Args:
        kernel: The kernel k of the space of the embeddings.
        input_kernel: The kernel l of the covariates.
        bags: N bags with covariates Y, n points in total.
        regularization: :math:`\lambda`, at least 0; it is multiplied by the number of bags N.

    Raises:
        ValueError: If the regularization is negative or the bags have no covariates.

    References:
        Chau, Bouabid and Sejdinovic, Deconditional downscaling with Gaussian processes, 2021, equation (10).
    """


class ReplicatedConditionalMeanEmbedding(AbstractBagEmbedding):
    r"""The conditional mean embedding of all points, with the covariates repeated for each point, from N unknowns.

    .. math:: a(y) = (L + n \lambda\, \mathrm{diag}(1 / n_j))^{-1} l(Y, y), \qquad n = \textstyle\sum_j n_j

    It is exactly `ConditionalMeanEmbedding` on the n pairs :math:`(y_j, x_j^i)`, which minimises
    :math:`\frac1n \sum_{ji} \|k(x_j^i, \cdot) - \mu(y_j)\|^2 + \lambda \|\mu\|^2`: with the matrix E (n, N) that
    repeats rows, :math:`(E L E^\top + n \lambda I)^{-1} E = E\,(L E^\top E + n \lambda I)^{-1}`, and
    :math:`E^\top E = \mathrm{diag}(n_j)`. Each point is counted once, so a bag is counted once per point.

    Args:
        kernel: The kernel k of the space of the embeddings.
        input_kernel: The kernel l of the covariates.
        bags: N bags with covariates Y, n points in total.
        regularization: :math:`\lambda`, at least 0; it is multiplied by the number of points n.

    Raises:
        ValueError: If the regularization is negative or the bags have no covariates.

    References:
        Song, Huang, Smola and Fukumizu, Hilbert space embeddings of conditional distributions, 2009, equation (6), on
        repeated covariates.
    """

    @property
    def multiplicity(self) -> Float[Array, " N"]:
        """The sizes of the bags."""
        return self.bags.sizes.astype(self.bags.points.dtype)
