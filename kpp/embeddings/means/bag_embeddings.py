r"""Conditional mean embeddings from bags: several points per value of the condition.

A bag j holds :math:`n_j` points drawn given :math:`y_j`. The usual estimator repeats :math:`y_j` for each of them and
solves a system with one unknown per point. Both estimators here solve for one weight per bag instead. Values and inner
products are computed from means over the bags, block by block: no matrix of all pairs of points is formed. The
estimators differ in `multiplicity`, the number of times that a bag is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.data.bags import Bags
from kpp.embeddings.means.conditional import AbstractRegressionEmbedding
from kpp.embeddings.means.elements import BagMeans, KernelSections
from kpp.foundation.validation import check_type
from kpp.kernels import RBF, AbstractKernel, check_non_negative, parameter
from kpp.typing import Leaf, RngKey


class _AbstractOfBags(eqx.Module):
    """The fields of both estimators and what follows from them, beside `AbstractRegressionEmbedding`."""

    kernel: AbstractKernel = eqx.field(kw_only=True)
    input_kernel: AbstractKernel = eqx.field(kw_only=True)
    bags: Bags = eqx.field(kw_only=True)
    regularization: Leaf = eqx.field(kw_only=True, converter=parameter("regularization"))

    @property
    def points(self) -> Float[Array, "n d"]:
        """The points of all bags, (n, d)."""
        return self.bags.points

    @property
    def inputs(self) -> Float[Array, "N dy"]:
        """The covariates of the bags, (N, dy)."""
        return self.bags.covariates  # type: ignore[return-value]  # None is refused

    @property
    def outputs(self) -> BagMeans:
        """The mean embeddings of the bags."""
        return BagMeans(self.kernel, self.bags)

    @property
    def regressors(self) -> KernelSections:
        """The covariates of the bags."""
        return KernelSections(self.input_kernel, self.inputs)

    def __check_init__(self) -> None:
        """Raise ValueError if the regularization is negative or the bags have no covariates."""
        check_non_negative(self.regularization, "regularization")
        check_type(self.bags, "bags", ["Bags"])
        if self.bags.covariates is None:
            raise ValueError(
                "`bags` must have covariates, one row per bag, which are the inputs of the embedding, got None"
            )

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[Any, Any]]:
        """Yield small embeddings of four bags and their queries for the conformance suite."""
        points = jax.random.normal(rng_key, (7, 2))
        bags = Bags.create(points, np.array([0, 0, 1, 2, 2, 2, 3]), points[jnp.array([0, 2, 3, 6]), :1] + 0.5)
        kernels = {"kernel": RBF(jnp.array([0.8, 1.5])), "input_kernel": RBF(1.2)}
        yield cls(**kernels, bags=bags, regularization=0.01), jnp.array([[-0.4], [0.3], [1.0]])


class ShrinkageConditionalMeanEmbedding(_AbstractOfBags, AbstractRegressionEmbedding):
    r"""The shrinkage estimator: regression of the bags' mean embeddings, where each bag is counted once.

    .. math::

        \hat\mu_{X|y} = \sum_j a_j(y)\, \hat\mu_j, \qquad a(y) = (L + N \lambda I)^{-1} l(Y, y), \qquad
        \hat\mu_j = \frac1{n_j} \sum_i k(x_j^i, \cdot)

    It minimizes :math:`\frac1N \sum_j \|\hat\mu_j - \mu(y_j)\|^2 + \lambda \|\mu\|^2`. For bags of equal sizes it is
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


class ReplicatedConditionalMeanEmbedding(_AbstractOfBags, AbstractRegressionEmbedding):
    r"""The conditional mean embedding of all points, with the covariates repeated for each point, from N unknowns.

    .. math:: a(y) = (L + n \lambda\, \mathrm{diag}(1 / n_j))^{-1} l(Y, y), \qquad n = \textstyle\sum_j n_j

    It is exactly `ConditionalMeanEmbedding` on the n pairs :math:`(y_j, x_j^i)`, which minimizes
    :math:`\frac1n \sum_{ji} \|k(x_j^i, \cdot) - \mu(y_j)\|^2 + \lambda \|\mu\|^2`: with the matrix E (n, N) that
    repeats rows, :math:`(E L E^\top + n \lambda I)^{-1} E = E\,(L E^\top E + n \lambda I)^{-1}`, and
    :math:`E^\top E = \mathrm{diag}(n_j)`. Each point is counted once, so a bag is counted once per point.

    Args:
        kernel, input_kernel, bags: As for `ShrinkageConditionalMeanEmbedding`.
        regularization: :math:`\lambda`, at least 0; it is multiplied by the number of points n.

    Raises:
        ValueError: If the regularization is negative or the bags have no covariates.

    References:
        Song, Huang, Smola and Fukumizu, Hilbert space embeddings of conditional distributions, 2009, equation (6), on
        repeated covariates.
    """

    @property
    def multiplicity(self) -> Float[Array, " N"]:
        return self.bags.sizes.astype(self.bags.points.dtype)
