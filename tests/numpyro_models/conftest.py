"""A hierarchical regression with draws of its latent sites."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

RNG = np.random.default_rng(0)
NUM_ROWS, NUM_GROUPS = 20, 4
X = RNG.normal(size=(NUM_ROWS, 2))
GROUP = RNG.integers(0, NUM_GROUPS, NUM_ROWS)
Y = X @ np.array([1.0, -2.0]) + GROUP + RNG.normal(scale=0.1, size=NUM_ROWS)
NEW = np.column_stack([RNG.normal(size=(5, 2)), [0, 3, 1, 1, 2]])


def hierarchical(x, group, num_groups, y=None):
    center = numpyro.sample("center", dist.Normal(0.0, 1.0))
    with numpyro.plate("groups", num_groups):
        offset = numpyro.sample("offset", dist.Normal(center, 1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    mu = numpyro.deterministic("mu", offset[group] + x @ slope)
    with numpyro.plate("data", NUM_ROWS):  # a constant size, not that of x
        numpyro.sample("y", dist.Normal(mu, noise), obs=y)


@pytest.fixture(scope="session")
def model():
    return hierarchical


@pytest.fixture(scope="session")
def data():
    return {"x": X, "group": GROUP, "num_groups": NUM_GROUPS, "y": Y}


@pytest.fixture(scope="session")
def draws():
    """Draws of the latent sites, (2, 3, ...), as an inference would return them."""
    rng = np.random.default_rng(1)
    shapes = {"center": (), "offset": (NUM_GROUPS,), "slope": (2,)}
    found = {name: rng.normal(size=(2, 3, *shape)) for name, shape in shapes.items()}
    return found | {"noise": np.abs(rng.normal(size=(2, 3)))}


@pytest.fixture(scope="session")
def new_rows():
    return NEW


@pytest.fixture(scope="session")
def by_hand():
    """The mean of the hierarchical model, written down with NumPy."""

    def mean(draws, rows):
        slopes = np.einsum("csk,nk->csn", draws["slope"], rows[:, :2])
        return draws["offset"][:, :, rows[:, 2].astype(int)] + slopes

    return mean


@pytest.fixture(scope="session")
def latent_per_row():
    """A model with one latent value for each row."""

    def run(x, y=None):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", x.shape[0]):
            extra = numpyro.sample("extra", dist.Normal(0.0, 1.0))
            rate = numpyro.deterministic("rate", jnp.exp(slope * x[:, 0] + extra))
            numpyro.deterministic("typical", jnp.exp(slope * x[:, 0]))
            numpyro.sample("y", dist.Poisson(rate), obs=y)

    return run
