"""Kernel logistic regression as an estimator."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from kpp.estimators import in_float64, read_training
from kpp.tables import read_points
from kpp_models.tables.estimators.defaults import kernel_with_constant
from kpp_models.tables.estimators.fitted import GRID, FunctionEstimator, read_two_classes
from kpp_models.tables.estimators.two_classes import BinaryClassifier
from kpp_models.tables.logistic import KernelLogistic


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

    @in_float64
    def fit(self, X: Any, y: Any) -> KernelLogisticClassifier:
        """Fit the function.

        Args:
            X: The points, an array (n, d), a data frame or an xarray object; columns of text are categories.
            y: The labels, (n,), of two classes and any type.

        Returns:
            The estimator itself.

        Raises:
            ValueError: If the data or a parameter are invalid, or there are not two classes.
        """
        table, labels = read_training(self, X, y, numeric=False)
        self.classes_, labels, names = read_two_classes(labels)
        kernel = kernel_with_constant(*read_points(table, "X")) if self.kernel is None else self.kernel
        model = KernelLogistic(kernel, 1.0 if self.regularization is None else self.regularization, names)
        if self.regularization is None:
            model = model.select(table, labels, grid={"regularization": GRID}).model
        self._fit_function(model, table, labels)
        return self

    def decision_function(self, X: Any) -> Float[np.ndarray, " p"]:
        """Return the log-odds of the second class at rows (p, d), (p,)."""
        return self._evaluate(X)
