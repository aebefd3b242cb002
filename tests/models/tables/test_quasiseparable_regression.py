"""Regression on one column in linear time: all results are those of dense algebra."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist
from numpyro.infer.util import log_density
from scipy.stats import multivariate_normal, norm

import kpp
import kpp_models
from kpp.features import HilbertSpace
from kpp.kernels import RBF, Linear, Matern12, Matern32, Periodic
from kpp_models import GPRegression

RNG = np.random.default_rng(0)
TIMES = np.sort(RNG.uniform(0, 10, 20))
TIMES[5] = TIMES[4]  # times may repeat: each has noise of its own
X, Y, VARIANCES = TIMES[:, None], np.sin(TIMES) + RNG.normal(size=20), np.linspace(0.0, 0.5, 20)
QUERIES = np.array([3.0, -1.0, TIMES[7], 3.0, 12.0])[:, None]  # not sorted, repeated, observed, before and after
SEASON = HilbertSpace(Periodic(1.0, period=2.0), 2)
KERNEL = (Matern32(5.0) * SEASON).on(0) + 2.0 * Matern12(1.0) + Linear(0.2)
NOISE, MEAN = 0.1, 0.3
# Dense algebra and that of quasiseparable matrices agree up to rounding, 1e-16 times the condition 1e2 of K + D.
CLOSE = {"rtol": 1e-8, "atol": 1e-10}


MODEL = GPRegression(KERNEL, NOISE, MEAN, VARIANCES, latent="quasiseparable")


def compute(collect):
    """Return results by one compiled program: each piece alone would compile the same factorization again."""
    model, data, _ = MODEL.prepare(X, Y)
    return jax.jit(lambda data, x: collect(model, data, model.posterior({}, data), x))(data, jnp.asarray(QUERIES))


def dense(kernel, keep=slice(None), part=None):
    """Condition on some rows, by NumPy: mean and covariance of the function, or of a part, at the queries and rows."""
    part, points = (part or kernel), np.concatenate([QUERIES, X])
    covariance = np.asarray(kernel.gram(X))[keep][:, keep] + np.diag((NOISE + VARIANCES)[keep])
    cross = np.asarray(part(points, X))[:, keep]
    mean = (part is kernel) * MEAN + cross @ np.linalg.solve(covariance, (Y - MEAN)[keep])
    return mean, np.asarray(part.gram(points)) - cross @ np.linalg.solve(covariance, cross.T)


@pytest.mark.slow
def test_evidence_predictions_and_leave_one_out_are_those_of_the_dense_matrix():
    evidence, moments, left_out = compute(
        lambda model, data, posterior, x: (
            log_density(model.numpyro_model, (), data, {})[0],
            posterior.moments(x),
            model.log_likelihood({}, data)["y"],
        )
    )
    observed = np.asarray(KERNEL.gram(X)) + np.diag(NOISE + VARIANCES)
    np.testing.assert_allclose(evidence, multivariate_normal.logpdf(Y, np.full(20, MEAN), observed), **CLOSE)
    mean, covariance = (part[..., :5] for part in dense(KERNEL))
    np.testing.assert_allclose(moments.mean, mean[:5], **CLOSE)
    np.testing.assert_allclose(moments.variance, np.diag(covariance[:5]), **CLOSE)
    for i in (0, 4, 19):
        mean, covariance = dense(KERNEL, keep=np.arange(20) != i)
        scale = np.sqrt(covariance[5 + i, 5 + i] + NOISE + VARIANCES[i])
        np.testing.assert_allclose(left_out[i], norm.logpdf(Y[i], mean[5 + i], scale), **CLOSE)


@pytest.mark.slow
def test_function_and_components_are_those_of_the_dense_matrix():
    values, joint, root, parts = compute(
        lambda model, data, posterior, x: (
            posterior.function()(x),
            posterior.moments(x, covariance=True).covariance,
            posterior.posterior().root,
            [dataclasses.replace(posterior, part=part).moments(x) for part in model.kernel.kernels],
        )
    )
    observed = np.asarray(KERNEL.gram(X)) + np.diag(NOISE + VARIANCES)
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(observed), **CLOSE)
    np.testing.assert_allclose(values, dense(KERNEL)[0][:5], **CLOSE)
    np.testing.assert_allclose(joint, dense(KERNEL)[1][:5, :5], **CLOSE)
    for law, part in zip(parts, KERNEL.kernels, strict=True):
        mean, covariance = dense(KERNEL, part=part)
        np.testing.assert_allclose(law.mean, mean[:5], **CLOSE)
        np.testing.assert_allclose(law.variance, np.diag(covariance)[:5], **CLOSE)


@pytest.mark.slow
def test_joint_draws_have_the_covariance_of_the_dense_matrix():
    # Five standard errors of a normal sample, for 15 numbers; the nugget of draws is 1e-10 of the variance.
    mean, covariance = (part[..., :5] for part in dense(KERNEL))
    covariance, count = covariance[:5], 20_000
    model, data, _ = MODEL.prepare(X, Y)
    draw = jax.jit(lambda key: model.draw_latent(key, {}, data, jnp.asarray(QUERIES)))
    drawn = np.asarray(jax.lax.map(draw, jax.random.split(jax.random.key(1), count)))
    variance = np.diag(covariance)
    assert np.all(np.abs(drawn.mean(0) - mean) < 5 * np.sqrt(variance / count))
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / count)
    assert np.all(np.abs(np.cov(drawn.T) - covariance) < 5 * error)


@pytest.mark.nightly
def test_components_of_a_fit_add_up_and_all_groups_are_there():
    fit = MODEL.fit(jax.random.key(0), X, Y, inference=kpp.MAP(), num_prior_samples=2)
    parts = kpp_models.components(fit, QUERIES, ["season", "short", "line"])
    np.testing.assert_allclose(parts["mean"].sum("component")[0, 0] + MEAN, dense(KERNEL)[0][:5], **CLOSE)
    assert list(parts["component"].values) == ["season", "short", "line"]
    assert fit.idata["posterior_predictive"]["y"].shape == (1, 1, 20)
    assert fit.idata["prior_predictive"]["y"].shape == (1, 2, 20)


REFUSED = {
    "unsorted": (Matern32(), X[::-1], ValueError, r"`x` must be sorted.*a smaller value after row 0: sort the rows"),
    "two columns": (Matern32(), np.hstack([X, X]), ValueError, r"`x` must have one column.*\(20, 2\)"),
    "a missing time": (Matern32(), np.where(X == X[3], np.nan, X), ValueError, "`x` must be finite, got 1 NaN"),
    "a smooth kernel": (RBF(dist.LogNormal(0.0, 1.0)), X, TypeError, "RBF is not quasiseparable: Matern12"),
    "a smooth part": (Matern32() + RBF(), X, TypeError, "RBF is not quasiseparable"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused(name):
    kernel, x, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        GPRegression(kernel, 0.1, latent="quasiseparable").prepare(x, Y)


@pytest.mark.slow
def test_observations_need_noise_and_components_a_sum():
    with pytest.raises(ValueError, match="`noise_variance` must be positive"):
        GPRegression(Matern32(), 0.0, latent="quasiseparable")
    model, data, schema = MODEL.prepare(X, Y)
    fit = kpp.Fit(model, None, data, schema, {}, kpp.MAP())
    with pytest.raises(ValueError, match="`names` must name each of 3 summands, got"):
        kpp_models.components(fit, QUERIES, ["trend"])
    single = dataclasses.replace(fit, model=dataclasses.replace(model, kernel=Matern12()))
    with pytest.raises(TypeError, match="kernel is a sum, got GPRegression with the kernel Matern12"):
        kpp_models.components(single, QUERIES)
    with pytest.raises(TypeError, match="`fit` must be"):
        kpp_models.components(None, QUERIES)
