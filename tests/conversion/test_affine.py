"""Scaled inputs and outputs, of functions and of posteriors: the same numbers at transformed points."""

from __future__ import annotations

import equinox as eqx
import numpy as np
import pytest

import kpp
from kpp.conversion import rescale_inputs, rescale_outputs
from kpp.kernels import RBF, Linear, Matern32, Periodic, Polynomial, ProductKernel, RationalQuadratic

RNG = np.random.default_rng(0)
POINTS, X = RNG.normal(size=(8, 3)), RNG.normal(size=(4, 3)) * [1.0, 5.0, 0.2]
CENTER, SCALE = np.array([0.5, -2.0, 0.1]), np.array([2.0, 6.0, 0.3])

KERNELS = {
    "one lengthscale": Matern32(0.8, 1.5),
    "a sum of selected features": RBF(np.array([0.7, 1.5])).on((2, 0)) + 0.5 * RationalQuadratic(1.2).on(1) + 0.3,
    "a product": RBF(1.3) * Periodic(np.array([0.9, 1.1, 2.0]), period=np.array([2.0, 3.0, 4.0])),
    "a kernel for each feature": ProductKernel((RBF(0.7), Matern32(1.1, 2.0), Periodic(1.5, period=2.0))),
}


@eqx.filter_jit  # operation by operation it takes seconds to compile
def moments(posterior, x=X):
    return posterior.mean(x), posterior.covariance(x, x)


@eqx.filter_jit
def gram(kernel):
    return kernel.gram(POINTS)


def posterior_of(kernel):
    covariance = np.asarray(gram(kernel)) + 0.1 * np.eye(8)
    mean = kpp.RKHSFunction(kernel, POINTS, np.linalg.solve(covariance, np.sin(POINTS[:, 0])), 0.4)
    return kpp.GPPosterior(mean, np.linalg.inv(np.linalg.cholesky(covariance)).T)


@pytest.mark.slow_variants("a kernel for each feature", "a product", "a sum of selected features", "one lengthscale")
@pytest.mark.parametrize("name", KERNELS)
def test_stationary_kernels_take_inputs_in_other_units(name):
    posterior, inner = posterior_of(KERNELS[name]), (X - CENTER) / SCALE
    rescaled = rescale_inputs(posterior, CENTER, SCALE)
    (mean, covariance), expected = moments(rescaled), moments(posterior, inner)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-12)
    np.testing.assert_allclose(covariance, expected[1], rtol=0, atol=1e-12)
    assert eqx.tree_equal(rescale_inputs(posterior.mean, CENTER, SCALE), rescaled.mean)


@pytest.mark.parametrize("variance", [0.7, np.array([0.5, 1.0, 2.0])])
@pytest.mark.parametrize("outputs", [(), (2,)])
def test_linear_functions_take_inputs_in_other_units(variance, outputs):
    function = kpp.RKHSFunction(Linear(variance), POINTS, RNG.normal(size=(8, *outputs)), np.full(outputs, 0.4))
    expected = function((X - CENTER) / SCALE)
    np.testing.assert_allclose(rescale_inputs(function, CENTER, SCALE)(X), expected, rtol=1e-11)


@pytest.mark.slow_variants("3.0", "-0.5")
@pytest.mark.parametrize("factor", [3.0, -0.5])
def test_outputs_are_multiplied_and_shifted(factor):
    posterior = posterior_of(KERNELS["one lengthscale"])
    rescaled = rescale_outputs(posterior, factor, 7.0)
    (mean, covariance), expected = moments(rescaled), moments(posterior)
    np.testing.assert_allclose(mean, factor * expected[0] + 7.0, rtol=1e-12)
    np.testing.assert_allclose(covariance, factor**2 * expected[1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(rescaled.variance(X), factor**2 * np.diag(expected[1]), rtol=0, atol=1e-12)


def test_each_output_has_its_own_factor():
    function = kpp.RKHSFunction(RBF(1.0), POINTS, RNG.normal(size=(8, 2)), np.array([0.4, 1.0]))
    factors, shifts = np.array([2.0, -3.0]), np.array([1.0, 5.0])
    np.testing.assert_allclose(
        rescale_outputs(function, factors, shifts)(X), np.asarray(function(X)) * factors + shifts
    )


def test_other_kernels_are_refused_by_name():
    posterior, function = posterior_of(Linear(np.ones(3))), kpp.RKHSFunction(Polynomial(2), POINTS, np.ones(8))
    for thing, name in ((posterior, "Linear"), (function, "Polynomial"), (posterior_of(RBF(1.0) + Linear()), "Linear")):
        with pytest.raises(ValueError, match=f"a {name} kernel behind a scaler"):
            rescale_inputs(thing, CENTER, SCALE)
