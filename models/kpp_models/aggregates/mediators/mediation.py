r"""Two-step mediation, and how well it can work: what the covariates leave unexplained of bags, and of targets.

Bags (D1) and targets (D2) that share only covariates can be linked in two ways. A conditional mean process predicts the
mean embedding of the bag behind each target from the bags of D1. Two-step mediation predicts a target for each bag of
D1 from the targets of D2. Each way makes an error, which both treat as if it were zero or simple noise:

.. math::

    e_m = \bar f_m - A(\tilde y_m)^\top \bar f \quad \text{(operator)}, \qquad
    e_j = \bar f_j - B(y_j)^\top z \quad \text{(regression)}

The first can be known from D1 alone, by `operator_errors`. The second is the leave-one-out error of a kernel regression
of the targets on their covariates, :math:`(W z)_m^2 / W_{mm}^2` with :math:`W = (L + \lambda D)^{-1}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp import linalg
from kpp.data.bags import Bags
from kpp.foundation.validation import as_targets, check_same_rows, one_of
from kpp.inference import AbstractInference
from kpp.kernels import RBF, AbstractKernel, median_heuristic, resolve_features
from kpp.typing import Leaf, Numbers, RngKey
from kpp_models.aggregates.data import read_places
from kpp_models.aggregates.operators.conditional_mean import ESTIMATORS, ConditionalMeanOperator
from kpp_models.tables.regression import GPRegression


def mediate(
    rng_key: RngKey,
    bags: Bags,
    covariates: Numbers,
    y: Numbers,
    bag_kernel: AbstractKernel,
    noise_variance: Leaf,
    inference: AbstractInference | None = None,
    *,
    mean: Leaf = 0.0,
) -> Float[Array, " N"]:
    r"""Return pseudo-targets of bags by Gaussian-process regression of the targets on their covariates.

    .. math::

        \tilde z_m = g(\tilde y_m) + \epsilon_m, \qquad g \sim GP(m, l), \qquad
        \hat z_j = E[g(y_j) \mid \tilde z]

    So models that need one target per bag, such as `BaggGP`, can be fitted to bags (D1) and targets (D2) that share
    only the kind of covariate. This ignores the uncertainty of :math:`\hat z_j` and the fact that g is a mean of f;
    `CMP` does not need this step.

    Args:
        rng_key: A JAX random key.
        bags: D1, N bags with covariates y.
        covariates: The covariates of the targets of D2, (M, dy), an array or a data frame.
        y: The targets of D2, (M,).
        bag_kernel: l, with numbers or priors as leaves.
        noise_variance: The variance of the noise, a number or a prior.
        inference: How hyperparameters are inferred; `kpp.NUTS()` by default.
        mean: m, a number or a prior.

    Returns:
        The pseudo-targets in the order of the bags, (N,); means over the draws of the hyperparameters.

    Raises:
        ValueError: If the bags have no covariates, or data are invalid.

    References:
        Chau, Bouabid, Sejdinovic, Deconditional downscaling with Gaussian processes, 2021, section 5.1, whose published
        code permutes the rows by a `unique()` that sorts.
    """
    if bags.covariates is None:
        raise ValueError("`bags` must have covariates, by which bags and targets are matched")
    if bags.covariate_names:
        bag_kernel = resolve_features(bag_kernel, bags.covariate_names)
    places = read_places(bags.covariate_names, bags.covariates.shape[1], covariates)
    model = GPRegression(bag_kernel, noise_variance, mean)
    fit = model.fit(rng_key, places, y, inference=inference, num_prior_samples=0)
    return jnp.asarray(fit.predict(bags.covariates)["mean"].mean(("chain", "draw")).values)


_STRETCHES = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the median heuristic, for the lengthscales of the bag kernel
_WORTHLESS, _EASY, _HARMLESS = 0.9, 0.1, 0.05  # shares, from examples/reproduce/mediation_condition.py
_REGULARIZATIONS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


class MediationCheck(NamedTuple):
    """The shares of variance that the covariates leave unexplained; see `check_mediation`.

    Attributes:
        operator: The share for the bags' mean embeddings: 0 if the covariates determine them, about 1 if they are
            worthless.
        regression: The share for the targets.
    """

    operator: float
    regression: float

    @property
    def advice(self) -> str:
        """What the shares say of errors and of intervals; of errors they are right on average, not in each data set."""
        if self.regression >= _WORTHLESS or self.operator >= _WORTHLESS:
            return "The covariates do not link the data: no model can."
        errors = "The shares do not say which way has the smaller error: compare `CMP` and `mediate`."
        if self.regression <= min(_EASY, self.operator / 2):
            errors = "For predictions take `mediate`: the covariates say more of the targets than of the bags."
        elif self.regression <= _HARMLESS:
            errors = "For predictions, `mediate` is as accurate as `CMP` and simpler."
        return (
            f"{errors} For intervals take `CMP`: those after `mediate` ignore the error of the pseudo-targets and are "
            "too narrow."
        )


def operator_errors(
    kernel: AbstractKernel,
    bag_kernel: AbstractKernel,
    bags: Bags,
    regularization: Numbers,
    *,
    estimator: str = "shrinkage",
) -> Float[Array, " N"]:
    r"""Return the error of the conditional mean operator at every bag, estimated from the other bags.

    .. math:: \bigl\| \mu_j - \hat\mu_{-j}(y_j) \bigr\|_k^2 = (W G W)_{jj} / W_{jj}^2, \qquad
        W = (L_{YY} + \lambda D)^{-1}

    with the mean embeddings :math:`\mu_j` of the bags and their Gram matrix G.

    It is the variance, under the prior of f, of the difference between the mean of f over bag j and its prediction from
    the means over the other bags. D keeps the number of all rows when a bag is left out.

    Args:
        kernel: k, the kernel of the field, without priors.
        bag_kernel: l, the kernel of the covariates, without priors.
        bags: N bags, at least 2, with covariates.
        regularization: :math:`\lambda`, positive, multiplied by the number of rows.
        estimator: "exact" or "shrinkage", as for `kpp_models.CMP`.

    Returns:
        The errors, (N,), in squared units of the field.

    Raises:
        ValueError: If the bags have no covariates, there are fewer than 2, or the estimator is unknown.
    """
    _check_bags(bags)
    operator = ConditionalMeanOperator.of_one_source(bag_kernel, regularization, estimator, bags)
    return _held_out_errors(operator.inverse(), bags.gram(kernel))


def check_mediation(
    bags: Bags,
    covariates: Numbers,
    y: Numbers,
    kernel: AbstractKernel | None = None,
    bag_kernels: Sequence[AbstractKernel] | None = None,
    *,
    estimator: str = "shrinkage",
) -> MediationCheck:
    r"""Measure how well covariates link bags (D1) and targets (D2) that share nothing else, before any model is fitted.

    .. math::

        \text{operator} = \frac{\sum_j \| \mu_j - \hat\mu_{-j}(y_j) \|_k^2}{\sum_j \| \mu_j - \bar\mu \|_k^2}, \qquad
        \text{regression} = \frac{\sum_m (z_m - \hat z_{-m}(\tilde y_m))^2}{\sum_m (z_m - \bar z)^2}

    Both shares are the least over the same kernels of the covariates and regularizations. If f follows its prior, the
    expectation of the numerator and of the denominator of the second are those of the first, for bags of D2 in place of
    D1, plus the noise of the targets. A share near 1 says that the covariates do not link the data. If the share of the
    targets is small and much smaller than that of the bags, two-step mediation has the smaller error. Otherwise the
    shares do not say which error is smaller. The intervals of `CMP` hold better in any case; see the page on
    aggregates. The shares assume that the covariates of D1 and of D2 have the same distribution.

    Args:
        bags: D1, N bags with covariates; at least 2.
        covariates: The covariates of the targets of D2, (M, dy), an array or a data frame.
        y: The targets of D2, (M,), at least 2, not all equal.
        kernel: k, the kernel of the field, without priors; by default an RBF kernel with the median heuristic of the
            points.
        bag_kernels: Candidates for l, without priors; by default RBF kernels with multiples of the median heuristic as
            lengthscales. Give kernels of the form that the models will have: if none fits, the shares say nothing.
        estimator: "exact" or "shrinkage", as for `kpp_models.CMP`.

    Returns:
        The two shares.

    Raises:
        ValueError: If the bags have no covariates, or data are invalid, too few or constant.
    """
    _check_bags(bags)
    one_of(estimator, "estimator", ESTIMATORS)
    assert bags.covariates is not None  # checked above
    places = read_places(bags.covariate_names, bags.covariates.shape[1], covariates)
    targets = as_targets(y)
    check_same_rows(places.shape[0], targets.shape[0], "covariates", "y")
    if targets.shape[0] < 2 or float(jnp.ptp(targets)) == 0.0:
        raise ValueError(f"`y` must hold at least 2 targets that differ, got {targets.shape[0]} of {float(targets[0])}")
    if kernel is None:
        kernel = RBF(jnp.asarray(median_heuristic(bags.points[:: max(1, bags.num_points // 2000)])))
    elif bags.feature_names:
        kernel = resolve_features(kernel, bags.feature_names)
    if bag_kernels is not None and not len(bag_kernels):
        raise ValueError("`bag_kernels` must hold at least one kernel, or be None for the default, got none")
    if bag_kernels is not None and bags.covariate_names:
        bag_kernels = [resolve_features(each, bags.covariate_names) for each in bag_kernels]
    centered = targets - jnp.mean(targets)
    sizes = bags.sizes.astype(bags.points.dtype)
    ridges = jnp.sum(sizes) / sizes if estimator == "exact" else jnp.full_like(sizes, bags.num_bags)
    gram = bags.gram(kernel)
    rows = gram - jnp.mean(gram, axis=0)[None, :]
    spread = rows - jnp.mean(rows, axis=1)[:, None]  # the inner products of the elements less their mean
    if not float(jnp.trace(spread)) > 0.0:
        raise ValueError("`bags` must hold bags that `kernel` can tell apart, got equal mean embeddings")
    of_bags = _least_share(bag_kernels, bags.covariates, ridges, spread)
    rows = jnp.full_like(targets, targets.shape[0])
    of_targets = _least_share(bag_kernels, places, rows, jnp.outer(centered, centered))
    return MediationCheck(of_bags, of_targets)


def _least_share(
    kernels: Sequence[AbstractKernel] | None, covariates: Array, ridges: Array, moments: Float[Array, "N N"]
) -> float:
    """Return the least share of the trace of centered moments that predictions of the rows by the others leave over."""
    if kernels is None:
        lengthscale = jnp.asarray(median_heuristic(covariates))
        kernels = [RBF(stretch * lengthscale) for stretch in _STRETCHES]
    least = min(float(_least_error(kernel, covariates, ridges, moments)) for kernel in kernels)
    return least / float(jnp.trace(moments))


@eqx.filter_jit
def _least_error(kernel: AbstractKernel, covariates: Array, ridges: Array, moments: Array) -> Array:
    """Return the least sum of held-out errors over the regularizations."""
    gram = kernel.gram(covariates)

    def error(regularization: Array) -> Array:
        factor = linalg.cholesky(linalg.add_diagonal(gram, regularization * ridges), what="the kernel matrix")
        inverse = linalg.cho_solve(factor, jnp.eye(gram.shape[0], dtype=gram.dtype))
        return jnp.sum(_held_out_errors(inverse, moments))

    return jnp.min(jax.lax.map(error, jnp.asarray(_REGULARIZATIONS)))


def _held_out_errors(inverse: Float[Array, "N N"], moments: Float[Array, "N N"]) -> Float[Array, " N"]:
    # Residuals without refits: (C^-1 M C^-1)_ii over the square of (C^-1)_ii.
    return jnp.sum(inverse * (inverse @ moments), axis=1) / jnp.square(jnp.diagonal(inverse))


def _check_bags(bags: Bags) -> None:
    if bags.covariates is None:
        raise ValueError("`bags` must have covariates, got None")
    if bags.num_bags < 2:
        raise ValueError(f"`bags` must hold at least 2 bags, got {bags.num_bags}")
