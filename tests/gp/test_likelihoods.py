"""Likelihoods of one latent value: densities against SciPy, averages against integration, draws against means."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

from kpp.gp import (
    AbstractPointwiseLikelihood,
    BernoulliLikelihood,
    BinomialLikelihood,
    FunctionLikelihood,
    GaussianLikelihood,
    LaplaceMarginal,
    NegativeBinomialLikelihood,
    OrdinalLikelihood,
    PoissonLikelihood,
    StudentTLikelihood,
)
from kpp.gp.toolkit import LatentObservations

LATENT = np.array([-4.0, -0.7, 0.0, 1.2, 2.5])
VARIANCE = np.array([0.2, 0.0, 1.0, 4.0, 6.0])
EXPOSURE = np.array([5.0, 3.0, 10.0, 2.0, 7.0])
ROW_VARIANCES = np.array([0.1, 0.0, 0.5, 2.0, 1.0])
SCALES = np.array([0.4, 1.0, 2.0, 0.1, 0.7])
CUTPOINTS = np.array([-1.0, 0.5, 0.75])


def ordinal(y, f):
    ends = np.concatenate([[-np.inf], CUTPOINTS, [np.inf]])
    level = np.asarray(y, int)
    return np.log(special.expit(ends[level + 1] - f) - special.expit(ends[level] - f))


def negative_binomial(y, f):
    mean = EXPOSURE * np.exp(f)
    return stats.nbinom.logpmf(y, 2.5, 2.5 / (2.5 + mean))


def by_function(f, exposure):
    return dist.Exponential(jnp.exp(-f) / exposure)


# The likelihood, observations that are likely and unlikely, the log density by SciPy, and the mean given f.
CASES = {
    "gaussian": (
        GaussianLikelihood(noise_variance=0.3, row_variances=ROW_VARIANCES),
        [-3.0, -0.7, 2.0, 1.0, 3.0],
        lambda y, f: stats.norm.logpdf(y, f, np.sqrt(0.3 + ROW_VARIANCES)),
        lambda f: f,
    ),
    "student_t": (
        StudentTLikelihood(scale=SCALES, degrees_of_freedom=3.5),
        [-3.0, -0.7, 30.0, 1.0, 3.0],
        lambda y, f: stats.t.logpdf(y, 3.5, f, SCALES),
        lambda f: f,
    ),
    "logit": (
        BernoulliLikelihood(),
        [1.0, 0.0, 1.0, 0.0, 1.0],
        lambda y, f: special.log_expit((2 * y - 1) * f),
        special.expit,
    ),
    "probit": (
        BernoulliLikelihood(link="probit"),
        [1.0, 0.0, 1.0, 0.0, 1.0],
        lambda y, f: stats.norm.logcdf((2 * y - 1) * f),
        stats.norm.cdf,
    ),
    "poisson": (
        PoissonLikelihood(exposure=EXPOSURE),
        [0.0, 3.0, 40.0, 1.0, 9.0],
        lambda y, f: stats.poisson.logpmf(y, EXPOSURE * np.exp(f)),
        lambda f: EXPOSURE * np.exp(f),
    ),
    "negative_binomial": (
        NegativeBinomialLikelihood(concentration=2.5, exposure=EXPOSURE),
        [0.0, 3.0, 40.0, 1.0, 9.0],
        negative_binomial,
        lambda f: EXPOSURE * np.exp(f),
    ),
    "binomial": (
        BinomialLikelihood(exposure=EXPOSURE),
        [0.0, 3.0, 4.0, 1.0, 7.0],
        lambda y, f: stats.binom.logpmf(y, EXPOSURE, special.expit(f)),
        lambda f: EXPOSURE * special.expit(f),
    ),
    "ordinal": (
        OrdinalLikelihood(first_cutpoint=-1.0, gaps=(1.5, 0.25)),
        [0.0, 1.0, 2.0, 3.0, 0.0],
        ordinal,
        lambda f: sum(special.expit(f - cut) for cut in CUTPOINTS),  # E y = sum of P(y > k)
    ),
    "function": (
        FunctionLikelihood(by_function, exposure=EXPOSURE),
        [0.1, 3.0, 40.0, 1.0, 9.0],
        lambda y, f: stats.expon.logpdf(y, scale=EXPOSURE * np.exp(f)),
        lambda f: EXPOSURE * np.exp(f),
    ),
}


def integrals(function):
    """Integrate over the normal law of each latent value by 20 Gauss-Legendre nodes a quarter deviation."""
    breaks = np.linspace(-13.0, 13.0, 105)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    half = 0.5 * (breaks[1] - breaks[0])
    t = (breaks[:-1, None] + half + half * nodes).reshape(-1, 1)
    return np.tile(half * weights, len(breaks) - 1) @ (function(LATENT + np.sqrt(VARIANCE) * t) * stats.norm.pdf(t))


# One of each way to average; gradients take half of the time that compiling takes.
DIFFERENTIATED = ["student_t", "poisson", "binomial"]


def gradients(likelihood, y):
    """The gradients by mean and variance of the averages of the log density."""
    law, y = likelihood.observe(jnp.asarray(y)), jnp.asarray(y)

    def both(mean, variance):
        return law.marginal_log_density(mean, variance), LatentObservations(likelihood, mean, variance).log_prob(y)

    pull_back = jax.vjp(both, jnp.asarray(LATENT), jnp.asarray(VARIANCE))[1]
    ones, zeros = jnp.ones(5), jnp.zeros(5)
    return {"marginal": pull_back((ones, zeros)), "expected": pull_back((zeros, ones))}


def quantities(likelihood, y):
    """Everything that a likelihood computes from the observations and a Gaussian law of the latent values."""
    seen, mean, variance = likelihood.observe(jnp.asarray(y)), jnp.asarray(LATENT), jnp.asarray(VARIANCE)
    return {
        "density": seen.log_density(mean),
        "derivatives": seen.derivatives(mean),
        "by differentiation": AbstractPointwiseLikelihood.derivatives(seen, mean),
        "marginal": seen.marginal_log_density(mean, variance),
        "expected": LatentObservations(likelihood, mean, variance).log_prob(jnp.asarray(y)),
        "response": LatentObservations(likelihood, mean, variance).mean,
        "some": seen.take(jnp.array([3, 1])).log_density(mean[jnp.array([3, 1])]),
        "mean of draws": LatentObservations(likelihood, mean, 0.2 * variance).mean,
    }


@pytest.fixture(scope="module")
def found():
    """The quantities of all likelihoods, compiled together."""
    likelihoods = {name: case[0] for name, case in CASES.items()}
    compiled = jax.jit(lambda: {name: quantities(each, CASES[name][1]) for name, each in likelihoods.items()})
    return jax.tree.map(np.asarray, compiled())


@pytest.fixture(scope="module")
def slopes():
    compiled = jax.jit(lambda: {name: gradients(*CASES[name][:2]) for name in DIFFERENTIATED})
    return jax.tree.map(np.asarray, compiled())


@pytest.mark.slow_variants("gaussian", "student_t", "logit")
@pytest.mark.parametrize("name", CASES)
def test_log_density_is_that_of_scipy(name, found):
    _, y, density, _ = CASES[name]
    expected = density(np.array(y), LATENT)
    np.testing.assert_allclose(found[name]["density"], expected, rtol=1e-9)  # of the far tail of the probit
    np.testing.assert_allclose(found[name]["some"], expected[[3, 1]], rtol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_the_log_density(name, found):
    for formula, differentiated in zip(found[name]["derivatives"], found[name]["by differentiation"], strict=True):
        np.testing.assert_allclose(formula, differentiated, rtol=1e-6, atol=1e-9)  # log_ndtr's derivatives lose digits


@pytest.mark.parametrize("name", CASES)
def test_curvature_is_positive_where_the_likelihood_says_so(name, found):
    # Student's t is not log-concave: the observation 30 lies far from its latent value.
    assert np.all(found[name]["derivatives"].curvature > 0) == CASES[name][0].log_concave or name == "function"
    assert (found[name]["derivatives"].curvature[2] < 0) == (name == "student_t")


# Both sides are sums that have converged to rounding, except for the expected log density of the probit at a variance
# of 6, of which 64 nodes give eight digits.
@pytest.mark.parametrize("name", CASES)
def test_averages_are_the_integrals(name, found):
    _, y, density, mean = CASES[name]
    marginal = np.log(integrals(lambda f: np.exp(density(np.array(y), f))))
    np.testing.assert_allclose(found[name]["marginal"], marginal, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found[name]["expected"], integrals(lambda f: density(np.array(y), f)), rtol=2e-8)
    # The error of the mean of a sigmoid is below 1e-9 (kpp.gp.integrals.links).
    np.testing.assert_allclose(found[name]["response"], integrals(mean), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_the_bound_is_below_the_marginal(name, found):
    # Jensen; equal where the variance is zero.
    assert (found[name]["expected"] <= found[name]["marginal"] + 1e-9).all()


@pytest.mark.slow_variants("student_t", "poisson", "binomial")
@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_gradients_are_finite_even_where_the_variance_is_zero(name, slopes):
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes[name]))


def test_gradients_are_those_of_price_and_bonnet(slopes):
    # d/dmu E h = E h', d/dv E h = E h'' / 2; for counts h' = y - e exp(g), h'' = -e exp(g).
    rate = EXPOSURE * np.exp(LATENT + VARIANCE / 2)
    by_mean, by_variance = slopes["poisson"]["expected"]
    np.testing.assert_allclose(by_mean, CASES["poisson"][1] - rate, rtol=1e-12)
    np.testing.assert_allclose(by_variance, -rate / 2, rtol=1e-12)


def test_gradients_of_a_marginal_go_through_the_moved_nodes(slopes):
    # Fisher's identity, d/dmu log int p N = E[f - mu | y] / v, the posterior mean by integration.
    _, y, density, _ = CASES["binomial"]
    mass = integrals(lambda f: np.exp(density(y, f)))
    first = integrals(lambda f: (f - LATENT) * np.exp(density(y, f)))
    known = VARIANCE > 0
    expected = (first / mass)[known] / VARIANCE[known]
    np.testing.assert_allclose(slopes["binomial"]["marginal"][0][known], expected, rtol=1e-9)


@pytest.mark.slow
def test_large_counts_are_met_by_the_nodes():
    # 1e4 counts are known to 1 % and the latent value only to a factor of e; p(y) is close to that of the rate's prior,
    # log N(log y; 0, 1 + 1/y) - log y, to the order 1/y.
    law = PoissonLikelihood(np.array([1e4]))
    found = jax.jit(lambda mean, variance: law.marginal_log_density(mean, variance))(np.zeros(1), np.ones(1))
    expected = stats.norm.logpdf(np.log(1e4), 0.0, 1.0) - np.log(1e4)
    np.testing.assert_allclose(found, [expected], atol=5e-3)


@pytest.mark.slow
def test_student_t_becomes_gaussian_with_many_degrees_of_freedom():
    y = jnp.asarray(CASES["gaussian"][1])
    averages = jax.jit(lambda each: [quantities(each, y)[what] for what in ("marginal", "expected")])
    found, expected = map(
        averages, (StudentTLikelihood(scale=np.sqrt(0.3), degrees_of_freedom=1e8), GaussianLikelihood(None, 0.3))
    )
    # The difference is of the order r^4 / 1e8, r the largest residual in units of the noise's scale.
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_draws_have_the_mean(name, found):
    law = LatentObservations(CASES[name][0], jnp.asarray(LATENT), jnp.asarray(0.2 * VARIANCE))
    # Operation by operation, likelihoods share JAX's programs for draws from a gamma or a Poisson law.
    draws, expected = np.asarray(law.sample(jax.random.key(0), (5_000,))), found[name]["mean of draws"]
    np.testing.assert_array_less(abs(draws.mean(0) - expected), 5 * draws.std(0) / np.sqrt(len(draws)) + 1e-9)
    assert np.all(CASES[name][0].support(jnp.asarray(draws[0])))


@pytest.mark.nightly
def test_variances_of_draws_are_known():
    key, n = jax.random.key(1), 200_000
    scale = jnp.full(n, 0.5)  # of one latent value, seen n times
    counts = NegativeBinomialLikelihood(concentration=2.0).draw(key, scale)
    mean = np.exp(0.5)
    # Five standard errors of a variance, with the fourth moments of the draws.
    for draws, variance in (
        (np.asarray(counts), mean + mean**2 / 2.0),
        (np.asarray(StudentTLikelihood(scale=2.0, degrees_of_freedom=9.0).draw(key, scale)), 4.0 * 9.0 / 7.0),
    ):
        spread = np.square(draws - draws.mean())
        assert abs(spread.mean() - variance) < 5 * spread.std() / np.sqrt(n)


@pytest.mark.parametrize("name", ["ordinal", "negative_binomial"])
def test_probabilities_of_all_values_sum_to_one(name):
    likelihood = CASES[name][0]
    values = jnp.arange(4.0) if name == "ordinal" else jnp.arange(3000.0)
    if name == "negative_binomial":
        likelihood = NegativeBinomialLikelihood(concentration=2.5)
    total = jax.jit(jax.vmap(lambda f: jnp.exp(likelihood.observe(values).log_density(f + 0 * values)).sum()))
    np.testing.assert_allclose(total(jnp.array([-2.0, 0.0, 2.0])), 1.0, rtol=1e-10)


@pytest.mark.slow
def test_levels_have_the_predicted_probabilities():
    likelihood = CASES["ordinal"][0]
    found = jax.jit(lambda *law: likelihood.predict(*law))(jnp.asarray(LATENT), jnp.asarray(VARIANCE))
    expected = [integrals(lambda f, k=k: np.exp(ordinal(np.full(5, k), f))) for k in range(4)]
    np.testing.assert_allclose(found["level_probability"], np.stack(expected, axis=1), atol=1e-9)
    assert likelihood.num_levels == 4
    np.testing.assert_allclose(likelihood.cutpoints, CUTPOINTS)


@pytest.mark.slow
def test_many_successes_in_one_trial_each_are_labels():
    labels = jnp.asarray([1.0, 0.0, 1.0, 0.0, 1.0])

    compiled = jax.jit(lambda likelihood: quantities(likelihood, labels))
    both = compiled(BinomialLikelihood()), compiled(BernoulliLikelihood())
    for value, other in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-9, atol=1e-12)


def test_poisson_is_the_limit_of_large_concentrations():
    y, f = jnp.asarray([0.0, 3.0, 4.0, 1.0, 9.0]), jnp.asarray(LATENT)
    found = jax.jit(lambda f: NegativeBinomialLikelihood(y, 1e9).log_density(f))(f)
    # The difference is of the order (mean^2 + y^2) / concentration; gammaln of 1e9 has an error of 1e-6.
    np.testing.assert_allclose(found, stats.poisson.logpmf(y, np.exp(f)), atol=1e-5)


def test_rates_that_overflow_leave_finite_slopes():
    y, f = jnp.zeros(2), jnp.asarray([0.0, 800.0])
    value, slope = jax.jit(jax.value_and_grad(lambda f: PoissonLikelihood(y).log_density(f).sum()))(f)
    assert np.isfinite(value)
    assert np.all(np.isfinite(slope)) and slope[1] < -1e200


BAD = {
    "a concentration": (lambda: NegativeBinomialLikelihood(concentration=0.0), "`concentration` must be positive"),
    "a scale": (lambda: StudentTLikelihood(scale=-1.0), "`scale` must be positive"),
    "freedom": (lambda: StudentTLikelihood(degrees_of_freedom=0.0), "`degrees_of_freedom` must be positive"),
    "a gap": (lambda: OrdinalLikelihood(gaps=(1.0, 0.0)), "`gaps` must be positive"),
    "one gap without an axis": (
        lambda: OrdinalLikelihood(gaps=1.0),
        r"`gaps` must have shape \(K - 1,\).*got shape \(\)",
    ),
    "no gaps": (lambda: OrdinalLikelihood(gaps=()), "for two levels use BernoulliLikelihood"),
    "a link": (lambda: BernoulliLikelihood(link="cloglog"), "`link` must be"),
    "half a count": (lambda: PoissonLikelihood().read_targets([1.0, 1.5]), r"counts .*integers.*got 1\.5 at index 1"),
    "a negative count": (lambda: PoissonLikelihood().read_targets([-1.0, 1.0]), r"got -1 at index 0"),
    "no count": (lambda: PoissonLikelihood().read_targets([np.nan, 1.0]), "`y`"),
    "no exposure": (lambda: PoissonLikelihood().with_exposure([1.0, 0.0]), "`exposure` must be positive"),
    "a negative exposure": (lambda: PoissonLikelihood(exposure=np.array([2.0, -1.0])), "positive.* got -1 at index 1"),
    "an exposure of 0": (lambda: NegativeBinomialLikelihood(1.0, exposure=0.0), "`exposure` must be positive"),
    "an infinite exposure": (
        lambda: PoissonLikelihood(exposure=[np.inf, 1.0]),
        "`exposure` must be positive and finite",
    ),
    "masked exposures": (lambda: PoissonLikelihood(exposure=np.ma.masked_equal([1.0, 2.0], 2.0)), "1 masked entries"),
    "masked counts": (lambda: PoissonLikelihood(np.ma.masked_equal([1.0, 2.0], 2.0)), "1 masked entries"),
    "half a trial of a likelihood": (
        lambda: BinomialLikelihood(exposure=np.array([1.0, 2.5])),
        "whole numbers of trials",
    ),
    "half a trial": (lambda: BinomialLikelihood().with_exposure([1.0, 2.5]), "whole numbers of trials"),
    "too many successes": (
        lambda: BinomialLikelihood(exposure=jnp.ones(2)).read_targets([1.0, 2.0]),
        "`y` must not exceed `exposure`",
    ),
    "successes without trials": (
        lambda: BinomialLikelihood().read_targets([1.0, 2.0]),
        r"`exposure`, the number of trials \(1 without it: give `exposure=`, .*, got 2 at index 1",
    ),
    "a level": (lambda: OrdinalLikelihood(gaps=(1.0,)).read_targets([0.0, 3.0]), "whole numbers from 0 to 2"),
    "Laplace for outliers": (
        lambda: LaplaceMarginal(0.0, jnp.eye(2), StudentTLikelihood()),
        "must be log-concave.*StudentTLikelihood",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused(case):
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.slow
@pytest.mark.parametrize("deviation", [0.5, 1.5, 10.0, 300.0])
def test_expected_log_probit_is_the_integral_for_wide_laws(deviation):
    means = np.array([0.0, -2.0, 3.0, 35.0])
    likelihood = BernoulliLikelihood(np.ones(4), "probit")
    found = likelihood.expected_log_density(means, np.full(4, deviation**2))
    white = np.linspace(-12.0, 12.0, 200_001)[:, None]
    values = special.log_ndtr(means + deviation * white) * stats.norm.pdf(white)
    expected = values.sum(axis=0) * (white[1, 0] - white[0, 0])
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)
    if deviation == 10.0:
        np.testing.assert_allclose(found[0], -26.38033, atol=1e-5)
