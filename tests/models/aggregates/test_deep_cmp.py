"""Networks under both kernels of a conditional mean process are learned with everything else."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import kpp
from kpp.kernels import RBF, DeepKernel, network_priors
from kpp_models import CMP

ROTATION = np.array([[0.8, 0.6], [-0.6, 0.8]])  # rows: the direction that counts, and the other


@pytest.mark.nightly
def test_networks_are_learned_by_map(tmp_path):
    """The field bends along one projection of two features; bags are known by it too."""
    rng = np.random.default_rng(0)
    covariates = np.linspace(-2.0, 2.0, 24)[:, None]
    along = (covariates + 0.2 * rng.normal(size=(24, 3))).ravel()
    points = np.column_stack([along, 2.0 * rng.normal(size=72)]) @ ROTATION
    bags = kpp.Bags.create(points, np.arange(24).repeat(3), covariates)
    z = np.sin(2 * along).reshape(24, 3).mean(axis=1) + 0.05 * rng.normal(size=24)
    keys = jax.random.split(jax.random.key(0))
    projection = eqx.nn.Linear(2, 1, use_bias=False, key=keys[0])
    warp = eqx.nn.MLP(1, 1, width_size=2, depth=1, activation=jnp.tanh, key=keys[1])
    model = CMP(
        DeepKernel(RBF(1.0), network_priors(projection, 2.0)),
        DeepKernel(RBF(1.0), network_priors(warp, 2.0)),
        noise_variance=dist.LogNormal(-3.0, 1.0),
        regularization=1e-3,
    )
    inference = kpp.MAP(num_restarts=5, max_steps=1000, tolerance=1e-4, progress=False)
    fit = model.fit(keys[0], bags, z, inference=inference, num_prior_samples=0)
    assert {"kernel.feature_map.weight", "bag_kernel.feature_map.layers.1.weight"} <= set(fit.draws)
    weight = np.asarray(fit.draws["kernel.feature_map.weight"])[0, 0, 0]
    along_it, across_it = np.abs(ROTATION @ weight)
    assert across_it < 0.2 * along_it
    grid = np.linspace(-1.5, 1.5, 20)
    across = np.column_stack([grid, rng.uniform(-2.0, 2.0, 20)]) @ ROTATION
    found = fit.predict(across)["mean"].values[0, 0]
    error = np.sqrt(np.mean((found - np.sin(2 * grid)) ** 2))
    assert error < 0.35, error  # the truth has a standard deviation of 0.7; the second feature is nothing but noise
    with pytest.raises(TypeError, match="DeepKernel is not registered, so a spec has no name for it"):
        fit.save(tmp_path / "fit.nc")
