"""The prior that learns: against enumeration of its components, its limits, its calibration, and its searches."""

from __future__ import annotations

import types

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.integrate import quad
from scipy.stats import norm

from kpp.kernels import RBF, Constant
from kpp_optimization import (
    AbstractObjectivePrior,
    Belief,
    Discrepancy,
    Draws,
    FitPrior,
    FunctionPrior,
    KernelPrior,
    LearningPrior,
    MixtureBelief,
    optimize,
    pseudo_evidence,
)
from oracles.gaussian_mixtures import condition, quantile

KEY = jax.random.key(0)
PLANE = np.random.default_rng(3).uniform(-1.0, 1.0, (12, 2))  # two treatments
LINE = np.linspace(-2.0, 2.0, 25)[:, None]
DRAW = ("chain", "draw")


class Given(AbstractObjectivePrior):
    """Draws that are known."""

    found: Draws

    def moments(self, points):
        return self.found.moments()

    def draws(self, points):
        return self.found


def some_draws(points, count, seed=0):
    rng = np.random.default_rng(seed)
    grams = [np.asarray(RBF(float(rng.uniform(0.3, 1.0))).gram(jnp.asarray(points))) for _ in range(count)]
    means = np.stack([np.sin(2 * points[:, 0] + rng.normal()) for _ in range(count)])
    return Draws(rng.normal(size=count), means, 0.3 * np.stack(grams))


@pytest.fixture(params=[0.1, 0.0], ids=["noise", "exact"])
def conditioned(request):
    """A belief after four queries, one of them repeated if there is noise, with the oracle's answer."""
    draws, discrepancy = some_draws(PLANE, 3), Discrepancy([0.05, 0.8], [0.3, 1.0])
    belief = LearningPrior([Given(draws)], discrepancy, noise_factors=[0.5, 2.0]).believe(jnp.asarray(PLANE))
    index, values = np.array([4, 1, 7, 4 if request.param else 9]), np.array([0.3, -1.0, 0.6, 0.2])
    for i, value in zip(index, values, strict=True):
        belief = belief.observe(int(i), float(value), request.param)
    covariances = discrepancy.covariances(PLANE)
    return belief, condition(*draws, covariances, [0.5, 2.0], index, values, request.param), values.min()


def test_it_is_the_mixture_of_all_components(conditioned):
    """The nugget, 1e-10 of the variance, is what they differ by; the matrices' condition numbers are below 1e3."""
    belief, (weights, means, covariances), _ = conditioned
    np.testing.assert_allclose(belief.weights, weights, atol=1e-6)
    mean = np.einsum("jlv,jlvp->p", weights, means)
    second = np.einsum("jlv,jlvp->p", weights, np.einsum("jlvpp->jlvp", covariances) + means**2)
    np.testing.assert_allclose(belief.mean, mean, atol=1e-6)
    np.testing.assert_allclose(belief.standard_deviation**2, second - mean**2, atol=1e-6)
    np.testing.assert_allclose(belief.effective_draws, 1 / np.sum(weights.sum(axis=(1, 2)) ** 2), rtol=1e-5)


def test_expected_improvement_is_the_integral_of_the_mixtures_distribution(conditioned):
    r"""Since :math:`E \max(b - f, 0) = \int_{-\infty}^b F(t) dt`, at the points with a positive variance."""
    belief, (weights, means, covariances), best = conditioned
    sds = np.sqrt(np.maximum(np.einsum("jlvpp->jlvp", covariances), 0.0))
    for point in (0, 2, 11):
        for sign in (1.0, -1.0):

            def distribution(t, point=point, sign=sign):
                return np.sum(weights * norm.cdf((t - sign * means[..., point]) / sds[..., point]))

            expected, _ = quad(distribution, best - 15.0, best, epsabs=1e-11, limit=200)
            np.testing.assert_allclose(belief.improvement(best, sign)[point], expected, atol=1e-6)


