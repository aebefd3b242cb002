"""MultiLatentGP: dense formulas, the two-class model, exact regression of several outputs, names, files, refusals."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro.infer.util import log_density
from scipy import stats

import kpp
from kpp.gp import CoregionalLikelihood, HeteroscedasticLikelihood, PoissonLikelihood, SoftmaxLikelihood
from kpp.kernels import RBF
from kpp_models import GPClassification, MultiLatentGP
from oracles.kernels import rbf

RNG = np.random.default_rng(9)
X, NEW = RNG.uniform(-2, 2, size=(40, 2)), RNG.uniform(-1.5, 1.5, size=(5, 2))
SCALES, VARIANCE = np.array([0.9, 1.4]), 2.0
KERNEL, PRIOR = RBF(SCALES, VARIANCE), RBF(dist.LogNormal(0.0, 0.5))
TREES = np.array(["ash", "elm", "oak"])[np.digitize(X[:, 0] + 0.3 * RNG.normal(size=40), [-0.7, 0.7])]
OUTPUTS = pd.DataFrame({"length": np.sin(2 * X[:, 0]), "width": np.cos(X[:, 1]) + X[:, 0]})
OUTPUTS += 0.1 * RNG.normal(size=(40, 2))
OUTPUTS.iloc[:10, 0] = OUTPUTS.iloc[15:20, 1] = np.nan
MIXING, NOISE = np.array([[1.0, 0.2], [0.5, -0.8]]), np.array([0.02, 0.05])
POINTS, SCALE, MEAN = X[:7] + 0.1, np.array([1.5, 0.5, 2.0]), np.array([0.1, -0.3, 0.0])


def features_of(x):
    """Features by the inducing points, and the variances that they leave, with whole matrices."""
    factor = np.linalg.cholesky(rbf(POINTS, POINTS, SCALES, VARIANCE) + 1e-10 * VARIANCE * np.eye(7))
    features = np.linalg.solve(factor, rbf(POINTS, x, SCALES, VARIANCE)).T
    return features, VARIANCE - np.sum(features**2, axis=1)


@pytest.mark.slow
def test_law_given_the_values_is_that_of_whole_matrices():
    model = MultiLatentGP(KERNEL, SoftmaxLikelihood(), MEAN, SCALE, "inducing", inducing_points=POINTS)
    prepared, data, _ = model.prepare(X, TREES)
    white = RNG.normal(size=(7, 3))
    sample = {"inducing_whitened": jnp.asarray(white)}
    keys = jax.random.split(jax.random.key(0), 20_000)

    @jax.jit
    def evaluate(sample, data):
        draw = prepared._at(sample, data)[1].draw
        found, function = prepared.predictive(sample, data, NEW), prepared.function_draw(sample, data)
        return found, function(jnp.asarray(NEW)), jax.vmap(lambda key: draw(key, jnp.asarray(NEW)))(keys)

    found, function, draws = evaluate(sample, data)
    features, rest = features_of(NEW)
    np.testing.assert_allclose(found["mean"], MEAN + SCALE * (features @ white), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found["latent_variance"], rest[:, None] * SCALE**2, rtol=1e-6)
    np.testing.assert_allclose(function, found["mean"], rtol=1e-6, atol=1e-8)
    residual = (np.asarray(draws) - np.asarray(found["mean"])) / SCALE
    covariance = rbf(NEW, NEW, SCALES, VARIANCE) - features @ features.T
    for output in range(3):  # five standard errors of a covariance of normal numbers
        sample_covariance = residual[..., output].T @ residual[..., output] / 20_000
        error = np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / 20_000)
        np.testing.assert_array_less(abs(sample_covariance - covariance), 5 * error + 1e-8)


@pytest.mark.nightly_variants("inducing")
@pytest.mark.slow
@pytest.mark.parametrize("latent", ["sample", "inducing"])
def test_two_classes_are_the_classifier_with_twice_the_variance(latent):
    # Only f_1 - f_0 matters, whose prior variance is twice that of each; (z_1 - z_0) / sqrt 2 is its whitened value.
    labels = (X[:, 0] > 0).astype(float)
    points = {"inducing_points": POINTS} if latent == "inducing" else {}
    site = "inducing_whitened" if points else "latent_whitened"
    white = RNG.normal(size=(7 if points else 40, 2))
    ours = MultiLatentGP(KERNEL, SoftmaxLikelihood(), latent=latent, **points)
    theirs = GPClassification(RBF(SCALES, 2 * VARIANCE), latent=latent, **points)
    found = []
    for model, values in ((ours, white), (theirs, (white[:, 1] - white[:, 0]) / np.sqrt(2))):
        prepared, data, _ = model.prepare(X, labels)
        sample = {site: jnp.asarray(values)}

        @jax.jit
        def evaluate(sample, data, model=prepared):
            density = log_density(model.numpyro_model, (), data, sample)[0]
            return density, model.predictive(sample, data, NEW), model.log_likelihood(sample, data)["y"]

        density, predicted, pointwise = evaluate(sample, data)
        chance = predicted["probability"] if "probability" in predicted else predicted["class_probability"][:, 1]
        found.append((density - stats.norm.logpdf(values).sum(), chance, pointwise))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)  # the integrals of the softmax


@pytest.mark.slow
def test_outputs_are_those_of_exact_regression():
    # With Gaussian noise the whitened values are linear in the data: the mode of the sampled model is the exact mean.
    gram, known = rbf(X, X, SCALES, VARIANCE), ~np.isnan(OUTPUTS.values).T.ravel()
    covariance = np.kron(MIXING @ MIXING.T, gram)[np.ix_(known, known)]
    noisy = covariance + np.diag(np.repeat(NOISE, 40)[known])
    cross = np.kron(MIXING @ MIXING.T, rbf(NEW, X, SCALES, VARIANCE))[:, known]
    expected = cross @ np.linalg.solve(noisy, OUTPUTS.values.T.ravel()[known])
    model = MultiLatentGP(KERNEL, CoregionalLikelihood(MIXING, NOISE))
    prepared, data, _ = model.prepare(X, OUTPUTS)

    def negative(white):
        return -log_density(prepared.numpyro_model, (), data, {"latent_whitened": white.reshape(40, 2)})[0]

    @jax.jit
    def at_the_mode(start):
        white = start - jnp.linalg.solve(jax.hessian(negative)(start), jax.grad(negative)(start))
        return prepared.predictive({"latent_whitened": white.reshape(40, 2)}, data, NEW)["output_mean"]

    found = at_the_mode(jnp.zeros(80))  # a quadratic function: one Newton step
    np.testing.assert_allclose(found.T.ravel(), expected, rtol=1e-5, atol=1e-6)  # the nugget of 1e-10


@pytest.mark.slow
def test_bound_of_a_minibatch_is_that_of_all_rows_in_the_mean():
    points = {"latent": "inducing", "inducing_points": POINTS}
    whole, data, _ = MultiLatentGP(KERNEL, HeteroscedasticLikelihood(), **points).prepare(X, np.sin(X[:, 0]))
    model = MultiLatentGP(KERNEL, HeteroscedasticLikelihood(), **points, minibatch=10)
    prepared, _, _ = model.prepare(X, np.sin(X[:, 0]))
    sample = {"inducing_whitened": jnp.asarray(RNG.normal(size=(7, 2)))}
    density = jax.jit(lambda model, values: log_density(model.numpyro_model, (), data, values)[0])
    parts = RNG.permutation(40).reshape(4, 10)  # each row is in one minibatch, so that their mean is exact
    found = [density(prepared, sample | {"instance": rows}) for rows in parts]
    np.testing.assert_allclose(np.mean(found), density(whole, sample), rtol=1e-10)  # rounding
    assert np.ptp(found) > 1.0


@pytest.mark.nightly
def test_fit_of_classes_has_names_and_survives_a_file(tmp_path):
    model = MultiLatentGP(PRIOR, SoftmaxLikelihood(), scale=3.0, latent="inducing", num_inducing=12, minibatch=30)
    inference = kpp.SVI(num_steps=200, num_samples=10, learning_rate=0.05, progress=False)
    fit = model.fit(jax.random.key(0), X, TREES, inference=inference)
    found = fit.predict(X)
    assert found["class_probability"].dims == ("chain", "draw", "instance", "class")
    assert found["class"].values.tolist() == found["latent"].values.tolist() == ["ash", "elm", "oak"]
    chances = found["class_probability"].mean(("chain", "draw"))
    assert (chances["class"].values[chances.values.argmax(axis=1)] == TREES).mean() > 0.75
    assert fit.idata["log_likelihood"]["y"].dims == ("chain", "draw", "instance")
    assert set(np.unique(fit.sample_predictive(jax.random.key(1), NEW, 50))) <= {0.0, 1.0, 2.0}
    explanation = kpp.explain(fit, X[:2], covariance=None)  # of the posterior mean
    assert explanation.output_names == ("ash", "elm", "oak")
    total = explanation.values.sum("feature") + explanation.base_values
    scores = fit.predict(X[:2])["mean"].rename(latent="output")
    np.testing.assert_allclose(total.transpose(*scores.dims), scores, atol=1e-6)
    fit.save(tmp_path / "fit.nc")
    np.testing.assert_array_equal(kpp.Fit.load(tmp_path / "fit.nc").predict(X)["class_probability"], chances_of(found))


def chances_of(found):
    return found["class_probability"].values


@pytest.mark.nightly
def test_fit_of_outputs_has_names_and_fills_what_is_missing(tmp_path):
    mixing = CoregionalLikelihood(dist.Normal(0.0, 1.0).expand([2, 2]), dist.HalfNormal(0.5).expand([2]))
    model = MultiLatentGP(PRIOR, mixing, latent="inducing", num_inducing=20)
    inference = kpp.SVI(num_steps=2000, num_samples=20, progress=False)
    fit = model.fit(jax.random.key(0), X, OUTPUTS, inference=inference, num_prior_samples=0)
    found = fit.predict(X)
    assert found["output_mean"].dims == ("chain", "draw", "instance", "output")
    assert found["output"].values.tolist() == ["length", "width"]
    assert fit.idata["posterior_predictive"]["y"].dims == ("chain", "draw", "instance", "output")
    assert not np.isnan(fit.idata["log_likelihood"]["y"]).any()
    assert fit.sample_predictive(jax.random.key(1), NEW, 3).dims == ("sample", "instance", "output")
    width = found["output_mean"].mean(("chain", "draw")).sel(output="width").values[15:20]
    truth = np.cos(X[15:20, 1]) + X[15:20, 0]
    assert np.abs(width - truth).mean() < 0.5 * np.abs(truth - np.nanmean(OUTPUTS["width"])).mean()
    fit.save(tmp_path / "fit.nc")
    np.testing.assert_array_equal(kpp.Fit.load(tmp_path / "fit.nc").predict(X)["output_mean"], found["output_mean"])


@pytest.mark.nightly
def test_varying_noise_is_found():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(300, 1))
    y = np.sin(2 * x[:, 0]) + np.exp(x[:, 0] - 1) * rng.normal(size=300)
    model = MultiLatentGP(
        PRIOR,
        HeteroscedasticLikelihood(),
        mean=dist.Normal(0.0, 2.0).expand([2]),
        scale=dist.HalfNormal(2.0).expand([2]),
        latent="inducing",
        num_inducing=15,
    )
    inference = kpp.SVI(num_steps=3000, num_samples=100, progress=False)
    fit = model.fit(jax.random.key(0), x, y, inference=inference, num_prior_samples=0)
    at = np.array([[-1.5], [0.0], [1.5]])
    found = fit.predict(at)
    noise = found["noise_variance"].mean(("chain", "draw"))
    # Some 75 rows in a lengthscale: a relative standard error of sqrt(2 / 75) of a variance, .16; four of them.
    np.testing.assert_allclose(noise, np.exp(2 * (at[:, 0] - 1)), rtol=0.65)
    assert found["latent"].values.tolist() == ["mean", "log_noise_variance"]


LABELED = MultiLatentGP(KERNEL, SoftmaxLikelihood())
BAD = {
    "one latent value": (lambda: MultiLatentGP(KERNEL, PoissonLikelihood()), TypeError, "likelihood"),
    "a way": (lambda: MultiLatentGP(KERNEL, SoftmaxLikelihood(), latent="laplace"), ValueError, "`latent` must be"),
    "a scale": (lambda: MultiLatentGP(KERNEL, SoftmaxLikelihood(), scale=0.0), ValueError, "`scale` must be positive"),
    "two scales for three": (
        lambda: MultiLatentGP(KERNEL, SoftmaxLikelihood(), scale=np.ones(2)).prepare(X, TREES),
        ValueError,
        r"`scale` must be one number or have shape \(3,\), got shape \(2,\)",
    ),
    "no inducing points": (
        lambda: MultiLatentGP(KERNEL, SoftmaxLikelihood(), latent="inducing"),
        ValueError,
        "needs one of them, got neither",
    ),
    "one class": (lambda: LABELED.prepare(X, np.full(40, "ash")), ValueError, "at least two classes"),
    "numbers for classes": (
        lambda: LABELED.prepare(X, np.linspace(0.1, 0.9, 40)),
        ValueError,
        "got 40 different values in 40 rows, fractions such as 0.1, .*; fit numbers by a regression",
    ),
    "few fractions for classes": (
        lambda: LABELED.prepare(X, np.arange(40) % 3 / 2),
        ValueError,
        "fractions such as 0.5",
    ),
    "a class per row": (lambda: LABELED.prepare(X, np.arange(40)), ValueError, "a class of its own in each row"),
    "fewer labels": (lambda: LABELED.prepare(X, TREES[:10]), ValueError, "same number of rows"),
    "covariance": (
        lambda: LABELED.predictive({}, {}, X, covariance=True),
        ValueError,
        "`covariance` must be False",
    ),
    "three classes for two": (
        lambda: GPClassification(KERNEL).prepare(X, TREES),
        ValueError,
        "got 3: 'ash', 'elm', 'oak'; kpp_models.MultiLatentGP",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call()
