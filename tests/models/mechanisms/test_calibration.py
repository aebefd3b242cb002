"""Simulation-based calibration of the round trip: tables drawn from the model, and posteriors of its parameters."""

from __future__ import annotations

import jax
import numpyro.distributions as dist
import pytest

from kpp.calibration import simulation_based_calibration
from kpp.causal import CausalDAG
from kpp.gp import GaussianLikelihood
from kpp.kernels import RBF
from kpp_models import GPMechanism, LinearMechanism, StructuralModel

PRIOR = dist.LogNormal(0.0, 0.5)
LINEAR = StructuralModel(CausalDAG([("z", "x"), ("z", "y"), ("x", "y")]))
NOISY = LinearMechanism(likelihood=GaussianLikelihood(noise_variance=dist.HalfNormal(4.0)))
MODELS = {
    "linear": LINEAR,
    "gp": StructuralModel(
        CausalDAG([("x", "y")]),
        {"y": GPMechanism(RBF(PRIOR, PRIOR), GaussianLikelihood(noise_variance=dist.LogNormal(-1.0, 0.5)))},
    ),
    "hidden": StructuralModel(CausalDAG([("x", "y")], bidirected=[("x", "y")])),
}


def calibrate(model, num_datasets, simulator=None):
    return simulation_based_calibration(
        jax.random.key(0),
        model,
        {"num_rows": 12},
        observed=sorted(model.graph.nodes),
        num_datasets=num_datasets,
        simulator=simulator,
        progress=False,
    )


@pytest.mark.nightly
@pytest.mark.parametrize("name", MODELS)
def test_ranks_of_all_parameters_are_uniform(name):
    assert calibrate(MODELS[name], 80).p_value() > 1e-4


@pytest.mark.nightly
def test_a_wrong_prior_of_the_noise_is_detected():
    """Tables whose noise variance is four times as large as the model assumes."""
    simulator = StructuralModel(LINEAR.graph, dict.fromkeys("xyz", NOISY))
    assert calibrate(LINEAR, 80, simulator).p_value() < 1e-4
