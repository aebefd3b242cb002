r"""Fitted scikit-learn estimators as RKHS functions.

A fitted KernelRidge, SVR, SVC (two classes) or GaussianProcessRegressor predicts
:math:`f(x) = \sum_i \alpha_i k(x, x_i) + b`, so it is a `kpp.RKHSFunction` with the same numbers. An estimator that
does not have exactly this form is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from kpp.conversion.scikit_learn.kernels import convert_gp_kernel, convert_metric
from kpp.conversion.scikit_learn.scalers import absorb_scaler
from kpp.functions import RKHSFunction
from kpp.kernels import AbstractKernel, Scaled
from kpp.posteriors import GPPosterior

__all__ = ["convert_function", "convert_posterior"]

_SUPPORTED = "KernelRidge, SVR, NuSVR, SVC, NuSVC, GaussianProcessRegressor, or a Pipeline of scalers and one of these"


def convert_function(model: Any) -> RKHSFunction:
    """Return the function that a fitted estimator predicts; see `SklearnConverter`."""
    name = _sklearn_name(model)
    if name != "Pipeline" and name not in _CONVERTERS:
        hint = "; the model that a search found is its `best_estimator_`" if hasattr(model, "best_estimator_") else ""
        raise TypeError(f"of scikit-learn, `predictor` must be one of {_SUPPORTED}; got {_describe(model)}{hint}")
    from sklearn.utils.validation import check_is_fitted

    if name == "Pipeline":
        return _from_pipeline(model)
    convert, attribute = _CONVERTERS[name]
    check_is_fitted(model, attribute)
    return convert(model)


def convert_posterior(process: Any) -> GPPosterior:
    """Return the posterior of a fitted GaussianProcessRegressor."""
    if _sklearn_name(process) != "GaussianProcessRegressor":
        raise TypeError(f"of scikit-learn, a GaussianProcessRegressor has a posterior; got {_describe(process)}")
    mean = convert_function(process)
    if mean.output_shape:
        raise ValueError(f"a kpp.GPPosterior has one output; this {_describe(process)} has {mean.output_shape[0]}")
    scale = float(np.squeeze(process._y_train_std))
    root = solve_triangular(process.L_, np.eye(len(process.L_)), lower=True).T
    scaled = RKHSFunction(Scaled(mean.kernel, scale**2), mean.points, mean.coefficients / scale**2, mean.intercept)
    return GPPosterior(scaled, root / scale)


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
    function = convert_function(pipeline[-1])
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