def test_intervals_are_quantiles_of_the_mixture(conditioned):
    belief, (weights, means, covariances), _ = conditioned
    free = np.delete(np.arange(12), [1, 4, 7, 9])  # a known value has no density
    variances = np.einsum("jlvpp->jlvp", covariances)[..., free]
    for bound, level in zip(belief.interval(0.9), (0.05, 0.95), strict=True):
        np.testing.assert_allclose(bound[free], quantile(weights, means[..., free], variances, level), atol=1e-5)
        np.testing.assert_allclose(belief.cdf(bound)[free], level, atol=1e-9)


def test_the_mode_is_the_component_of_highest_weight():
    draws, discrepancy = some_draws(PLANE, 3), Discrepancy([0.05, 0.8], [0.3, 1.0])
    belief = LearningPrior([Given(draws)], discrepancy, estimate="mode").believe(PLANE).observe(2, 0.4).observe(5, -0.7)
    index, values = np.array([2, 5]), np.array([0.4, -0.7])
    weights, means, covariances = condition(*draws, discrepancy.covariances(PLANE), [1.0], index, values, 0.0)
    best = np.unravel_index(weights.argmax(), weights.shape)
    np.testing.assert_allclose(belief.mean, means[best], atol=1e-7)
    np.testing.assert_allclose(belief.standard_deviation**2, np.diagonal(covariances[best]), atol=1e-7)


def test_without_discrepancy_one_draw_is_the_prior_itself():
    prior = FunctionPrior(lambda x: jnp.cos(x[:, 0]), RBF(0.6))
    learning, own = LearningPrior([prior], Discrepancy([0.0])).believe(LINE), prior.believe(jnp.asarray(LINE))
    assert isinstance(own, Belief) and isinstance(learning, MixtureBelief)
    for i, value in ((3, 0.2), (20, -1.0), (11, 0.0)):
        learning, own = learning.observe(i, value), own.observe(i, value)
    np.testing.assert_allclose(learning.mean, own.mean, atol=1e-9)
    np.testing.assert_allclose(learning.standard_deviation, own.standard_deviation, atol=1e-6)  # a root of 1e-12
    np.testing.assert_allclose(learning.improvement(-1.0), own.improvement(-1.0), atol=1e-7)
    np.testing.assert_allclose(learning.interval(0.9), own.interval(0.9), atol=1e-6)


def test_under_a_huge_discrepancy_the_queries_alone_count():
    """A prior with mean and standard deviation 1 against none at all: they differ by 1 part in the scale, 1e4."""
    discrepancy = Discrepancy([1e4], [0.1, 0.5])
    wrong, none = KernelPrior(RBF(0.5), mean=1.0), KernelPrior(Constant(0.0))
    beliefs = [LearningPrior([prior], discrepancy).believe(LINE) for prior in (wrong, none)]
    for i, value in ((3, 3e3), (20, -1e4), (11, 2e3)):
        beliefs = [belief.observe(i, value) for belief in beliefs]
    np.testing.assert_allclose(beliefs[0].mean, beliefs[1].mean, atol=2.0)
    np.testing.assert_allclose(beliefs[0].standard_deviation, beliefs[1].standard_deviation, atol=2.0)
    np.testing.assert_allclose(beliefs[0].weights.sum(axis=0), beliefs[1].weights.sum(axis=0), atol=1e-3)


def test_weights_of_priors_and_of_their_draws_multiply():
    two = [Given(some_draws(PLANE, 2, seed=seed)) for seed in (1, 2)]
    found = LearningPrior(two, Discrepancy([1.0]), log_weights=np.log([0.2, 0.6])).draws(PLANE)
    shares = np.exp(found.log_weights) / np.exp(found.log_weights).sum()
    own = [np.exp(prior.found.log_weights) / np.exp(prior.found.log_weights).sum() for prior in two]
    np.testing.assert_allclose(shares, np.concatenate([0.25 * own[0], 0.75 * own[1]]), rtol=1e-12)


