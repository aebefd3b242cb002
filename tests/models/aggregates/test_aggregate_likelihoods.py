"""Likelihoods of aggregates: densities against SciPy, averages over a Gaussian latent value against integration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist
from scipy import special, stats

from kpp_models.aggregates.aggregate_likelihoods import (
    LIKELIHOODS,
    ExpectedLikelihood,
    Observation,
    as_aggregate_targets,
    check_likelihood,
    marginal_log_density,
    observation,
    response_mean,
)

MEAN = np.array([-3.0, 0.0, 0.5, 2.0, 1.0])
VARIANCE = np.array([0.0, 0.3, 1.0, 4.0, 9.0])
EXPOSURE = np.array([5.0, 3.0, 10.0, 2.0, 7.0])
NOISE, FREEDOM = 0.3, 3.5

# Targets near what is expected and far from it, and the log density by SciPy.
CASES = {
    "gaussian": ([0.1, -4.0, 3.0, 2.0, 1.0], lambda y, g, e: stats.norm.logpdf(y, g, np.sqrt(NOISE))),
    "poisson": ([0.0, 3.0, 40.0, 1.0, 9.0], lambda y, g, e: stats.poisson.logpmf(y, e * np.exp(g))),
    "bernoulli": ([0.0, 1.0, 1.0, 0.0, 1.0], lambda y, g, e: stats.bernoulli.logpmf(y, special.expit(g))),
    "binomial": ([0.0, 3.0, 4.0, 1.0, 7.0], lambda y, g, e: stats.binom.logpmf(y, e, special.expit(g))),
    "student_t": ([0.1, -4.0, 30.0, 2.0, 1.0], lambda y, g, e: stats.t.logpdf(y, FREEDOM, g, np.sqrt(NOISE))),
}


# One of each way to average; gradients take half of the time that compiling takes.
DIFFERENTIATED = ["poisson", "binomial", "student_t"]


def make_of(likelihood):
    exposure = EXPOSURE if likelihood in ("poisson", "binomial") else None
    return Observation(likelihood, exposure, NOISE, FREEDOM)


def integrals(f):
    """Integrate f(targets, g), elementwise, over the normal law of g by 20 Gauss-Legendre nodes a quarter deviation."""
    breaks = np.linspace(-13.0, 13.0, 105)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    half = 0.5 * (breaks[1] - breaks[0])
    t = (breaks[:-1, None] + half + half * nodes).reshape(-1, 1)
    return np.tile(half * weights, len(breaks) - 1) @ (f(MEAN + np.sqrt(VARIANCE) * t) * stats.norm.pdf(t))


def by_function(g, exposure):
    return dist.Poisson(exposure * jnp.exp(g))


@pytest.fixture(scope="module")
def averages():
    """Log densities of every likelihood, their averages, and gradients by mean and variance, compiled together."""

    def of_one(make, y, with_gradients=False):
        y, mean, variance = jnp.asarray(y), jnp.asarray(MEAN), jnp.asarray(VARIANCE)

        def both(mean, variance):
            return [marginal_log_density(make, y, mean, variance), ExpectedLikelihood(make, mean, variance).log_prob(y)]

        if not with_gradients:
            values, gradients = both(mean, variance), None
        else:
            values, pull_back = jax.vjp(both, mean, variance)
            ones, zeros = jnp.ones(5), jnp.zeros(5)
            gradients = {"marginal": pull_back([ones, zeros]), "expected": pull_back([zeros, ones])}
        mean = response_mean(make, MEAN, VARIANCE)
        return {"marginal": values[0], "expected": values[1], "mean": mean, "gradients": gradients}

    def of_all():
        found = {name: of_one(make_of(name), y, name in DIFFERENTIATED) for name, (y, _) in CASES.items()}
        for name, (y, _) in CASES.items():
            law = observation(name, jnp.asarray(MEAN), make_of(name).exposure, NOISE, FREEDOM)
            assert law.batch_shape == MEAN.shape
            found[name]["plain"] = law.log_prob(jnp.asarray(y))
        found["counts by function"] = of_one(Observation(by_function, EXPOSURE), CASES["poisson"][0])
        return found

    return jax.tree.map(np.asarray, jax.jit(of_all)())


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_log_density_is_that_of_scipy(likelihood, averages):
    y, density = CASES[likelihood]
    np.testing.assert_allclose(averages[likelihood]["plain"], density(np.array(y), MEAN, EXPOSURE), rtol=1e-10)


# Both sides are sums that have converged to rounding; 1e-10 is far below what any use of them can tell.
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_marginal_log_density_is_the_integral(likelihood, averages):
    y, density = CASES[likelihood]
    expected = integrals(lambda g: np.exp(density(y, g, EXPOSURE)))
    np.testing.assert_allclose(averages[likelihood]["marginal"], np.log(expected), atol=1e-10)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_expected_log_density_is_the_integral(likelihood, averages):
    y, density = CASES[likelihood]
    expected = integrals(lambda g: density(y, g, EXPOSURE))
    np.testing.assert_allclose(averages[likelihood]["expected"], expected, rtol=1e-10)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_response_mean_is_the_integral(likelihood, averages):
    means = {
        "poisson": lambda g: EXPOSURE * np.exp(g),
        "bernoulli": lambda g: special.expit(g),
        "binomial": lambda g: EXPOSURE * special.expit(g),
    }
    expected = integrals(means.get(likelihood, lambda g: g))
    # The error of the mean of a sigmoid is below 1e-9 (kpp.gp.links), others are in closed form.
    np.testing.assert_allclose(averages[likelihood]["mean"], expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("what", ["marginal", "expected", "mean"])
def test_functions_are_likelihoods_too(what, averages):
    # The same law by its name: general sums meet special formulas. The nodes reach far enough for exp(g).
    np.testing.assert_allclose(averages["counts by function"][what], averages["poisson"][what], rtol=1e-10)


def test_large_counts_are_met_by_the_nodes():
    # 1e4 counts are known to 1 % and the latent value only to a factor of e; p(y) is close to that of the rate's prior,
    # log N(log y; 0, 1 + 1/y) - log y, to the order 1/y.
    found = jax.jit(marginal_log_density)(Observation("poisson"), np.array([1e4]), np.zeros(1), np.ones(1))
    expected = stats.norm.logpdf(np.log(1e4), 0.0, 1.0) - np.log(1e4)
    np.testing.assert_allclose(found, [expected], atol=5e-3)


@pytest.mark.slow
def test_student_t_becomes_gaussian_with_many_degrees_of_freedom(averages):
    make, y = Observation("student_t", None, NOISE, 1e8), jnp.asarray(CASES["gaussian"][0])
    # The difference is of the order r^4 / 1e8, r the largest residual in units of the noise's scale.
    marginal = jax.jit(marginal_log_density)(make, y, MEAN, VARIANCE)
    np.testing.assert_allclose(marginal, averages["gaussian"]["marginal"], rtol=1e-5)
    expected = jax.jit(lambda make: ExpectedLikelihood(make, MEAN, VARIANCE).log_prob(y))(make)
    np.testing.assert_allclose(expected, averages["gaussian"]["expected"], rtol=1e-5)


@pytest.mark.parametrize("likelihood", DIFFERENTIATED)
def test_gradients_are_finite_even_where_the_variance_is_zero(likelihood, averages):
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(averages[likelihood]["gradients"]))


def test_gradients_are_those_of_price_and_bonnet(averages):
    # d/dmu E h = E h', d/dv E h = E h'' / 2; for counts h' = y - e exp(g), h'' = -e exp(g).
    rate = EXPOSURE * np.exp(MEAN + VARIANCE / 2)
    by_mean, by_variance = averages["poisson"]["gradients"]["expected"]
    np.testing.assert_allclose(by_mean, CASES["poisson"][0] - rate, rtol=1e-12)
    np.testing.assert_allclose(by_variance, -rate / 2, rtol=1e-12)


def test_gradients_of_a_marginal_go_through_the_moved_nodes(averages):
    # Fisher's identity, d/dmu log int p N = E[g - mu | y] / v, the posterior mean by integration.
    y, density = CASES["binomial"]
    mass = integrals(lambda g: np.exp(density(y, g, EXPOSURE)))
    first = integrals(lambda g: (g - MEAN) * np.exp(density(y, g, EXPOSURE)))
    expected = (first / mass)[1:] / VARIANCE[1:]
    np.testing.assert_allclose(averages["binomial"]["gradients"]["marginal"][0][1:], expected, rtol=1e-9)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_bound_is_below_the_marginal(likelihood, averages):
    found = averages[likelihood]
    assert (found["expected"] <= found["marginal"] + 1e-9).all()  # Jensen; equal where the variance is zero


def test_expected_likelihood_draws_latent_values_and_then_targets():
    law = ExpectedLikelihood(make_of("gaussian"), MEAN, VARIANCE)
    assert law.batch_shape == (5,) and law.event_shape == ()
    draws = np.asarray(jax.jit(lambda key: law.sample(key, (10, 100)))(jax.random.key(0))).reshape(1000, 5)
    # Five standard errors of means and of variances of 1000 normal numbers.
    np.testing.assert_array_less(np.abs(draws.mean(0) - MEAN), 5 * np.sqrt((VARIANCE + NOISE) / 1000))
    np.testing.assert_allclose(draws.var(0), VARIANCE + NOISE, rtol=5 * np.sqrt(2 / 1000))


def test_taking_some_targets_takes_their_exposure_and_noise():
    rows = jnp.array([3, 1])
    make = Observation("student_t", None, jnp.arange(1.0, 6.0), FREEDOM).take(rows)
    np.testing.assert_array_equal(make.noise_variance, [4.0, 2.0])
    np.testing.assert_array_equal(make_of("binomial").take(rows).exposure, [2.0, 3.0])


@pytest.mark.parametrize(
    ("likelihood", "y", "exposure", "message"),
    [
        ("poisson", [1.0, -1.0], None, "`y` must hold counts .* got -1 at index 1"),
        ("poisson", [1.5, 2.0], None, "`y` must hold counts .* got 1.5 at index 0"),
        ("poisson", [1, 2], [1.0, 0.0], "`exposure` must be positive"),
        ("poisson", [1, 2], [1.0], "`y` and `exposure` must have the same number of rows"),
        ("binomial", [1, 2], None, "`exposure` must give the number of trials"),
        ("binomial", [1, 4], [3, 3], "`y` must not exceed `exposure`"),
        ("binomial", [1, 2], [3, 2.5], "`exposure` must hold whole numbers"),
        ("bernoulli", [0, 2], None, "labels 0 and 1"),
        ("gaussian", [0.1, 2], [1, 1], "`exposure` must be None"),
        ("student_t", [0.1, np.nan], None, "`y` must be finite"),
        ("cauchy", [0.1, 1.0], None, "`likelihood` must be one of"),
    ],
)
def test_unfit_targets_are_refused(likelihood, y, exposure, message):
    with pytest.raises(ValueError, match=message):
        as_aggregate_targets(likelihood, y, exposure)


def test_fit_targets_become_floats():
    y, exposure = as_aggregate_targets("binomial", [1, 2], [3, 2])
    assert y.dtype == exposure.dtype == jnp.float64
    assert as_aggregate_targets("poisson", [0, 2])[1] is None
    check_likelihood(lambda g, exposure: dist.Normal(g, 1.0))
