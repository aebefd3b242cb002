"""What a report says about draws: judged as chains, or not at all where R-hat has no meaning."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import kpp
from kpp import registry
from kpp.inference import AbstractInference
from kpp.storage import arviz_data
from kpp_study.report.convergence import assess, hyperparameters


def group(chains: int = 2, draws: int = 1000, *, apart: float = 0.0) -> xr.Dataset:
    """A number, lengthscales of two features, and 30 latent values, the first of which differs between chains."""
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(chains, draws, 30))
    latent[0, :, 0] += apart
    return xr.Dataset(
        {
            "noise": (("chain", "draw"), rng.normal(size=(chains, draws))),
            "lengthscale": (("chain", "draw", "feature"), rng.normal(size=(chains, draws, 2))),
            "values": (("chain", "draw", "inducing_point"), latent),
        },
        coords={"feature": ["age", "bmi"]},
    )


@pytest.mark.parametrize(("apart", "verdict"), [(0.0, "good"), (5.0, "not converged")])
def test_a_long_site_is_one_row_with_its_worst_number(apart, verdict):
    found = assess(group(apart=apart), None, approximates=False)
    assert [row.name for row in found.parameters] == [
        "noise", "lengthscale[age]", "lengthscale[bmi]", "values (30 numbers)",
    ]  # fmt: skip
    assert [row.verdict for row in found.parameters] == ["good"] * 3 + [verdict]
    assert found.verdict == verdict and (found.max_rhat > 1.5) == (apart > 0)
    assert "33 parameters" in found.sentence or verdict != "good"


@pytest.mark.parametrize(
    ("sizes", "approximates", "verdict", "said"),
    [
        ((1, 1), True, "one best value", "one best value each"),
        ((1, 200), True, "approximate", "cannot say how good"),
        ((2, 3), False, "too few draws", "cannot be judged"),
    ],
)
def test_without_chains_nothing_is_judged(sizes, approximates, verdict, said):
    found = assess(group(*sizes), None, approximates=approximates)
    assert found.verdict == verdict and said in found.sentence
    assert not found.is_judged and {row.verdict for row in found.parameters} == {""}
    assert found.long_sites == ("values (30 numbers)",)
    assert "values" not in hyperparameters(group(*sizes))


@pytest.mark.filterwarnings("error")
def test_equal_draws_have_no_spread():
    """The standard deviation of 0.1, 0.1, ... is a rounding error in floating point, and their R-hat is 0 / 0."""
    same = xr.Dataset({"noise": (("chain", "draw"), np.full((1, 7), 0.1))})
    assert np.std(same["noise"].values) > 0
    found = assess(same, None, approximates=True)  # as of natural gradients, which draw the function only
    assert np.isnan(arviz_data.summary(same)["r_hat"]).all()
    assert np.isnan(assess(same, None, approximates=False).parameters[0].rhat)
    assert found.parameters[0].sd == 0.0 and found.verdict == "one best value" and found.is_one_value


def test_a_model_without_parameters_has_nothing_to_judge():
    assert assess(xr.Dataset(), None, approximates=False).verdict == "no parameters"


def test_an_inference_says_whether_it_approximates():
    """A plugin's sampler is judged unless it says that it approximates."""
    found = {name: cls.approximates for name, cls in registry.inferences().items()}
    own = {name: found[name] for name in ("Laplace", "MAP", "MCMC", "NUTS", "NaturalGradient", "SVI")}
    assert [name for name, approximates in own.items() if not approximates] == ["MCMC", "NUTS"]
    assert not AbstractInference.approximates and kpp.Laplace().approximates
