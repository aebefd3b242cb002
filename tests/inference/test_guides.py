"""Guides of variational inference: flows and own programs, against quadrature and closed forms."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import autoguide

import kpp

KEY = jax.random.key(0)


def banana(y=None):
    """A posterior that is bent like a banana: b is near a squared."""
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.Normal(0.0, 3.0))
    numpyro.deterministic("gap", b - a**2)
    numpyro.sample("y", dist.Normal(b - a**2, 0.3), obs=y)


def by_quadrature():
    """Return the log evidence of y = 0, and the mean of b."""
    a, b = np.meshgrid(np.linspace(-6, 6, 1201), np.linspace(-12, 20, 3201), indexing="ij")
    log_density = sum(
        -0.5 * (value / scale) ** 2 - np.log(scale) - 0.5 * np.log(2 * np.pi)
        for value, scale in ((a, 1.0), (b, 3.0), (b - a**2, 0.3))
    )
    density = np.exp(log_density) * 0.01 * 0.01
    evidence = density.sum()
    return np.log(evidence), (density * b).sum() / evidence


def run(guide, **options):
    options = {"num_steps": 6000, "num_samples": 4000, "num_particles": 10, "progress": False, **options}
    return kpp.SVI(guide, **options).run(KEY, banana, {"y": 0.0})


@pytest.fixture(scope="module")
def normal():
    return run("multivariate_normal")


@pytest.mark.nightly_variants("bnaf_normal", "iaf_normal", "guide2")
@pytest.mark.slow
@pytest.mark.parametrize(
    "guide", ["iaf_normal", "bnaf_normal", functools.partial(autoguide.AutoBNAFNormal, hidden_factors=[12, 12])]
)
def test_flows_find_a_bent_posterior(guide, normal):
    evidence, mean = by_quadrature()
    posterior = run(guide)
    # The bound is below the evidence by the divergence from the family to the posterior; its estimate errs by .01.
    gaps = [evidence - found.attrs["elbo"] for found in (posterior, normal)]
    assert -0.03 < gaps[0] < 0.2 * gaps[1]
    # A family with a small divergence may still lack the tails, on which the mean of b depends.
    errors = [abs(float(found.samples["b"].mean()) - mean) for found in (posterior, normal)]
    assert errors[0] < 0.4 * errors[1]
    np.testing.assert_allclose(posterior.samples["gap"], posterior.samples["b"] - posterior.samples["a"] ** 2)


def location_model(y=None):
    location = numpyro.sample("location", dist.Normal(0.0, 1.0))
    numpyro.deterministic("twice", 2 * location)
    numpyro.sample("y", dist.Normal(location, 1.0), obs=y)


def own_guide(y=None):
    mean, log_scale = numpyro.param("mean", jnp.array(0.0)), numpyro.param("log_scale", jnp.array(0.0))
    numpyro.sample("location", dist.Normal(mean, jnp.exp(log_scale)))


@pytest.mark.slow
def test_an_own_program_is_a_guide():
    """The posterior is N(10 / 6, 1 / 6), which is in the family, so that the bound becomes the evidence."""
    y = np.full(5, 2.0)
    inference = kpp.SVI(lambda model: own_guide, num_steps=2000, num_particles=50, num_samples=2000, progress=False)
    posterior = inference.run(KEY, location_model, {"y": y})
    assert set(posterior.state) == {"mean", "log_scale"}
    np.testing.assert_allclose(
        posterior.state["mean"], 10 / 6, atol=5e-3
    )  # noise of the gradients, a hundredth of the sd
    np.testing.assert_allclose(jnp.exp(posterior.state["log_scale"]), 6**-0.5, rtol=5e-3)
    evidence = dist.MultivariateNormal(jnp.zeros(5), jnp.eye(5) + 1.0).log_prob(y)
    np.testing.assert_allclose(posterior.attrs["elbo"], evidence, atol=0.01)  # the noise of the estimate
    again = inference.draw(KEY, 3, location_model, {"y": y}, posterior.state).samples
    np.testing.assert_allclose(again["twice"], 2 * again["location"])
    assert posterior.samples["twice"].shape == (1, 2000)


@pytest.mark.nightly
def test_a_flow_continues_from_its_parameters():
    inference, loud = (kpp.SVI("bnaf_normal", num_steps=20, num_samples=5, progress=each) for each in (False, True))
    quiet, shown = (each.run(KEY, banana, {"y": 0.0}) for each in (inference, loud))
    assert all(isinstance(value, jax.Array) for value in quiet.state.values())
    found = [inference.draw(KEY, 5, banana, {"y": 0.0}, fit.state).samples["b"] for fit in (quiet, shown)]
    np.testing.assert_allclose(*found, rtol=1e-8, atol=1e-10)


@pytest.mark.nightly
def test_a_fit_by_a_flow_is_saved(tmp_path):
    from kpp.kernels import RBF
    from kpp_models import GPRegression

    x = np.linspace(-1, 1, 8)[:, None]
    model = GPRegression(RBF(lengthscale=dist.LogNormal(0.0, 1.0)), noise_variance=dist.HalfNormal(1.0))
    inference = kpp.SVI("iaf_normal", num_steps=20, num_samples=5, progress=False)
    fit = model.fit(KEY, x, np.sin(x[:, 0]), inference=inference)
    fit.save(tmp_path / "fit.nc")
    again = kpp.Fit.load(tmp_path / "fit.nc")
    for name, draws in fit.sample(KEY, 4).draws.items():
        np.testing.assert_array_equal(draws, again.sample(KEY, 4).draws[name])


@pytest.mark.parametrize(
    ("guide", "error", "message"),
    [
        ("bnaf_normal", ValueError, "needs a model with two or more latent numbers, got 1; use 'normal'"),
        (lambda model: "normal", TypeError, "`guide` must be a name or a function .* returns a str"),
        (lambda model: lambda y: None, ValueError, r"must sample all latent sites .* lacks \['location'\]"),
        (3.0, ValueError, "`guide` must be one of"),
    ],
)
def test_guides_that_do_not_fit_are_refused(guide, error, message):
    with pytest.raises(error, match=message):
        kpp.SVI(guide, num_steps=2, num_samples=1, progress=False).run(KEY, location_model, {"y": np.ones(2)})
