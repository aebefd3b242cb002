"""Kernel ridge regression and kernel logistic regression as estimators."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import RegressorMixin

from kpp.kernels import AbstractKernel
from kpp_models.tables.estimators.fitted import BinaryClassifier, FunctionEstimator
from kpp_models.tables.machines.ridge import KernelLogistic, KernelRidge


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)  # compared and printed by scikit-learn
class KernelRidgeRegressor(RegressorMixin, FunctionEstimator):
    r"""Kernel ridge regression, `kpp_models.KernelRidge`, as a scikit-learn estimator.

    .. math:: \min_f \frac1n \sum_i (y_i - f(x_i))^2 + \lambda \|f\|^2

    It computes in double precision in any case, and has no intercept: add a constant to the kernel.

    Args:
        kernel: k, with numbers as leaves; by default `kpp.kernels.default_kernel` with lengthscales by the median
            distances of each column, plus a constant.
        regularization: :math:`\lambda`; scikit-learn's `alpha` is :math:`n \lambda`. By default the one of nine from
            1e-8 to 1 that has the least leave-one-out error.

    Attributes:
        fit_: The `kpp.Fit`; `kpp.explain` takes the estimator in its place.
        function_: The fit as a `kpp.RKHSFunction`.
        n_features_in_: The number of columns.
        feature_names_in_: The names of the columns of a data frame.
    """

    kernel: Any = dataclasses.field(default=None, kw_only=False)
    regularization: Any = None

    def _machine(self, kernel: AbstractKernel, regularization: Any, classes: tuple[str, str] | None) -> KernelRidge:
        return KernelRidge(kernel, regularization)

    def predict(self, X: Any) -> Float[np.ndarray, " p"]:
        """Return the values of the function at rows (p, d), (p,)."""
        return self._evaluate(X)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)  # compared and printed by scikit-learn
class KernelLogisticClassifier(BinaryClassifier, FunctionEstimator):
    r"""Kernel logistic regression with two classes, `kpp_models.KernelLogistic`, as a scikit-learn estimator.

    .. math:: \min_f \frac1n \sum_i \log(1 + e^{-s_i f(x_i)}) + \frac\lambda2 \|f\|^2

    It computes in double precision in any case, and has no intercept: add a constant to the kernel.
    `sklearn.multiclass.OneVsRestClassifier` makes a classifier of several classes of it.

    Args:
        kernel: k, with numbers as leaves; by default `kpp.kernels.default_kernel` with lengthscales by the median
            distances of each column, plus a constant.
        regularization: :math:`\lambda`. By default the one of nine from 1e-8 to 1 that has the least approximate
            leave-one-out log loss.

    Attributes:
        fit_: The `kpp.Fit`; `kpp.explain` takes the estimator in its place.
        function_: The log-odds of the second class as a `kpp.RKHSFunction`.
        classes_: The two sorted labels.
        n_features_in_: The number of columns.
        feature_names_in_: The names of the columns of a data frame.
    """

    kernel: Any = dataclasses.field(default=None, kw_only=False)
    regularization: Any = None

    def _machine(self, kernel: AbstractKernel, regularization: Any, classes: tuple[str, str] | None) -> KernelLogistic:
        return KernelLogistic(kernel, regularization, classes)

    def decision_function(self, X: Any) -> Float[np.ndarray, " p"]:
        """Return the log-odds of the second class at rows (p, d), (p,)."""
        return self._evaluate(X)
