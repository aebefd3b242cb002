"""A search that meets several modes says so; the modes of a mixture are known."""

from __future__ import annotations

import logging

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist

import kpp

KEY = jax.random.key(0)


def mixture(heights, y=None):
    """Two narrow modes at -3 and 3, under a flat prior, with the logarithms of their heights."""
    location = numpyro.sample("location", dist.Uniform(-6.0, 6.0))
    bumps = -0.5 * ((location - jnp.array([-3.0, 3.0])) / 0.5) ** 2
    numpyro.factor("bumps", jax.nn.logsumexp(heights + bumps))


@pytest.mark.slow_variants("heights0-2-3.0-Laplace", "heights0-2-3.0-MAP", "heights1-2--3.0-Laplace")
@pytest.mark.parametrize("inference", [kpp.MAP, kpp.Laplace])
@pytest.mark.parametrize(
    ("heights", "num_modes", "highest"), [((0.0, 1.0), 2, 3.0), ((2.0, 0.0), 2, -3.0), ((0.0, -20.0), 1, -3.0)]
)
def test_several_modes_are_counted_and_told(inference, heights, num_modes, highest, caplog):
    with caplog.at_level(logging.WARNING, logger="kpp"):
        found = inference(num_restarts=8, progress=False).run(KEY, mixture, {"heights": np.array(heights)})
    assert found.attrs["modes"] == num_modes
    assert abs(found.samples["location"].mean() - highest) < 0.1
    assert ("the search found 2 modes" in caplog.text) == (num_modes == 2)
