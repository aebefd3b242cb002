"""A new converter: SciPy's radial basis function interpolation, taken apart into a kernel and coefficients."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import kpp
from kpp.kernels import RBF


class ScipyConverter(kpp.AbstractConverter):
    r"""`scipy.interpolate.RBFInterpolator` with the kernel "gaussian", which is an RKHS function.

    .. math:: f(x) = \sum_i c_i \exp(-\epsilon^2 |x - y_i|^2) + b

    The lengthscale of the kernel is :math:`1 / (\sqrt{2} \epsilon)`. SciPy is not imported here: a method receives a
    model, so its library is there.
    """

    def gp_posterior(self, model: Any) -> kpp.GPPosterior:
        raise TypeError(f"an interpolator of SciPy has no covariance, so there is no posterior; got {model!r}")

    def rkhs_function(self, model: Any) -> kpp.RKHSFunction:
        name = f"{type(model).__module__}.{type(model).__qualname__}"
        if name != "scipy.interpolate._rbfinterp.RBFInterpolator":
            raise TypeError(f"of SciPy, `predictor` must be an RBFInterpolator; got a {name}")
        if model.kernel != "gaussian":
            raise ValueError(f"the `kernel` must be 'gaussian', which has an equal in kpp; got {model.kernel!r}")
        if model.neighbors is not None:
            raise ValueError(f"`neighbors`={model.neighbors} interpolates between few points, by another function each")
        if len(model.powers) > 1:
            raise ValueError("a polynomial of the inputs is not an RKHS function of this kernel; use `degree` 0 or -1")
        coefficients = model._coeffs[: len(model.y)]  # SciPy's only record of the solution
        constant = model._coeffs[len(model.y) :].sum(axis=0)
        shape = (*coefficients.shape[:1], *model.d_shape)
        kernel = RBF(lengthscale=1.0 / (math.sqrt(2.0) * model.epsilon))
        return kpp.RKHSFunction(kernel, model.y, coefficients.reshape(shape), constant.reshape(shape[1:]))

    def has_posterior(self, model: Any) -> bool:
        return False

    @classmethod
    def examples(cls, rng_key: jax.Array) -> Iterator[tuple[ScipyConverter, Any, Any, Any, None]]:
        """Yield (converter, model, x, mean, covariance): with and without a constant, and two outputs."""
        from scipy.interpolate import RBFInterpolator

        points = np.asarray(jax.random.normal(rng_key, (12, 2)))
        wave, x = np.sin(points.sum(axis=1)) + 3.0, points[:4] + 0.2
        for targets, options in (
            (wave, {"degree": -1}),
            (wave, {"degree": 0, "smoothing": 0.1}),
            (np.column_stack([wave, -wave]), {"degree": 0}),
        ):
            model = RBFInterpolator(points, targets, kernel="gaussian", epsilon=0.8, **options)
            yield cls(), model, x, model(x), None
