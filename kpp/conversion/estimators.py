r"""Fitted scikit-learn estimators as RKHS functions.

A fitted KernelRidge, SVR, SVC (two classes) or GaussianProcessRegressor predicts
:math:`f(x) = \sum_i \alpha_i k(x, x_i) + b`, so it is a `kpp.RKHSFunction` with the same numbers. An estimator that
does not have exactly this form is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kpp.conversion.kernels import convert_gp_kernel, convert_metric
from kpp.conversion.scalers import absorb_scaler
from kpp.explanations import fit_of, is_fit
from kpp.functions import RKHSFunction
from kpp.kernels import AbstractKernel

__all__ = ["as_rkhs_function"]

_SUPPORTED = "KernelRidge, SVR, NuSVR, SVC, NuSVC, GaussianProcessRegressor, or a Pipeline of scalers and one of these"


def as_rkhs_function(predictor: Any) -> RKHSFunction:
    r"""Represent a fitted kernel method exactly as an RKHS function.

    Supported are scikit-learn's KernelRidge, SVR, NuSVR, SVC and NuSVC with two classes (the decision function,
    positive for the second class), and GaussianProcessRegressor (the posterior mean, ``normalize_y`` included). Kernels
    by name are "rbf", "linear", "poly" and "laplacian"; Gaussian-process kernels are RBF, Matern with nu 0.5, 1.5, 2.5
    or infinity, RationalQuadratic, ExpSineSquared on one feature, DotProduct, ConstantKernel, WhiteKernel (noise, which
    adds nothing to the function), their sums and products, and whole powers. A Pipeline may begin with StandardScaler,
    MinMaxScaler, MaxAbsScaler or RobustScaler if the kernel depends on differences of inputs only.

    Args:
        predictor: A fitted estimator, a `kpp.Fit` or a `kpp.RKHSFunction`; the last two, and estimators of kpp, return
            their own function.

    Returns:
        f, equal to the estimator's ``predict`` (``decision_function`` for SVC) up to rounding.

    Raises:
        TypeError: If the object has another type; subclasses are not accepted, because they may predict anything.
        ValueError: If the estimator has no exact representation, or is not fitted (scikit-learn's ``NotFittedError``).
    """
    if isinstance(predictor, RKHSFunction):
        return predictor
    fit = predictor if is_fit(predictor) else fit_of(predictor)
    if fit is not None:
        return fit.function()
    name = _sklearn_name(predictor)
    if name != "Pipeline" and name not in _CONVERTERS:
        hint = (
            "; the model that a search found is its `best_estimator_`" if hasattr(predictor, "best_estimator_") else ""
        )
        raise TypeError(f"`predictor` must be one of {_SUPPORTED}; got {_describe(predictor)}{hint}")
    from sklearn.utils.validation import check_is_fitted

    if name == "Pipeline":
        return _from_pipeline(predictor)
    convert, attribute = _CONVERTERS[name]
    check_is_fitted(predictor, attribute)
    return convert(predictor)


def _sklearn_name(value: Any) -> str | None:
    return type(value).__name__ if type(value).__module__.startswith("sklearn.") else None


def _describe(value: Any) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}"


def _from_kernel_ridge(ridge: Any) -> RKHSFunction:
    points = _dense(ridge.X_fit_)
    kernel = _kernel(ridge, points.shape[1], ridge.gamma)
    return RKHSFunction(kernel, points, np.asarray(ridge.dual_coef_))


def _from_support_vectors(machine: Any) -> RKHSFunction:
    classes = getattr(machine, "classes_", None)
    if classes is not None and len(classes) != 2:
        raise ValueError(
            f"a {type(machine).__name__} with {len(classes)} classes votes between pairs of them, which is no RKHS "
            "function; fit one with two classes, for instance each class against the rest, and convert that"
        )
    if not isinstance(machine.kernel, str):
        raise ValueError(_unknown_kernel(machine))
    points = _dense(machine.support_vectors_)
    kernel = _kernel(machine, points.shape[1], machine._gamma)  # scikit-learn's only record of gamma="scale"
    return RKHSFunction(kernel, points, _dense(machine.dual_coef_)[0], float(machine.intercept_[0]))


def _from_gaussian_process(process: Any) -> RKHSFunction:
    points = _dense(process.X_train_)
    kernel = convert_gp_kernel(process.kernel_, points.shape[1])
    alpha = np.asarray(process.alpha_)
    alpha = alpha[:, 0] if alpha.shape[1:] == (1,) else alpha  # as `predict` of scikit-learn does
    outputs = alpha.shape[1:]
    scale, shift = np.reshape(process._y_train_std, outputs), np.reshape(process._y_train_mean, outputs)
    return RKHSFunction(kernel, points, alpha * scale, shift)


def _from_pipeline(pipeline: Any) -> RKHSFunction:
    function = as_rkhs_function(pipeline[-1])
    for step in reversed(pipeline[:-1]):
        if step is not None and step != "passthrough":
            function = absorb_scaler(function, step)
    return function


#: Class name -> its conversion, and an attribute that only a fitted estimator has.
_CONVERTERS = {
    "KernelRidge": (_from_kernel_ridge, "X_fit_"),
    "SVR": (_from_support_vectors, "support_vectors_"),
    "NuSVR": (_from_support_vectors, "support_vectors_"),
    "SVC": (_from_support_vectors, "support_vectors_"),
    "NuSVC": (_from_support_vectors, "support_vectors_"),
    "GaussianProcessRegressor": (_from_gaussian_process, "alpha_"),
}


def _kernel(estimator: Any, num_features: int, gamma: Any) -> AbstractKernel:
    """Return the kernel that the parameters of an estimator describe."""
    kernel = estimator.kernel
    if isinstance(kernel, str):
        gamma = None if gamma is None else float(gamma)
        degree, offset = float(estimator.degree), float(estimator.coef0)
        return convert_metric(kernel, num_features, gamma=gamma, degree=degree, coef0=offset)
    if type(kernel).__module__ == "sklearn.gaussian_process.kernels":
        return convert_gp_kernel(kernel, num_features)
    raise ValueError(_unknown_kernel(estimator))


def _unknown_kernel(estimator: Any) -> str:
    return (
        f"the `kernel` {estimator.kernel!r} of this {type(estimator).__name__} is a function, whose form is not known; "
        "give the kernel by name, or build kpp.RKHSFunction from a kpp kernel and the dual coefficients"
    )


def _dense(matrix: Any) -> np.ndarray:
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, dtype=float)
