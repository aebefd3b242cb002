"""The estimated conditional mean operator: the combination of bags that represents X given Y = y.

docs/explanation/operator_uncertainty.md derives the uncertainty of the estimate, which `CMP.operator_variance` scales.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kpp import linalg
from kpp.data.bags import Bags
from kpp.foundation.validation import as_finite_array, one_of
from kpp.kernels import AbstractKernel
from kpp.typing import Numbers

ESTIMATORS = ("exact", "shrinkage")


class Places(NamedTuple):
    """The places of aggregates: covariates (M, dy), and the source of each, (M,)."""

    covariates: Float[Array, "M dy"]
    source: Int[Array, " M"]


def target_places(data: Mapping[str, Any]) -> Places:
    """Return the places of the targets in the data of a model."""
    return Places(data["target_covariates"], data["target_source"])


class ConditionalMeanOperator(NamedTuple):
    r"""An estimate of :math:`E[f(X) \mid Y = y]` from bags, linear in the bags' means of f.

    .. math::

        \hat E[f(X) \mid Y = y] = \sum_j A_j(y)\, \tfrac{1}{n_j} \sum_i f(x_j^i), \qquad
        A(y) = (L_{YY} + \lambda D)^{-1} l(Y, y)

    With the estimator "exact" every point has the covariate of its bag, which is a regression on
    :math:`n = \sum_j n_j` rows; it collapses to :math:`D = n\, \mathrm{diag}(1 / n_j)`. With "shrinkage" each bag is
    one row, its mean embedding, and :math:`D = N I`. The two agree for bags of equal sizes. Each source of aggregates
    has its own bags, which are not used for other sources.

    References:
        Chau, Bouabid, Sejdinovic, Deconditional downscaling with Gaussian processes, 2021, section 3.3; the collapsed
        form of the exact estimator follows by the push-through identity.
    """

    kernels: Sequence[AbstractKernel]  # l, one kernel for all sources or one kernel per source
    regularization: Array  # lambda, multiplied by the number of rows of the source
    estimator: str
    bags: Bags  # with covariates
    source: Int[Array, " N"]  # of each bag

    @classmethod
    def of_one_source(
        cls, kernel: AbstractKernel, regularization: Numbers, estimator: str, bags: Bags
    ) -> ConditionalMeanOperator:
        """Return the operator of bags of one source, or raise ValueError if an argument is invalid."""
        one_of(estimator, "estimator", ESTIMATORS)
        source = jnp.zeros(bags.num_bags, dtype=bags.index.dtype)
        return cls((kernel,), as_finite_array(regularization, "regularization"), estimator, bags, source)

    def weights(self, at: Places) -> Float[Array, "N M"]:
        """Return A, the weights of the bags, one column per place."""
        return linalg.cho_solve(self._factor(), self.kernel(self._bag_places, at))

    def inverse(self) -> Float[Array, "N N"]:
        r"""Return :math:`(L_{YY} + \lambda D)^{-1}`."""
        factor = self._factor()
        return linalg.cho_solve(factor, jnp.eye(factor.shape[0], dtype=factor.dtype))

    def residual_covariance(self, first: Places, second: Places) -> Float[Array, "M1 M2"]:
        r"""Return the posterior covariance, given the bags, of a function of unit scale on the covariates.

        .. math:: l(y, y') - l(y, Y) (L_{YY} + \lambda D)^{-1} l(Y, y')
        """
        factor = self._factor()
        left, right = (linalg.solve_lower(factor, self.kernel(self._bag_places, at)) for at in (first, second))
        return self.kernel(first, second) - left.T @ right

    def amplitude(self, moments: Float[Array, "N N"]) -> Float[Array, ""]:
        r"""Return the scale of l that maximizes the expected likelihood of bag means with these second moments.

        .. math:: \hat\tau^2 = \tfrac1N \operatorname{tr}\bigl[(L_{YY} + \lambda D)^{-1} E(\bar f \bar f^\top)\bigr]
        """
        return jnp.trace(linalg.cho_solve(self._factor(), moments)) / moments.shape[0]

    def kernel(self, first: Places, second: Places) -> Float[Array, "M1 M2"]:
        """Return the kernel of the covariates, zero between different sources."""
        same = first.source[:, None] == second.source[None, :]
        if len(self.kernels) == 1:
            return jnp.where(same, self.kernels[0](first.covariates, second.covariates), 0.0)
        total = jnp.zeros(same.shape, first.covariates.dtype)
        for number, kernel in enumerate(self.kernels):
            mine = same & (first.source == number)[:, None]
            total = total + jnp.where(mine, kernel(first.covariates, second.covariates), 0.0)
        return total

    @property
    def _bag_places(self) -> Places:
        assert self.bags.covariates is not None  # the data of this model always have covariates
        return Places(self.bags.covariates, self.source)

    def _factor(self) -> Float[Array, "N N"]:
        sizes = self.bags.sizes.astype(self.bags.points.dtype)
        rows = sizes if self.estimator == "exact" else jnp.ones_like(sizes)
        total = jnp.where(self.source[:, None] == self.source[None, :], rows[None, :], 0.0).sum(axis=1)
        gram = self.kernel(self._bag_places, self._bag_places)
        regularized = linalg.add_diagonal(gram, self.regularization * total / rows)  # lambda n / n_j, or lambda N
        return linalg.cholesky(regularized, what="the regularized kernel matrix of `covariates`")


def operator_amplitude(
    kernel: AbstractKernel,
    bag_kernel: AbstractKernel,
    bags: Bags,
    regularization: Numbers,
    *,
    mean: Numbers = 0.0,
    estimator: str = "exact",
) -> Float[Array, ""]:
    r"""Return a plug-in value of :math:`\tau^2`, the `operator_variance` of `kpp_models.CMP`.

    .. math::

        \hat\tau^2 = \arg\max_{\tau^2} E_f \log N\bigl(\bar f; 0, \tau^2 (L_{YY} + \lambda D)\bigr)
        = \tfrac1N \operatorname{tr}\bigl[(L_{YY} + \lambda D)^{-1} (G + \bar m \bar m^\top)\bigr]

    It is the maximum-likelihood scale of the regression of the bag means on the covariates, with the log-likelihood
    averaged over the prior of f, because f is not observed. It is 1 if k and l agree and bags are points that are their
    own covariates. It does not replace a choice of l and :math:`\lambda`: if these do not fit the data (noise
    :math:`\tau^2 \lambda D_{jj}` far from the variance of f within bags over :math:`n_j`), r is wrong for any scale.

    Args:
        kernel: k, the kernel of the field, without priors.
        bag_kernel: l, the kernel of the covariates, without priors.
        bags: The bags, with covariates.
        regularization: :math:`\lambda`, positive, multiplied by the number of rows.
        mean: m, the constant prior mean of the field.
        estimator: "exact" or "shrinkage", as for `kpp_models.CMP`.

    Returns:
        :math:`\hat\tau^2`, a scalar.

    Raises:
        ValueError: If the bags have no covariates or the estimator is unknown.
    """
    if bags.covariates is None:
        raise ValueError("`bags` must have covariates, got None")
    operator = ConditionalMeanOperator.of_one_source(bag_kernel, regularization, estimator, bags)
    return operator.amplitude(bags.gram(kernel) + as_finite_array(mean, "mean") ** 2)
