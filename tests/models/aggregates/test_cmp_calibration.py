"""Intervals of conditional mean processes hold what they claim, and their hyperparameters are ranked uniformly."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import HMC
from scipy.stats import norm

import kpp
from kpp.calibration import simulation_based_calibration
from kpp.kernels import RBF
from kpp_models import CMP
from oracles.kernels import rbf

pytestmark = pytest.mark.slow

LENGTHS, NOISE, LAMBDA, MEAN = (0.4, 0.5), 0.02, 0.02, 0.5


def some_bags(num_bags, sizes, seed=0):
    """Bags along a line, their covariates its middle, and the bag of each point."""
    covariates = np.linspace(-2.0, 2.0, num_bags)[:, None]
    bag = np.repeat(np.arange(num_bags), sizes)
    points = covariates[bag] + 0.3 * np.random.default_rng(seed).normal(size=(len(bag), 1))
    return kpp.Bags.create(points, bag, covariates), bag


def simulate_fields(bags, bag, targets, at, num_datasets, options):
    """Fields at some points and targets, (datasets, ...), drawn in NumPy from the law that the model states."""
    rng = np.random.default_rng(1)
    x, y, sizes = (np.asarray(part) for part in (bags.points, bags.covariates, bags.sizes))
    exact = options.get("estimator", "exact") == "exact"
    regularized = rbf(y, y, LENGTHS[1]) + LAMBDA * np.diag(len(x) / sizes if exact else np.full(len(y), len(y)))
    sections = rbf(y, targets, LENGTHS[1])
    weights = np.linalg.solve(regularized, sections)
    residual = rbf(targets, targets, LENGTHS[1]) - sections.T @ weights
    points = np.vstack([x, at])
    factor = np.linalg.cholesky(rbf(points, points, LENGTHS[0]) + 1e-10 * np.eye(len(points)))
    field = MEAN + rng.normal(size=(num_datasets, len(points))) @ factor.T
    rough = np.sqrt(options.get("high_resolution_variance", 0.0)) * rng.normal(size=(num_datasets, len(x)))
    averages = np.zeros((len(y), len(x)))
    averages[bag, np.arange(len(x))] = 1 / sizes[bag]
    z = (field[:, : len(x)] + rough) @ averages.T @ weights
    tau2 = options.get("operator_variance", 0.0)
    z = z + rng.multivariate_normal(np.zeros(len(targets)), tau2 * residual, num_datasets)
    return field[:, len(x) :], z + NOISE**0.5 * rng.normal(size=z.shape)


CASES = {
    "exact, matched": ({}, np.linspace(-2.0, 2.0, 12)[:, None]),
    "shrinkage, unmatched, all noises": (
        {"estimator": "shrinkage", "high_resolution_variance": 0.2, "operator_variance": 0.5},
        np.linspace(-1.0, 3.0, 9)[:, None],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_intervals_of_the_field_hold_what_they_claim(case):
    """100 data sets; a data set's share of 12 distant points deviates by some 0.2, the mean of 100 by 0.02."""
    options, targets = CASES[case]
    bags, bag = some_bags(12, np.array([2, 5, 3] * 4))
    at = np.linspace(-3.0, 3.0, 12)[:, None]
    field, z = simulate_fields(bags, bag, targets, at, 100, options)
    model = CMP(RBF(LENGTHS[0]), RBF(LENGTHS[1]), NOISE, LAMBDA, mean=MEAN, **options)
    model, data, _ = model.prepare(bags, z[0], covariates=targets)
    found = jax.jit(jax.vmap(lambda y: model.predictive({}, data | {"y": y}, jnp.asarray(at))))(z)
    scores = np.abs(field - found["mean"]) / np.sqrt(found["latent_variance"])
    for probability in (0.5, 0.8, 0.95):
        covered = np.mean(scores <= norm.ppf((1 + probability) / 2))
        assert abs(covered - probability) < 0.05, f"{probability}: {covered}"


@pytest.fixture(scope="module")
def hyperparameters():
    """A tiny process with three unknown hyperparameters, and its data without the targets."""
    bags, _ = some_bags(6, 3)
    prior = dist.LogNormal(0.0, 0.5)
    model = CMP(RBF(prior), RBF(prior), dist.LogNormal(-2.0, 0.7), 0.01)
    model, data, _ = model.prepare(bags, np.zeros(6))
    return model, {name: value for name, value in data.items() if name != "y"}


def calibrate(model, data, simulator=None):
    """Every step of HMC has the same cost for all data sets, so that their batch waits for none."""
    return simulation_based_calibration(
        jax.random.key(0),
        model.numpyro_model,
        data,
        num_datasets=150,
        num_draws=31,
        thinning=4,
        num_warmup=120,
        kernel=lambda density: HMC(density, num_steps=5, trajectory_length=None),
        simulator=simulator,
    )


@pytest.mark.nightly
def test_hyperparameters_are_ranked_uniformly(hyperparameters):
    result = calibrate(*hyperparameters)
    assert sorted(result.ranks) == ["bag_kernel.lengthscale", "kernel.lengthscale", "noise_variance"]
    assert result.p_value(num_bins=8) > 1e-4, result.tests(num_bins=8)


@pytest.mark.nightly
def test_a_noise_of_twice_the_deviation_is_found(hyperparameters):
    model, data = hyperparameters

    def loud(**data):
        variance = numpyro.sample("noise_variance", model.noise_variance)
        with numpyro.handlers.block(hide=["noise_variance"]):
            with numpyro.handlers.substitute(data={"noise_variance": 4 * variance}):
                model.numpyro_model(**data)

    result = calibrate(model, data, simulator=loud)
    assert result.tests(num_bins=8)["noise_variance"].p_value < 1e-4
