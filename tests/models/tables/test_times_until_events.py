"""Piecewise constant hazards have the likelihood of counts, and failure times with intervals that of SciPy's laws."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import fisk, kstest, lognorm, weibull_min

import kpp
from kpp.gp import PoissonLikelihood
from kpp.kernels import RBF
from kpp_models import FailureTimeLikelihood, GeneralizedGP

RNG = np.random.default_rng(0)
ENDS = np.array([0.5, 1.0, 2.0])
STARTS = np.array([0.0, 0.5, 1.0])
TIMES, EVENTS, ENTRIES = np.array([0.3, 0.9, 1.7, 2.0, 1.2]), np.array([1, 0, 1, 0, 1]), np.array([0.0, 0.2, 0, 0.6, 1])


def log_density(log_hazards):
    """The law of censored times by its definition: log hazard at the event minus the hazard integrated numerically."""
    total = 0.0
    for i, (time, event, entry) in enumerate(zip(TIMES, EVENTS, ENTRIES, strict=True)):
        grid = np.linspace(entry, time, 200_001)
        middle = (grid[1:] + grid[:-1]) / 2
        hazards = np.exp(log_hazards[i])[np.searchsorted(ENDS, middle)]
        total += event * log_hazards[i][np.searchsorted(ENDS, time)] - hazards.mean() * (time - entry)
    return total


@pytest.mark.slow_variants("0.5")
@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_the_likelihood_of_counts_is_that_of_censored_times(scale):
    """Up to a constant, which a second function removes. The integral has 200,000 steps: an error near 1e-5."""
    observed = np.clip(np.minimum(TIMES[:, None], ENDS) - np.maximum(ENTRIES[:, None], STARTS), 0.0, None)
    counts = (EVENTS[:, None] == 1) & (TIMES[:, None] <= ENDS) & (TIMES[:, None] > STARTS)
    kept = observed > 0
    likelihood = PoissonLikelihood().with_exposure(observed[kept]).observe(jnp.asarray(counts[kept], float))
    functions = scale * RNG.normal(size=(2, *observed.shape))
    found = [float(likelihood.log_density(f[kept]).sum()) for f in functions]
    expected = [log_density(f) for f in functions]
    assert found[0] - found[1] == pytest.approx(expected[0] - expected[1], abs=1e-3 * scale)


SCALE = 0.4
#: The laws of SciPy by latent values: T = exp(f + SCALE Z).
LAWS = {
    "weibull": lambda f: weibull_min(1 / SCALE, scale=np.exp(f)),
    "lognormal": lambda f: lognorm(SCALE, scale=np.exp(f)),
    "loglogistic": lambda f: fisk(1 / SCALE, scale=np.exp(f)),
}
#: Exact, right-, left- and interval-censored; the last two intervals lie far in the upper and in the lower tail.
LOWER = np.array([0.5, 2.0, 0.0, 0.5, 1.0, 3.0, 0.01])
UPPER = np.array([0.5, np.inf, 0.7, 1.0, 2.5, 3.01, 0.02])
LATENT = np.array([0.3, -0.2, 1.0, 0.1, 0.0, -0.5, 0.9])


def likelihood(law, scale=SCALE, lower=LOWER, upper=UPPER):
    return FailureTimeLikelihood(law, scale, upper).observe(jnp.asarray(lower))


@pytest.mark.parametrize("law", LAWS)
def test_log_densities_are_scipys(law):
    """Differences of SciPy's distribution function, or of its survival function where these are smaller."""
    theirs = LAWS[law](LATENT)
    below, above = theirs.cdf(UPPER) - theirs.cdf(LOWER), theirs.sf(LOWER) - theirs.sf(UPPER)
    expected = np.where(theirs.cdf(UPPER) < 0.5, below, above)
    expected[0] = theirs.pdf(LOWER[0])[0]
    np.testing.assert_allclose(likelihood(law).log_density(jnp.asarray(LATENT)), np.log(expected), rtol=1e-9)


