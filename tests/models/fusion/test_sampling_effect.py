"""Effects by sampling: against scikit-learn's Gaussian processes and plain Monte Carlo, and against known effects."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import kpp
from kpp.kernels import RBF
from kpp_models import CausalLink, InterventionData, SamplingEffect
from oracles.kernels import rbf

MAP = kpp.MAP(progress=False)
QUERY = np.array([[-1.0], [0.2], [1.5]])
LAMBDA, SCALE, NOISE = 0.2, 1.3, 0.05
ADJUSTMENTS = ["none", "backdoor", "frontdoor"]


def confounded(rng, count):
    """Linear and normal: u -> x -> m -> y <- u; E[y | do(x)] = x by mediation, and y is then seen through t = 2 y."""
    u = rng.normal(size=count)
    x = u + rng.normal(size=count)
    m = x + 0.5 * rng.normal(size=count)
    y = m - 1.5 * u + 0.3 * rng.normal(size=count)
    return {"x": x, "y": y, "backdoor": u, "frontdoor": m}


def link(adjustment, kernel=1.0, noise=LAMBDA, **options):
    adjusting = {} if adjustment == "none" else {"adjusting_kernel": RBF(kernel), "adjustment": adjustment}
    return CausalLink(RBF(kernel), RBF(1.5), noise, **adjusting, **options)


def first(draws, adjustment):
    return InterventionData.create(
        *(None if v is None else v[:, None] for v in (draws["x"], draws["y"], draws.get(adjustment)))
    )


def moments(adjustment, draws, places, targets, x, *, num_samples=4000, covariance=False, **options):
    chosen = link(adjustment, **({"amplitude": SCALE} | options))
    model = SamplingEffect(chosen, NOISE, num_samples=num_samples)
    model, data, _ = model.prepare(first(draws, adjustment), targets, mediators=places)
    return jax.jit(lambda data, x: model.predictive({}, data, x, covariance=covariance))(data, jnp.asarray(x))


def regression(points, values, scale, noise):
    """Return scikit-learn's regression; its fixed RBF has the lengthscale 1 in every column, a product over them."""
    kernel = scale * (sk.RBF(1.0, "fixed"))
    return GaussianProcessRegressor(kernel, alpha=noise, optimizer=None).fit(points, values)


def draw_normal(rng, fit, points, mean, noise):
    center, sd = fit.predict(points, return_std=True)
    return mean + center + np.sqrt(sd**2 + noise) * rng.normal(size=len(points))


def brute_force(adjustment, draws, places, targets, query, rng, count):
    """Draw outcomes, then one value of f at each; everything by scikit-learn."""
    x, y = draws["x"], draws["y"] - draws["y"].mean()
    rows, at = rng.integers(0, len(x), count), np.full(count, query)
    inputs, new = x[:, None], at[:, None]
    if adjustment == "backdoor":
        inputs, new = np.column_stack([x, draws["backdoor"]]), np.column_stack([at, draws["backdoor"][rows]])
    if adjustment == "frontdoor":
        m = draws["frontdoor"]
        mediator = regression(x[:, None], m - m.mean(), SCALE, SCALE * LAMBDA)
        mediators = draw_normal(rng, mediator, at[:, None], m.mean(), SCALE * LAMBDA)
        inputs, new = np.column_stack([x, m]), np.column_stack([x[rows], mediators])
    outcomes = draw_normal(rng, regression(inputs, y, SCALE, SCALE * LAMBDA), new, draws["y"].mean(), SCALE * LAMBDA)
    kernel = sk.RBF(1.5, "fixed")
    f = GaussianProcessRegressor(kernel, alpha=NOISE, optimizer=None).fit(places, targets)
    center, sd = f.predict(outcomes[:, None], return_std=True)
    return center + sd * rng.normal(size=count)


@pytest.fixture(scope="module")
def small():
    rng = np.random.default_rng(0)
    places = rng.uniform(-3.0, 3.0, (9, 1))
    return confounded(rng, 12), places, np.sin(places[:, 0]) + 0.1 * rng.normal(size=9)


@pytest.mark.slow_variants("none")
@pytest.mark.nightly_variants("backdoor")
@pytest.mark.parametrize(
    "adjustment", ["none", *(pytest.param(name, marks=pytest.mark.slow) for name in ADJUSTMENTS[1:])]
)
def test_moments_are_those_of_sampled_outcomes_and_functions(small, adjustment):
    """40000 draws by scikit-learn against 4000 outcomes; five standard errors of the latter are allowed."""
    found = moments(adjustment, *small, QUERY)
    rng = np.random.default_rng(1)
    for number, query in enumerate(QUERY[:, 0]):
        draws = brute_force(adjustment, *small, query, rng, 40_000)
        sd = draws.std()
        assert abs(float(found["mean"][number]) - draws.mean()) < 5 * sd / np.sqrt(4000)
        assert abs(float(found["latent_variance"][number]) / draws.var() - 1) < 5 * np.sqrt(2 / 4000) + 0.05


