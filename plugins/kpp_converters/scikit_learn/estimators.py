r"""Functions of fitted estimators, and posteriors of Gaussian processes.

Kernel machines are :math:`\sum_i \alpha_i k(x, x_i) + b`, and linear models :math:`w^\top x + b`; of a Gaussian process
there are the mean and the posterior of the latent function.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float
from scipy.linalg import solve_triangular

from kpp.conversion import rescale_outputs
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.kernels import AbstractKernel
from kpp_converters.rules import as_dense
from kpp_converters.scikit_learn.kernels import convert_gp_kernel, convert_metric, has_noise, linear_kernel


def from_kernel_ridge(ridge: Any) -> RKHSFunction:
    """Return the function of a fitted KernelRidge."""
    points = as_dense(ridge.X_fit_)
    kernel = _kernel(ridge, points.shape[1], ridge.gamma)
    return RKHSFunction(kernel, points, np.asarray(ridge.dual_coef_))


def from_support_vectors(machine: Any) -> RKHSFunction:
    """Return the function of a fitted SVR or NuSVR, or the decision function of an SVC or NuSVC.

    Several classes have one output per pair of classes, as ``decision_function_shape="ovo"`` does.
    """
    if not isinstance(machine.kernel, str):
        raise ValueError(_unknown_kernel(machine))
    points = as_dense(machine.support_vectors_)
    kernel = _kernel(machine, points.shape[1], machine._gamma)  # scikit-learn's only record of gamma="scale"
    if not len(points):  # constant targets
        return RKHSFunction(kernel, np.zeros((1, points.shape[1])), np.zeros(1), float(machine.intercept_[0]))
    if len(getattr(machine, "classes_", ())) > 2:
        return RKHSFunction(kernel, points, _pairwise_coefficients(machine), np.asarray(machine.intercept_))
    return RKHSFunction(kernel, points, as_dense(machine.dual_coef_)[0], float(machine.intercept_[0]))


def _pairwise_coefficients(machine: Any) -> Float[np.ndarray, "n pairs"]:
    """Return the coefficients of the support vectors in the function of each pair of classes.

    The support vectors are sorted by class. A vector of class a has a row of ``dual_coef_`` for each other class b:
    row b - 1 if a < b, and row b if a > b.
    """
    if machine.decision_function_shape != "ovo":
        raise ValueError(
            f"a {type(machine).__name__} with {len(machine.classes_)} classes votes between pairs of them, which is "
            "not an RKHS function; set_params(decision_function_shape='ovo') makes its decision function one function "
            "per pair, which is converted, without a new fit"
        )
    dual, ends = as_dense(machine.dual_coef_), np.cumsum(machine.n_support_)
    of_class = [slice(end - number, end) for end, number in zip(ends, machine.n_support_, strict=True)]
    columns = []
    for first, second in itertools.combinations(range(len(of_class)), 2):
        column = np.zeros(dual.shape[1])
        column[of_class[first]] = dual[second - 1, of_class[first]]
        column[of_class[second]] = dual[first, of_class[second]]
        columns.append(column)
    return np.stack(columns, axis=1)


def _kernel(estimator: Any, num_features: int, gamma: Any) -> AbstractKernel:
    """Return the kernel that the parameters of an estimator describe."""
    kernel = estimator.kernel
    if isinstance(kernel, str):
        return convert_metric(kernel, num_features, gamma=gamma, degree=estimator.degree, coef0=estimator.coef0)
    if type(kernel).__module__ == "sklearn.gaussian_process.kernels":
        return convert_gp_kernel(kernel, num_features)
    raise ValueError(_unknown_kernel(estimator))


def _unknown_kernel(estimator: Any) -> str:
    return (
        f"the `kernel` {estimator.kernel!r} of this {type(estimator).__name__} is a function, whose form is not known; "
        "give the kernel by name, or build kpp.RKHSFunction from a kpp kernel and the dual coefficients"
    )


_WITHOUT_CV = ("BayesianRidge", "HuberRegressor", "LinearRegression", "LinearSVC", "LinearSVR", "SGDRegressor")
_WITH_CV = ("ElasticNet", "Lasso", "LogisticRegression", "Ridge", "RidgeClassifier")  # and as ElasticNetCV, ...
#: Estimators whose `predict`, or `decision_function` for classifiers, is linear in the inputs.
LINEAR_MODELS = sorted(("SGDClassifier", *_WITHOUT_CV, *_WITH_CV, *(f"{name}CV" for name in _WITH_CV)))


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
    given = {"gamma": None, "degree": 3, "coef0": 1}  # the defaults of scikit-learn
    own = {name: getattr(nystroem, name) for name in given if getattr(nystroem, name) is not None}
    return convert_metric(nystroem.kernel, num_features, **given | (nystroem.kernel_params or {}) | own)


def regressor_mean(process: Any) -> RKHSFunction:
    """Return the posterior mean of a fitted GaussianProcessRegressor, of one or several outputs."""
    function = _normalized_mean(process)
    return rescale_outputs(function, *_scales(process, function))


def regressor_posterior(process: Any) -> GPPosterior:
    r"""Return the posterior of a fitted GaussianProcessRegressor; its outputs are independent.

    The noise, of `alpha` and of a WhiteKernel, is in the factor L of the training data, :math:`R = L^{-\top}`, and not
    in the covariance of the function.
    """
    mean = _normalized_mean(process)
    between = jnp.eye(mean.output_shape[0]) if mean.output_shape else None
    posterior = GPPosterior(mean, jnp.asarray(_inverse(process.L_).T), between)
    return rescale_outputs(posterior, *_scales(process, mean))


def classifier_mean(process: Any) -> RKHSFunction:
    """Return the latent mean of a fitted GaussianProcessClassifier with two classes, positive for the second class."""
    latent = _binary(process)
    points = as_dense(latent.X_train_)
    kernel = convert_gp_kernel(latent.kernel_, points.shape[1])
    return RKHSFunction(kernel, points, latent.y_train_ - latent.pi_)


def classifier_posterior(process: Any) -> GPPosterior:
    r"""Return the latent posterior of a fitted GaussianProcessClassifier with two classes, by Laplace's approximation.

    With the weights W of the likelihood and the factor L of :math:`I + W^{1/2} K W^{1/2}`, the root is
    :math:`R = W^{1/2} L^{-\top}`: Rasmussen and Williams (2006), algorithm 3.2.
    """
    latent = _binary(process)
    if has_noise(latent.kernel_):
        raise ValueError(
            f"the WhiteKernel in {latent.kernel_} adds noise to the latent function itself, whose covariance is then "
            "not continuous; fit without it, or take the latent mean with kpp.as_rkhs_function"
        )
    return GPPosterior(classifier_mean(process), jnp.asarray(latent.W_sr_[:, None] * _inverse(latent.L_).T))


def has_two_classes(process: Any) -> bool:
    """Return whether a Gaussian process is no classifier of several classes; True if it is not fitted."""
    return getattr(process, "n_classes_", 2) == 2


def _scales(process: Any, mean: RKHSFunction) -> tuple[np.ndarray, np.ndarray]:
    """Return the standard deviations and means of the outputs by which a regressor has normalized its targets."""
    scales = process._y_train_std, process._y_train_mean
    std, center = (np.asarray(part).reshape(mean.output_shape) for part in scales)
    return std, center


def _normalized_mean(process: Any) -> RKHSFunction:
    """Return the mean of a GaussianProcessRegressor on the scale of its normalized targets."""
    points, alpha = as_dense(process.X_train_), np.asarray(process.alpha_)
    alpha = alpha[:, 0] if alpha.shape[1:] == (1,) else alpha  # as `predict` of scikit-learn does
    return RKHSFunction(convert_gp_kernel(process.kernel_, points.shape[1]), points, alpha)


def _binary(process: Any) -> Any:
    """Return the fitted process of the only latent function of a classifier."""
    if not has_two_classes(process):
        raise ValueError(
            f"a GaussianProcessClassifier with {process.n_classes_} classes combines several latent functions; convert "
            "one that is fitted to two classes, for instance to each class against the rest"
        )
    return process.base_estimator_


def _inverse(lower: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    return solve_triangular(lower, np.eye(len(lower)), lower=True)
