"""What docs/how_to/survival.md says: piecewise constant hazards have the likelihood of counts, however f is."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import norm

from kpp.gp import AbstractPointwiseLikelihood, PoissonLikelihood, observed_field

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


def test_the_log_normal_law_of_the_guide_has_the_probabilities_of_its_intervals():
    page = (Path(__file__).parents[3] / "docs/how_to/survival.md").read_text(encoding="utf-8")
    source = page[page.index("class IntervalLogNormal") :].split("\n\n\n")[0]
    names = {"jax": jax, "jnp": jnp, "dist": dist, "observed_field": observed_field}
    exec(source, names | {"AbstractPointwiseLikelihood": AbstractPointwiseLikelihood}, names)
    intervals = np.array([[1e-6, 0.5], [0.5, 1.0], [3.0, 1e6], [40.0, 41.0]])
    likelihood = names["IntervalLogNormal"](sigma=jnp.asarray(0.4), intervals=jnp.asarray(intervals), y=jnp.arange(4.0))
    f = np.array([0.3, -0.2, 1.0, 0.1])
    # the last interval is 9 standard deviations above the median, where only the upper tail has digits
    low, high = np.log(intervals).T
    expected = np.log(norm.sf(low, f, 0.4) - norm.sf(high, f, 0.4))
    np.testing.assert_allclose(likelihood.log_density(jnp.asarray(f)), expected, rtol=1e-9)
