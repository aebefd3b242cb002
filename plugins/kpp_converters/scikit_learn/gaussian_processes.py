"""Gaussian processes of scikit-learn: the mean and the posterior of the latent function."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular

from kpp.conversion import rescale_outputs
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp_converters.rules import as_dense
from kpp_converters.scikit_learn.kernels import convert_gp_kernel, has_noise


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
