"""Kernel ridge regression as an estimator."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import RegressorMixin

from kpp.estimators import in_float64, read_training
from kpp.tables import read_points
from kpp_models.tables.estimators.defaults import kernel_with_constant
from kpp_models.tables.estimators.fitted import GRID, FunctionEstimator
from kpp_models.tables.ridge import KernelRidge


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

    @in_float64
    def fit(self, X: Any, y: Any) -> KernelRidgeRegressor:
        """Fit the function.

        Args:
            X: The points, an array (n, d), a data frame or an xarray object; columns of text are categories.
            y: The targets, (n,).

        Returns:
            The estimator itself.

        Raises:
            ValueError: If the data or a parameter are invalid.
        """
        table, targets = read_training(self, X, y, numeric=True)
        kernel = kernel_with_constant(*read_points(table, "X")) if self.kernel is None else self.kernel
        model = KernelRidge(kernel, 1.0 if self.regularization is None else self.regularization)
        if self.regularization is None:
            model = model.select(table, targets, grid={"regularization": GRID}).model
        self._fit_function(model, table, targets)
        return self

    def predict(self, X: Any) -> Float[np.ndarray, " p"]:
        """Return the values of the function at rows (p, d), (p,)."""
        return self._evaluate(X)
