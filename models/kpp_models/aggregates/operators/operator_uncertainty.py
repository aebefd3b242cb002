r"""The uncertainty of the estimated conditional mean operator, which `CMP.operator_variance` scales.

Given the field f, its means over the bags are noisy values of :math:`g(y) = E[f(X) \mid Y = y]`, noisy because a bag is
a sample. Kernel ridge regression of these means on the covariates is the posterior mean of the Gaussian-process
regression with the prior :math:`g \sim GP(0, \tau^2 l)` and the noise :math:`\tau^2 \lambda D`, with
:math:`D_{jj} = N`, or :math:`n / n_j` under the estimator "exact". That regression also gives the uncertainty of g:

.. math::

    g \mid f \sim GP\bigl(A(y)^\top \bar f,\; \tau^2 r(y, y')\bigr), \qquad
    r(y, y') = l(y, y') - l(y, Y) (L_{YY} + \lambda D)^{-1} l(Y, y')

The ratio of noise to prior is :math:`\lambda D`, so :math:`\tau` cancels in A; it scales the uncertainty alone. A
conditional mean process with f from its prior and g from this law has

.. math::

    \mathrm{Cov}(g(y), g(y')) = A_y^\top G A_{y'} + \tau^2 r(y, y'), \qquad
    \mathrm{Cov}(f(x), g(y)) = \textstyle\sum_j A_j(y)\, \tfrac1{n_j} \sum_i k(x, x_j^i)

that is, :math:`\tau^2 r` is added to the covariance of aggregates, and nothing to the covariance of f or to their
cross-covariance.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.data.bags import Bags
from kpp.foundation.validation import as_finite_array, one_of
from kpp.kernels import AbstractKernel
from kpp.typing import Numbers
from kpp_models.aggregates.operators.conditional_mean import ESTIMATORS, ConditionalMeanOperator


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
    one_of(estimator, "estimator", ESTIMATORS)
    source = jnp.zeros(bags.num_bags, dtype=bags.index.dtype)
    regularization = as_finite_array(regularization, "regularization")
    operator = ConditionalMeanOperator((bag_kernel,), regularization, estimator, bags, source)
    return operator.amplitude(bags.gram(kernel) + as_finite_array(mean, "mean") ** 2)
