"""No inference depends on the units of the data: the posterior of a conjugate model, in units of any size."""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist

import kpp

KEY = jax.random.key(3)
UNITS = (1.0, 1e-9, 1e9)
NOTHING = {"progress": False}


def level_and_ratio(unit, y=None):
    """A mean and a slope in units of the targets, beside a number without a unit."""
    level = numpyro.sample("level", dist.Normal(3.0 * unit, unit))
    slopes = numpyro.sample("slopes", dist.Normal(0.0, unit).expand([2]).to_event(1))
    numpyro.sample("ratio", dist.LogNormal(0.0, 0.5))
    means = level + slopes @ np.array([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]])
    numpyro.sample("y", dist.Normal(means, unit), obs=y)


def posterior_of_level(y):
    """The columns of the slopes are orthogonal to the constant: a normal mean with a normal prior, in unit 1."""
    return (3.0 + y.sum()) / (1.0 + len(y)), (1.0 + len(y)) ** -0.5


Y = np.array([5.0, 4.2, 4.9, 5.5])


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_the_mode_is_found_in_any_unit(unit):
    samples = kpp.MAP(**NOTHING).run(KEY, level_and_ratio, {"unit": unit, "y": unit * Y}).samples
    np.testing.assert_allclose(samples["level"] / unit, posterior_of_level(Y)[0], rtol=1e-5)


@pytest.mark.slow_variants("1.0-laplace", "1e-09-laplace")
@pytest.mark.nightly_variants(
    "1.0-svi",
    "1.0-nuts",
    "1.0-nuts_from_random_starts",
    "1.0-ensemble",
    "1000000000.0-svi",
    "1000000000.0-nuts",
    "1000000000.0-nuts_from_random_starts",
    "1000000000.0-ensemble",
)
@pytest.mark.parametrize(
    "inference",
    [
        kpp.Laplace(num_samples=2000, **NOTHING),
        pytest.param(kpp.SVI(num_steps=2000, num_samples=2000, **NOTHING), marks=pytest.mark.slow),
        pytest.param(kpp.NUTS(**NOTHING), marks=pytest.mark.slow),
        pytest.param(kpp.NUTS(init="uniform", **NOTHING), marks=pytest.mark.slow),
        pytest.param(kpp.MCMC(num_samples=1000, **NOTHING), marks=pytest.mark.slow),
    ],
    ids=["laplace", "svi", "nuts", "nuts_from_random_starts", "ensemble"],
)
@pytest.mark.parametrize("unit", UNITS)
def test_the_posterior_is_right_in_any_unit(inference, unit):
    draws = inference.run(KEY, level_and_ratio, {"unit": unit, "y": unit * Y}).samples["level"] / unit
    mean, deviation = posterior_of_level(Y)
    assert abs(draws.mean() - mean) < 0.15 * deviation
    assert 0.85 < draws.std() / deviation < 1.15


@pytest.mark.nightly_variants("svi")
@pytest.mark.slow
@pytest.mark.parametrize(
    "inference",
    [kpp.SVI(num_steps=2000, num_samples=500, **NOTHING), kpp.NUTS(init="uniform", num_samples=200, **NOTHING)],
    ids=["svi", "nuts"],
)
def test_further_draws_are_in_the_same_units(inference):
    unit, data = 1e-9, {"unit": 1e-9, "y": 1e-9 * Y}
    state = inference.run(KEY, level_and_ratio, data).state
    again = inference.resume if isinstance(inference, kpp.NUTS) else inference.draw
    draws = again(jax.random.key(4), 1000, level_and_ratio, data, state).samples["level"] / unit
    mean, deviation = posterior_of_level(Y)
    assert abs(draws.mean() - mean) < 0.2 * deviation
    assert 0.8 < draws.std() / deviation < 1.2