@pytest.mark.slow
def test_the_covariance_is_positive_semi_definite_with_the_variance_on_its_diagonal(small):
    points = np.linspace(-3.0, 3.0, 20)[:, None]
    plain, joint = (moments("frontdoor", *small, points, num_samples=50, covariance=c) for c in (False, True))
    covariance = np.asarray(joint["latent_covariance"])
    np.testing.assert_allclose(np.diagonal(covariance), plain["latent_variance"], rtol=1e-9)
    np.testing.assert_allclose(joint["mean"], plain["mean"], rtol=1e-12)
    assert np.linalg.eigvalsh(covariance).min() > -1e-10


@pytest.mark.slow_variants("given")
@pytest.mark.parametrize(
    "amplitude", [pytest.param(SCALE, id="given"), pytest.param(None, id="fitted", marks=pytest.mark.slow)]
)
def test_the_evidence_is_that_of_every_regression(small, amplitude):
    """Against SciPy; a fitted amplitude is the one of highest density, found on a grid."""
    draws, places, targets = small
    model = SamplingEffect(link("frontdoor", amplitude=amplitude), NOISE)
    model, data, _ = model.prepare(first(draws, "frontdoor"), targets, mediators=places)
    found = jax.jit(lambda data: log_density(model.numpyro_model, (), data, {})[0])(data)
    x, m, y = draws["x"][:, None], draws["frontdoor"], draws["y"]
    both = np.column_stack([x, m])
    grams = rbf(both, both), rbf(x, x)
    expected = multivariate_normal(None, rbf(places, places, 1.5) + NOISE * np.eye(9)).logpdf(targets)
    for gram, values in zip(grams, (y, m), strict=True):
        scales = np.geomspace(0.05, 20.0, 4001) if amplitude is None else [amplitude]
        noisy = gram + LAMBDA * np.eye(12)
        expected += max(multivariate_normal(None, s * noisy).logpdf(values - values.mean()) for s in scales)
    np.testing.assert_allclose(found, expected, rtol=1e-6)  # the grid's spacing, squared


@pytest.mark.nightly
def test_adjustment_finds_the_effect_and_its_absence_does_not():
    """E[T | do(x)] = 2 x: within 0.6, by chance and by the priors' pull; without adjustment the slope is a quarter."""
    rng = np.random.default_rng(2)
    draws, places = confounded(rng, 200), rng.uniform(-6.0, 6.0, (60, 1))
    data = draws, places, 2.0 * places[:, 0] + 0.1 * rng.normal(size=60)
    options = {"kernel": 3.0, "noise": 0.02, "num_samples": 200, "amplitude": None}
    means = {name: moments(name, *data, QUERY, **options)["mean"] for name in ADJUSTMENTS}
    for name in ("backdoor", "frontdoor"):
        np.testing.assert_allclose(means[name], 2.0 * QUERY[:, 0], atol=0.6)
    assert means["none"][2] < 2.0 * QUERY[2, 0] - 1.5


@pytest.mark.slow
def test_chains_pass_samples_on():
    """x -> y1 = x + 1 -> y2 = -y1 -> t = y2, all but without noise: E[T | do(x)] = -x - 1."""
    x = np.linspace(-2.0, 2.0, 12)[:, None]
    chain = [InterventionData.create(x, x + 1.0), InterventionData.create(x + 1.0, -x - 1.0)]
    links = (CausalLink(RBF(3.0), RBF(3.0), 1e-4), CausalLink(None, RBF(3.0), 1e-4))
    model = SamplingEffect(links, 1e-4, 10.0, num_samples=10)
    fit = model.fit(jax.random.key(0), chain, -x[:, 0] - 1.0, inference=MAP, num_prior_samples=0)
    np.testing.assert_allclose(fit.predict(QUERY)["mean"].values[0, 0], -QUERY[:, 0] - 1.0, atol=0.05)
    draws = fit.sample_predictive(jax.random.key(1), QUERY, 3)  # by moment matching
    np.testing.assert_allclose(draws, np.tile(-QUERY[:, 0] - 1.0, (3, 1)), atol=0.3)
    with pytest.raises(TypeError, match="no function in an RKHS"):
        fit.function()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 1}, "`num_samples` must be at least 2, got 1"),
        ({"noise_variance": 0.0}, "`noise_variance` must be positive"),
        ({"links": ()}, "`links` must hold at least one CausalLink"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SamplingEffect(**({"links": link("none"), "noise_variance": 0.1} | options))
