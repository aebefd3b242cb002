"""What users are told: divergences, modes that were not found, bounds that still rise, settings out of range."""

from __future__ import annotations

import dataclasses
import logging
import sys

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest

import kpp
from kpp.inference import ConvergenceError
from kpp.inference.methods.nuts import NUTS

KEY = jax.random.key(0)


def funnel(y=None):
    scale = numpyro.sample("scale", dist.Normal(0.0, 3.0))
    numpyro.sample("x", dist.Normal(0.0, jax.numpy.exp(scale / 2)).expand([5]).to_event(1))
    numpyro.sample("y", dist.Normal(scale, 10.0), obs=y)


@pytest.mark.slow
def test_divergences_are_counted_with_an_advice(caplog):
    """Neal's funnel diverges under any fixed step size."""
    with caplog.at_level(logging.WARNING, logger="kpp"):
        posterior = NUTS(num_warmup=50, num_samples=400, num_chains=1, progress=False).run(
            KEY, funnel, {"y": np.zeros(())}
        )
    count = int(posterior.sample_stats["diverging"].sum())
    assert count > 0
    assert posterior.attrs["divergences"] == count
    assert f"{count} of 400 draws ended in a divergence" in caplog.text
    assert "raise `target_accept` (it is 0.8)" in caplog.text


@pytest.mark.slow
def test_a_density_without_a_maximum_is_an_error():
    def model(y=None):
        scale = numpyro.sample("scale", dist.Gamma(0.5, 1.0))
        numpyro.sample("y", dist.Normal(0.0, scale), obs=y)

    with pytest.raises(ConvergenceError, match=r"none of 2 starts reached a mode.*raise `max_steps` \(1\)"):
        kpp.MAP(num_restarts=1, max_steps=1).run(KEY, model, {"y": np.full(3, 40.0)})


@pytest.mark.slow
def test_a_flat_direction_is_named():
    def model(y=None):
        first = numpyro.sample("first", dist.ImproperUniform(dist.constraints.real, (), ()))
        second = numpyro.sample("second", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(second + 0.0 * first, 1.0), obs=y)

    with pytest.raises(ConvergenceError, match="not a strict maximum.*'first'"):
        kpp.Laplace(num_restarts=0).run(KEY, model, {"y": np.ones(3)})


@pytest.mark.slow
def test_a_bound_that_still_rises_is_told(caplog):
    def model(y=None):
        location = numpyro.sample("location", dist.Normal(0.0, 100.0))
        numpyro.sample("y", dist.Normal(location, 1.0), obs=y)

    with caplog.at_level(logging.WARNING, logger="kpp"):
        kpp.SVI(num_steps=500, num_samples=2, optimizer=optax.adam(0.01)).run(KEY, model, {"y": np.full(3, 2e3)})
    assert "still rose" in caplog.text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: kpp.NUTS(num_samples=0), "`num_samples` must be at least 1, got 0"),
        (lambda: kpp.NUTS(target_accept=1.0), "`target_accept` must be between 0 and 1"),
        (lambda: kpp.NUTS(chain_method="threads"), "`chain_method` must be one of"),
        (lambda: kpp.NUTS(init="zero"), "`init` must be one of"),
        (lambda: kpp.MAP(num_restarts=-1), "`num_restarts` must be at least 0"),
        (lambda: kpp.MAP(tolerance=0.0), "`tolerance` must be positive"),
        (lambda: kpp.Laplace(max_steps=0), "`max_steps` must be at least 1"),
        (lambda: kpp.SVI(guide="cauchy"), "`guide` must be one of"),
        (lambda: kpp.SVI(optimizer="newton"), "`optimizer` must be one of"),
        (lambda: kpp.SVI(learning_rate=0.0), "`learning_rate` must be positive"),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.slow
def test_chains_share_one_compilation():
    """The model is traced as often for three chains as for one."""
    calls = {1: 0, 3: 0}

    def run(num_chains):
        def model(y=None):
            calls[num_chains] += 1
            location = numpyro.sample("location", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(location, 1.0), obs=y)

        inference = kpp.NUTS(num_warmup=5, num_samples=5, num_chains=num_chains, progress=False)
        inference.run(KEY, model, {"y": np.ones(3)})
        return calls[num_chains]

    one, three = run(1), run(3)
    assert three == one


@pytest.mark.nightly
@pytest.mark.parametrize("settings", [{"chain_method": "vectorized", "dense_mass": True}, {"init": "median"}])
def test_other_ways_of_running_chains_draw_the_same_distribution(settings):
    def model(y=None):
        location = numpyro.sample("location", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(location, 1.0).to_event(1), obs=y)

    inference = kpp.NUTS(num_warmup=100, num_samples=150, num_chains=2, progress=False, **settings)
    posterior = inference.run(KEY, model, {"y": np.array([2.0, -2.0])})
    assert posterior.samples["location"].shape == (2, 150, 2)
    # The posterior is N(y / 2, 1/2); 300 draws, a third of them taken as effective, five standard errors.
    mean = np.asarray(posterior.samples["location"]).mean((0, 1))
    assert (np.abs(mean - [1.0, -1.0]) < 5 * np.sqrt(0.5 / 100)).all()
    more = inference.resume(KEY, 10, model, {"y": np.array([2.0, -2.0])}, posterior.state)
    assert more.samples["location"].shape == (2, 10, 2)


@pytest.mark.slow
def test_no_place_to_start_is_an_error():
    def model(y=None):
        location = numpyro.sample("location", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(location * jax.numpy.nan, 1.0), obs=y)

    with pytest.raises(ConvergenceError, match=r"no start with a finite density.*chains \[1, 2\] of 2"):
        kpp.NUTS().run(KEY, model, {"y": np.ones(3)})


@pytest.mark.slow
def test_progress_is_shown_and_hidden(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    def model(y=None):
        numpyro.sample("y", dist.Normal(numpyro.sample("location", dist.Normal(0.0, 1.0)), 1.0), obs=y)

    inference = kpp.NUTS(num_warmup=3, num_samples=4, num_chains=1, progress=True)
    inference.run(KEY, model, {"y": np.ones(3)})
    shown = capsys.readouterr().err
    assert "1 chain" in shown
    assert "7/7" in shown
    dataclasses.replace(inference, progress=False).run(KEY, model, {"y": np.ones(3)})
    assert capsys.readouterr().err == ""
