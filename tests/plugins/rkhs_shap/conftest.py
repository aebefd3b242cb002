"""A function in four features, its posterior of six draws, and fits that need no inference."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import xarray as xr

import kpp
from kpp.kernels import RBF


class ToyFit:
    """What of a `kpp.Fit` an explainer asks for, of functions made up for the purpose."""

    schema = None

    def __init__(self, functions, probability=True, posteriors=None):
        self.functions, self.probability, self.posteriors = functions, probability, posteriors

    def function(self):
        return self.functions

    def function_posterior(self, *, at="draws"):
        return self.posteriors[at]

    def predict(self, x):
        latent = np.asarray(self.functions(x))
        name, values = ("probability", scipy.special.expit(latent)) if self.probability else ("mean", latent)
        return xr.Dataset({name: (("chain", "draw", "instance"), values)})


@pytest.fixture(scope="session")
def toy_fit():
    return ToyFit


@pytest.fixture(scope="module")
def function():
    rng = np.random.default_rng(0)
    return kpp.RKHSFunction(RBF(lengthscale=1.5), rng.normal(size=(8, 4)), rng.normal(size=8), 0.2)


@pytest.fixture(scope="module")
def draws(function):
    rng = np.random.default_rng(1)
    return kpp.RKHSFunction.over_draws(
        function.kernel, function.points, rng.normal(size=(2, 3, 8)), 0.1, batch_shape=(2, 3)
    )


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(5).normal(size=(3, 4))
