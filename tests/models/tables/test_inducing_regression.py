"""GPRegression with inducing points: the published formulas with whole matrices, and the exact model as its limit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy import stats

import kpp
from kpp.gp import LinearMean
from kpp.kernels import RBF, Categorical
from kpp_models import GPRegression
from oracles.kernels import rbf

RNG = np.random.default_rng(4)
SCALES, VARIANCE, NOISE, MEAN = np.array([0.9, 1.4]), 1.3, 0.05, 0.4
X, NEW = RNG.uniform(-2, 2, size=(30, 2)), RNG.uniform(-2, 2, size=(6, 2))
Y = MEAN + np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * RNG.normal(size=30)
POINTS = X[:9] + 0.1
ROWS = RNG.uniform(0.01, 0.3, size=30)
KERNEL = RBF(SCALES, VARIANCE)
FIXED = kpp.MAP(progress=False)
# A nugget of 1e-10 of the variance on the matrix of the inducing points, whose condition number is some 1e4.
TOLERANCE = {"rtol": 1e-6, "atol": 1e-7}


def gram(a, b):
    return rbf(a, b, SCALES, VARIANCE)


def fit(model, x=X, y=Y, inference=FIXED):
    return model.fit(jax.random.key(0), x, y, inference=inference, num_prior_samples=0)


def model(inducing=POINTS, noise_variance=NOISE, **options):
    return GPRegression(KERNEL, noise_variance, MEAN, latent="inducing", inducing_points=inducing, **options)


def density(model, data, values=None):
    """The log density of a prepared model, in one program."""
    return jax.jit(lambda data, values: log_density(model.numpyro_model, (), data, values)[0])(data, values or {})


def bound(variances, x=X, y=Y):
    """Titsias (2009), equation (9), with whole matrices."""
    explained = gram(x, POINTS) @ np.linalg.solve(gram(POINTS, POINTS), gram(POINTS, x))
    density = stats.multivariate_normal(np.full(len(x), MEAN), explained + np.diag(variances)).logpdf(y)
    return density - 0.5 * np.sum((VARIANCE - np.diag(explained)) / variances)


def predictions(variances, x=X, y=Y, new=NEW):
    """Titsias (2009), equations (6) and (10): mean and covariance of the function."""
    inducing, cross, sections = gram(POINTS, POINTS), gram(POINTS, x), gram(POINTS, new)
    system = np.linalg.inv(inducing + cross / variances @ cross.T)
    mean = MEAN + sections.T @ system @ cross @ ((y - MEAN) / variances)
    covariance = gram(new, new) - sections.T @ (np.linalg.inv(inducing) - system) @ sections
    return mean, covariance


CASES = {"one variance": (None, np.full(30, NOISE)), "a variance for each row": (ROWS, NOISE + ROWS)}


@pytest.mark.slow_variants("a variance for each row", "one variance")
@pytest.mark.parametrize("case", CASES)
def test_bound_and_predictions_are_the_published_ones(case):
    rows, variances = CASES[case]
    prepared, data, _ = model(row_variances=rows).prepare(X, Y)
    np.testing.assert_allclose(density(prepared, data), bound(variances), **TOLERANCE)
    found = fit(model(row_variances=rows)).predict(NEW, covariance=True)
    mean, covariance = predictions(variances)
    np.testing.assert_allclose(found["mean"].squeeze(), mean, **TOLERANCE)
    np.testing.assert_allclose(found["latent_covariance"].squeeze(), covariance, **TOLERANCE)
    np.testing.assert_allclose(found["latent_variance"].squeeze(), np.diag(covariance), **TOLERANCE)


@pytest.mark.slow_variants("a variance for each row", "one variance")
@pytest.mark.parametrize("case", CASES)
def test_leave_one_out_is_a_fit_to_the_other_rows(case):
    rows, variances = CASES[case]
    expected = []
    for i in range(30):
        rest = np.arange(30) != i
        mean, covariance = predictions(variances[rest], X[rest], Y[rest], X[i : i + 1])
        expected.append(stats.norm.logpdf(Y[i], mean[0], np.sqrt(covariance[0, 0] + variances[i])))
    found = fit(model(row_variances=rows)).idata["log_likelihood"]["y"].values.squeeze()
    np.testing.assert_allclose(found, expected, **TOLERANCE)


@pytest.mark.slow
def test_with_all_rows_as_inducing_points_it_is_the_exact_model():
    exact, found = fit(GPRegression(KERNEL, NOISE, MEAN)), fit(model(X))
    for name in ("mean", "latent_variance"):
        np.testing.assert_allclose(found.predict(NEW)[name], exact.predict(NEW)[name], **TOLERANCE)
    pointwise = [each.idata["log_likelihood"]["y"] for each in (found, exact)]
    np.testing.assert_allclose(*pointwise, **TOLERANCE)
    functions = [each.function()(NEW) for each in (found, exact)]
    np.testing.assert_allclose(*functions, **TOLERANCE)


@pytest.mark.slow
def test_more_points_raise_the_bound_towards_the_evidence():
    evidence = stats.multivariate_normal(np.full(30, MEAN), gram(X, X) + NOISE * np.eye(30)).logpdf(Y)
    bounds = []
    for count in (3, 8, 15, 30):
        prepared, data, _ = model(X[:count]).prepare(X, Y)
        bounds.append(float(density(prepared, data)))
    assert bounds == sorted(bounds)
    np.testing.assert_allclose(bounds[-1], evidence, rtol=1e-5)


@pytest.mark.slow
def test_gradient_is_a_difference():
    prepared, data, _ = GPRegression(
        RBF(dist.LogNormal(0.0, 0.5)), dist.HalfNormal(1.0), LinearMean(dist.Normal(0.0, 1.0).expand([2]), 0.0),
        latent="inducing", num_inducing=6, learn_inducing=True,
    ).prepare(X, Y)  # fmt: skip
    sites = {
        "kernel.lengthscale": jnp.asarray(0.9),
        "noise_variance": jnp.asarray(0.2),
        "mean.weights": jnp.asarray([0.1, 0.6]),
        "inducing_points": jnp.asarray(POINTS[:6]),
    }
    value = jax.jit(lambda values: log_density(prepared.numpyro_model, (), data, values)[0])
    direction = jax.tree.map(lambda leaf: jnp.asarray(RNG.normal(size=leaf.shape)), sites)
    moved = [jax.tree.map(lambda leaf, d, s=step: leaf + s * d, sites, direction) for step in (1e-6, -1e-6)]
    slopes = jax.tree.map(lambda g, d: jnp.sum(g * d), jax.grad(value)(sites), direction)
    np.testing.assert_allclose(sum(jax.tree.leaves(slopes)), (value(moved[0]) - value(moved[1])) / 2e-6, rtol=1e-6)


@pytest.mark.slow
def test_rows_are_drawn_again_with_their_own_law():
    found = fit(model(row_variances=ROWS))
    keys = jax.random.split(jax.random.key(1), 20000)
    draws = jax.jit(jax.vmap(lambda key: found.model.replicate(key, {}, found.data)["y"]))(keys)
    mean, covariance = predictions(NOISE + ROWS, new=X)
    sd = np.sqrt(np.diag(covariance) + NOISE + ROWS)
    # Standard errors of 20000 draws: sd / 141 for a mean, 1 % for a variance; five of them.
    np.testing.assert_array_less(abs(draws.mean(0) - mean), 5 * sd / 141)
    np.testing.assert_allclose(draws.var(0), sd**2, rtol=0.05)


@pytest.mark.nightly
def test_inducing_points_are_learned_and_the_fit_is_saved(tmp_path):
    learned = GPRegression(RBF(dist.LogNormal(0.0, 0.5)), dist.HalfNormal(1.0), MEAN, latent="inducing",
                           num_inducing=6, learn_inducing=True)  # fmt: skip
    found = fit(learned, inference=kpp.MAP(progress=False))
    assert found.idata["latent"]["inducing_points"].dims == ("chain", "draw", "inducing_point", "feature")
    predicted = found.predict(NEW)["mean"]
    truth = MEAN + np.sin(2 * NEW[:, 0]) + 0.5 * NEW[:, 1]
    errors = predicted.mean(("chain", "draw")).values - truth
    assert np.sqrt(np.mean(errors**2)) < truth.std()  # better than a constant, with six points for a sine
    found.save(tmp_path / "fit.nc")
    np.testing.assert_array_equal(kpp.Fit.load(tmp_path / "fit.nc").predict(NEW)["mean"], predicted)


@pytest.mark.nightly
def test_no_matrix_of_the_rows_is_made():
    n = 30000  # a matrix would have 7 GB
    x = RNG.uniform(-2, 2, size=(n, 2))
    y = np.sin(2 * x[:, 0]) + 0.1 * RNG.normal(size=n)
    sparse = GPRegression(RBF(dist.LogNormal(0.0, 0.5)), dist.HalfNormal(1.0), latent="inducing", num_inducing=40)
    found = fit(sparse, x, y, kpp.MAP(num_restarts=0, progress=False))
    predicted = found.predict(x[:200])["mean"].values.squeeze()
    assert np.sqrt(np.mean((predicted - np.sin(2 * x[:200, 0])) ** 2)) < 0.02
    assert found.idata["posterior_predictive"]["y"].shape == (1, 1, n)
    scores = found.idata["log_likelihood"]["y"].values
    np.testing.assert_allclose(scores.mean(), stats.norm.logpdf(0.0, 0.0, 0.1) - 0.5, atol=0.02)  # 1 / sqrt(2 n) = .004


def test_exact_model_of_as_many_rows_says_what_to_do():
    with pytest.raises(ValueError, match="latent='inducing'"):
        fit(GPRegression(KERNEL, NOISE), np.zeros((400_000, 2)), np.zeros(400_000))


BAD = {
    "no points": (lambda: GPRegression(KERNEL, NOISE, latent="inducing"), "needs one of them, got neither"),
    "points for the exact model": (lambda: GPRegression(KERNEL, NOISE, num_inducing=3), "got one with latent='exact'"),
    "nothing to learn": (
        lambda: GPRegression(KERNEL, NOISE, learn_inducing=True),
        "`learn_inducing` needs latent='inducing' with `num_inducing` or `inducing_points`, got neither",
    ),
    "both": (lambda: fit(model(num_inducing=3)), "got both"),
    "an unknown name": (lambda: GPRegression(KERNEL, NOISE, latent="sample"), "`latent` must be"),
    "more points than rows": (
        lambda: fit(GPRegression(KERNEL, NOISE, latent="inducing", num_inducing=31)),
        "`num_inducing` must be at most the 30 different points, got 31",
    ),
    "no noise": (lambda: model(noise_variance=0.0), "`noise_variance`"),
    "points of other columns": (lambda: fit(model(np.ones((3, 4)))), "`inducing_points`"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused(case):
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.slow
def test_with_categories_the_bound_approaches_the_evidence():
    rng = np.random.default_rng(6)
    x = np.stack([rng.uniform(-2, 2, size=90), np.repeat([0.0, 1.0, 2.0], 30)], axis=1)
    y = np.sin(2 * x[:, 0] + x[:, 1]) + 0.2 * rng.normal(size=90)
    kernel = RBF(1.0).on(0) * Categorical(0.3).on(1)
    exact, data, _ = GPRegression(kernel, NOISE).prepare(x, y)
    evidence = float(density(exact, data))
    sparse, data, _ = GPRegression(kernel, NOISE, latent="inducing", num_inducing=30).prepare(x, y)
    # Ten points for each category on an interval of four lengthscales leave next to nothing unexplained. Means of
    # codes equal no code: the bound with them is lower by hundreds, since most of the variance is unexplained.
    assert evidence - 0.5 < float(density(sparse, data)) <= evidence + 1e-6
    assert np.isin(np.asarray(sparse.inducing_points)[:, 1], [0.0, 1.0, 2.0]).all()