def test_moments_are_those_of_the_belief():
    prior = LearningPrior([Given(some_draws(PLANE, 3))], Discrepancy([0.1, 1.0]))
    mean, covariance = prior.moments(PLANE)
    belief = prior.believe(PLANE)
    np.testing.assert_allclose(mean, belief.mean, rtol=1e-12)
    np.testing.assert_allclose(np.diagonal(covariance), belief.standard_deviation**2, rtol=1e-12)


@pytest.mark.nightly
def test_intervals_are_calibrated_where_the_prior_is_true():
    """Objectives drawn from the prior itself, queried by the search; 300 of them give a standard error near 0.01."""
    rng, draws, discrepancy = np.random.default_rng(0), some_draws(LINE, 4), Discrepancy([0.05, 0.5], [0.1, 0.3])
    prior, covariances = LearningPrior([Given(draws)], discrepancy), discrepancy.covariances(LINE)
    weights = np.exp(draws.log_weights) / np.exp(draws.log_weights).sum()
    shares = []
    for number in range(300):
        j, d = rng.choice(4, p=weights), rng.choice(4)
        root = np.linalg.cholesky(draws.covariances[j] + covariances[d] + 1e-9 * np.eye(25))
        truth = draws.means[j] + root @ rng.normal(size=25)
        search = optimize(
            jax.random.key(number), lambda x, f=truth: f[np.argmin(abs(LINE[:, 0] - x[0]))], LINE, prior, num_queries=10
        )
        belief, own = prior.believe(LINE), []
        for query in range(11):
            seen = search.queries["candidate"].to_numpy()[: query + 1]
            levels = np.delete(belief.cdf(truth), seen[:query])
            own.append(np.mean((levels > 0.05) & (levels < 0.95)))
            belief = belief.observe(int(seen[-1]), float(truth[seen[-1]])) if query < 10 else belief
        shares.append(own)
    coverage = np.mean(shares, axis=0)
    assert ((coverage > 0.85) & (coverage < 0.95)).all(), coverage


def valley(point):
    return (point[0] - 0.5) ** 2 + (point[1] + 0.5) ** 2


@pytest.mark.slow
def test_a_prior_that_is_certain_of_a_wrong_place_is_overcome():
    """With two treatments; the prior's own belief, without a discrepancy, does not reach the place in 12 queries."""
    side = np.linspace(-1.0, 1.0, 9)
    table = pd.DataFrame({"dose": np.repeat(side, 9), "age": np.tile(side, 9)})
    wrong = FunctionPrior(lambda x: (x[:, 0] + 0.75) ** 2 + (x[:, 1] - 0.75) ** 2, RBF(1.0, 1e-4))
    learning = LearningPrior([wrong], Discrepancy([0.01, 0.1, 1.0], [0.2, 0.4, 0.8]))
    stubborn, found = (optimize(KEY, valley, table, prior, num_queries=12) for prior in (wrong, learning))
    assert found.best_value == pytest.approx(0.0, abs=1e-6) and stubborn.queries["value"].min() > 0.1
    np.testing.assert_array_equal(found.best, [0.5, -0.5])
    np.testing.assert_allclose(found.queries["effective_draws"], 1.0, rtol=1e-12)  # one prior with one draw


def test_queries_choose_among_draws(caplog):
    """The objective is the mean of the second draw, which gets most of the weight; the search says so."""
    caplog.set_level("INFO", logger="kpp")
    draws = some_draws(LINE, 5)
    prior = LearningPrior([Given(draws)], Discrepancy([1e-3]))
    truth = draws.means[1]
    search = optimize(KEY, lambda x: truth[np.argmin(abs(LINE[:, 0] - x[0]))], LINE, prior, num_queries=8)
    effective = search.queries["effective_draws"]
    assert 1.0 <= effective.iloc[-1] < 1.5 < 2.0 < effective.iloc[0] <= 5.0
    assert "effective draws of the hyperparameters" in caplog.text
    assert search.best_value == pytest.approx(truth.min(), abs=0.02)


