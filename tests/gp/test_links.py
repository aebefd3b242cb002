"""Bernoulli likelihoods: derivatives against differences, expectations against quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from kpp.gp.integrals import links

LINKS = ["logit", "probit"]
probability, log_likelihood, derivatives, expected = (
    jax.jit(f, static_argnums=0)
    for f in (links.probability, links.log_likelihood, links.derivatives, links.expected_log_probability)
)
LATENTS = np.array([-30.0, -6.0, -1.0, 0.0, 0.3, 2.0, 8.0])


@pytest.mark.parametrize("link", LINKS)
def test_both_labels_share_the_probability(link):
    chance = special.expit(LATENTS) if link == "logit" else stats.norm.cdf(LATENTS)
    np.testing.assert_allclose(probability(link, LATENTS), chance, rtol=1e-12)
    for label, f in ((1.0, LATENTS), (0.0, -LATENTS)):
        # JAX's log_ndtr has a relative error of some 1e-10 in the far tail.
        np.testing.assert_allclose(np.exp(log_likelihood(link, np.full(7, label), f)), chance, rtol=1e-9)


@pytest.mark.parametrize("link", LINKS)
def test_log_likelihood_does_not_underflow(link):
    value = log_likelihood(link, np.ones(7), np.full(7, -60.0))
    expected = -60.0 if link == "logit" else stats.norm.logcdf(-60.0)
    np.testing.assert_allclose(value, np.full(7, expected), rtol=1e-12)


@pytest.mark.slow_variants("logit-0.0", "probit-0.0", "logit-1.0")
@pytest.mark.parametrize("label", [0.0, 1.0])
@pytest.mark.parametrize("link", LINKS)
def test_derivatives_are_those_of_the_log_likelihood(link, label):
    y, f = np.full(6, label), LATENTS[1:]

    @jax.jit
    def by_autodiff(f):
        first = jax.grad(lambda f: jnp.sum(log_likelihood(link, y, f)))
        second = jax.grad(lambda f: jnp.sum(first(f)))
        return first(f), -second(f), jax.grad(lambda f: jnp.sum(second(f)))(f)

    found = derivatives(link, y, f)
    # JAX's log_ndtr changes its formula at -20 and 5 and loses digits in its higher derivatives.
    for ours, theirs in zip(found, by_autodiff(f), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)
    assert (np.asarray(found.curvature) > 0).all()


def integral(f, step):
    """Integrate f, a step at some t, over the standard normal law by 20 Gauss-Legendre nodes a panel, dense there."""
    distances = np.concatenate([[0.0], np.geomspace(1e-4, 24.0, 70)])
    breaks = np.unique(np.clip(np.clip(step, -12, 12) + np.concatenate([-distances, distances]), -12, 12))
    nodes, weights = np.polynomial.legendre.leggauss(20)
    half = np.diff(breaks)[:, None] / 2
    t = breaks[:-1, None] + half * (1 + nodes)
    return np.sum(half * weights * stats.norm.pdf(t) * f(t))


# 4.99 and 5.01 are on both sides of where the rule for the logit changes.
@pytest.mark.slow_variants("logit-0.0")
@pytest.mark.parametrize("deviation", [0.0, 0.1, 1.0, 4.99, 5.01, 10.0, 100.0])
@pytest.mark.parametrize("link", LINKS)
def test_expected_probability_is_the_integral(link, deviation):
    means = np.array([-12.0, -1.0, 0.0, 0.5, 6.0])
    found, other = (
        np.exp(expected(link, label, means, np.full(5, deviation**2))) for label in (np.ones(5), np.zeros(5))
    )
    cdf = special.expit if link == "logit" else stats.norm.cdf
    integrals = [integral(lambda t, m=mean: cdf(m + deviation * t), -mean / max(deviation, 1e-9)) for mean in means]
    np.testing.assert_allclose(found, integrals, atol=1e-9)
    np.testing.assert_allclose(found + other, np.ones(5), atol=2e-9)


def test_small_expected_probabilities_keep_their_relative_accuracy():
    # Far below 0 the logistic is exp(f), whose expectation is exp(m + v / 2).
    found = expected("logit", np.ones(5), np.full(5, -60.0), np.full(5, 4.0))
    np.testing.assert_allclose(found, np.full(5, -58.0), atol=1e-8)
