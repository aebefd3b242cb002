"""Every check of inferences passes on an honest one and catches the violation planted for it."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from kpp.foundation.validation import check_rng_key
from kpp.inference import AbstractInference, Posterior, inspect_sites, without_latents
from kpp.testing import check_inference
from kpp.testing.suite import checks_of

DATA = {"y": 5.0 + 0.1 * jnp.arange(4.0)}
CHECKS = {check.__name__: check for check in checks_of(AbstractInference)}


def model(y=None):
    mean = numpyro.sample("mean", dist.Uniform(-10.0, 10.0))
    numpyro.deterministic("square", mean**2)
    numpyro.sample("y", dist.Normal(mean, 1.0).expand([4]).to_event(1), obs=y)


class Exact(AbstractInference):
    """Draws from the posterior of the model above, which is known; the planted ones change one thing."""

    num_samples: int = eqx.field(static=True, default=6)
    progress: bool = eqx.field(static=True, default=False)

    def run(self, rng_key, numpyro_model, data):
        fixed = without_latents(numpyro_model, data, inspect_sites(numpyro_model, data), "Exact")
        return self.sample(check_rng_key(rng_key), data, (2, self.num_samples)) if fixed is None else fixed

    def draw(self, rng_key, num_samples, numpyro_model, data, state):
        return self.sample(rng_key, data, (1, num_samples))

    def sample(self, rng_key, data, shape) -> Posterior:
        mean = jnp.mean(data["y"]) + jax.random.normal(rng_key, shape) / 2  # the bounds are ten deviations away
        stats = {"lp": jnp.zeros(shape), "bound": jnp.zeros(3)}
        attrs, state = {"inference": "Exact"}, {"deviation": jnp.asarray(0.5)}
        samples = {"mean": mean, "square": mean**2}
        return Posterior(samples, stats, attrs, state, stats_dims={"bound": ("step",)})


class NotAnInference(eqx.Module):
    pass


class LeavesASiteOut(Exact):
    def sample(self, rng_key, data, shape):
        found = Exact.sample(self, rng_key, data, shape)
        return dataclasses.replace(found, samples={"mean": found.samples["mean"]})


class OutsideTheSupport(Exact):
    def sample(self, rng_key, data, shape):
        found = Exact.sample(self, rng_key, data, shape)
        return dataclasses.replace(found, samples={**found.samples, "mean": found.samples["mean"] + 9.0})


class Prior(Exact):
    def sample(self, rng_key, data, shape):
        found = Exact.sample(self, rng_key, data, shape)
        mean = -9.0 + 0.0 * found.samples["mean"]
        return dataclasses.replace(found, samples={"mean": mean, "square": mean**2})


class Random(Exact):
    def sample(self, rng_key, data, shape):
        found = Exact.sample(self, rng_key, data, shape)
        mean = found.samples["mean"] + 0.01 * np.random.default_rng().normal()
        return dataclasses.replace(found, samples={"mean": mean, "square": mean**2})


class UnnamedAxes(Exact):
    def sample(self, rng_key, data, shape):
        return dataclasses.replace(Exact.sample(self, rng_key, data, shape), stats_dims={})


class Anonymous(Exact):
    def sample(self, rng_key, data, shape):
        return dataclasses.replace(Exact.sample(self, rng_key, data, shape), attrs={})


class AlwaysDraws(Exact):
    def run(self, rng_key, numpyro_model, data):
        return self.sample(check_rng_key(rng_key), data, (2, self.num_samples))


class ContinuesTooFar(Exact):
    def draw(self, rng_key, num_samples, numpyro_model, data, state):
        return self.sample(rng_key, data, (2, num_samples))


class WithAnArray(Exact):
    scale: Any = eqx.field(default_factory=lambda: np.ones(2))


class Doubling(Exact):
    def __init__(self, num_samples=6, progress=False):
        self.num_samples, self.progress = 2 * num_samples, progress


class AnyKey(Exact):
    def run(self, rng_key, numpyro_model, data):
        return Exact.run(self, jax.random.key(0), numpyro_model, data)


PLANTED = {
    "derives_from_the_abstract_class": (NotAnInference, "does not derive from AbstractInference"),
    "draws_all_sites": (LeavesASiteOut, r"no draws of the sites \['square'\]"),
    "draws_are_in_the_support": (OutsideTheSupport, "a draw of mean is outside the support"),
    "draws_fit_the_data": (Prior, "the mean log-likelihood of the draws is"),
    "same_key_same_draws": (Random, "differ between two runs with one key"),
    "diagnostics_have_named_axes": (UnnamedAxes, r"the diagnostic bound has shape \(3,\)"),
    "records_what_ran": (Anonymous, "the attributes name no inference"),
    "needs_no_latent_sites": (AlwaysDraws, "the draws of a model with the deterministic site `half` have shapes"),
    "continues_from_its_state": (ContinuesTooFar, r"`draw` of 3 draws returns .* = \(2, 3\), expected \(1, 3\)"),
    "is_saved_with_a_fit": (WithAnArray, "its `scale` is a ndarray"),
    "survives_the_round_trip_through_a_spec": (Doubling, "the copy is Doubling"),
    "refuses_a_wrong_key": (AnyKey, "an integer for `rng_key` is accepted"),
}


def test_every_check_has_a_planted_violation():
    assert set(PLANTED) == set(CHECKS)


@pytest.mark.slow
def test_honest_inference_passes():
    check_inference(Exact(), model, DATA)


@pytest.mark.slow_variants("draws_are_in_the_support", "draws_fit_the_data", "draws_all_sites")
@pytest.mark.parametrize("name", CHECKS)
def test_planted_violation_is_caught(name, register):
    broken, message = PLANTED[name]
    if name == "survives_the_round_trip_through_a_spec":
        register("inferences", "doubling", broken)
    # Fields that no file can hold raise the error that a user gets when a fit is saved.
    with pytest.raises(TypeError if name == "is_saved_with_a_fit" else AssertionError, match=message):
        CHECKS[name](broken(), model, DATA)
