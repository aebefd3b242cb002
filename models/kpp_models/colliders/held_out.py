r"""Exact leave-one-out errors and predictions without refits, of conditional expectations and of projected fits."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from kpp.features import Nystrom
from kpp.kernels import AbstractKernel
from kpp.linalg.toolkit import DenseRidge, FeatureRidge

_BATCH = 512  # rows of a kernel matrix that are computed at a time


class ConditionParts(NamedTuple):
    """What the errors of a regression on the condition need of the kernels, whatever its regularization.

    The values v are the same for all errors, (n',). For values that differ from row to row they are
    :math:`v^{(i)}_i`, or with `weights` the kernel k between the rows and points, (n', m).
    """

    values: Float[Array, "..."]
    weights: Float[Array, "n m"] | None = None  # of the points whose kernel sections add up to the values of a row
    products: Float[Array, "n q"] | None = None  # for each row those of the features with its values, Phi^T v


class ConditionRegression(NamedTuple):
    r"""Kernel ridge regression on the condition, from a sample.

    The residual at row i of the fit to all other rows is :math:`(A v)_i / A_{ii}`, with
    :math:`A = (L + n' \gamma I)^{-1}`, or, with q features :math:`\Phi` from landmarks,
    :math:`A \propto I - \Phi (\Phi^\top \Phi + n' \gamma I)^{-1} \Phi^\top`.
    """

    condition_kernel: AbstractKernel  # l, of all columns
    sample: Float[Array, "n d"]
    landmarks: Float[Array, "q d"] | None
    regularization: ArrayLike  # gamma, multiplied by n'

    def section_parts(
        self, kernel: AbstractKernel, x: Float[Array, "m d"], coefficients: Float[Array, " m"]
    ) -> ConditionParts:
        r"""Return the parts of `errors` for values that differ from row to row.

        .. math:: v^{(i)}_j = \sum_m \alpha_m\, l(c_m, c_i)\, k(x_m, x_{u,j})

        :math:`c_m` is the condition of the point :math:`x_m`, and k the kernel that is averaged. With landmarks no
        matrix (n', m) is formed.
        """
        if self.landmarks is None:
            weights = self.condition_kernel(self.sample, x) * coefficients[None, :]
            return ConditionParts(kernel(self.sample, x), weights=weights)
        features = self._features()
        averages = jax.lax.map(lambda row: kernel(row[None], self.sample)[0] @ features, x, batch_size=_BATCH)

        def of_row(row: Array) -> tuple[Array, Array]:
            weights = self.condition_kernel(row[None], x)[0] * coefficients
            return jnp.dot(kernel(row[None], x)[0], weights), weights @ averages

        values, products = jax.lax.map(of_row, self.sample, batch_size=_BATCH)
        return ConditionParts(values, products=products)

    def errors(self, parts: ConditionParts) -> Float[Array, " n"]:
        """Return the residual of the value at each row, predicted by the regression on all other rows, (n',)."""
        if parts.weights is not None:
            inverse = self._dense().inverse()
            return jnp.sum((inverse @ parts.values) * parts.weights, axis=1) / jnp.diagonal(inverse)  # (A v)_i / A_ii
        if parts.products is not None:
            ridge = self._of_features()
            explained = jnp.sum(ridge.features * ridge.coordinates(parts.products).T, axis=1)
            return (parts.values - explained) / (1 - ridge.leverages())  # (v - H v)_i / (1 - H_ii)
        return (self._dense() if self.landmarks is None else self._of_features()).leave_one_out(parts.values)

    def _dense(self) -> DenseRidge:
        gram = self.condition_kernel.gram(self.sample)
        return DenseRidge.create(gram, self._total(), what="the regularized kernel matrix of the conditions")

    def _of_features(self) -> FeatureRidge:
        what = "the regularized matrix of the features of the conditions"
        return FeatureRidge.create(self._features(), self._total(), what=what)

    def _features(self) -> Float[Array, "n q"]:
        return Nystrom(self.condition_kernel, self.landmarks).feature_map(self.sample)

    def _total(self) -> ArrayLike:
        return self.sample.shape[0] * self.regularization


class HeldOutTargets(NamedTuple):
    """The targets :math:`t^{(i)} = A w_i + r^{(i)}` of the fits without point i, with few columns A."""

    columns: Float[Array, "n r"]  # A
    weights: Float[Array, "n r"]  # the vectors w_i as rows
    rest: Float[Array, "n n"] | None = None  # the vectors r^(i) as columns, or None for zeros


def held_out_predictions(cross: Float[Array, "n n"], system: DenseRidge, targets: HeldOutTargets) -> Float[Array, " n"]:
    r"""Return the prediction at each point of a linear fit to all other targets, (n,).

    .. math:: \hat t_i = G_{i,-i} (C_{-i,-i})^{-1} t^{(i)}_{-i} = (H t^{(i)})_i - H_{ii}\, (M t^{(i)})_i / M_{ii}

    with :math:`M = C^{-1}` and :math:`H = G M`. G is the kernel matrix between the points of predictions and those of
    the fit, C the matrix of the system, ridge included. The entry i of the targets :math:`t^{(i)}` has no effect. H is
    formed only if the targets have a `rest`.
    """
    inverse = system.inverse()
    solved = inverse @ targets.columns
    predicted = jnp.sum((cross @ solved) * targets.weights, axis=1)
    at_left_out = jnp.sum(solved * targets.weights, axis=1)
    if targets.rest is not None:
        predicted = predicted + jnp.sum((cross @ inverse) * targets.rest.T, axis=1)
        at_left_out = at_left_out + jnp.sum(inverse * targets.rest.T, axis=1)
    return predicted - jnp.sum(cross * inverse, axis=1) * at_left_out / jnp.diagonal(inverse)  # - H_ii (M t)_i / M_ii


def held_out_variances(prior: Float[Array, " n"], cross: Float[Array, "n n"], system: DenseRidge) -> Float[Array, " n"]:
    r"""Return the variances (n,) of the function at each point given all other targets, not below 0.

    .. math:: v_i = k_i - G_{i,-i} (C_{-i,-i})^{-1} G_{i,-i}^\top = k_i - (H G^\top)_{ii} + H_{ii}^2 / M_{ii}

    The arguments are the prior variances k, the covariances G with the targets, and the system with their covariance C.
    """
    inverse = system.inverse()
    hat = cross @ inverse
    # (H G^T)_ii - H_ii^2 / M_ii: what all targets explain, less what target i alone adds.
    explained = jnp.sum(hat * cross, axis=1) - jnp.diagonal(hat) ** 2 / jnp.diagonal(inverse)
    return jnp.maximum(prior - explained, 0.0)
