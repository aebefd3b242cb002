"""GPEC over explanations that are a posterior: draws, a law, or both become the noise."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import kpp
from kpp.explanations import Explanation
from kpp.games import Interventional
from kpp.kernels import RBF
from kpp_gpec import GPEC, BisectionSampler
from kpp_gpec.background import observe

KEY = jax.random.key(0)
OPTIONS = {
    "margin": "level",
    "boundary": BisectionSampler(max_points=30),
    "decay": 1.0,
    "concentration": 1.0,
    "lengthscale": 1.0,
    "variance": 1.0,
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(15, 2))
    return x, np.sin(2 * x[:, 0]) + 0.3 * x[:, 1]


def posterior(x, y, noise):
    """The posterior of GP regression with an RBF kernel, in closed form."""
    kernel = RBF(1.0)
    matrix = np.asarray(kernel.gram(x)) + noise * np.eye(len(x))
    mean = kpp.RKHSFunction(kernel, x, np.linalg.solve(matrix, y))
    return kpp.GPPosterior(mean, np.linalg.inv(np.linalg.cholesky(matrix)).T)


def test_total_variance_over_draws_and_law():
    rng = np.random.default_rng(1)
    values, variance = rng.normal(size=(2, 50, 6, 3, 2)), rng.random((2, 50, 6, 3, 2))
    base, data = np.zeros((2, 50, 2)), rng.normal(size=(6, 3))
    sums = values.sum(axis=3)
    seen = observe([Explanation.create(values, base, sums, data, draws=True, variance=variance)], "explainer")
    np.testing.assert_allclose(seen.values, values.mean(axis=(0, 1)), rtol=1e-12)
    np.testing.assert_allclose(seen.noise, values.var(axis=(0, 1)) + variance.mean(axis=(0, 1)), rtol=1e-12)
    assert seen.source == "draws and variance"
    plain = observe([Explanation.create(values, base, sums, data, draws=True)], "explainer", least=3.0)
    np.testing.assert_allclose(plain.noise, np.maximum(values.var(axis=(0, 1)), 3.0))
    assert plain.source == "draws"
    # By sampling the mixture: one draw and a deviation from its law.
    drawn = values + np.sqrt(variance) * rng.normal(size=(2000, *values.shape))
    np.testing.assert_allclose(drawn.var(axis=(0, 1, 2)), seen.noise, rtol=4 * np.sqrt(2 / 200_000))


@pytest.mark.slow
def test_the_law_of_gp_shapley_values_is_the_noise(data):
    x, y = data
    explainer_class = kpp.registry.get("explainers", "rkhs-shap")
    explainer = explainer_class(Interventional(x), covariance="point", progress=False)
    parts, noises = [], []
    for noise in (0.01, 0.5):
        predictor = posterior(x, y, noise)
        fitted = GPEC(explainer, x, **OPTIONS).fit(predictor, rng_key=KEY)
        own = explainer.explain(predictor, x)
        process = fitted.outputs[0].process
        np.testing.assert_allclose(process.noise, own.variance.values, rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(process.values, own.values.values, rtol=1e-9)
        found = fitted.explain(x[:4] + 0.1)
        np.testing.assert_allclose(found.predictions, predictor.mean(x[:4] + 0.1), rtol=1e-9)
        assert found.attrs["noise"] == "variance" and found.attrs["explained_by"] == "rkhs-shap"
        parts.append(float(found.variance_parts.sel(part="approximation").mean()))
        noises.append(float(own.variance.mean()))
    assert noises[1] > noises[0] and parts[1] > parts[0] > 0


@pytest.mark.slow
def test_draws_of_a_function_are_averaged_and_their_spread_is_noise(data):
    x, _ = data
    coefficients = np.random.default_rng(2).normal(size=(1, 8, 15))
    draws = kpp.RKHSFunction.over_draws(RBF(1.0), x, coefficients, 0.0, batch_shape=(1, 8))
    gpec = GPEC("rkhs-shap", x, explainer_options={"progress": False}, **OPTIONS)
    fitted = gpec.fit(draws, rng_key=KEY)
    own = kpp.explain(draws, x, value_function="interventional", background=x)
    process = fitted.outputs[0].process
    np.testing.assert_allclose(process.values, own.values.mean(("chain", "draw")), rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(process.noise, own.values.var(("chain", "draw")), rtol=1e-9, atol=1e-13)
    mean = kpp.RKHSFunction(RBF(1.0), x, coefficients.mean(axis=(0, 1)))
    found = fitted.explain(x[:3] + 0.1)
    np.testing.assert_allclose(found.predictions, mean(x[:3] + 0.1), rtol=1e-9)
    # The boundary is where the mean prediction passes its median.
    level = np.median(np.asarray(mean(x)))
    np.testing.assert_allclose(np.asarray(mean(np.asarray(fitted.boundary.points))), level, atol=1e-5)