def test_the_noise_is_learned():
    rng = np.random.default_rng(0)
    prior = LearningPrior([KernelPrior(RBF(0.8))], Discrepancy([0.01]), noise_factors=[0.01, 1.0, 100.0])
    search = optimize(
        KEY, lambda x: np.sin(x[0]) + 0.3 * rng.normal(), LINE, prior, num_queries=40, noise_variance=0.09**2 / 9
    )
    weights = search.belief.weights.sum(axis=(0, 1))
    assert weights[2] > 0.99  # 100 times 0.03^2 is the variance of the noise


class WeighedFit:
    """Stands for a fit by Laplace's approximation."""

    num_chains, num_draws = 1, 3
    idata = types.MappingProxyType(
        {
            "sample_stats": xr.Dataset({"lp": (DRAW, [[-1.0, -2.0, 0.5]]), "log_q": (DRAW, [[0.0, 0.5, 0.5]])}),
            "log_likelihood": xr.Dataset({"y": ((*DRAW, "instance"), np.log([[[0.5, 0.2], [0.1, 0.4], [1.0, 0.3]]]))}),
        }
    )

    def predict(self, x, *, covariance=False):
        dims = (*DRAW, "instance")
        covariances = np.broadcast_to(np.eye(len(x)), (1, 3, len(x), len(x)))
        means = np.arange(3.0)[None, :, None] + np.zeros((1, 3, len(x)))
        return xr.Dataset({"mean": (dims, means), "latent_covariance": ((*dims, "instance_other"), covariances)})


def test_draws_by_laplace_have_importance_weights():
    found = FitPrior(WeighedFit(), importance_weights=True).draws(LINE)
    np.testing.assert_allclose(found.log_weights, [-1.0, -2.5, 0.0])
    weights = np.exp(found.log_weights) / np.exp(found.log_weights).sum()
    mean, covariance = FitPrior(WeighedFit(), importance_weights=True).moments(LINE)
    np.testing.assert_allclose(mean, weights @ np.arange(3.0), rtol=1e-12)
    np.testing.assert_allclose(covariance[0, 0], 1 + weights @ (np.arange(3.0) - mean[0]) ** 2, rtol=1e-12)


def test_the_pseudo_evidence_is_the_mean_of_products():
    assert pseudo_evidence(WeighedFit()) == pytest.approx(np.log((0.1 + 0.04 + 0.3) / 3), rel=1e-12)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LearningPrior([], Discrepancy([1.0])), "`priors` must hold at least one prior, got none"),
        (lambda: Discrepancy([-1.0]), "`scales` must be at least 0"),
        (lambda: Discrepancy([]), "`scales` must be a sequence of at least one number"),
        (lambda: Discrepancy([1.0], [0.0]), "`lengthscales` must be positive"),
        (lambda: Discrepancy([1.0], offset=-1.0), "`offset` must be at least 0"),
        (
            lambda: LearningPrior([KernelPrior(RBF(1.0))], Discrepancy([1.0]), log_weights=np.zeros(2)),
            r"`log_weights` must have one number for each of the 1 priors, got shape \(2,\)",
        ),
        (
            lambda: LearningPrior([KernelPrior(RBF(1.0))], Discrepancy([1.0]), noise_factors=[0.0]),
            "`noise_factors` must be positive",
        ),
        (
            lambda: LearningPrior([KernelPrior(RBF(1.0))], Discrepancy([1.0]), estimate="mean"),
            "`estimate` must be one of .'mixture', 'mode'., got 'mean'",
        ),
        (
            lambda: LearningPrior([KernelPrior(Constant(0.0))], Discrepancy([0.0])).believe(LINE),
            "`discrepancy` must have a positive scale",
        ),
    ],
)
def test_bad_arguments_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
