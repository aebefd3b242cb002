r"""Linear models: :math:`f(x) = w^\top x + b`, a function of the linear kernel, and of a kernel's Nyström features."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.typing import ArrayLike

from kpp.functions import RKHSFunction
from kpp_converters.scikit_learn.kernels import convert_metric, linear_kernel
from kpp_converters.scikit_learn.names import as_dense

#: Estimators whose `predict`, or `decision_function` for classifiers, is linear in the inputs.
LINEAR_MODELS = (
    "BayesianRidge",
    "ElasticNet",
    "ElasticNetCV",
    "HuberRegressor",
    "Lasso",
    "LassoCV",
    "LinearRegression",
    "LinearSVC",
    "LinearSVR",
    "LogisticRegression",
    "LogisticRegressionCV",
    "Ridge",
    "RidgeCV",
    "RidgeClassifier",
    "RidgeClassifierCV",
    "SGDClassifier",
    "SGDRegressor",
)


def from_linear_model(model: Any) -> RKHSFunction:
    """Return the function of a fitted linear model, or the decision function of a linear classifier.

    The points are the weights of the outputs, so that each output is one kernel section.
    """
    weights, intercept = as_dense(model.coef_), np.asarray(model.intercept_)
    if weights.ndim == 2 and not (hasattr(model, "classes_") and len(weights) == 1):
        shift = np.broadcast_to(intercept, len(weights))
        return RKHSFunction(linear_kernel(weights.shape[1]), weights, np.eye(len(weights)), shift)
    weights = weights.reshape(1, -1)
    return RKHSFunction(linear_kernel(weights.shape[1]), weights, np.ones(1), float(np.squeeze(intercept)))


def through_nystroem(function: RKHSFunction, nystroem: Any) -> RKHSFunction:
    r"""Return a linear function of the features of a fitted Nystroem as a function of the inputs.

    The features are :math:`N k(Z, x)` with landmarks Z, so a function with weights w has coefficients
    :math:`N^\top w` on Z. Its kernel is that of `linear_kernel`, and Nystroem's has a name.
    """
    landmarks, weights = as_dense(nystroem.components_), function.points.T @ function.coefficients
    coefficients: ArrayLike = np.asarray(nystroem.normalization_).T @ np.asarray(weights)  # N^T w
    return RKHSFunction(_kernel_of(nystroem, landmarks.shape[1]), landmarks, coefficients, function.intercept)


def _kernel_of(nystroem: Any, num_features: int) -> Any:
    if not isinstance(nystroem.kernel, str):
        raise ValueError(
            f"the `kernel` {nystroem.kernel!r} of this Nystroem is a function, whose form is not known; give it by name"
        )
    own = {
        name: getattr(nystroem, name) for name in ("gamma", "degree", "coef0") if getattr(nystroem, name) is not None
    }
    given = {**(nystroem.kernel_params or {}), **own}
    gamma = None if given.get("gamma") is None else float(given["gamma"])
    degree, offset = float(given.get("degree", 3)), float(given.get("coef0", 1))  # the defaults of scikit-learn
    return convert_metric(nystroem.kernel, num_features, gamma=gamma, degree=degree, coef0=offset)
