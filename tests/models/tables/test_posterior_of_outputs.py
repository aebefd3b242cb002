"""The joint posterior of several outputs: dense formulas for each latent function, Shapley values, curves, draws."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import kpp
from kpp.explanations import Law
from kpp.functionals import GPPosterior, Values
from kpp.games import Interventional, shapley_covariance
from kpp.gp import CoregionalLikelihood, SoftmaxLikelihood
from kpp.inspection import curve
from kpp.kernels import RBF
from kpp_models import MultiLatentGP, sample_function
from oracles.kernels import rbf

RNG = np.random.default_rng(3)
X, NEW, POINTS = (RNG.uniform(-2, 2, size=(size, 2)) for size in (12, 3, 6))
SCALES, VARIANCE = np.array([0.9, 1.4]), 2.0
MIXING, MEAN, SCALE = np.array([[1.0, 0.2], [0.5, -0.8], [0.3, 0.4]]), np.array([0.1, -0.3]), np.array([1.5, 0.5])
OUTPUTS = pd.DataFrame(RNG.normal(size=(12, 3)), columns=["u", "v", "w"])
LABELS = np.array(list("abcabcabcabc"))
WHITE = RNG.normal(size=(1, 4, 6, 2))
# x0 and x1 alone, both, and none present: Shapley values of two features are these combinations.
SHAPLEY = 0.5 * np.array([[1.0, -1.0, 1.0, -1.0], [-1.0, 1.0, 1.0, -1.0]])


@pytest.fixture(scope="module")
def fit():
    """A fit with draws that are given, so that no inference has to run."""
    likelihood = CoregionalLikelihood(MIXING, 0.1)
    model = MultiLatentGP(RBF(SCALES, VARIANCE), likelihood, MEAN, SCALE, "inducing", inducing_points=POINTS)
    model, data, schema = model.prepare(X, OUTPUTS)
    return kpp.Fit(model, None, data, schema, {"inducing_whitened": jnp.asarray(WHITE)}, kpp.MAP(progress=False))


def law_at(x, white):
    """Means (p, P) and covariances (p, P, q, P) of the outputs, from each latent function alone."""
    factor = np.linalg.cholesky(rbf(POINTS, POINTS, SCALES, VARIANCE) + 1e-10 * VARIANCE * np.eye(6))
    features = np.linalg.solve(factor, rbf(POINTS, x, SCALES, VARIANCE)).T
    rest = rbf(x, x, SCALES, VARIANCE) - features @ features.T
    means = sum(np.outer(MEAN[i] + SCALE[i] * features @ white[:, i], MIXING[:, i]) for i in range(2))
    covariance = sum(SCALE[i] ** 2 * np.multiply.outer(rest, np.outer(MIXING[:, i], MIXING[:, i])) for i in range(2))
    return means, covariance.transpose(0, 2, 1, 3)


def test_the_posterior_is_that_of_dense_formulas(fit):
    posterior = fit.function_posterior()
    means, covariance = law_at(NEW, WHITE[0, 2])
    np.testing.assert_allclose(posterior.mean(NEW)[0, 2], means, rtol=1e-6, atol=1e-8)
    found = np.asarray(posterior.covariance(NEW, NEW))[0, 2]
    np.testing.assert_allclose(found, covariance.transpose(0, 2, 1, 3), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(posterior.variance(NEW)[0, 2], np.einsum("papa->pa", covariance), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(fit.predict(NEW)["output_variance"].values, posterior.variance(NEW), rtol=1e-9)
    law = fit.of(Values(NEW))
    np.testing.assert_allclose(law.mean[0, 2], means.ravel(), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(law.covariance[0, 2], covariance.reshape(9, 9), rtol=1e-6, atol=1e-8)


def test_a_contrast_of_outputs_has_the_law_of_their_difference(fit):
    contrast = np.array([1.0, -1.0, 0.0])
    means, covariance = law_at(NEW, WHITE[0, 1])
    found = fit.function_posterior().combine(contrast)
    np.testing.assert_allclose(found.mean(NEW)[0, 1], means @ contrast, rtol=1e-6, atol=1e-8)
    expected = np.einsum("papb,a,b->p", covariance, contrast, contrast)
    np.testing.assert_allclose(found.variance(NEW)[0, 1], expected, rtol=1e-6, atol=1e-8)


def test_shapley_values_have_the_covariance_of_their_definition_between_outputs_too(fit):
    background = X[:4]
    coalitions = [(True, False), (False, True), (True, True), (False, False)]
    rows = np.concatenate([np.where(mask, point, background) for point in NEW for mask in coalitions])
    matrix = np.kron(np.eye(3), np.kron(SHAPLEY, np.full((1, 4), 0.25)))  # from values at rows to values of features
    _, covariance = law_at(rows, WHITE[0, 0])
    expected = np.einsum("ir,raqb,jq->ijab", matrix, covariance, matrix).reshape(3, 2, 3, 2, 3, 3)
    found = np.asarray(shapley_covariance(Interventional(background), fit.function_posterior(), NEW, NEW))[0, 0]
    np.testing.assert_allclose(found, expected.transpose(0, 2, 1, 3, 4, 5), rtol=1e-6, atol=1e-8)
    explanation = kpp.explain(fit, NEW, background=background, covariance="joint", covariance_at="draws")
    np.testing.assert_allclose(explanation.covariance[0, 0], np.einsum("pqghaa->pqgha", found), rtol=1e-9, atol=1e-12)
    assert explanation.output_names == ("u", "v", "w")


def test_draws_of_an_explanation_hold_the_whole_law(fit):
    explanation = kpp.explain(fit, NEW, background=X[:4])
    assert explanation.values.dims == ("chain", "draw", "instance", "feature", "output")
    assert explanation.attrs["covariance_at"] == "draws" and explanation.additivity_error().max() < 1e-10
    generator = np.random.default_rng(0)
    root, outputs = generator.normal(size=(2, 3, 6)), generator.normal(size=(2, 2))
    drawn = Law(root, 4, is_joint=True, outputs=outputs).deviations(40_000, generator).reshape(40_000, -1)
    # Five standard errors of covariances whose standard deviations are at most 20.
    expected = np.kron(root.reshape(6, 6) @ root.reshape(6, 6).T, outputs @ outputs.T)
    np.testing.assert_allclose(np.cov(drawn.T), expected, atol=5 * 2**0.5 * expected.max() / 200)


@pytest.mark.slow
def test_functions_drawn_have_the_moments_of_all_outputs(fit):
    posterior = fit.function_posterior().at_draw((0, 0))
    keys = jax.random.split(jax.random.key(0), 3000)
    draws = jax.lax.map(lambda key: sample_function(key, posterior, num_frequencies=50)(NEW).ravel(), keys)
    means, covariance = law_at(NEW, WHITE[0, 0])
    spread = covariance.reshape(9, 9)
    np.testing.assert_allclose(draws.mean(0), means.ravel(), atol=5 * np.sqrt(spread.max() / 3000))
    np.testing.assert_allclose(np.cov(draws.T), spread, atol=6 * 2**0.5 * spread.max() / 3000**0.5)


@pytest.mark.slow
def test_a_curve_of_an_output_is_that_of_its_own_posterior(fit):
    posterior = fit.function_posterior(at="few")
    found = curve(fit, X, "x0", output="v")
    expected = curve(posterior.combine([0.0, 1.0, 0.0]), X, "x0")
    assert found.dataset.attrs["uncertainty"] != "draws"
    np.testing.assert_allclose(found.dataset["mean"], expected.dataset["mean"], rtol=1e-9)
    np.testing.assert_allclose(found.dataset["covariance"], expected.dataset["covariance"], rtol=1e-7, atol=1e-12)


@pytest.mark.slow
def test_probabilities_of_several_classes_are_explained():
    model, data, schema = MultiLatentGP(RBF(1.0), SoftmaxLikelihood()).prepare(X, LABELS)
    draws = {"latent_whitened": jax.random.normal(jax.random.key(0), (1, 3, 12, 3))}
    fit = kpp.Fit(model, None, data, schema, draws, kpp.MAP(progress=False))
    found = kpp.explain(fit, NEW, background=X[:4], scale="probability", progress=False)
    assert found.output_names == ("a", "b", "c")
    chances = fit.predict(NEW)["class_probability"].values
    np.testing.assert_allclose(found.predictions, chances, rtol=1e-9)
    np.testing.assert_allclose(found.values.sum("output"), 0.0, atol=1e-6)  # the quadrature of a probability
    assert found.additivity_error().max() < 1e-10


def test_mistakes_are_named(fit):
    posterior = fit.function_posterior()
    with pytest.raises(ValueError, match=r"`weights` must be one number per output, \(3,\)"):
        posterior.combine([1.0, 0.0])
    with pytest.raises(ValueError, match="`weights` must give a combination of positive variance"):
        posterior.combine([0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="`output_covariance` must have shape"):
        GPPosterior(posterior.mean, posterior.root)
    with pytest.raises(ValueError, match="`output` must be one of"):
        curve(fit, X, "x0")
