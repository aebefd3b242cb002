"""Estimators give the same answer in any units of targets and points."""

from __future__ import annotations

import numpy as np
import pytest

import kpp
from kpp_models.estimators import GPRegressor, KernelRidgeRegressor

NOTHING = {"progress": False}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(40, 2))
    return points, np.sin(2 * points[:, 0]) + 0.5 * points[:, 1] ** 2 + 0.1 * rng.normal(size=40) + 3.0


def predictions(estimator, data, unit_of_y, unit_of_x):
    points, targets = data
    return estimator.fit(unit_of_x * points, unit_of_y * targets).predict(unit_of_x * points) / unit_of_y


@pytest.mark.slow
@pytest.mark.parametrize("unit_of_x", [1.0, 1e-9])
@pytest.mark.parametrize("unit_of_y", [1e-20, 1e-6, 1e-3, 1e12])
def test_the_mode_of_a_process_does_not_depend_on_units(data, unit_of_y, unit_of_x):
    found = predictions(GPRegressor(random_state=0), data, unit_of_y, unit_of_x)
    np.testing.assert_allclose(found, predictions(GPRegressor(random_state=0), data, 1.0, 1.0), rtol=1e-5)
    assert np.corrcoef(found, data[1])[0, 1] > 0.99


@pytest.mark.nightly_variants("NUTS")
@pytest.mark.slow
@pytest.mark.parametrize(
    "inference",
    [
        kpp.Laplace(num_samples=100, **NOTHING),
        kpp.NUTS(num_samples=200, **NOTHING),
    ],
    ids=lambda inference: type(inference).__name__,
)
def test_other_inferences_do_not_depend_on_units(data, inference):
    estimator = GPRegressor(inference=inference, random_state=0)
    np.testing.assert_allclose(
        predictions(estimator, data, 1e-8, 1e-5), predictions(estimator, data, 1.0, 1.0), rtol=0.02
    )


@pytest.mark.nightly_variants("iterative")
@pytest.mark.slow
@pytest.mark.parametrize("latent", ["inducing", "iterative"])
def test_approximate_processes_do_not_depend_on_units(data, latent):
    options = {"latent": latent, "random_state": 0, "num_inducing": 10 if latent == "inducing" else None}
    one, other = (predictions(GPRegressor(**options), data, unit, 1.0) for unit in (1.0, 1e-8))
    np.testing.assert_allclose(other, one, rtol=1e-4)


@pytest.mark.slow
def test_kernel_ridge_does_not_depend_on_units(data):
    found = predictions(KernelRidgeRegressor(), data, 1e-9, 1e9)
    np.testing.assert_allclose(found, predictions(KernelRidgeRegressor(), data, 1.0, 1.0), rtol=1e-6)


@pytest.mark.parametrize("unit", [1e300, 1e-300])
def test_units_beyond_double_precision_are_refused(data, unit):
    with pytest.raises(ValueError, match="`y` must have a variance within the range of double precision.*another unit"):
        predictions(GPRegressor(), data, unit, 1.0)