@pytest.mark.slow_variants("weibull", "lognormal")
@pytest.mark.parametrize("law", LAWS)
def test_log_densities_are_concave_with_finite_derivatives_at_all_scales(law):
    """Values against central differences, 1e-5 of which is their own error; signs at latent values from -30 to 30."""
    ours = likelihood(law)
    found, step = ours.derivatives(jnp.asarray(LATENT)), 1e-4
    up, at, down = (np.asarray(ours.log_density(jnp.asarray(LATENT + shift))) for shift in (step, 0.0, -step))
    np.testing.assert_allclose(found.gradient, (up - down) / (2 * step), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.curvature, -(up - 2 * at + down) / step**2, rtol=1e-4, atol=1e-5)
    for scale in (0.1, 0.4, 3.0):
        for f in np.linspace(-30.0, 30.0, 13):
            far = likelihood(law, scale).derivatives(jnp.full(len(LOWER), f))
            assert all(np.isfinite(part).all() for part in far)
            assert (np.asarray(far.curvature) >= -1e-8 * (1.0 + np.abs(far.gradient))).all()


@pytest.mark.parametrize("law", LAWS)
def test_draws_and_survival_have_scipys_law(law):
    """Kolmogorov's test of 20,000 draws, above a probability of 1e-3 for this fixed key; survival to rounding."""
    ours, theirs = likelihood(law), LAWS[law](0.3)
    assert kstest(np.asarray(ours.draw(jax.random.key(1), jnp.full(20_000, 0.3))), theirs.cdf).pvalue > 1e-3
    times = np.array([0.5, 1.0, 4.0])
    np.testing.assert_allclose(ours.survival(jnp.full(2, 0.3), times), np.tile(theirs.sf(times), (2, 1)), rtol=1e-9)
    found = ours.predict(jnp.full(2, 0.3), jnp.full(2, 0.1))["median_time"]
    np.testing.assert_allclose(found, np.full(2, theirs.median()), rtol=1e-9)


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        ([1.0, -1.0], None, "`y` must hold times, at least 0, got -1 at index 1"),
        ([1.0, 0.0], None, "`y` must be positive for an event at that time, got 0 at index 1"),
        ([1.0, 2.0], [1.0, 1.5], "`upper` must not be smaller than `y`, got 1.5 at index 1"),
        ([1.0, 2.0], [1.0, np.nan], "`upper` must not be smaller than `y`, got nan at index 1"),
        ([1.0, 2.0], [1.0], "`upper`"),
    ],
)
def test_times_that_cannot_be_are_refused(lower, upper, message):
    with pytest.raises(ValueError, match=message):
        FailureTimeLikelihood("weibull", 1.0, upper).read_targets(lower)


def test_unknown_laws_are_refused():
    with pytest.raises(ValueError, match="`law` must be one of .*did you mean 'weibull'"):
        FailureTimeLikelihood("weibul")


@pytest.mark.slow
@pytest.mark.parametrize("latent", ["laplace", "sample"])
def test_a_fit_of_intervals_finds_scales_and_scores_held_out_rows(latent, tmp_path):
    """The slope -0.5 of 60 rows within 0.25, four standard errors of a regression on the exact logarithms."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 1))
    time = np.exp(0.2 - 0.5 * x[:, 0] + 0.4 * rng.normal(size=60))
    visits = np.array([0.0, 0.5, 1.0, 1.5, 2.0, np.inf])
    place = np.searchsorted(visits, time)
    lower, upper = visits[place - 1], visits[place]
    lower[:20] = upper[:20] = time[:20]
    law = FailureTimeLikelihood("lognormal", dist.LogNormal(-1.0, 0.5), upper)
    model = GeneralizedGP(RBF(2.0), law, mean=dist.Normal(0.0, 1.0), latent=latent)
    fit = model.fit(jax.random.key(0), x, lower, inference=kpp.MAP(progress=False))
    found = fit.predict(np.array([[-1.0], [1.0]]))
    assert float(np.diff(found["mean"].to_numpy().ravel())[0]) / 2 == pytest.approx(-0.5, abs=0.25)
    assert set(found.data_vars) >= {"median_time"} and np.isfinite(fit.idata["log_likelihood"]["y"]).all()
    fit.save(tmp_path / "fit.zarr")
    again = kpp.Fit.load(tmp_path / "fit.zarr").predict(np.array([[-1.0], [1.0]]))
    np.testing.assert_allclose(again["median_time"], found["median_time"], rtol=1e-12)
