"""The converter of scikit-learn, registered as "sklearn"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from kpp.conversion.converter import AbstractConverter
from kpp.conversion.scikit_learn.estimators import convert_function, convert_posterior
from kpp.functions import RKHSFunction
from kpp.posteriors import GPPosterior
from kpp.typing import RngKey

__all__ = ["SklearnConverter"]


class SklearnConverter(AbstractConverter):
    """Fitted estimators of scikit-learn."""

    def gp_posterior(self, model: Any) -> GPPosterior:
        """Return the posterior of a GaussianProcessRegressor."""
        return convert_posterior(model)

    def rkhs_function(self, model: Any) -> RKHSFunction:
        """Return the function of a kernel method."""
        return convert_function(model)

    def has_posterior(self, model: Any) -> bool:
        """Return whether the model is a GaussianProcessRegressor with one output."""
        return type(model).__name__ == "GaussianProcessRegressor" and np.ndim(getattr(model, "_y_train_mean", 0.0)) == 0

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[SklearnConverter, Any, Any, Any, Any]]:
        """Yield a Gaussian process with its covariance, and a kernel ridge regression."""
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF
        from sklearn.kernel_ridge import KernelRidge

        points = np.asarray(jax.random.normal(rng_key, (12, 2)))
        targets, x = np.sin(points[:, 0]) + points[:, 1], points[:4] + 0.3
        process = GaussianProcessRegressor(2.0 * RBF(1.3), alpha=0.1, optimizer=None, normalize_y=True)
        yield cls(), process.fit(points, targets), x, *process.predict(x, return_cov=True)
        ridge = KernelRidge(kernel="rbf", alpha=0.1).fit(points, targets)
        yield cls(), ridge, x, ridge.predict(x), None
