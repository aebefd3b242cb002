"""GeneralizedGP: scikit-learn's Poisson regression, SciPy's optimum, quadrature, exposures, minibatches, files."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy import integrate, optimize, special, stats
from sklearn.linear_model import PoissonRegressor

import kpp
from kpp.gp import (
    BernoulliLikelihood,
    BinomialLikelihood,
    GaussianLikelihood,
    NegativeBinomialLikelihood,
    OrdinalLikelihood,
    PoissonLikelihood,
    StudentTLikelihood,
)
from kpp.kernels import RBF, Linear
from kpp_models import GeneralizedGP, GPClassification, GPRegression
from oracles.kernels import rbf

RNG = np.random.default_rng(8)
X, NEW = RNG.uniform(-2, 2, size=(30, 2)), RNG.uniform(-1.5, 1.5, size=(5, 2))
LATENT = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
EXPOSURE = RNG.uniform(1.0, 8.0, size=30).round()
COUNTS = RNG.poisson(EXPOSURE * np.exp(LATENT)).astype(float)
SUCCESSES = RNG.binomial(EXPOSURE.astype(int), special.expit(LATENT)).astype(float)
LABELS = (LATENT + RNG.logistic(size=30) > 0).astype(float)
LEVELS = np.digitize(LATENT + RNG.logistic(size=30), [-1.0, 1.0]).astype(float)
OUTLIERS = LATENT + 0.1 * RNG.standard_t(2, size=30)
SCALES, VARIANCE = np.array([0.9, 1.4]), 2.0
KERNEL, PRIOR = RBF(SCALES, VARIANCE), RBF(dist.LogNormal(0.0, 0.5), 2.0)
FAST = {"inference": kpp.MAP(num_restarts=1, progress=False), "num_prior_samples": 0}

# Each likelihood, with a prior where it has a parameter, observations and exposures.
LAWS = {
    "poisson": (PoissonLikelihood(), COUNTS, EXPOSURE),
    "negative binomial": (NegativeBinomialLikelihood(concentration=dist.LogNormal(0.0, 1.0)), COUNTS, EXPOSURE),
    "binomial": (BinomialLikelihood(), SUCCESSES, EXPOSURE),
    "ordinal": (
        OrdinalLikelihood(first_cutpoint=dist.Normal(0.0, 2.0), gaps=dist.LogNormal(0.0, 1.0).expand([1])),
        LEVELS,
        None,
    ),
    "gaussian": (GaussianLikelihood(noise_variance=dist.HalfNormal(1.0)), OUTLIERS, None),
    "bernoulli": (BernoulliLikelihood(), LABELS, None),
    "student_t": (StudentTLikelihood(scale=dist.HalfNormal(1.0), degrees_of_freedom=3.0), OUTLIERS, None),
}


def density(model, data, values=None):
    """The log density of a prepared model, in one program."""
    return jax.jit(lambda data, values: log_density(model.numpyro_model, (), data, values)[0])(data, values or {})


def arguments(exposure):
    return {} if exposure is None else {"exposure": exposure}


@pytest.mark.slow
def test_mode_is_the_poisson_regression_of_scikit_learn():
    # The mode under a linear kernel of variance t: the penalty is w^2 / (2 t), scikit-learn's alpha n w^2 / 2.
    x = np.column_stack([X, np.ones(30)])
    model = GeneralizedGP(Linear(variance=0.7), PoissonLikelihood())
    prepared, data, _ = model.prepare(x, COUNTS, exposure=EXPOSURE)
    new = np.column_stack([NEW, np.ones(5)])
    found = jax.jit(lambda data, x: prepared.predictive({}, data, x)["mean"])(data, new)
    other = PoissonRegressor(alpha=1.0 / (0.7 * EXPOSURE.sum()), fit_intercept=False, tol=1e-12, max_iter=10_000)
    other.fit(x, COUNTS / EXPOSURE, sample_weight=EXPOSURE)  # the same likelihood, up to a constant
    np.testing.assert_allclose(found, new @ other.coef_, rtol=1e-5)  # its tolerance


@pytest.mark.slow
@pytest.mark.parametrize("name", ["negative binomial", "ordinal"])
def test_evidence_is_that_of_an_optimizer_and_the_dense_formula(name):
    def log_likelihood(f):
        if name == "ordinal":
            ends = np.array([-np.inf, -0.5, 1.0, np.inf])
            level = LEVELS.astype(int)
            return np.log(special.expit(ends[level + 1] - f) - special.expit(ends[level] - f))
        mean = EXPOSURE * np.exp(f)
        return stats.nbinom.logpmf(COUNTS, 3.0, 3.0 / (3.0 + mean))

    law = OrdinalLikelihood(None, -0.5, (1.5,)) if name == "ordinal" else NegativeBinomialLikelihood(None, 3.0)
    _, y, exposure = LAWS[name]
    gram = rbf(X, X, SCALES, VARIANCE)
    root = np.linalg.cholesky(gram + 1e-12 * np.eye(30))

    def objective(white):
        return 0.5 * white @ white - log_likelihood(root @ white).sum()

    best = optimize.minimize(objective, np.zeros(30), method="BFGS", options={"gtol": 1e-7})
    f, step = root @ best.x, 1e-4
    curvature = -(log_likelihood(f + step) - 2 * log_likelihood(f) + log_likelihood(f - step)) / step**2
    evidence = -objective(best.x) - 0.5 * np.linalg.slogdet(np.eye(30) + root.T @ (curvature[:, None] * root))[1]
    prepared, data, _ = GeneralizedGP(KERNEL, law).prepare(X, y, **arguments(exposure))
    found = density(prepared, data)
    np.testing.assert_allclose(found, evidence, rtol=1e-6)  # of the second differences


@pytest.mark.slow
def test_row_with_twice_the_exposure_is_two_rows():
    twice = np.concatenate([X[:1], X]), np.concatenate([[2.0], COUNTS]), np.concatenate([[3.0], EXPOSURE])
    once = X, COUNTS + 2.0 * np.eye(30)[0], EXPOSURE + 3.0 * np.eye(30)[0]
    model = GeneralizedGP(KERNEL, PoissonLikelihood())
    found = []
    for x, y, exposure in (twice, once):
        prepared, data, _ = model.prepare(x, y, exposure=exposure)
        found.append(jax.jit(lambda data, model=prepared: model.predictive({}, data, NEW)["mean"])(data))
    np.testing.assert_allclose(*found, rtol=1e-8)  # sums of Poisson counts are Poisson; the mode's tolerance


@pytest.mark.nightly_variants("laplace")
@pytest.mark.slow
@pytest.mark.parametrize("latent", ["laplace", "sample"])
def test_labels_are_those_of_the_classifier(latent):
    ours, theirs = GeneralizedGP(KERNEL, BernoulliLikelihood(), latent=latent), GPClassification(KERNEL, latent=latent)
    draw = {"latent_whitened": jnp.asarray(RNG.normal(size=30))} if latent == "sample" else {}
    found = []
    for model in (ours, theirs):
        prepared, data, _ = model.prepare(X, LABELS)
        predicted = jax.jit(lambda data, model=prepared: model.predictive(draw, data, NEW))(data)
        found.append([density(prepared, data, draw), *predicted.values()])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), *found)


@pytest.mark.nightly
def test_gaussian_noise_gives_the_exact_regression():
    options = {"num_prior_samples": 0, "inference": kpp.MAP(num_restarts=1, progress=False)}
    ours = GeneralizedGP(PRIOR, GaussianLikelihood(noise_variance=0.1)).fit(jax.random.key(0), X, OUTLIERS, **options)
    theirs = GPRegression(PRIOR, 0.1).fit(jax.random.key(0), X, OUTLIERS, **options)
    for what in ("mean", "latent_variance", "noise_variance"):
        np.testing.assert_allclose(ours.predict(NEW)[what], theirs.predict(NEW)[what], rtol=1e-4)  # of the search


@pytest.mark.nightly_variants("negative binomial", "binomial", "gaussian", "bernoulli", "student_t")
@pytest.mark.slow_variants("negative binomial", "binomial", "gaussian", "bernoulli", "student_t", "ordinal", "poisson")
@pytest.mark.parametrize("name", LAWS)
def test_bound_is_the_expected_log_density(name):
    law, y, exposure = LAWS[name]
    points, white = X[:7] + 0.1, RNG.normal(size=7)
    model = GeneralizedGP(KERNEL, law, latent="inducing", inducing_points=points)
    prepared, data, _ = model.prepare(X, y, **arguments(exposure))
    values = {"inducing_whitened": jnp.asarray(white)}
    values |= {
        "likelihood.concentration": jnp.array(2.0),
        "likelihood.first_cutpoint": jnp.array(-0.5),
        "likelihood.gaps": jnp.array([1.5]),
        "likelihood.noise_variance": jnp.array(0.3),
        "likelihood.scale": jnp.array(0.4),
    }
    found = density(prepared, data, values)
    factor = np.linalg.cholesky(rbf(points, points, SCALES, VARIANCE) + 1e-10 * VARIANCE * np.eye(7))
    features = np.linalg.solve(factor, rbf(points, X, SCALES, VARIANCE))
    means, variances = features.T @ white, VARIANCE - np.sum(features**2, axis=0)
    densities = {
        "poisson": lambda f, i: stats.poisson.logpmf(COUNTS[i], EXPOSURE[i] * np.exp(f)),
        "negative binomial": lambda f, i: stats.nbinom.logpmf(COUNTS[i], 2, 2 / (2 + EXPOSURE[i] * np.exp(f))),
        "binomial": lambda f, i: stats.binom.logpmf(SUCCESSES[i], EXPOSURE[i], special.expit(f)),
        "ordinal": lambda f, i: np.log(
            special.expit([-0.5 - f, 1.0 - f, np.inf])[int(LEVELS[i])]
            - special.expit([-np.inf, -0.5 - f, 1.0 - f])[int(LEVELS[i])]
        ),
        "gaussian": lambda f, i: stats.norm.logpdf(OUTLIERS[i], f, np.sqrt(0.3)),
        "bernoulli": lambda f, i: special.log_expit((2 * LABELS[i] - 1) * f),
        "student_t": lambda f, i: stats.t.logpdf(OUTLIERS[i], 3.0, f, 0.4),
    }
    expected = stats.norm.logpdf(white).sum()
    for i, (mean, sd) in enumerate(zip(means, np.sqrt(variances), strict=True)):
        expected += integrate.quad(
            lambda z, i=i, mean=mean, sd=sd: stats.norm.pdf(z) * densities[name](mean + sd * z, i), -12, 12, limit=200
        )[0]
    priors = {
        "negative binomial": stats.lognorm.logpdf(2.0, 1.0),
        "ordinal": stats.norm.logpdf(-0.5, 0.0, 2.0) + stats.lognorm.logpdf(1.5, 1.0),
        "gaussian": stats.halfnorm.logpdf(0.3),
        "student_t": stats.halfnorm.logpdf(0.4),
    }
    np.testing.assert_allclose(found, expected + priors.get(name, 0.0), rtol=1e-7)  # quad stops at 1.5e-8


@pytest.mark.nightly_variants("ordinal", "student_t")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ordinal", "student_t"])  # each goes another way
def test_fits_predict_and_survive_a_file(name, tmp_path):
    law, y, exposure = LAWS[name]
    if law.log_concave:
        model, inference = GeneralizedGP(PRIOR, law), FAST["inference"]
    else:
        model = GeneralizedGP(PRIOR, law, latent="inducing", num_inducing=8, minibatch=10)
        inference = kpp.SVI(num_steps=300, num_samples=20, progress=False)
    fit = model.fit(jax.random.key(0), X, y, inference=inference, **arguments(exposure))
    found = fit.predict(NEW)
    assert all(np.all(np.isfinite(values)) for values in found.data_vars.values())
    assert fit.idata["log_likelihood"]["y"].dims == ("chain", "draw", "instance")
    replicates = fit.idata["posterior_predictive"]["y"].values
    assert replicates.shape[-1] == 30
    assert np.all(law.with_exposure(exposure).support(replicates[0, 0]) if exposure is not None else np.isfinite(y))
    fit.save(tmp_path / "fit.nc")
    again = kpp.Fit.load(tmp_path / "fit.nc").predict(NEW)
    for what in found:
        np.testing.assert_array_equal(again[what], found[what])
    if name == "ordinal":
        assert found["level_probability"].dims == ("chain", "draw", "instance", "level")
        np.testing.assert_allclose(found["level_probability"].sum("level"), 1.0, rtol=1e-12)


@pytest.mark.slow
def test_leave_one_out_is_that_of_a_fit_without_the_row():
    # The cavity of Laplace's approximation against the approximation to all other rows.
    model = GeneralizedGP(KERNEL, PoissonLikelihood())
    prepared, data, _ = model.prepare(X, COUNTS, exposure=EXPOSURE)
    found = jax.jit(lambda data: prepared.log_likelihood({}, data)["y"])(data)
    predict = jax.jit(lambda data, x: prepared.predictive({}, data, x))
    expected = []
    for row in range(5):
        rest = np.arange(30) != row
        _, fewer, _ = model.prepare(X[rest], COUNTS[rest], exposure=EXPOSURE[rest])
        law = predict(fewer, X[row : row + 1])
        mean, sd = float(law["mean"][0]), float(np.sqrt(law["latent_variance"][0]))
        rate = EXPOSURE[row]
        expected.append(
            np.log(
                integrate.quad(
                    lambda z, m=mean, s=sd, e=rate, y=COUNTS[row]: (
                        stats.norm.pdf(z) * stats.poisson.pmf(y, e * np.exp(m + s * z))
                    ),
                    -12,
                    12,
                    limit=200,
                )[0]
            )
        )
    # Both approximate; the mode without a row is not the mean of the cavity. They agree to a few per cent of a density.
    np.testing.assert_allclose(found[:5], expected, atol=0.1)


@pytest.mark.slow
def test_bound_of_a_minibatch_is_that_of_all_rows_in_the_mean():
    """Each row is in one of three minibatches, so that their mean is exact."""
    options = {"latent": "inducing", "inducing_points": X[:7] + 0.1}
    whole, data, _ = GeneralizedGP(KERNEL, PoissonLikelihood(), **options).prepare(X, COUNTS, exposure=EXPOSURE)
    few, _, _ = GeneralizedGP(KERNEL, PoissonLikelihood(), **options, minibatch=10).prepare(
        X, COUNTS, exposure=EXPOSURE
    )
    values = {"inducing_whitened": RNG.normal(size=7)}
    parts = RNG.permutation(30).reshape(3, 10)
    found = [density(few, data, values | {"instance": rows}) for rows in parts]
    np.testing.assert_allclose(np.mean(found), density(whole, data, values), rtol=1e-10)  # rounding
    assert np.ptp(found) > 1.0


COUNTING = GeneralizedGP(KERNEL, PoissonLikelihood())
BAD = {
    "no likelihood": (lambda: GeneralizedGP(KERNEL, "poisson"), TypeError, "likelihood"),
    "a way": (lambda: GeneralizedGP(KERNEL, PoissonLikelihood(), latent="mcmc"), ValueError, "`latent` must be one of"),
    "outliers by Laplace": (
        lambda: GeneralizedGP(KERNEL, StudentTLikelihood()),
        ValueError,
        "needs a log-concave likelihood, got StudentTLikelihood; use latent='inducing' or latent='sample'",
    ),
    "no inducing points": (
        lambda: GeneralizedGP(KERNEL, PoissonLikelihood(), latent="inducing"),
        ValueError,
        "needs one of them, got neither",
    ),
    "a minibatch for another": (
        lambda: GeneralizedGP(KERNEL, PoissonLikelihood(), minibatch=3),
        ValueError,
        "`minibatch` needs latent='inducing'",
    ),
    "exposure of numbers": (
        lambda: GeneralizedGP(KERNEL, GaussianLikelihood()).prepare(X, OUTLIERS, exposure=EXPOSURE),
        ValueError,
        "`exposure` must be None for GaussianLikelihood",
    ),
    "too few exposures": (lambda: COUNTING.prepare(X, COUNTS, exposure=EXPOSURE[:3]), ValueError, "30.*3"),
    "no counts": (lambda: COUNTING.prepare(X, OUTLIERS), ValueError, "`y` must hold counts"),
    "unknown counts": (lambda: COUNTING.prepare(X, np.full(30, np.nan)), ValueError, "`y`"),
    "unknown levels": (
        lambda: GeneralizedGP(KERNEL, OrdinalLikelihood()).prepare(X, LEVELS + 1),
        ValueError,
        "whole numbers from 0 to 2",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call()
